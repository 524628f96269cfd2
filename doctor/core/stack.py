"""The documents of `matrix pick` (`mopt.stack/1`) and `matrix why` (`mopt.why/1`)."""

from __future__ import annotations

import msgspec

from doctor.core.host_engine import Environment
from doctor.core.link import Answer, Because, Change
from doctor.core.target import Target

__all__ = [
    "STACK_SCHEMA",
    "WHY_SCHEMA",
    "Because",
    "Change",
    "Hint",
    "OtherStack",
    "StackReport",
    "WhyReport",
]

STACK_SCHEMA = "mopt.stack/1"
WHY_SCHEMA = "mopt.why/1"


class _Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every value here."""


class Hint(_Value, frozen=True, kw_only=True):
    """One change that would make it true; what it entails stands beside it."""

    text: str
    changes: tuple[Change, ...] = ()
    components: dict[str, str] = msgspec.field(default_factory=dict)
    """The stack that it would lead to."""


class OtherStack(_Value, frozen=True, kw_only=True):
    """Another stack for the same goal: the next best, or that of the other policy."""

    policy: str
    components: dict[str, str]
    changes: tuple[Change, ...] = ()


class StackReport(_Value, frozen=True, kw_only=True):
    """What `matrix pick` answers."""

    schema: str = STACK_SCHEMA
    matrix_edition: str
    goal: str
    policy: str
    compatible: Answer
    exit_code: int
    target: Target
    delivery: str
    components: dict[str, str]
    """One version for each component; for `unknown`, of what is known to fit."""
    also: dict[str, str]
    """Sets that other packages have to lie in, of which the matrix has no releases."""
    changes: tuple[Change, ...]
    keeps: tuple[str, ...]
    """What is there and stays as it is."""
    because: tuple[Because, ...]
    conflict: tuple[Because, ...]
    """For `no` a minimal set that cannot hold together, for `unknown` what is not known."""
    hints: tuple[Hint, ...]
    nearest: str
    advice: tuple[str, ...]
    alternatives: tuple[OtherStack, ...] = ()
    other_policy: OtherStack | None = None
    overlays: tuple[str, ...] = ()
    """Site overlays in force; links that rest on one name it."""
    overlay_effect: tuple[Because, ...] = ()
    """What they decided: each thing that would be otherwise without them."""


class WhyReport(_Value, frozen=True, kw_only=True):
    """What `matrix why` answers."""

    schema: str = WHY_SCHEMA
    matrix_edition: str
    question: str
    compatible: Answer
    exit_code: int
    target: Target
    because: tuple[Because, ...]
    """The proof: for `no` and `unknown` a minimal chain, for `yes` every relation that had a say."""
    hints: tuple[Hint, ...]
    nearest: str
    components: dict[str, str]
    """For `yes` and `unknown`: one set of versions with which it holds, as far as is known."""
    advice: tuple[str, ...]
    overlays: tuple[str, ...] = ()
    """Site overlays in force; links that rest on one name it."""
    overlay_effect: tuple[Because, ...] = ()
    """What they decided: each thing that would be otherwise without them."""
    environment: Environment | None = None
    """What was read of the environment or image that was asked about."""
