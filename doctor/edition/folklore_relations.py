"""What rows of folklore must satisfy: a fact with each, and claims that are read as their own row."""

from __future__ import annotations

from typing import Any

from doctor.core.folklore import read_sentence
from doctor.edition.relations import Tables
from doctor.edition.strict import Faults, Located, nearest

__all__ = ["judge_folklore"]

#: Fewer words than this would take in sentences about other things.
_WORDS_MIN = 3


def judge_folklore(tables: Tables, faults: Faults) -> None:
    """Note what does not hold in these rows."""
    table = tables["folklore"]
    rows = tuple(located.row for located in table)
    rules = {located.row.id for located in tables["rules"]}
    for located in table:
        _judge_fact(located, rules, faults, is_whole="rules" not in tables.incomplete)
        if len(located.row.words) < _WORDS_MIN:
            faults.add(located.at("words"), f"{_WORDS_MIN} words at least set a claim apart from others")
        for field, texts in (("claim", (located.row.claim,)), ("also", located.row.also)):
            for text in texts:
                _judge_wording(located, field, text, rows, faults)


def _judge_fact(located: Located[Any], rules: set[str], faults: Faults, *, is_whole: bool) -> None:
    row = located.row
    if bool(row.fact) == bool(row.rule):
        faults.add(located.at("fact"), "a `fact` or the `rule` that says it is wanted, and one of them only")
    if row.rule and row.rule not in rules and is_whole:
        faults.add(located.at("rule"), f"there is no rule `{row.rule}`{nearest(row.rule, rules)}")


def _judge_wording(
    located: Located[Any], field: str, text: str, rows: tuple[Any, ...], faults: Faults
) -> None:
    found = read_sentence(rows, text).row
    if found is None or found.id != located.row.id:
        other = f"read as `{found.id}`" if found else "not read as this row"
        faults.add(located.at(field), f"`{text}` is {other}: `words` and wording do not fit")
