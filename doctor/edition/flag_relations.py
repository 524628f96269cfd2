"""What grammars of command lines must hold: spans of releases that were read, values that fit their kind."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from doctor.core.rows.flag import EngineFlag, EngineGrammar
from doctor.core.versions import Pep440
from doctor.edition.relations import Tables
from doctor.edition.strict import Faults, Located, nearest

__all__ = ["judge_flags"]


def judge_flags(tables: Tables, faults: Faults) -> None:
    """Note what does not hold in the rows about flags and about what an engine takes by itself."""
    grammars: dict[tuple[str, str], EngineGrammar] = {}
    for located in tables["engine_grammars"]:
        grammars[located.row.component, located.row.command] = located.row
        _judge_read(located, faults)
    spans: dict[tuple[str, str, str], list[Located[EngineFlag]]] = {}
    for located in tables["engine_flags"]:
        row: EngineFlag = located.row
        spans.setdefault((row.component, row.command, row.flag), []).append(located)
        _judge_values(located, faults)
        if "engine_grammars" not in tables.incomplete:
            _judge_span(located, grammars, faults)
    for rows in spans.values():
        _judge_overlap(rows, faults)
    for section in ("engine_batches", "engine_dtypes"):
        for located in tables[section]:
            if located.row.last < located.row.first:
                faults.add(located.at("last"), f"`{located.row.last}` is older than `{located.row.first}`")


def _judge_read(located: Located[EngineGrammar], faults: Faults) -> None:
    row = located.row
    for before, after in pairwise(row.read):
        if not before < after:
            faults.add(located.at("read"), f"`{after}` stands behind `{before}`: oldest first, each once")
    if row.command != " ".join(row.command.split()) or row.command.startswith("-"):
        faults.add(located.at("command"), "the words that a command line begins with")
    if row.until and Pep440(row.until) <= row.read[-1]:
        faults.add(located.at("until"), f"`{row.read[-1]}`, which was read, is no older")


def _judge_span(
    located: Located[EngineFlag], grammars: dict[tuple[str, str], EngineGrammar], faults: Faults
) -> None:
    row = located.row
    grammar = grammars.get((row.component, row.command))
    if grammar is None:
        known = [command for component, command in grammars if component == row.component]
        faults.add(located.at("command"), f"no grammar of `{row.command}`{nearest(row.command, known)}")
        return
    for field, version in (("first", row.first), ("last", row.last)):
        if version not in grammar.read:
            raws = [read.raw for read in grammar.read]
            faults.add(located.at(field), f"`{version}` was not read{nearest(version.raw, raws)}")
    if row.last < row.first:
        faults.add(located.at("last"), f"`{row.last}` is older than `{row.first}`")


def _judge_values(located: Located[EngineFlag], faults: Faults) -> None:
    row = located.row
    if not row.flag.startswith("-"):
        faults.add(located.at("flag"), f"`{row.flag}` is no flag: it begins with dashes")
    has_list = bool(row.choices or row.choices_of)
    if has_list != (row.kind == "choice") or (row.choices and row.choices_of):
        faults.add(located.at("kind"), "`choices` or `choices_of` go with kind `choice`, with no other")
    has_bound = row.minimum is not None or row.maximum is not None
    if has_bound and row.kind not in ("int", "float"):
        faults.add(located.at("kind"), "only numbers have a minimum and a maximum")
    if row.minimum is not None and row.maximum is not None and row.maximum < row.minimum:
        faults.add(located.at("maximum"), f"{row.maximum:g} is below {row.minimum:g}")
    if row.default and row.choices and row.default not in row.choices:
        faults.add(located.at("default"), f"`{row.default}` is none of its choices")
    if row.default and row.kind in ("int", "float") and not _is_number(row):
        faults.add(located.at("default"), f"`{row.default}` is no number of kind {row.kind} in its bounds")


def _is_number(row: EngineFlag) -> bool:
    try:
        value = int(row.default) if row.kind == "int" else float(row.default)
    except ValueError:
        return False
    low = row.minimum if row.minimum is not None else value
    high = row.maximum if row.maximum is not None else value
    return low <= value <= high


def _judge_overlap(rows: list[Located[Any]], faults: Faults) -> None:
    ordered = sorted(rows, key=lambda located: located.row.first)
    for before, after in pairwise(ordered):
        if not before.row.last < after.row.first:
            text = f"the row from `{before.row.first}` to `{before.row.last}` is for the same releases"
            faults.add(after.at("first"), text)
