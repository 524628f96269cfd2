"""Rows that nothing can meet, rows that no question comes to, and numbers left out: each is told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from doctor.edition.contradictions import holds_a_version
from doctor.edition.load import load_matrix
from doctor.edition.review import gaps, unreachable
from doctor.edition.source import compile_edition
from doctor.errors import MatrixError

EDITION = load_matrix().edition

RELATION = """\
- id: open-floor
  when: {kernel-modules: open}
  requires: {driver: ">=515"}
"""


def problems(sources: dict[str, bytes]) -> tuple[str, ...]:
    with pytest.raises(MatrixError) as caught:
        compile_edition(sources)
    return caught.value.problems


@pytest.mark.parametrize(
    ("file", "old", "new", "wanted"),
    [
        (
            "vllm",
            'python: ">=3.11,<3.15"',
            'python: ">=3.11,<3.11"',
            "releases[0.32.0].requires: no version of python is in `>=3.11,<3.11`",
        ),
        (
            "components",
            'driver: ">=515"',
            'driver: ">580.1,<580.1"',
            "relations[open-floor].requires: no version of driver is in `>580.1,<580.1`",
        ),
        (
            "components",
            RELATION,
            RELATION
            + "  source: [a page]\n"
            + RELATION.replace("open-floor", "other").replace(">=515", "<500"),
            "driver `<500` contradicts `>=515` of `open-floor`, under the same condition",
        ),
        (
            "causes",
            "when: [has_gpu, not module_loaded]",
            "when: [has_gpu, not has_gpu]",
            "`has_gpu` both makes and rules out this cause: it never holds",
        ),
        (
            "causes",
            "when: [has_gpu, not module_loaded]",
            "when: [has_gpu]\n  ruled_out_by: [has_gpu]",
            "`has_gpu` both makes and rules out this cause: it never holds",
        ),
    ],
)
def test_contradictions(spoiled_more: Any, file: str, old: str, new: str, wanted: str) -> None:
    found = problems(spoiled_more(file, old, new))
    assert any(wanted in problem for problem in found), found


@pytest.mark.parametrize(
    ("text", "scheme", "is_met"),
    [
        (">=3.11,<3.15", "pep440", True),
        (">1.0,<1.0.1", "pep440", True),
        ("==12.9.*", "dotted", True),
        ("~=3.8.0", "pep440", True),
        ("!=1.17.4", "dotted", True),
        ("<2", "dotted", True),
        ("*", "dotted", True),
        ("open|proprietary", "name", True),
        (">=2,<2", "pep440", False),
        ("==1.0,==1.1", "dotted", False),
        ("==12.9.*,>=13", "dotted", False),
        (">580.1,<=580.1", "dotted", False),
    ],
)
def test_a_set_that_no_version_is_in(text: str, scheme: Any, is_met: bool) -> None:
    assert holds_a_version(text, scheme) is is_met


def changed(table: str, index: int, **fields: Any) -> Any:
    rows = list(EDITION.rows()[table])
    rows[index] = msgspec.structs.replace(rows[index], **fields)
    return msgspec.structs.replace(EDITION, **{table: tuple(rows)})


def test_rows_that_no_question_comes_to() -> None:
    assert unreachable(EDITION) == ()
    (found,) = unreachable(changed("hardware", 0, versions=">=99"))
    assert found.startswith("hardware: ")
    assert "is in `>=99`" in found
    number = next(n for n, row in enumerate(EDITION.relations) if "driver" in row.when)
    broken = changed("relations", number, when={**EDITION.relations[number].when, "driver": "<1"})
    assert unreachable(broken) == (f"relations: {EDITION.relations[number].id}: no known driver is in `<1`",)


def test_a_number_left_out_of_a_whole_series_is_a_gap() -> None:
    series = [line for line in gaps(EDITION) if "no row between" in line]
    assert series == []
    without = tuple(row for row in EDITION.releases if (row.component, row.version.raw) != ("vllm", "0.31.0"))
    found = gaps(msgspec.structs.replace(EDITION, releases=without))
    assert "vllm has no row between 0.30.0 and 0.32.0" in found or any(
        line.startswith("vllm has no row between 0.30") for line in found
    )
