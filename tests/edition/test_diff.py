"""`matrix diff`: rows and answers of two editions."""

import json
import signal
from pathlib import Path

import jsonschema
import msgspec
import pytest

from doctor import cli
from doctor.core.answers import answers
from doctor.core.diff import compare_rows
from doctor.core.matrix import Matrix
from doctor.core.solve.universe import Universe
from doctor.core.versions import Dotted
from doctor.edition.build import encode
from doctor.edition.keys import label
from doctor.edition.load import load_edition
from doctor.report.schemas import schema

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shipped():
    return load_edition(ROOT / "matrices")


@pytest.fixture
def run(capfd, monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.delenv("MOPT_DATA", raising=False)
    monkeypatch.delenv("MOPT_OVERLAY", raising=False)

    def one(*argv):
        try:
            code = cli.main(["matrix", "diff", *map(str, argv)])
        except SystemExit as end:
            code = end.code or 0
        out, err = capfd.readouterr()
        return code, out, err

    yield one
    signal.signal(signal.SIGTERM, before)


def edited(edition, table, name, **fields):
    """The edition with fields of one row changed."""
    rows = getattr(edition, table)
    changed = tuple(
        msgspec.structs.replace(row, **fields) if label(table, row) == name else row for row in rows
    )
    assert changed != rows
    return msgspec.structs.replace(edition, **{table: changed})


def less(edition, table, name):
    """The edition without the rows of a name."""
    rows = tuple(row for row in getattr(edition, table) if label(table, row) != name)
    assert len(rows) < len(getattr(edition, table))
    return msgspec.structs.replace(edition, **{table: rows})


def saved(edition, folder):
    path = folder / "edition.json"
    path.write_bytes(encode(edition))
    return path


def test_the_same_edition(run, shipped, tmp_path):
    code, out, err = run(saved(shipped, tmp_path), ROOT / "matrices")
    assert (code, err) == (0, "")
    assert out.splitlines()[1:] == ["no row differs"]


def test_against_the_installed_one(run, shipped, tmp_path):
    old = saved(less(shipped, "releases", "vllm 0.33.0"), tmp_path)
    code, out, err = run(tmp_path)
    assert (code, err) == (0, "")
    assert "+ releases: vllm 0.33.0" in out.splitlines()
    assert "  newest vllm\n    before: 0.32.0\n    after: 0.33.0\n" in out
    assert "  pick vllm on H200, ubuntu-24.04\n" in out
    assert run(old)[1] == out, "the file itself is the same"


def test_each_way(run, shipped, tmp_path):
    """A row that one side lacks is added the one way and removed the other."""
    old = saved(less(shipped, "gpus", "10de:2335"), tmp_path)
    (tmp_path / "new").mkdir()
    new = saved(shipped, tmp_path / "new")
    there = run(old, new, "--json")[1]
    back = run(new, old, "--json")[1]
    one, other = json.loads(there), json.loads(back)
    jsonschema.validate(one, schema("mopt.matrix-diff/1"))
    assert one["added"] == [{"table": "gpus", "row": "10de:2335"}] == other["removed"]
    assert one["removed"] == [] == other["added"]
    assert {a["question"]: a["before"] for a in one["answers"]} == {
        a["question"]: a["after"] for a in other["answers"]
    }
    # A card that one edition alone has is asked about as well.
    assert any("10de:2335" in answer["question"] for answer in one["answers"])


def test_fields_one_by_one(run, shipped, tmp_path):
    branch = next(row for row in shipped.drivers if row.branch == "R580")
    old = edited(
        shipped, "drivers", "R580", releases=branch.releases[:-1], latest_known=branch.releases[-2], note=""
    )
    old = edited(old, "releases", "torch 2.15.0", requires={"python": ">=3.10"}, size_bytes=None)
    old = edited(old, "toolkits", "13.0", as_of="2026-01-01")
    (tmp_path / "new").mkdir()
    lines = run(saved(old, tmp_path), saved(shipped, tmp_path / "new"))[1].splitlines()
    newest = branch.releases[-1]
    start = lines.index("~ drivers: R580")
    assert lines[start + 1 : start + 3] == [
        f"    latest_known: {branch.releases[-2]} -> {newest}",
        f"    releases: +{newest}",
    ]
    torch = next(row for row in shipped.releases if label("releases", row) == "torch 2.15.0")
    start = lines.index("~ releases: torch 2.15.0")
    assert lines[start + 1] == f"    requires.python: >=3.10 -> {torch.requires['python']}"
    assert f"    requires.cudnn: (left out) -> {torch.requires['cudnn']}" in lines
    assert f"    size_bytes: (left out) -> {torch.size_bytes}" in lines
    assert "~ toolkits: 13.0" not in lines, "it says what it said"
    assert any("0 removed, 2 changed; 1 changed in source, as_of" in line for line in lines)


def test_boards_of_one_id_are_told_apart(shipped):
    """Two rows of an id: the one that changed is a change, not one added and one removed."""
    twins = [row for row in shipped.gpus if row.pci_device_id == "10de:2342"]
    assert len(twins) > 1
    rows = tuple(
        msgspec.structs.replace(row, memory_gb=1.5) if row == twins[0] else row for row in shipped.gpus
    )
    added, removed, changed = compare_rows(shipped, msgspec.structs.replace(shipped, gpus=rows), label)
    assert (added, removed) == ((), ())
    assert [(row.row, [field.field for field in row.fields]) for row in changed] == [
        ("10de:2342", ["memory_gb"])
    ]
    renamed = tuple(row for row in shipped.gpus if row != twins[0])
    added, removed, changed = compare_rows(shipped, msgspec.structs.replace(shipped, gpus=renamed), label)
    assert ([row.row for row in removed], added, changed) == (["10de:2342"], (), ())


def test_bulletins_move_floors(shipped):
    bulletin = next(row for row in shipped.advisories if row.id == "5821-data-center")
    new = msgspec.structs.replace(bulletin, id="9999-data-center", fixed_in=(Dotted("580.178.04"),))
    after = msgspec.structs.replace(shipped, advisories=(*shipped.advisories, new))
    question = "first driver R580 (data-center) without a known fault"
    old, new_answers = (answers(Universe(Matrix(edition)), ()) for edition in (shipped, after))
    assert (old[question], new_answers[question]) == ("580.159.03", "580.178.04")


def test_an_unknown_card_is_an_answer(shipped):
    without = less(shipped, "products", "H200 SXM")
    assert answers(Universe(Matrix(without)), ["nonsense"])["pick vllm on nonsense, ubuntu-24.04"]


REFUSED = {
    "nothing there": (["/nonexistent"], "there is no edition at `/nonexistent`"),
    "an empty folder": (["."], "there is no edition at `.`"),
    "no edition": (["pyproject.toml"], "is not an edition that this version reads"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(run, tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    argv, words = REFUSED[case]
    code, out, err = run(*argv)
    assert (code, out) == (2, "")
    assert words in err


def test_text_of_an_edition_does_not_steer_the_terminal(run, shipped, tmp_path):
    old = saved(edited(shipped, "drivers", "R580", kind="x\x1b[2J\u202e"), tmp_path)
    _, out, _ = run(old)
    assert r"kind: x\x1b[2J\u202e -> LTSB" in out
    assert "\x1b" not in out
