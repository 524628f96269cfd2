"""What a fact is: a value with its origin, or the reason why it is absent; never None."""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

import msgspec

__all__ = [
    "NOT_COLLECTED",
    "Absent",
    "AbsentReason",
    "Fact",
    "Known",
    "Value",
    "is_not_there",
    "is_untold",
    "known",
]

T = TypeVar("T")

#: `not_installed`: asked for, and truly not there. The others say why we do not know.
AbsentReason = Literal["not_installed", "denied", "timeout", "not_collected", "unreadable", "failed"]


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every value of a host: frozen, nothing unknown (msgspec does not inherit `kw_only`)."""


class Known(
    msgspec.Struct,
    Generic[T],
    frozen=True,
    kw_only=True,
    tag="known",
    tag_field="fact",
    forbid_unknown_fields=True,
):
    """A fact that is known, and the evidence item it was read from."""

    value: T
    origin: str


class Absent(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="absent",
    tag_field="fact",
    forbid_unknown_fields=True,
):
    """A fact that is not there, and why."""

    reason: AbsentReason
    origin: str = ""
    detail: str = ""


Fact = Known[T] | Absent

NOT_COLLECTED = Absent(reason="not_collected")


def known(fact: Fact[T]) -> T | None:
    """The value of a fact, or None when it is absent for whatever reason."""
    return fact.value if isinstance(fact, Known) else None


def is_not_there(fact: Known[T] | Absent) -> bool:
    """True when it was asked for and truly is not there (`not_installed`): knowledge, not ignorance."""
    return isinstance(fact, Absent) and fact.reason == "not_installed"


def is_untold(fact: Known[T] | Absent) -> bool:
    """True when nothing can be said: not collected, denied, timed out, unreadable, failed."""
    return isinstance(fact, Absent) and fact.reason != "not_installed"
