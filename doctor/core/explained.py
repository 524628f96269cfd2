"""The answer of `explain` (`mopt.explain/1`): causes in order, what was matched, and what would decide."""

from __future__ import annotations

from typing import Literal

import msgspec

from doctor.core.finding import Remedy

__all__ = [
    "EXPLAIN_SCHEMA",
    "Confidence",
    "DecidedBy",
    "ExplainReport",
    "Matched",
    "Named",
    "RuledOut",
    "TextFact",
]

EXPLAIN_SCHEMA = "mopt.explain/1"

#: `strong`: the text says it by itself, or facts of the host bear it out. `likely`: the usual reason of such
#: a text. `possible`: one of several, and facts have to decide.
Confidence = Literal["strong", "likely", "possible"]
DecidedBy = Literal["text", "host"]


class _Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every value here."""


class Matched(_Value, frozen=True, kw_only=True):
    """A line of the text that speaks for a cause."""

    line: int
    text: str
    signature: str
    count: int = 1
    """How many lines of the text this signature matches."""
    note: str = ""


class TextFact(_Value, frozen=True, kw_only=True):
    """Something that the text says about the host: `driver` is `525.60.13`."""

    name: str
    value: str


class Named(_Value, frozen=True, kw_only=True):
    """A cause that the text speaks for."""

    id: str
    title: str
    confidence: Confidence
    score: float
    """From 0 to 1, for ranking; not a probability."""
    layer: str = ""
    refined_by: tuple[str, ...] = ()
    """A closer cause inside this one, where facts of the host show it."""
    is_harmless: bool = False
    """Whether there is nothing to act on."""
    matched: tuple[Matched, ...] = ()
    because: tuple[str, ...] = ()
    """Facts that bear it out, of the host or of the text."""
    deciding_facts: tuple[str, ...] = ()
    """What would settle it; empty when it is settled."""
    remedy: Remedy | None = None


class RuledOut(_Value, frozen=True, kw_only=True):
    """A cause that the text speaks for, and that facts of the host exclude."""

    id: str
    title: str
    because: tuple[str, ...] = ()
    scope: str = "host"


class ExplainReport(_Value, frozen=True, kw_only=True):
    """The answer of `mopt-doctor explain` (`mopt.explain/1`)."""

    schema: str = EXPLAIN_SCHEMA
    tool: str
    exit_code: int
    """0 when a cause is named, 3 when nothing is recognised."""
    source: str
    """What was read: a file's name, `-`, or empty for a text on the command line."""
    decided_by: DecidedBy
    """Whether facts of a host were asked, too."""
    host: str = ""
    """The bundle or host that was asked."""
    lines: int
    causes: tuple[Named, ...]
    """Ranked, the most likely first."""
    ruled_out: tuple[RuledOut, ...] = ()
    facts: tuple[TextFact, ...] = ()
    """What the text says about versions and devices."""
    matrix_edition: str
