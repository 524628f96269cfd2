"""Rows that cannot be met or cannot both be: sets of no version, opposed relations, dead causes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import combinations
from typing import Any

from doctor.core.rows.package import Component
from doctor.core.sets import VersionSet
from doctor.core.versions import Scheme, parse
from doctor.edition.relations import Tables
from doctor.edition.strict import Faults, Located

__all__ = ["holds_a_version", "judge_contradictions"]

#: Behind a version written in a set: versions that lie just above it, however close the next bound is.
_ABOVE = ("", ".0.0.0.1", ".0.1", ".1")
_FAR = ("0", "99999999")


def judge_contradictions(tables: Tables, faults: Faults) -> None:
    """Note every row that nothing can meet, and every pair of relations that nothing can meet."""
    known = {located.row.component: located.row for located in tables["components"]}
    for section in ("releases", "tools", "relations"):
        for located in tables[section]:
            for field in ("when", "requires"):
                _judge_sets(located, field, getattr(located.row, field, {}), known, faults)
    for one, other in combinations(tables["relations"], 2):
        _judge_pair(one, other, known, faults)
    for located in tables["causes"]:
        _judge_cause(located, faults)


def _judge_sets(
    located: Located[Any], field: str, sets: Mapping[str, str], known: Mapping[str, Component], faults: Faults
) -> None:
    for name, text in sets.items():
        if name in known and not holds_a_version(text, known[name].scheme):
            faults.add(located.at(field), f"no version of {name} is in `{text}`")


@lru_cache(maxsize=4096)
def holds_a_version(text: str, scheme: Scheme) -> bool:
    """Whether any version can lie in a set. True for what is no set: somebody else says so."""
    try:
        wanted = VersionSet(text, scheme)
    except ValueError:
        return True
    if scheme == "name":
        return True
    return any(_has(wanted, raw, scheme) for raw in _candidates(wanted))


def _candidates(wanted: VersionSet) -> Iterator[str]:
    yield from _FAR
    for bound in wanted.bounds:
        public = getattr(bound, "public", None) or bound.raw
        yield from (f"{public}{tail}" for tail in _ABOVE)


def _has(wanted: VersionSet, raw: str, scheme: Scheme) -> bool:
    try:
        return wanted.has(parse(raw, scheme))
    except ValueError:
        return False


def _judge_pair(
    one: Located[Any], other: Located[Any], known: Mapping[str, Component], faults: Faults
) -> None:
    """Two relations with the same condition that want different things of one component."""
    if one.row.when != other.row.when or {one.row.delivery, other.row.delivery} == {"venv", "container"}:
        return
    for name in one.row.requires.keys() & other.row.requires.keys():
        mine, theirs = other.row.requires[name], one.row.requires[name]
        if name in known and _clash(mine, theirs, known[name]):
            text = f"{name} `{mine}` contradicts `{theirs}` of `{one.row.id}`, under the same condition"
            faults.add(other.at("requires"), text)


def _clash(one: str, other: str, row: Component) -> bool:
    if "*" in (one, other):
        return False
    if row.scheme == "name":
        return not set(one.split("|")) & set(other.split("|"))
    return not holds_a_version(f"{one},{other}", row.scheme)


def _judge_cause(located: Located[Any], faults: Faults) -> None:
    """A cause that what makes it rules out: nothing ever names it."""
    row = located.row
    for claim in row.when:
        opposite = claim.removeprefix("not ") if claim.startswith("not ") else f"not {claim}"
        if opposite in row.when or claim in row.ruled_out_by or claim in row.yields_to:
            faults.add(located.at("when"), f"`{claim}` both makes and rules out this cause: it never holds")
