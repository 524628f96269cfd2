"""`matrix import`: what is drafted from an index, and what is left to a person."""

import http.server
import importlib.util
import json
import os
import random
import re
import signal
import threading
import zipfile
from pathlib import Path

import msgspec
import pytest
import yaml

from doctor import cli
from doctor.edition.build import build, encode
from doctor.edition.draft.choose import Build, builds, glibc_floor, releases_of, wanted
from doctor.edition.draft.metadata import read_metadata
from doctor.edition.draft.release import Known, draft_release, marker_python
from doctor.edition.draft.snapshot import SNAPSHOT_SCHEMA, IndexFile, Snapshot
from doctor.edition.draft.text import draft_text
from doctor.edition.load import load_edition

ROOT = Path(__file__).parents[2]
ANSWERS = ROOT / "tests" / "data" / "index"
needs_pip = pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="this interpreter has no pip")


@pytest.fixture
def run(capfd, monkeypatch):
    """The command line with the matrix of a folder: code, stdout, stderr."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.delenv("MOPT_OVERLAY", raising=False)

    def one(*argv, data=None):
        if data is None:
            monkeypatch.delenv("MOPT_DATA", raising=False)
        else:
            monkeypatch.setenv("MOPT_DATA", str(data))
        try:
            code = cli.main(["matrix", *map(str, argv)])
        except SystemExit as end:
            code = end.code or 0
        out, err = capfd.readouterr()
        return code, out, err

    yield one
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="module")
def shipped():
    return load_edition(ROOT / "matrices")


@pytest.fixture(scope="module")
def known(shipped):
    return {name: Known.of(shipped, name) for name in ("vllm", "torch", "torch-tensorrt")}


def answer_of(name):
    return msgspec.json.decode((ANSWERS / f"{name}.json").read_bytes(), type=Snapshot)


def without(folder, edition, component, versions):
    """A data folder whose compiled edition lacks releases, as it was before they came out."""
    matrices = folder / "matrices"
    matrices.mkdir(parents=True)
    releases = tuple(
        row for row in edition.releases if not (row.component == component and row.version.raw in versions)
    )
    assert len(edition.releases) - len(releases) == len(versions)
    (matrices / "edition.json").write_bytes(encode(msgspec.structs.replace(edition, releases=releases)))
    return folder


def merged(folder, file, versions, draft):
    """Matrix sources in which the rows of these versions are those of a draft, as a person would do it."""
    folder.mkdir()
    for path in (ROOT / "matrices").glob("*.yaml"):
        (folder / path.name).write_bytes(path.read_bytes())
    target = folder / file
    text = target.read_text(encoding="utf-8")
    for version in versions:
        text, count = re.subn(
            rf'(?ms)^- version: "{re.escape(version)}"\n.*?(?=^- version|^rules:|\Z)', "", text
        )
        assert count == 1
    head, sources, rest = text.partition("sources:\n")
    new_sources, _, rows = draft.partition("sources:\n")[2].partition("\nreleases:\n")
    rest, mark, rules = rest.partition("rules:\n")
    target.write_text(head + sources + new_sources + rest.rstrip("\n") + "\n" + rows + mark + rules)
    return folder


FIXTURES = [
    ("vllm", "vllm.yaml", ("0.32.0", "0.33.0"), {"compute_capability": ()}),
    ("torch", "torch.yaml", ("2.14.1", "2.15.0"), {"compute_capability": (), "ptx": ""}),
    ("tensorrt", "tensorrt.yaml", ("11.4.0.106",), {}),
]


@pytest.mark.parametrize("case", FIXTURES, ids=[case[0] for case in FIXTURES])
def test_a_draft_says_what_was_read_by_hand(run, shipped, tmp_path, case):
    """Rows that a person wrote from the same releases: what metadata tell is the same, nothing is made up."""
    name, file, versions, untold = case
    data = without(tmp_path / "before", shipped, name, versions)
    code, text, err = run("import", name, "--from", ANSWERS / f"{name}.json", "--offline", data=data)
    assert (code, f"{name}: {len(versions)} row" in err) == (0, True), err
    folder = merged(tmp_path / "after", file, versions, text)
    code, out, err = run("validate", folder)
    assert (code, err) == (0, ""), out
    rows = {row.version.raw: row for row in build(folder).releases if row.component == name}
    for wanted_row in shipped.releases:
        if wanted_row.component != name or wanted_row.version.raw not in versions:
            continue
        row = rows[wanted_row.version.raw]
        assert row.confidence == "derived"
        for field in row.__struct_fields__:
            if field in ("source", "confidence", "as_of", "review_by", "note", "unverified"):
                continue
            had, have = getattr(wanted_row, field), getattr(row, field)
            if field in untold:
                assert have == untold[field], field
            elif field == "cuda" and name == "vllm":
                assert (have.raw, had.raw) == ("13", "13.0"), "the minor stands in no metadata"
            elif field == "requires" and name == "tensorrt":
                assert have == {"python": ">=3.8", **had}
            else:
                assert have == had, field


def test_each_gap_is_a_comment_with_its_reason(run, shipped, tmp_path):
    data = without(tmp_path, shipped, "vllm", ("0.32.0", "0.33.0"))
    _, text, _ = run("import", "vllm", "--from", ANSWERS / "vllm.json", data=data)
    todos = re.findall(r"# TODO (\w+): ", text)
    assert todos == ["compute_capability", "cuda"] * 2
    rows = yaml.safe_load(text)["releases"]
    assert [row["version"] for row in rows] == ["0.32.0", "0.33.0"]
    assert all("compute_capability" not in row for row in rows)
    assert "# after 0.31.0\n" in text


def test_named_releases_are_drafted_though_known(run):
    code, text, _ = run("import", "vllm==0.33.0", "--from", ANSWERS / "vllm.json")
    assert (code, [row["version"] for row in yaml.safe_load(text)["releases"]]) == (0, ["0.33.0"])


def test_nothing_newer_is_no_fault(run):
    code, out, err = run("import", "vllm", "--from", ANSWERS / "vllm.json")
    assert (code, out) == (0, "")
    assert re.search(
        r"vllm: nothing newer than matrix \S+ has; the index lists 3 releases, up to 0\.33\.0", err
    )


def test_rows_go_to_a_file(run, tmp_path):
    place = tmp_path / "rows.yaml"
    code, out, _ = run("import", "vllm==0.33.0", "--from", ANSWERS / "vllm.json", "-o", place)
    assert (code, out) == (0, "")
    assert yaml.safe_load(place.read_text())["releases"][0]["version"] == "0.33.0"


REFUSED = {
    "offline": (["vllm", "--offline"], "`--offline` forbids it"),
    "no such component": (["vlm"], r"did you mean `vllm`\?"),
    "a component without releases": (["numpy"], "`numpy` is no component with releases"),
    "no set": (["vllm==x=="], "`==x==` is not a set"),
    "no file": (["vllm", "--from", "/nonexistent"], "`/nonexistent` cannot be read"),
    "no answer of an index": (["vllm", "--from", ROOT / "pyproject.toml"], "is no answer of an index"),
    "of another component": (["torch", "--from", ANSWERS / "vllm.json"], "is about vllm, not torch"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(run, case):
    argv, words = REFUSED[case]
    code, out, err = run("import", *argv)
    assert (code, out) == (2, "")
    assert re.search(words, err), err


def test_saved_answers_hold_no_address():
    for path in ANSWERS.glob("*.json"):
        assert "://" not in path.read_text(), path


# --- the parts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filename", "floor"),
    [
        ("x-1-cp38-abi3-manylinux_2_28_x86_64.whl", "2.28"),
        ("x-1-cp38-abi3-manylinux1_x86_64.whl", "2.5"),
        ("x-1-cp38-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", "2.17"),
        ("x-1-cp312-cp312-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl", "2.27"),
        ("x-1-py3-none-any.whl", ""),
    ],
)
def test_the_floor_of_a_name(filename, floor):
    ((build,),) = builds([IndexFile(filename=filename)], "x").values()
    assert glibc_floor(build) == floor


def test_files_that_are_no_release_for_linux():
    names = [
        "x-1-cp312-cp312-win_amd64.whl",
        "x-1-cp312-cp312-macosx_14_0_arm64.whl",
        "x-one.whl",
        "../x-1.zip",
    ]
    names += [
        f"x-1-{'.'.join(f'cp3{n}' for n in range(99))}-abi3-manylinux1_x86_64.whl",
        "x-1.exe",
        "y-1.zip",
        "",
    ]
    files = [IndexFile(filename=name) for name in names]
    assert builds([*files, IndexFile(filename="x-1.tar.gz", yanked=True)], "x") == {}


def test_the_wheel_that_speaks():
    names = ["cp313-cp313", "cp311-cp311", "cp312-cp312t", "cp312-cp312"]
    files = [IndexFile(filename=f"x-1-{name}-manylinux_2_28_x86_64.whl") for name in names]
    arm = IndexFile(filename="x-1-cp312-cp312-manylinux_2_28_aarch64.whl")
    (found,) = releases_of([arm, *files, IndexFile(filename="x-1.tar.gz")], "x")
    assert found.speaker.file == files[-1]
    assert marker_python(found.speaker) == "3.12"


def test_a_later_build_of_a_wheel_speaks():
    """vLLM 0.20.1 and torch 2.10.0 were built again: what pip installs has another size, and another day."""
    name = "x-1{}-cp38-abi3-manylinux_2_28_x86_64.whl"
    days = {"": "2026-05-03", "-2": "2026-05-09", "-10": "2026-05-31"}
    files = [IndexFile(filename=name.format(build), uploaded=day) for build, day in days.items()]
    for order in (files, files[::-1]):
        (found,) = releases_of(order, "x")
        assert (found.speaker.file.filename, found.released) == (name.format("-10"), "2026-05-31")


def newer(known, filenames, *, since="2026-11-30", pre=False):
    files = [IndexFile(filename=name, uploaded=day) for name, day in filenames.items()]
    found = wanted(releases_of(files, known.component.package), known.rows, since=since, with_candidates=pre)
    return [str(one.version) for one in found]


def test_newer_is_also_a_patch_of_an_older_series(known):
    files = {
        "torch-2.14.2.tar.gz": "2026-12-05",
        "torch-2.15.1.tar.gz": "2026-12-06",
        "torch-2.15.0.tar.gz": "",
    }
    assert newer(known["torch"], files) == ["2.14.2", "2.15.1"]


def test_what_the_matrix_left_out_is_not_newer(known):
    files = {
        "torch-2.0.1.tar.gz": "2026-12-24",
        "torch-2.3.9.tar.gz": "2024-06-01",
        "torch-2.16.0rc1.tar.gz": "",
    }
    assert newer(known["torch"], files) == []
    assert newer(known["torch"], files, pre=True) == ["2.16.0rc1"]


def test_a_set_takes_candidates_when_it_names_one(known):
    files = [IndexFile(filename=f"torch-2.16.0{part}.tar.gz") for part in ("rc1", "rc2", "")]
    found = releases_of(files, "torch")
    for spec, versions in {">2": ["2.16.0"], ">=2.16.0rc1": ["2.16.0rc1", "2.16.0rc2", "2.16.0"]}.items():
        chosen = wanted(found, known["torch"].rows, spec=spec, since="", with_candidates=False)
        assert [str(one.version) for one in chosen] == versions


def test_requirements_of_a_linux_host_only():
    text = """\
Metadata-Version: 2.4
Name: X_y
Version: 1
Requires-Python: <3.15,>=3.11
Requires-Dist: a<3,>=1.5,!=1.7
Requires-Dist: win; sys_platform == "win32"
Requires-Dist: arm==1; platform_machine == "aarch64"
Requires-Dist: extra; extra == "bench"
Requires-Dist: b>=2; python_version >= "3.12"
Requires-Dist: b<4; python_version < "3.13"
Requires-Dist: c @ https://example.org/c.whl
Requires-Dist: d[cu13]>=1,=<2
Requires-Dist: e<2.4,>=2
Requires-Dist: e>=2,<2.4

Requires-Dist: description>=1
"""
    found = read_metadata(text, "3.12")
    assert (found.name, found.version, found.requires_python) == ("x-y", "1", ">=3.11,<3.15")
    assert {name: asked.spec for name, asked in found.asks.items()} == {
        "a": ">=1.5,<3,!=1.7",
        "b": ">=2,<4",
        "e": ">=2,<2.4",
    }
    assert [re.search(r"`(\w+)", problem).group(1) for problem in found.unread] == ["c", "d"]


def drafted(known, filename, metadata, **file):
    snapshot = Snapshot(
        schema=SNAPSHOT_SCHEMA,
        component=known.component.component,
        read_on="2026-12-15",
        pip="26.3",
        projects={known.component.package: (IndexFile(filename=filename, **file),)},
        metadata={filename: metadata} if metadata is not None else {},
        unread={} if metadata is not None else {filename: "a word\x85- version: '9'\n\x1b[2J"},
    )
    (found,) = releases_of(snapshot.projects[known.component.package], known.component.package)
    draft = draft_release(known, found, snapshot, found.speaker)
    return draft, draft_text(known, [draft], snapshot)


WHEEL = "vllm-0.34.0-cp38-abi3-manylinux_2_31_x86_64.whl"
HEAD = "Metadata-Version: 2.4\nName: vllm\nVersion: 0.34.0\n"


def test_metadata_that_was_not_read_leaves_fields_out(known):
    draft, text = drafted(known["vllm"], WHEEL, None, uploaded="2026-12-12")
    assert draft.fields == {
        "version": "0.34.0",
        "released": "2026-12-12",
        "cpu": ["x86_64"],
        "requires": {"glibc": ">=2.31"},
    }
    assert draft.todos[0].startswith(f"cuda, requires: METADATA of {WHEEL} was not read: a word")
    # U+0085 ends a line of YAML: what an index says must not become a row.
    assert text.isascii()
    assert "\x1b" not in text
    assert [row["version"] for row in yaml.safe_load(text)["releases"]] == ["0.34.0"]


def test_metadata_of_something_else_is_not_used(known):
    draft, _ = drafted(known["vllm"], WHEEL, HEAD.replace("0.34.0", "0.33.0") + "Requires-Dist: torch==1\n")
    assert draft.fields["requires"] == {"glibc": ">=2.31"}
    assert "is of 'vllm' '0.33.0', and was not used" in draft.todos[0]


def test_no_day_of_upload_is_a_todo(known):
    for day in ("", "2026-13-1", "yesterday"):
        draft, _ = drafted(known["vllm"], WHEEL, HEAD, uploaded=day)
        assert "released" not in draft.fields
        assert any(todo.startswith("released: ") for todo in draft.todos)


CUDA = {
    "the toolkit": ("Requires-Dist: cuda-toolkit[cudart]==13.2.2\n", "13.2"),
    "the runtime": ("Requires-Dist: nvidia-cuda-runtime-cu12==12.8.90\n", "12.8"),
    "the runtime without a major": ("Requires-Dist: nvidia-cuda-runtime==13.0.48\n", "13.0"),
    "the major by name": ("Requires-Dist: nvidia-nccl-cu13==2.30.7\n", "13"),
    "the major by an extra": ("Requires-Dist: nvidia-cutlass-dsl[cu13]==4.8.0\n", "13"),
    "the major of its torch": ("Requires-Dist: torch==2.10.0\n", "12"),
    "no exact toolkit": ("Requires-Dist: cuda-toolkit>=13\n", None),
    "two majors": ("Requires-Dist: nvidia-nccl-cu13==2\nRequires-Dist: nvidia-cublas-cu12==12\n", None),
    "none": ("Requires-Dist: numpy\n", None),
    "a newer one": ("Requires-Dist: cuda-toolkit==14.1.0\n", "14.1"),
}


@pytest.mark.parametrize("case", CUDA)
def test_cuda(known, case):
    lines, cuda = CUDA[case]
    draft, _ = drafted(known["vllm"], WHEEL, HEAD + lines)
    assert draft.fields.get("cuda") == cuda
    said = [todo for todo in draft.todos if todo.startswith("cuda: ")]
    assert len(said) == (0 if cuda in ("13.2", "12.8", "13.0") else 1)
    assert ("has no row in cuda.yaml yet" in "".join(said)) == (case == "a newer one")


def test_glibc_is_the_larger_of_name_and_torch(known):
    wheel = "vllm-0.34.0-cp38-abi3-manylinux_2_17_x86_64.whl"
    draft, _ = drafted(known["vllm"], wheel, f"{HEAD}Requires-Dist: torch==2.15.0\n")
    assert draft.fields["requires"]["glibc"] == ">=2.28"
    assert draft.fields["glibc_tag"] == "2.17"


def test_a_requirement_that_comes_or_goes_is_told(known):
    draft, _ = drafted(
        known["vllm"], WHEEL, f"{HEAD}Requires-Dist: tensorrt-cu13>=11\nRequires-Dist: torch==2.15.0\n"
    )
    assert draft.fields["requires"]["tensorrt"] == ">=11"
    assert any("no row of vllm named tensorrt before" in todo for todo in draft.todos)
    assert any("transformers" in todo and "is not named here" in todo for todo in draft.todos)


def test_what_an_older_row_named_is_kept(known):
    """flashinfer-cubin is in no row since vLLM 0.26; drafts lost it, as a comparison with all rows showed."""
    draft, _ = drafted(known["vllm"], WHEEL, f"{HEAD}Requires-Dist: flashinfer-cubin==0.7.4\n")
    assert draft.fields["requires"]["flashinfer-cubin"] == "==0.7.4"


def test_the_variant_of_tensorrt(known):
    parts = "".join(
        f"Requires-Dist: tensorrt-cu13{part}<11.5,>=11.4\n" for part in ("", "-libs", "-bindings")
    )
    head = HEAD.replace("vllm", "torch-tensorrt").replace("0.34.0", "2.99.0")
    wheel = "torch_tensorrt-2.99.0-cp312-cp312-manylinux_2_28_x86_64.whl"
    draft, _ = drafted(known["torch-tensorrt"], wheel, head + parts)
    wanted_sets = {"glibc": ">=2.28", "tensorrt": ">=11.4,<11.5", "tensorrt-variant": "cu13"}
    assert draft.fields["requires"] == wanted_sets
    assert draft.fields["interpreters"] == ["3.12"]


def test_a_tag_that_its_wheels_had_outgrown(known):
    """torch 2.3 to 2.6 are tagged manylinux1, glibc 2.5, and need 2.17."""
    wheel = "vllm-0.34.0-cp38-abi3-manylinux1_x86_64.whl"
    draft, _ = drafted(known["vllm"], wheel, HEAD)
    assert "requires" not in draft.fields
    assert any(todo.startswith("glibc: the wheel's name claims 2.5") for todo in draft.todos)
    draft, _ = drafted(known["vllm"], wheel, f"{HEAD}Requires-Dist: torch==2.15.0\n")
    assert (draft.fields["requires"]["glibc"], draft.fields["glibc_tag"]) == (">=2.28", "2.5")


def test_a_pure_wheel_claims_no_glibc(known):
    draft, _ = drafted(known["vllm"], "vllm-0.34.0-py3-none-any.whl", HEAD)
    assert "requires" not in draft.fields
    assert any(todo.startswith("glibc: the wheel is for any platform") for todo in draft.todos)


def test_python_of_markers():
    assert marker_python(Build(IndexFile(filename="", requires_python=">=3.13"))) == "3.13"
    assert marker_python(Build(IndexFile(filename="", requires_python=">=3.9"))) == "3.12"
    assert marker_python(Build(IndexFile(filename="", requires_python="words"))) == "3.12"


# --- pip itself, against an index on this machine -------------------------------------------------

METADATA = f"{HEAD}Requires-Python: >=3.11\nRequires-Dist: torch==2.15.0\n"
#: Larger than what is taken whole.
_PADDING = 9 * 1024 * 1024


class Index(http.server.BaseHTTPRequestHandler):
    """A package index of one project, of which a test says how well it behaves."""

    wheel = b""
    page: bytes = b""
    kind = "application/vnd.pypi.simple.v1+json"
    metadata: bytes | None = None
    ranges = True
    sent: int

    def do_GET(self):
        name = self.path.rpartition("/")[2]
        if name.endswith(".metadata") and self.metadata is not None:
            self._send(200, self.metadata)
        elif name == WHEEL:
            self._part()
        elif self.path.rstrip("/").endswith("/vllm"):
            self._send(200, self.page, self.kind)
        else:
            self._send(404, b"no such project")

    def _part(self):
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if match and self.ranges:
            first, last = int(match.group(1)), int(match.group(2))
            self._send(206, self.wheel[first : last + 1])
        else:
            self._send(200, self.wheel)

    def _send(self, code, body, kind="application/octet-stream"):
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            return  # a reader that does not want the whole wheel
        type(self).sent += len(body)

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    place = tmp_path_factory.mktemp("wheel") / WHEEL
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr("vllm/_C.abi3.so", random.Random(1).randbytes(_PADDING))
        archive.writestr("vllm-0.34.0.dist-info/METADATA", METADATA)
    return place.read_bytes()


@pytest.fixture
def index(wheel, monkeypatch):
    """A function: serve the wheel, well or badly; the class tells what was sent."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    servers = []

    def serve(*, size=True, **behaviour):
        file = {
            "filename": WHEEL,
            "url": f"../../files/{WHEEL}",
            "hashes": {},
            "upload-time": "2026-12-12T09:00:00Z",
        }
        file |= {"size": len(wheel)} if size else {}
        file |= {"core-metadata": True} if behaviour.get("metadata") else {}
        page = json.dumps({"meta": {"api-version": "1.1"}, "name": "vllm", "files": [file]}).encode()
        handler = type("Handler", (Index,), {"wheel": wheel, "page": page, "sent": 0, **behaviour})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings = {"CONFIG_FILE": os.devnull, "INDEX_URL": f"http://127.0.0.1:{server.server_port}/simple/"}
        settings |= {"NO_CACHE_DIR": "1", "RETRIES": "0", "DEFAULT_TIMEOUT": "10"}
        for name, value in settings.items():
            monkeypatch.setenv(f"PIP_{name}", value)
        return handler

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@needs_pip
def test_metadata_are_read_from_a_large_wheel_by_parts(run, index, wheel):
    handler = index()
    code, text, err = run("import", "vllm")
    assert code == 0, err
    (row,) = yaml.safe_load(text)["releases"]
    assert row["version"] == "0.34.0"
    assert row["released"] == "2026-12-12"
    assert row["requires"] == {"python": ">=3.11", "glibc": ">=2.31", "torch": "==2.15.0"}
    assert row["size_bytes"] == len(wheel)
    assert re.search(r"METADATA of \S+: \d+ bytes in [12] requests", err)
    assert handler.sent < len(wheel) / 4


@needs_pip
def test_metadata_beside_the_wheel_are_taken_first(run, index, wheel):
    handler = index(metadata=METADATA.encode())
    code, text, err = run("import", "vllm")
    assert (code, yaml.safe_load(text)["releases"][0]["requires"]["torch"]) == (0, "==2.15.0")
    assert f"{len(METADATA)} bytes in 1 requests" in err
    assert handler.sent < 10_000


@needs_pip
def test_an_index_in_html_tells_no_day_and_no_size(run, index, wheel):
    page = f'<!DOCTYPE html><html><body><a href="/files/{WHEEL}">{WHEEL}</a></body></html>'.encode()
    handler = index(kind="text/html", page=page)
    code, text, err = run("import", "vllm")
    assert code == 0, err
    (row,) = yaml.safe_load(text)["releases"]
    assert "released" not in row
    assert "size_bytes" not in row
    assert "# TODO released: the index tells no day of upload" in text
    # `HEAD` is not answered by this index: the size is not known, so no part can be asked for.
    assert "was not read" in text
    assert handler.sent < len(wheel)


BAD = {
    "no ranges": ({"ranges": False}, "the index serves no part of a file"),
    "parts that are cut": ({"wheel": b"PK\x05\x06short"}, "bytes where"),
    "metadata without an end": ({"metadata": b"x" * (1024 * 1024 + 1)}, "is larger than 1048576 bytes"),
    "no zip": ({"wheel": bytes(_PADDING + 4096)}, "not a zip file"),
}


@needs_pip
@pytest.mark.parametrize("case", BAD)
def test_a_bad_index_costs_fields_not_the_row(run, index, case):
    behaviour, words = BAD[case]
    index(**behaviour)
    code, text, err = run("import", "vllm")
    assert code == 0, err
    assert words in " ".join(text.replace("#", " ").split()), text
    (row,) = yaml.safe_load(text)["releases"]
    assert "torch" not in row["requires"]


@needs_pip
def test_no_such_project(run, index):
    index()
    code, out, err = run("import", "torch")
    assert (code, out) == (3, "")
    assert "could not list torch: LookupError: no index that pip asks has a project torch" in err
    assert "127.0.0.1" not in err


def test_no_interpreter(run, tmp_path):
    code, _, err = run("import", "vllm", "--python", tmp_path / "none")
    assert (code, "cannot be started: No such file" in err) == (3, True), err


def test_an_interpreter_that_says_nothing_useful(run, tmp_path):
    mute = tmp_path / "python"
    mute.write_text("#!/bin/sh\necho '{'\n")
    mute.chmod(0o755)
    code, _, err = run("import", "vllm", "--python", mute)
    assert (code, "gave an answer that cannot be read" in err) == (3, True), err
    mute.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'pip'\" >&2; exit 1\n")
    code, _, err = run("import", "vllm", "--python", mute)
    assert (code, "-m ensurepip" in err) == (3, True), err


@pytest.mark.skipif(os.geteuid() != 0, reason="the ownership rule is for root")
def test_root_runs_nobody_elses_pip(run, tmp_path):
    """pip below a folder that others can write: refused before it is imported."""
    place = tmp_path / "pip"
    place.mkdir()
    place.chmod(0o777)
    liar = tmp_path / "python"
    liar.write_text(f'#!/bin/sh\n[ "$3" = where ] && echo \'{{"pip": "{place}"}}\' || touch {tmp_path}/run\n')
    liar.chmod(0o755)
    code, out, err = run("import", "vllm", "--python", liar)
    assert (code, out) == (2, "")
    assert f"another user can change: `{place}` is writable by group or others" in err
    assert not (tmp_path / "run").exists()
