"""What a row of the table of states is, and the machines that most rows start from."""

from __future__ import annotations

from typing import Literal, NamedTuple

from doctor.core.check import Case, Check
from doctor.core.host import Absent, Host
from tests.core.environments import SCOPE, inside
from tests.core.hosts import case_of, healthy, no_driver, put, without

__all__ = ["KINDS", "NO_CARD", "Kind", "Shown", "States", "case_for"]

#: `bad` is a failure or a warning, whichever the check has.
Kind = Literal["ok", "bad", "unknown", "skip"]
KINDS: dict[Kind, tuple[str, ...]] = {
    "ok": ("pass",),
    "bad": ("fail", "warn"),
    "unknown": ("unknown",),
    "skip": ("skip",),
}
#: A host; a whole case where a goal, an overlay or another scope makes the answer.
Shown = Host | Case

#: A machine whose bus was read and holds no card: most checks do not apply there.
NO_CARD = put(no_driver(), "pci", ())
#: An environment whose directory did not answer.
_SILENT = Host(scope=SCOPE, environment=Absent(reason="timeout", origin="environments"))


class States(NamedTuple):
    """Where a check gives each answer; what a row leaves out is the usual machine."""

    bad: Shown | None = None
    ok: Shown | None = None
    """Left out: the healthy machine, or the environment that runs on it."""
    unknown: Shown | None = None
    """Left out: that of `ok`, where the first fact that the check declares needs root."""
    skip: Shown | None = None
    """Left out: the machine without a card; for environments the healthy machine, which is none."""


def case_for(one: Check, row: States, kind: Kind) -> Case | None:
    """The case on which a check is to give this answer; None where the row names none and none is usual."""
    shown = getattr(row, kind) or _usual(one, row, kind)
    return case_of(shown) if isinstance(shown, Host) else shown


def _usual(one: Check, row: States, kind: Kind) -> Shown | None:
    is_inside = "environment" in one.needs
    if kind == "ok":
        return inside() if is_inside else healthy()
    if kind == "skip":
        return healthy() if is_inside else NO_CARD
    if kind == "bad" or not one.needs:
        return None
    start = row.ok if isinstance(row.ok, Host) else healthy()
    return _SILENT if is_inside else without(start, one.needs[0].split("|"), "denied")
