"""The parts of an answer about versions that other documents carry as well: a chain's links, and changes."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Answer", "Because", "Change", "GoalStack"]

Answer = Literal["yes", "no", "unknown"]


class _Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every value here."""


class Because(_Value, frozen=True, kw_only=True):
    """A link of a chain."""

    component: str
    """What it decides, or speaks of."""
    relation: str
    """`driver-floor-cuda13`; `goal:…`, `have:…`, `hold:…` for what was given, `gpu`, `os`, … for facts."""
    text: str
    kind: Literal["relation", "goal", "have", "hold", "fact", "note"] = "relation"
    source: tuple[str, ...] = ()
    confidence: str = "vendor"
    is_known: bool = True
    """False for what the matrix cannot tell: the answer is `unknown` because of it."""
    overlay: str = ""
    """`NAME: FILE:LINE` of the site overlay that says it; empty where the edition does."""


class Change(_Value, frozen=True, kw_only=True):
    """A component that becomes another than it is."""

    component: str
    before: str = ""
    """Empty where it is not there yet."""
    after: str
    spec: str = ""
    """Every version that would do, where more than one does."""
    minutes: int = 0
    """In which the GPUs serve nothing; an estimate."""
    needs_reboot: bool = False


class GoalStack(_Value, frozen=True, kw_only=True):
    """The stack that a goal asks for on the host that is judged, with the least change of it."""

    policy: str
    delivery: str
    components: dict[str, str]
    changes: tuple[Change, ...] = ()
    keeps: tuple[str, ...] = ()
    """What is there and stays as it is."""
