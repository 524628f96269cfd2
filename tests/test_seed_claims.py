"""Claims of field reports through the command line: what the matrix says, and the rows it rests on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from doctor.cli import main
from doctor.core.edition import Edition
from doctor.core.matrix import Matrix
from doctor.edition.build import encode
from doctor.edition.load import decode, load_edition

ROOT = Path(__file__).parents[1]
CLAIMS = yaml.safe_load((Path(__file__).parent / "data" / "seed-claims.yaml").read_text())["claims"]
ASKS = [(f"{claim['id']}.{number}", ask) for claim in CLAIMS for number, ask in enumerate(claim["asks"])]
EXIT = {"yes": 0, "no": 1, "unknown": 3}


def asked(argv: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    code = main(["matrix", "why", "--json", *argv])
    out = capsys.readouterr()
    assert out.err == ""
    answer: dict[str, Any] = json.loads(out.out)
    assert code == EXIT[answer["compatible"]]
    return answer


@pytest.mark.parametrize(("name", "ask"), ASKS, ids=[name for name, _ask in ASKS])
def test_question(name: str, ask: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    answer = asked(ask["argv"], capsys)
    assert answer["compatible"] == ask["answer"]
    proof = " ".join([*(link["text"] for link in answer["because"]), answer["nearest"]])
    assert [word for word in ask["names"] if word not in proof] == [], proof
    assert any(link["source"] for link in answer["because"]) or answer["compatible"] == "unknown"


def test_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    """A claim that says yes and gets a no is refuted; one whose answers are all as claimed is borne out."""
    wrong = []
    for claim in CLAIMS:
        pairs = [(asked(ask["argv"], capsys)["compatible"], ask["claimed"]) for ask in claim["asks"]]
        is_refuted = any(answer not in (claimed, "unknown") for answer, claimed in pairs)
        is_borne_out = all(answer == claimed for answer, claimed in pairs)
        if not (is_borne_out if claim["verdict"] == "true" else is_refuted):
            wrong.append(claim["id"])
    assert len(CLAIMS) == 111
    assert len({claim["id"] for claim in CLAIMS}) == 111
    assert 1 - len(wrong) / len(CLAIMS) >= 0.95, wrong
    assert wrong == []


# --- without the rows -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def edition() -> Edition:
    return load_edition(ROOT / "matrices")


def _names(row: Any, wanted: dict[str, str]) -> bool:
    """Whether a row has these fields; `/text/` searches."""
    for field, text in wanted.items():
        value = str(getattr(row, field))
        is_pattern = len(text) > 1 and text[0] == text[-1] == "/"
        if not (re.search(text[1:-1], value) if is_pattern else value == text):
            return False
    return True


def _without(edition: Edition, rows: list[dict[str, str]]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The tables that change, less the rows meant."""
    for table in {row["table"] for row in rows}:
        meant = [{k: v for k, v in row.items() if k != "table"} for row in rows if row["table"] == table]
        kept = tuple(row for row in getattr(edition, table) if not any(_names(row, one) for one in meant))
        assert len(kept) < len(getattr(edition, table)), f"no row of {table} is meant"
        yield table, kept


DECIDED = [(name, ask) for name, ask in ASKS if ask["rows"]]


@pytest.mark.parametrize(("name", "ask"), DECIDED, ids=[name for name, _ask in DECIDED])
def test_without_its_rows_the_answer_is_unknown(
    name: str,
    ask: dict[str, Any],
    edition: Edition,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    less = msgspec.structs.replace(edition, **dict(_without(edition, ask["rows"])))
    partial = tuple(
        msgspec.structs.replace(row, complete_since="") if row.component in ask.get("partial", ()) else row
        for row in less.components
    )
    less = msgspec.structs.replace(less, components=partial)
    matrix = Matrix(decode(encode(less), "edition.json"))
    monkeypatch.setattr("doctor.commands.ask.load_matrix", lambda **_: matrix)
    assert asked(ask["argv"], capsys)["compatible"] == "unknown"
