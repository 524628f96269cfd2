"""Error texts by which causes are recognised: one row a message, with examples of its own."""

from __future__ import annotations

from typing import Literal

import msgspec

from doctor.core.rows.base import Row

__all__ = ["VARIES", "SignatureKind", "SignatureRow", "Suspect"]

#: What differs between lines of one kind: counters, clocks, addresses. A line without it is its shape.
VARIES = "0123456789"

#: `specific`: the text speaks of its causes. `general`: it follows from many causes and never outweighs a
#: specific one. `harmless`: it looks like a fault and is none.
SignatureKind = Literal["specific", "general", "harmless"]


class Suspect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cause that a text speaks for."""

    cause: str
    """Id of a cause row, or `healthy`: nothing to act on."""
    weight: int
    """Percent: how often this text, and nothing else, comes from it. Several need not add up to 100."""


class SignatureRow(Row, frozen=True, kw_only=True):
    """One message: how it reads, which causes it speaks for, and examples that hold the pattern to it.

    `pattern` is searched in single lines. It is a regular expression in the part of the language that
    `grep -E` has, too: no look-around, no lazy repeats, no back references, gaps bounded (`.{0,80}`).
    """

    id: str
    """`PART.SUBJECT`, such as `cuda.error_803`."""
    pattern: str
    also: str = ""
    """A pattern that must occur nearby, too."""
    unless: str = ""
    """A pattern that must not occur nearby."""
    kind: SignatureKind = "specific"
    causes: tuple[Suspect, ...]
    positive: tuple[str, ...]
    """Texts that it must match; lines of one text stand apart by line ends."""
    negative: tuple[str, ...]
    """Texts that look like it and mean something else."""
    literals: tuple[str, ...] = ()
    """Texts one of which each matching line holds: found when the matrix is compiled, never written."""
    shape: str = ""
    """A pattern that the shape of each matching line matches (see `VARIES`): made like `literals`."""
