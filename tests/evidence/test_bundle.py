"""Bundles: what is written is read back, and whatever else is read gives evidence or an `EvidenceError`."""

import gzip
import io
import os
import socket
import stat
import tarfile
import time
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.core.evidence import Evidence, Item, Meta
from doctor.errors import ConfigError, EvidenceError
from doctor.evidence import archive, bundle
from doctor.evidence.archive import unknown_parents
from doctor.evidence.bundle import read_bundle, read_stream, write_bundle

LONG = "files/" + "a-directory-with-a-long-name/" * 9 + "file"

BLOBS = {
    "files/proc/version": b"Linux version 6.8.0\n",
    "files/empty": b"",
    "commands/uname-a": b"Linux node\n",
    "commands/uname-a.err": b"a warning\n",
    "nvml.json": b'{"count": 1}',
    LONG: b"x" * 1500,
}
ITEMS = (
    Item(key="file:/proc/version", status="ok", path="files/proc/version", bytes=20),
    Item(key="file:/empty", status="ok", path="files/empty", bytes=0),
    Item(key="file:/long", status="ok", path=LONG),
    Item(key="command:uname-a", status="ok", path="commands/uname-a", argv=("uname", "-a"), rc=0),
    Item(key="nvml", status="ok", path="nvml.json"),
    Item(key="file:/etc/x", status="denied", detail="Permission denied"),
    Item(key="env:PATH", status="ok", value="/usr/bin"),
    Item(key="stat:/dev/nvidia0", status="ok", exists=True, kind="char", mode="0666", owner="root:root"),
)
WHOLE = Evidence(Meta(tool="t", taken_at="2026-11-30T08:01:41Z", root=False, items=ITEMS), BLOBS)
SUFFIXES = ("", ".tar", ".tar.gz", ".tgz")


def meta(*items, **more):
    listed = [{"status": "ok", **item} for item in items]
    return msgspec.json.encode({"schema": "mopt.evidence/1", "items": listed, **more})


def tar(*members, mode="w:gz", **options):
    """An archive of (name or TarInfo, bytes) pairs."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, **options) as written:
        for name, data in members:
            header = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            header.size = len(data)
            written.addfile(header, io.BytesIO(data))
    return out.getvalue()


def special(name, kind, target=""):
    header = tarfile.TarInfo(name)
    header.type, header.linkname = kind, target
    return header


def read(data):
    return read_stream(io.BytesIO(data), "x.tar.gz")


def refused(data, reason):
    with pytest.raises(EvidenceError, match=reason) as caught:
        read(data)
    assert caught.value.exit_code == 2
    return caught.value


# --- there and back ---


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_is_read_back(suffix, tmp_path):
    place = tmp_path / f"b{suffix}"
    write_bundle(WHOLE, place)
    back = read_bundle(place)
    assert back.meta == WHOLE.meta
    assert back.blobs == WHOLE.blobs
    assert not back.hand_made
    assert back.stderr(back.command("uname", "-a")) == "a warning\n"


@pytest.mark.parametrize("suffix", SUFFIXES[1:])
def test_same_evidence_same_bytes(suffix, tmp_path):
    shuffled = Evidence(WHOLE.meta, dict(reversed(BLOBS.items())))
    write_bundle(WHOLE, tmp_path / f"a{suffix}")
    write_bundle(shuffled, tmp_path / f"b{suffix}")
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_members_carry_the_time_of_the_evidence_and_nobody(tmp_path):
    write_bundle(WHOLE, tmp_path / "b.tar.gz")
    with tarfile.open(tmp_path / "b.tar.gz") as written:
        headers = written.getmembers()
    assert [h.name for h in headers] == ["meta.json", *sorted(BLOBS)]
    assert {(h.mtime, h.uid, h.gid, h.uname, h.gname) for h in headers} == {(1796025701, 0, 0, "", "")}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_only_the_owner_may_read(suffix, tmp_path):
    old = os.umask(0)
    try:
        write_bundle(WHOLE, tmp_path / f"b{suffix}")
    finally:
        os.umask(old)
    place = tmp_path / f"b{suffix}"
    assert stat.S_IMODE(place.stat().st_mode) == (0o600 if suffix else 0o700)
    assert all(stat.S_IMODE(p.stat().st_mode) == 0o600 for p in place.rglob("*") if p.is_file())


def test_an_old_bundle_is_replaced(tmp_path):
    for suffix in SUFFIXES:
        place = tmp_path / f"b{suffix}"
        write_bundle(WHOLE, place)
        write_bundle(Evidence(Meta(), {}), place)
        assert read_bundle(place).blobs == {}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b", "b.tar", "b.tar.gz", "b.tgz"]


def test_an_empty_directory_is_filled(tmp_path):
    (tmp_path / "b").mkdir()
    write_bundle(WHOLE, tmp_path / "b")
    assert read_bundle(tmp_path / "b").blobs == BLOBS


@pytest.mark.parametrize(
    "files",
    [
        {"thesis.txt": ""},
        {"meta.json": "{}"},
        {"meta.json": '{"schema":"mopt.evidence/1"}', "thesis.txt": ""},
    ],
    ids=["foreign", "other meta", "bundle with a foreign file"],
)
def test_a_directory_of_somebody_else_is_left_alone(files, tmp_path):
    target = tmp_path / "b"
    target.mkdir()
    for name, text in files.items():
        (target / name).write_text(text)
    with pytest.raises(ConfigError, match="not overwritten"):
        write_bundle(WHOLE, target)
    assert {p.name: p.read_text() for p in target.iterdir()} == files
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_to_a_bundle_is_not_replaced(tmp_path):
    write_bundle(WHOLE, tmp_path / "real")
    (tmp_path / "b").symlink_to("real")
    with pytest.raises(ConfigError, match="is a link: not followed"):
        write_bundle(WHOLE, tmp_path / "b")


@pytest.mark.parametrize("target", ["LINK", "nowhere", "file"], ids=["itself", "nothing", "a file"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_link_is_not_followed(suffix, target, tmp_path):
    (tmp_path / "file").write_text("theirs")
    link = tmp_path / f"b{suffix}"
    link.symlink_to(link.name if target == "LINK" else target)
    for place in (str(link), f"{link}/"):
        with pytest.raises(ConfigError, match="is a link: not followed"):
            write_bundle(WHOLE, place)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["file", link.name])
    assert (tmp_path / "file").read_text() == "theirs"


@pytest.mark.parametrize(
    "name",
    [
        "-",
        "a.zip",
        "b.tar.xz",
        "b.TXZ",
        "b.tar.zst",
        "b.tbz2",
        "b.gz",
        "host.json",
        "b.zip/",
        "b.tar.gz/",
        "b.TAR//",
    ],
)
def test_a_name_of_another_kind_of_file_makes_nothing(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        write_bundle(WHOLE, name)
    assert ".tar.gz, .tgz or .tar is an archive" in caught.value.hints[0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "magic"), [("B.TAR.GZ", b"\x1f\x8b"), ("B.Tgz", b"\x1f\x8b"), ("B.TAR", b"meta.json")]
)
def test_capitals_are_the_same_ending(name, magic, tmp_path):
    write_bundle(WHOLE, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(magic)
    assert read_bundle(tmp_path / name).blobs == BLOBS


@pytest.mark.parametrize("name", ["b", "b/", "node7.acme", "b.tar.d", "gz"])
def test_any_other_name_is_a_directory(name, tmp_path):
    write_bundle(WHOLE, f"{tmp_path}/{name}")
    assert read_bundle(tmp_path / name).blobs == BLOBS
    assert (tmp_path / name).is_dir()


def test_an_archive_does_not_replace_a_directory(tmp_path):
    (tmp_path / "b.tar.gz").mkdir()
    with pytest.raises(ConfigError, match="not a file"):
        write_bundle(WHOLE, tmp_path / "b.tar.gz")


@pytest.mark.parametrize("name", ["../x", "/etc/x", "files/../../x", "meta.json", "other", "files//x"])
def test_a_part_with_an_unsafe_name_is_not_written(name, tmp_path):
    with pytest.raises(ConfigError):
        write_bundle(Evidence(Meta(), {name: b""}), tmp_path / "b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", ["", ".tar.gz"])
def test_a_failed_write_leaves_nothing(suffix, tmp_path):
    with pytest.raises(ConfigError, match="cannot be written"):
        write_bundle(WHOLE, tmp_path / "missing" / f"b{suffix}")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_bundle(Evidence(Meta(), {"files/" + "n" * 300: b""}), tmp_path / "b")
    assert list(tmp_path.iterdir()) == []


def test_the_old_bundle_comes_back_when_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    place = tmp_path / "b"
    write_bundle(WHOLE, place)
    rename = Path.rename

    def refusing(self, target):
        if self.name.startswith(".b.") and target == place:
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refusing)
    with pytest.raises(ConfigError, match="No space left"):
        write_bundle(Evidence(Meta(), {}), place)
    monkeypatch.undo()
    assert read_bundle(place).blobs == BLOBS
    assert list(tmp_path.iterdir()) == [place]


# --- hand-made trees ---


def test_a_bare_tree_is_evidence(tmp_path):
    for name, text in {
        "files/proc/version": "Linux",
        "commands/nvidia-smi-q-x": "<xml/>",
        "commands/nvidia-smi-q-x.err": "warned",
        "commands/dmesg.err": "not permitted",
        "nvml.json": "{}",
        "README.md": "not evidence",
        "expected.json": "not evidence",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "files/sys/bus/pci/devices").mkdir(parents=True)
    evidence = read_bundle(tmp_path)
    assert evidence.hand_made
    assert evidence.file("/proc/version").text == "Linux"
    smi = evidence.command("nvidia-smi", "-q", "-x")
    assert (smi.text, smi.status, smi.rc) == ("<xml/>", "ok", None)
    assert evidence.stderr(smi) == "warned"
    assert evidence.stderr(evidence.command("dmesg")) == "not permitted"
    assert evidence.read("nvml").text == "{}"
    assert evidence.item("stat:/sys/bus/pci/devices").exists
    assert evidence.item("stat:/sys/bus/pci/devices").kind == "dir"
    assert evidence.file("/etc/os-release").status is None
    assert evidence.meta.root is None
    assert not any("README" in name or "expected" in name for name in (repr(evidence.meta), *evidence.blobs))


def test_a_bare_tree_reads_the_same_packed(tmp_path):
    (tmp_path / "t/files/sys/bus/pci/devices").mkdir(parents=True)
    (tmp_path / "t/files/a").write_text("A")
    (tmp_path / "t/commands").mkdir()
    (tmp_path / "t/commands/lsmod").write_text("nvidia")
    with tarfile.open(tmp_path / "t.tar.gz", "w:gz") as packed:
        packed.add(tmp_path / "t", arcname="t")
    plain, packed = read_bundle(tmp_path / "t"), read_bundle(tmp_path / "t.tar.gz")
    assert packed.meta == plain.meta
    assert packed.blobs == plain.blobs


@pytest.mark.parametrize("top", ["", "./", "bundle/", "./bundle/"])
def test_one_top_directory_is_passed_through(top):
    data = tar((f"{top}meta.json", meta({"key": "nvml", "path": "nvml.json"})), (f"{top}nvml.json", b"{}"))
    assert read(data).read("nvml").data == b"{}"


def test_links_inside_a_directory_are_followed_and_others_are_not(tmp_path):
    (tmp_path / "secret").write_text("SECRET")
    tree = tmp_path / "t"
    (tree / "files").mkdir(parents=True)
    (tree / "files/real").write_text("real")
    (tree / "files/inside").symlink_to("real")
    (tree / "files/outside").symlink_to(tmp_path / "secret")
    (tree / "files/up").symlink_to("../..")
    (tree / "files/loop").symlink_to("loop")
    (tree / "files/nowhere").symlink_to("gone")
    (tree / "files/null").symlink_to("/dev/null")
    evidence = read_bundle(tree)
    assert {i.key for i in evidence.meta.items if i.key.startswith("file:")} == {"file:/real", "file:/inside"}
    assert evidence.file("/inside").text == "real"


def test_a_meta_that_leads_out_of_the_tree_is_not_followed(tmp_path):
    (tmp_path / "elsewhere.json").write_bytes(meta())
    (tmp_path / "t").mkdir()
    (tmp_path / "t/meta.json").symlink_to("../elsewhere.json")
    with pytest.raises(EvidenceError, match="no meta"):
        read_bundle(tmp_path / "t")


def test_a_fifo_or_socket_in_a_directory_is_refused_at_once(tmp_path):
    (tmp_path / "files").mkdir()
    os.mkfifo(tmp_path / "files/pipe")
    with pytest.raises(EvidenceError, match=r"files/pipe.*a FIFO"):
        read_bundle(tmp_path)
    (tmp_path / "files/pipe").unlink()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "files/s"))
        with pytest.raises(EvidenceError, match="a socket"):
            read_bundle(tmp_path)


def test_a_fifo_a_device_or_nothing_as_the_bundle(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place, reason in ((tmp_path / "pipe", "FIFO"), ("/dev/null", "device"), (tmp_path / "no", "No such")):
        with pytest.raises(EvidenceError, match=reason):
            read_bundle(place)
    with pytest.raises(EvidenceError, match="cannot be read"):
        read_bundle("a\0b")


def test_a_directory_is_bounded(tmp_path, monkeypatch):
    (tmp_path / "files").mkdir()
    for i in range(5):
        (tmp_path / f"files/{i}").write_bytes(b"x" * 100)
    for name, value, reason in (
        ("BUNDLE_MEMBERS_MAX", 4, "more than 4"),
        ("BUNDLE_MEMBER_BYTES_MAX", 99, "larger than"),
        ("BUNDLE_UNPACKED_BYTES_MAX", 450, "holds more"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(bundle, name, value)
            with pytest.raises(EvidenceError, match=reason):
                read_bundle(tmp_path)
    deep = tmp_path / "files"
    for _ in range(80):
        deep = deep / "d"
    deep.mkdir(parents=True)
    with pytest.raises(EvidenceError, match="directories deep"):
        read_bundle(tmp_path)


# --- what is no bundle ---

FOREIGN = {
    "empty": (b"", "it is empty"),
    "text": (b"nvidia-bug-report.sh\n" * 100, "not a tar archive"),
    "short text": (b"hello", "not a tar archive"),
    "host document": (b'{"schema": "mopt.host/1"}', "not a tar archive"),
    "gzipped log": (gzip.compress(b"____\nStart of NVIDIA bug report log file." * 50), "not a tar archive"),
    "gzipped nothing": (gzip.compress(b""), "not a tar archive"),
    "xz": (b"\xfd7zXZ\0" + bytes(100), "compressed with xz"),
    "zip": (b"PK\x03\x04" + bytes(100), "compressed with zip"),
    "zeros": (bytes(10240), "archive is empty"),
    "other tar": (tar(("etc/passwd", b"x")), "no meta.json, no files"),
}


@pytest.mark.parametrize(("data", "reason"), FOREIGN.values(), ids=FOREIGN)
def test_not_a_bundle(data, reason):
    error = refused(data, f"is not a mopt.evidence/1 bundle: .*{reason}")
    assert "mopt-doctor collect" in error.hints[0]


HOSTILE = {
    "long path": (tar(("files/" + "n" * 4091, b"")), "its path is longer than 4096 bytes"),
    "long path in bytes": (tar(("files/" + "\u00fc" * 2046, b"")), "its path is longer than 4096 bytes"),
    "long path of GNU": (
        tar(("files/" + "n" * 4091, b""), format=tarfile.GNU_FORMAT),
        "its path is longer than 4096 bytes",
    ),
    "deep path": (tar(("files/" + "a/" * 63 + "x", b"")), "its path has more than 64 parts"),
    "deep directory": (tar((special("files/" + "a/" * 64, tarfile.DIRTYPE), b"")), "more than 64 parts"),
    "absolute": (tar(("/etc/passwd", b"x")), r"member `/etc/passwd` refused: its path is absolute"),
    "climbing": (tar(("files/../../x", b"x")), r"climbs out"),
    "symlink": (tar((special("files/x", tarfile.SYMTYPE, "/etc/shadow"), b"")), "`files/x`.*a symbolic link"),
    "hard link": (tar((special("files/x", tarfile.LNKTYPE, "meta.json"), b"")), "a hard link"),
    "device": (tar((special("files/x", tarfile.CHRTYPE), b"")), "a character device"),
    "disk": (tar((special("files/x", tarfile.BLKTYPE), b"")), "a block device"),
    "fifo": (tar((special("files/x", tarfile.FIFOTYPE), b"")), "a FIFO"),
    "unknown kind": (tar((special("files/x", b"Z"), b"")), "unknown kind"),
    "old sparse": (tar((special("files/x", b"S"), b"")), "sparse"),
    "twice": (tar(("files/x", b"1"), ("./files//x", b"2")), "`files/x` refused: it is there twice"),
    "file and directory": (tar(("files/x", b"1"), ("files/x/y", b"2")), "share the path"),
    "directory and file": (tar(("files/x/y", b"2"), ("files/x", b"1")), "share the path"),
    "two metas": (tar(("meta.json", meta()), ("./meta.json", meta())), "there twice"),
    "long name climbing": (
        tar(("files/" + "a/" * 90 + "../" * 95 + "x", b""), format=tarfile.GNU_FORMAT),
        "climbs",
    ),
}


@pytest.mark.parametrize(("data", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_archives(data, reason):
    refused(data, reason)


def pax(**fields):
    header = tarfile.TarInfo("files/x")
    header.pax_headers = fields
    return tar((header, b"data"), format=tarfile.PAX_FORMAT)


def raw_pax(body, size=None, kind=b"x"):
    """A hand-laid extension header before a member."""
    header = tarfile.TarInfo("pax")
    header.type, header.size = kind, len(body) if size is None else size
    block = header.tobuf(tarfile.USTAR_FORMAT)
    return block + body.ljust(-(-len(body) // 512) * 512, b"\0") + tar(("files/x", b"data"), mode="w")


def test_extension_headers():
    assert read(pax(comment="c" * 2000)).file("/x").text == "data"
    assert read(pax(path="files/other")).file("/other").text == "data"
    assert read(
        raw_pax(b"19 path=files/long\n", kind=b"g").replace(b"19 path=files/long", b"19 note=files/long")
    ).blobs
    refused(pax(**{"GNU.sparse.major": "1", "GNU.sparse.name": "files/x"}), "sparse")
    refused(raw_pax(b"", size=70_000), "extension header of 70000 bytes")
    refused(raw_pax(b"19 path=files/long\n", kind=b"g"), "global header")
    refused(raw_pax(b"999 path=x\n"), "pax header cannot be read")
    refused(raw_pax(b"0 path=x\n"), "pax header cannot be read")
    refused(raw_pax(b"nonsense\n"), "pax header cannot be read")
    refused(raw_pax(b"26 size=99999999999999999\n"), "larger than 64 MiB")
    refused(raw_pax(b"11 size=-5\n"), "larger than 64 MiB")


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT], ids=["gnu", "pax"])
@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_both_tar_formats_with_long_names(form, mode):
    name = "files/" + "é" * 150
    assert read(tar((name, b"1"), mode=mode, format=form)).file(f"/{name[6:]}").text == "1"


def test_gnu_large_sizes_are_read():
    block = bytearray(tar(("files/x", b"data"), mode="w"))
    block[124:136] = b"\x80" + (4).to_bytes(11, "big")
    assert read(resummed(block)).file("/x").text == "data"
    block[124:136] = b"\x80" + (2**70).to_bytes(11, "big")
    refused(resummed(block), "larger than 64 MiB")
    block[124:136] = b"99999999999\0"
    refused(resummed(block), "size is not a number")


def resummed(block):
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block[:512])
    return bytes(block)


def test_a_concatenation_of_gzip_members_is_one_archive():
    whole = tar(("meta.json", meta({"key": "nvml", "path": "nvml.json"})), ("nvml.json", b"{}"), mode="w")
    parts = [whole[i : i + 700] for i in range(0, len(whole), 700)]
    chained = b"".join(gzip.compress(part) + gzip.compress(b"") for part in parts)
    assert read(chained).read("nvml").data == b"{}"
    assert read(chained + bytes(600)).read("nvml").data == b"{}"


# --- bombs ---


def test_a_member_larger_than_its_cap_is_refused_before_it_is_read():
    bomb = gzip.compress(tar(("files/x", bytes(65 * 1024 * 1024)), mode="w"), 1)
    begin = time.process_time()
    refused(bomb, "`files/x` refused: it is larger than 64 MiB")
    assert time.process_time() - begin < 0.2


def test_bombs_of_many_members_or_of_padding(monkeypatch):
    monkeypatch.setattr(archive, "BUNDLE_UNPACKED_BYTES_MAX", 4 * 1024 * 1024)
    many = [(f"files/{i}", bytes(1024 * 1024)) for i in range(6)]
    refused(tar(*many), "unpacks to more than 4 MiB")
    refused(gzip.compress(tar(("files/x", b""), mode="w") + bytes(5 * 1024 * 1024)), "more than 4 MiB")
    refused(tar(("files/x", b""), mode="w") + bytes(5 * 1024 * 1024), "more than 4 MiB")
    headers = tar(*((f"files/{i}", b"") for i in range(9000)))
    refused(headers, "more than 4 MiB")


def test_paths_at_their_bounds_are_read():
    deep, long = "files/" + "a/" * 62 + "x", "files/" + "n" * 4090
    assert sorted(read(tar((deep, b"1"), (long, b"2"))).blobs) == sorted([deep, long])


def test_paths_of_many_parts_take_little_memory():
    members = [(f"files/{i}/" + "/".join(["d" * 55] * 60) + "/x", b"") for i in range(300)]
    data = tar(*members)
    tracemalloc.start()
    try:
        refused(tar(*((f"files/{i}/" + "a/" * 7000 + "x", b"") for i in range(60))), "longer than 4096")
        assert len(read(data).blobs) == 300
        assert tracemalloc.get_traced_memory()[1] < 100 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_directories_that_paths_imply_are_bounded(monkeypatch):
    monkeypatch.setattr(archive, "BUNDLE_MEMBERS_MAX", 100)
    refused(tar(*((f"files/{i}/" + "d/" * 50 + "x", b"") for i in range(9))), "more than 100 directories")
    assert len(read(tar(*((f"files/{'d/' * 50}{i}", b"") for i in range(99)))).blobs) == 99


def test_parents_are_climbed_to_the_first_known_one():
    assert list(unknown_parents("a/b/c/d", set())) == ["a/b/c", "a/b", "a"]
    assert list(unknown_parents("a/b/c/d", {"a/b"})) == ["a/b/c"]
    assert list(unknown_parents("a", set())) == []
    assert list(unknown_parents("", set())) == []


def test_too_many_members_items_or_gzip_members(monkeypatch):
    monkeypatch.setattr(archive, "BUNDLE_MEMBERS_MAX", 10)
    refused(tar(*((f"files/{i}", b"") for i in range(11))), "more than 10 members")
    refused(tar(*((special(f"{i}", tarfile.DIRTYPE), b"") for i in range(11))), "more than 10 members")
    refused(gzip.compress(b"") * 12, "gzip members")
    monkeypatch.setattr(bundle, "BUNDLE_MEMBERS_MAX", 3)
    refused(tar(("meta.json", meta(*({"key": f"env:{i}"} for i in range(4))))), "more than 3 items")


# --- damage ---


def test_every_cut_is_named_or_harmless():
    data = tar(("meta.json", meta({"key": "nvml", "path": "nvml.json"})), ("nvml.json", os.urandom(3000)))
    for length in range(1, len(data) - 1, 37):
        with pytest.raises(EvidenceError, match=r"truncated|damaged|not a tar archive|is empty"):
            read(data[:length])
    for length in (len(data) // 2, len(data) - 10):
        refused(data[:length], "is truncated")


def test_a_plain_archive_that_is_cut():
    data = tar(("meta.json", meta()), ("files/x", bytes(3000)), mode="w")
    for length in (700, 1024, 1600, 2000, 4000):
        refused(data[:length], "is truncated")


def test_damage_inside():
    data = tar(("meta.json", meta()), ("files/x", b"abc" * 5000))
    broken = bytearray(data)
    broken[-6] ^= 0xFF  # the stored checksum
    refused(bytes(broken), "is damaged")
    plain = bytearray(tar(("meta.json", meta()), ("files/x", b"abc"), mode="w"))
    plain[1024 + 3] ^= 0xFF  # the second header
    refused(bytes(plain), "fails its checksum")


# --- meta.json ---

METAS = {
    "not JSON": (b"{", "cannot be read"),
    "not UTF-8": (b'{"schema": "\xff"}', "cannot be read"),
    "a list": (b"[]", "cannot be read"),
    "no schema": (b"{}", "names no schema"),
    "newer": (b'{"schema": "mopt.evidence/2", "items": 7}', "mopt.evidence/2.*reads `mopt.evidence/1`"),
    "other": (b'{"schema": "mopt.host/1"}', "schema `mopt.host/1`; `mopt"),
    "escapes": (b'{"schema": "\\u001b[2J"}', r"schema `\\x1b\[2J`"),
    "wrong type": (b'{"schema": "mopt.evidence/1", "items": [{"key": 1}]}', r"items\[0\]"),
    "unknown status": (b'{"schema":"mopt.evidence/1","items":[{"key":"a","status":"fine"}]}', r"items\[0\]"),
    "deep": (b'{"schema": "mopt.evidence/1", "x": ' + b"[" * 100_000, "nested too deeply|cannot be read"),
    "deep and closed": (
        b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "nested too deeply|cannot be read",
    ),
    "large": (b" " * (9 * 1024 * 1024), "larger than 8 MiB"),
    "same item twice": (meta({"key": "nvml"}, {"key": "nvml"}), "lists `nvml` twice"),
}


@pytest.mark.parametrize(("text", "reason"), METAS.values(), ids=METAS)
def test_bad_metas(text, reason):
    refused(tar(("meta.json", text)), reason)


def test_a_newer_schema_says_what_reads_it():
    error = refused(tar(("meta.json", b'{"schema": "mopt.evidence/2"}')), "mopt.evidence/2")
    assert error.hints == ("read it with a mopt-doctor that knows `mopt.evidence/2`",)


@pytest.mark.parametrize(
    "path", ["../../etc/shadow", "/etc/shadow", "files/gone", "meta.json", "", "a\0b", "."]
)
def test_an_item_whose_path_leads_nowhere_is_an_error_of_that_item(path):
    evidence = read(
        tar(("meta.json", meta({"key": "file:/x", "path": path}, {"key": "file:/y"})), ("files/y", b""))
    )
    reading = evidence.file("/x")
    assert (reading.status, reading.data, reading.has_data) == ("error", b"", False)
    assert reading.item.detail
    assert reading.item.path is None
    assert evidence.file("/y").status == "ok"


def test_what_no_item_names_was_not_asked_for():
    evidence = read(
        tar(("meta.json", meta({"key": "nvml", "path": "nvml.json"})), ("nvml.json", b""), ("files/x", b""))
    )
    assert list(evidence.blobs) == ["nvml.json"]


def test_unknown_fields_of_a_newer_collector_are_ignored():
    assert read(tar(("meta.json", meta({"key": "nvml", "mood": 1}, weather="fine")))).item("nvml")


# --- anything at all ---

SEED = tar(
    ("meta.json", meta({"key": "file:/a", "path": "files/a"}, {"key": "command:b", "path": "commands/b"})),
    ("files/a", b"text"),
    ("commands/b", b"out"),
    ("files/" + "n" * 120, b"long"),
    mode="w",
    format=tarfile.PAX_FORMAT,
)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_a_mutated_archive_gives_evidence_or_an_evidence_error(data):
    mutant = bytearray(SEED)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(SEED) - 1))
        mutant[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    if data.draw(st.booleans()) and len(mutant) > 512:
        at = data.draw(st.integers(0, len(mutant) // 512 - 1)) * 512
        mutant[at : at + 512] = resummed(bytearray(mutant[at : at + 512]))
    packed = data.draw(st.sampled_from([bytes, gzip.compress]))(bytes(mutant))
    gives_evidence_or_error(packed)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes(data):
    gives_evidence_or_error(data)
    gives_evidence_or_error(gzip.compress(data))
    gives_evidence_or_error(tar(("meta.json", data)))
    gives_evidence_or_error(tar(("meta.json", b'{"schema":"mopt.evidence/1",' + data)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = [*Item.__struct_fields__, "other"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6), max_size=3))
def test_any_items(items):
    text = msgspec.json.encode({"schema": "mopt.evidence/1", "items": items})
    gives_evidence_or_error(tar(("meta.json", text), ("files/a", b"")))


def gives_evidence_or_error(data):
    message = ""
    try:
        evidence = read(data)
    except EvidenceError as error:
        message = error.message
    else:
        for item in evidence.meta.items:
            evidence.read(item.key, item.scope)
    assert message.isprintable()
