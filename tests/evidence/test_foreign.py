"""Bug reports as evidence: sections, absences, gzip chains, damage, bounds."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest

from doctor.core.evidence import Evidence
from doctor.errors import EvidenceError
from doctor.evidence.bundle import read_bundle, write_bundle
from doctor.evidence.foreign import read_foreign
from doctor.evidence.foreign.gather import clean_path
from doctor.evidence.foreign.listing import read_listing, time_of_report
from doctor.evidence.foreign.sections import RULE, Keep, split
from doctor.evidence.open import open_evidence
from doctor.facts.read import read_host

DATA = Path(__file__).parents[1] / "data" / "foreign"
MISMATCH = (DATA / "mismatch-2023.log").read_bytes()
SAFE_MODE = (DATA / "safe-mode-2026.log").read_bytes()
OLD = (DATA / "working-2013.log").read_bytes()
SEPARATOR = b"\n" + RULE + b"\n"


def chain(log: bytes) -> bytes:
    """A log as the script writes it: a gzip member for each section, with empty ones between."""
    parts = log.split(RULE)
    members = [parts[0], *(RULE + part for part in parts[1:])]
    return b"".join(gzip.compress(member) + gzip.compress(b"") for member in members)


def gist(evidence: Evidence) -> dict[str, tuple[str, bytes]]:
    return {i.key: (i.status, evidence.read(i.key).data) for i in evidence.meta.items}


def status(evidence: Evidence, key: str) -> str | None:
    item = evidence.item(key)
    return item.status if item else None


# --- what is where ----------------------------------------------------------------------------------


def test_files_commands_and_metadata_have_their_places():
    found = read_foreign(MISMATCH)
    assert found.meta.tool == "nvidia-bug-report.sh 32875599"
    assert found.meta.root is True
    assert found.command("uname", "-a").text.startswith("Linux box 5.15.0-46-generic ")
    assert found.file("/proc/driver/nvidia/version").text.startswith("NVRM version: NVIDIA UNIX x86_64")
    assert found.file("/proc/modules").text.splitlines()[-1].startswith("nvidia 56508416 2 ")
    assert found.command("nvidia-smi", "--query", "--unit").text.startswith("Failed to initialize NVML")
    assert found.command("dmesg").text.splitlines()[1].endswith("Secure boot disabled")
    assert found.command("lspci", "-nnDvvvxxx").text.splitlines()[1].startswith("0000:41:00.0 3D controller")
    item = found.item("stat:/usr/share/nvidia/nvidia-application-profiles-525.125.06-rc")
    assert item is not None
    assert (item.mode, item.owner, item.kind) == ("0644", "root:root", "file")


def test_the_report_is_dated_by_its_file_listings_not_by_its_localised_date():
    assert read_foreign(MISMATCH).meta.taken_at == "2026-03-02T10:05:09Z"
    assert read_foreign(SAFE_MODE).meta.taken_at == "2026-08-20T00:03:57Z"


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("file:/proc/driver/nvidia/version", "ok"),
        ("file:/proc/driver/nvidia/registry", None),
        ("command:nvidia-smi-query", "ok"),
        ("command:acpidump", None),
        ("command:dkms-status", None),
    ],
)
def test_present_and_never_asked_differ(key: str, expected: str | None):
    assert status(read_foreign(MISMATCH), key) == expected


def test_fabric_and_network_of_a_report():
    log = "[INFO] Fabric Manager version 580.95.05 is running\n"
    listing = (
        "*** ls: -rw-r--r-- 1 root root 9 2026-03-02 18:05:09.000000000 +0800 /var/log/fabricmanager.log\n"
    )
    sections = f"\n*** /var/log/fabricmanager.log\n{listing}{log}".encode() + SEPARATOR
    sections += b"\n/usr/sbin/ibstat\n\nCA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n" + SEPARATOR
    start = MISMATCH.index(SEPARATOR) + len(SEPARATOR)
    found = read_foreign(MISMATCH[:start] + sections + MISMATCH[start:])
    assert found.file("/var/log/fabricmanager.log").text == log
    host = read_host(found)
    assert str(host.fabric.manager_version.value) == "580.95.05"
    assert [(p.device, p.state) for p in host.network.ports.value] == [("mlx5_0", "ACTIVE")]


def test_absences_differ():
    """`does not exist`, `is not readable`, a tool not found, and left out on request are four things."""
    log = MISMATCH.replace(
        b"*** /proc/driver/nvidia/./version\n", b"*** /proc/driver/nvidia/./version does not exist\n"
    )
    assert status(read_foreign(log), "file:/proc/driver/nvidia/version") == "missing"
    log = MISMATCH.replace(b"*** /proc/modules\n", b"*** /proc/modules is not readable\n")
    assert status(read_foreign(log), "file:/proc/modules") == "denied"
    start, end = MISMATCH.index(b"/usr/bin/nvidia-smi --query\n"), MISMATCH.index(b"Skipping acpidump")
    for line, expected in (
        (b"Skipping nvidia-smi output (nvidia-smi not found)", "missing"),
        (b"Skipping: nvidia-smi output\nnvidia-smi not found", "missing"),
        (b"Skipping nvidia-smi, vulkaninfo etc. due to --safe-mode argument.", None),
    ):
        log = MISMATCH[:start] + line + b"\n\n" + RULE + b"\n\n" + MISMATCH[end:]
        assert status(read_foreign(log), "command:nvidia-smi-query") == expected, line
    assert status(read_foreign(SAFE_MODE), "command:nvidia-smi-query") is None


def test_kernel_logs_are_kept_by_source_and_said_to_be_filtered():
    found = read_foreign(MISMATCH)
    counts = {
        key: found.read(key).text.count("API mismatch")
        for key in (
            "file:/var/log/kern.log",
            "command:journalctl-k-b-0",
            "command:journalctl-k-b-1",
            "command:dmesg",
        )
    }
    assert counts == {
        "file:/var/log/kern.log": 1,
        "command:journalctl-k-b-0": 1,
        "command:journalctl-k-b-1": 0,
        "command:dmesg": 1,
    }
    assert status(found, "file:/var/log/kern.log") == "truncated"
    assert status(found, "command:dmesg") == "ok"


def test_a_log_that_grep_took_for_binary_is_an_error_not_an_empty_log():
    found = read_foreign(SAFE_MODE)
    assert status(found, "file:/var/log/messages") == "error"
    assert found.item("file:/var/log/messages").detail == "Binary file /var/log/messages matches"


def test_the_oldest_form_names_unreadable_logs_without_indent():
    found = read_foreign(OLD)
    assert status(found, "file:/var/log/kernel.log") == "denied"
    assert found.file("/var/log/messages").text.count("NVRM: loading") == 2


def test_module_parameters_become_files():
    found = read_foreign(SAFE_MODE)
    assert found.file("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm").text == "N\n"
    assert found.file("/sys/module/nvidia_drm/parameters/modeset").text == "Y\n"


def test_other_sections_leave_nothing_behind():
    keys = {item.key for item in read_foreign(MISMATCH).meta.items}
    assert not [k for k in keys if "base64" in k or "Xorg" in k or "iomem" in k or "power/control" in k]


def test_bulk_is_not_held_in_memory():
    bulk = (
        RULE + b"\n\n*** /var/log/Xorg.9.log\n" + b"(II) NVIDIA(0): nothing that matters here\n" * 1_000_000
    )
    log = gzip.compress(MISMATCH[:-80] + b"\n" + bulk + b"\n" + MISMATCH[-200:], 1)
    tracemalloc.start()
    found = read_foreign(log)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.meta.items) > 20
    assert peak < 16 * 1024 * 1024


def test_a_make_log_keeps_its_end():
    path = b"*** /var/lib/dkms/nvidia/525.125.06/5.15.0-46-generic/x86_64/log/make.log\n"
    end = MISMATCH.index(b"\n\n" + RULE, MISMATCH.index(path))
    log = (
        MISMATCH[:end]
        + b"\n"
        + b"  CC [M] some.o\n" * 50_000
        + b"make: *** [Makefile:82: modules] Error 2"
        + MISMATCH[end:]
    )
    item = read_foreign(log).file("/var/lib/dkms/nvidia/525.125.06/5.15.0-46-generic/x86_64/log/make.log")
    assert item.status == "truncated"
    assert item.data.endswith(b"Error 2\n")
    assert item.data.startswith(b"DKMS make.log for nvidia-525.125.06")
    assert len(item.data) < 70_000


# --- containers and damage --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pack", [chain, gzip.compress, lambda log: log.replace(b"\n", b"\r\n").replace(b"\r", b"")]
)
@pytest.mark.parametrize("log", [MISMATCH, SAFE_MODE, OLD], ids=["2023", "2026", "2013"])
def test_a_chain_one_member_and_plain_text_read_the_same(log: bytes, pack):
    assert gist(read_foreign(pack(log))) == gist(read_foreign(log))


def test_a_cut_gzip_gives_what_was_readable_and_says_so():
    whole, packed = gist(read_foreign(MISMATCH)), chain(MISMATCH)
    cut = read_foreign(packed[: len(packed) * 2 // 3])
    assert status(cut, "report:nvidia-bug-report") == "truncated"
    assert "ends early" in cut.item("report:nvidia-bug-report").detail
    shared = {k: v for k, v in gist(cut).items() if k in whole}
    assert len(shared) > 10
    assert all(v[0] == "truncated" or v == whole[k] for k, v in shared.items())
    assert status(cut, "command:nvidia-smi-query") is None


def test_a_damaged_member_does_not_hide_the_ones_behind_it():
    packed = bytearray(chain(MISMATCH))
    middle = packed.index(gzip.compress(b""), len(packed) // 3) - 40
    packed[middle] ^= 0xFF
    found = read_foreign(bytes(packed))
    assert "damaged" in found.item("report:nvidia-bug-report").detail
    assert found.command("nvidia-smi", "--query").has_data


def test_a_report_without_its_end_is_not_whole():
    cut = MISMATCH[: MISMATCH.index(b"/usr/bin/nvidia-smi --query")]
    assert "last line is missing" in read_foreign(cut).item("report:nvidia-bug-report").detail
    assert read_foreign(MISMATCH).item("report:nvidia-bug-report") is None


def test_a_section_that_is_cut_is_truncated():
    at = MISMATCH.index(b"nvidia_modeset 1306624")
    assert status(read_foreign(MISMATCH[:at]), "file:/proc/modules") == "truncated"


def test_a_hidden_separator_makes_no_section():
    """Underscores inside a line, and longer runs of them, are text."""
    log = MISMATCH.replace(b"ResmanDebugLevel", b"x " + RULE + b"\n" + RULE + b"_\nResmanDebugLevel")
    assert "ResmanDebugLevel" in read_foreign(log).file("/proc/driver/nvidia/params").text


@pytest.mark.parametrize("size", [1, 7, 45, 4096])
def test_sections_do_not_depend_on_how_the_bytes_arrive(size: int):
    chunks = (MISMATCH[i : i + size] for i in range(0, len(MISMATCH), size))
    got = [(s.title, s.body, s.is_ended) for s in split(chunks, lambda _: Keep(head=100_000), [])]
    want = [(s.title, s.body, s.is_ended) for s in split([MISMATCH], lambda _: Keep(head=100_000), [])]
    assert got == want
    assert len(got) > 25


@pytest.mark.parametrize("log", [MISMATCH, SAFE_MODE, OLD], ids=["2023", "2026", "2013"])
def test_line_ends_of_windows_change_nothing(log: bytes):
    want, got = read_foreign(log), read_foreign(log.replace(b"\n", b"\r\n"))
    assert got.meta == want.meta
    assert got.blobs == want.blobs


def test_a_piece_with_line_ends_of_windows_is_a_report_too():
    piece = MISMATCH[MISMATCH.index(b"*** /proc/modules") :].replace(b"\n", b"\r\n")
    assert read_foreign(piece).file("/proc/modules").has_data


def test_a_scan_that_names_no_source_gives_what_it_says_of_others():
    """As scripts of 2013 print it where no log is readable."""
    scan = b"Scanning kernel log files for NVRM messages:\n\n/var/log/messages is not readable\n"
    start = OLD.index(b"Scanning kernel log files")
    found = read_foreign(OLD[:start] + scan + OLD[OLD.index(b"\n" + RULE, start) :])
    assert found.item("file:/var/log/messages").status == "denied"
    assert found.command("lspci", "-nn").has_data or found.command("nvidia-smi", "--query").has_data


def test_bombs_are_bounded():
    bomb = gzip.compress(MISMATCH + b"\n" + b"\0" * (300 * 1024 * 1024), 9)
    assert "first 256 MiB" in read_foreign(bomb).item("report:nvidia-bug-report").detail
    flood = MISMATCH + SEPARATOR * 50_000
    assert "sections: the rest was not read" in read_foreign(flood).item("report:nvidia-bug-report").detail
    members = chain(MISMATCH) + gzip.compress(b"") * 25_000
    assert "gzip members" in read_foreign(members).item("report:nvidia-bug-report").detail


@pytest.mark.parametrize(
    "path", ["/../etc/shadow", "/proc/../../x", "relative", "/a\x1b[31m", "/" + "a" * 5000]
)
def test_hostile_paths_are_no_items(path: str):
    assert clean_path(path) == ""
    log = MISMATCH.replace(b"/proc/./driver", b"/proc/driver").replace(b"/proc/modules", path.encode())
    assert not [i.key for i in read_foreign(log).meta.items if ".." in i.key or "\x1b" in i.key]


# --- listings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "*** ls: -rw-r--r-- 1 root root 26 2024-02-14 22:47:50.000000000 +0800 /etc/issue",
            ({"kind": "file", "mode": "0644", "owner": "root:root"}, "2024-02-14T14:47:50Z"),
        ),
        (
            "*** ls: lrwxrwxrwx. 1 root root 16 2022-04-12 03:04:26.000000000 -0330 /etc/issue -> issue",
            (
                {"kind": "link", "mode": "0777", "owner": "root:root", "link": "issue"},
                "2022-04-12T06:34:26Z",
            ),
        ),
        (
            "*** ls: crwsr-xr-T 1 root video 226, 0 2022-04-12 03:04:26.000000000 +0000 /etc/issue",
            ({"kind": "char", "mode": "5754", "owner": "root:video"}, "2022-04-12T03:04:26Z"),
        ),
        (
            "*** ls: -rw-r--r-- 1 root root 26 2024-13-44 22:47:50.000000000 +0800 /etc/issue",
            ({"kind": "file", "mode": "0644", "owner": "root:root"}, ""),
        ),
    ],
)
def test_listings(line: str, expected: tuple[dict[str, str], str]):
    found = read_listing(line)
    assert found is not None
    assert (found.path, found.fields, found.utc) == ("/etc/issue", *expected)


def test_an_error_of_ls_is_no_listing():
    assert (
        read_listing("*** ls: Zugriff auf '/x' nicht möglich: Datei oder Verzeichnis nicht gefunden") is None
    )


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        ("2022年 05月 29日 星期日 18:10:23 CST", "2022-05-29T10:10:28Z"),
        ("Sun May 29 06:10:23 PM CST 2022", "2022-05-29T10:10:28Z"),
        ("nobody knows", "2022-05-29T17:51:11Z"),
    ],
)
def test_stamps_of_a_boot_with_a_wrong_clock_do_not_date_the_report(date: str, expected: str):
    times = [
        ("18:10:28", "2022-05-29T10:10:28Z"),
        ("01:51:11", "2022-05-29T17:51:11Z"),
        ("18:10:23", "2022-05-29T10:10:23Z"),
    ]
    assert time_of_report(date, times) == expected
    assert time_of_report(date, []) == ""


# --- which reader -----------------------------------------------------------------------------------


def test_a_bundle_a_report_and_a_paste_are_told_apart(tmp_path: Path):
    report, paste = tmp_path / "a.tar.gz", tmp_path / "b.log"
    report.write_bytes(chain(MISMATCH))
    paste.write_bytes((DATA / "issue.md").read_bytes())
    assert open_evidence(report).meta.tool == "nvidia-bug-report.sh 32875599"
    assert open_evidence(paste).meta.tool.startswith("pasted text (collect-env, ")
    host = next(p for p in (Path(__file__).parents[1] / "hosts").iterdir() if (p / "meta.json").is_file())
    assert open_evidence(host).item("command:uname-a") is not None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x7fELF\x02\x01\x01" + bytes(200),
        gzip.compress(bytes(range(32)) * 400),
        b"PK\x03\x04" + bytes(60),
    ],
    ids=["empty", "program", "gzip of bytes", "zip"],
)
def test_what_is_neither_says_what_is_accepted(tmp_path: Path, data: bytes):
    path = tmp_path / "x"
    path.write_bytes(data)
    with pytest.raises(EvidenceError) as caught:
        open_evidence(path)
    assert "nvidia-bug-report.log" in " ".join(caught.value.hints)


def test_text_without_anything_known_says_what_is_accepted(tmp_path: Path):
    path = tmp_path / "poem"
    path.write_text("Shall I compare thee to a summer's day?\n" * 5)
    with pytest.raises(EvidenceError, match="holds nothing that is known") as caught:
        open_evidence(path)
    assert "dkms status" in caught.value.hints[0]


def test_a_missing_file_is_an_evidence_error(tmp_path: Path):
    for opener in (open_evidence, read_foreign):
        with pytest.raises(EvidenceError, match="cannot be read"):
            opener(tmp_path / "none")


@pytest.mark.parametrize(
    "path", sorted(p for p in DATA.iterdir() if p.name != "README.md"), ids=lambda p: p.name
)
def test_a_report_saved_as_a_bundle_is_the_same_evidence(path: Path, tmp_path: Path):
    evidence = read_foreign(path)
    write_bundle(evidence, tmp_path / "saved.tar.gz")
    saved = read_bundle(tmp_path / "saved.tar.gz")
    assert gist(saved) == gist(evidence)
    assert (saved.meta.tool, saved.meta.taken_at, saved.meta.root) == (
        evidence.meta.tool,
        evidence.meta.taken_at,
        evidence.meta.root,
    )
