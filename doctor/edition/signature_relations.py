"""What signatures must hold: patterns that can be searched, examples that hold them to it, known causes."""

from __future__ import annotations

from typing import Any

import msgspec

from doctor.core.logline import log_lines
from doctor.core.rows.signature import SignatureRow
from doctor.core.signatures import find_hits
from doctor.edition.patterns import literals_of, pattern_problem, shape_pattern
from doctor.edition.relations import Tables
from doctor.edition.strict import Faults, Located, nearest

__all__ = ["HEALTHY", "judge_signatures"]

#: What a harmless text speaks for; it is no row, for it has no remedy.
HEALTHY = "healthy"


def judge_signatures(tables: Tables, faults: Faults) -> None:
    """Note every signature that does not hold, and fill in the literals of those that do."""
    known = {located.row.id for located in tables["causes"]} | {HEALTHY}
    filled = []
    for located in tables["signatures"]:
        before = len(faults)
        row: SignatureRow = located.row
        _judge_patterns(located, faults)
        if "causes" not in tables.incomplete:
            _judge_causes(located, known, faults)
        if len(faults) == before:
            found = {"literals": literals_of(row.pattern), "shape": shape_pattern(row.pattern)}
            row = msgspec.structs.replace(row, **found)
            _judge_examples(located.replace(row), faults)
        filled.append(located.replace(row))
    tables["signatures"] = filled


def _judge_patterns(located: Located[Any], faults: Faults) -> None:
    row: SignatureRow = located.row
    for field in ("pattern", "also", "unless"):
        text = getattr(row, field)
        problem = pattern_problem(text) if text else ""
        if problem:
            faults.add(located.at(field), f"`{text}` cannot be searched: {problem}")
        elif field == "pattern" and not literals_of(text):
            faults.add(located.at(field), f"`{text}` has no literal of four characters to look for first")
    for field in ("literals", "shape"):
        if getattr(row, field):
            faults.add(located.at(field), "this is found when the matrix is compiled: leave the field out")


def _judge_causes(located: Located[Any], known: set[str], faults: Faults) -> None:
    row: SignatureRow = located.row
    for suspect in row.causes:
        if suspect.cause not in known:
            near = nearest(suspect.cause, sorted(known))
            faults.add(located.at("causes"), f"there is no cause `{suspect.cause}`{near}")
        if not 1 <= suspect.weight <= 100:
            faults.add(located.at("causes"), f"{suspect.weight} is no weight from 1 to 100")
    if len({suspect.cause for suspect in row.causes}) != len(row.causes):
        faults.add(located.at("causes"), "a cause stands here twice")


def _judge_examples(located: Located[Any], faults: Faults) -> None:
    row: SignatureRow = located.row
    for text in row.positive:
        if not find_hits((row,), log_lines(text)):
            faults.add(located.at("positive"), f"`{text}` is not matched")
    for text in row.negative:
        if find_hits((row,), log_lines(text)):
            faults.add(located.at("negative"), f"`{text}` is matched")
