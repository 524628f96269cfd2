"""Labels, wrapped text and sources for 80 columns. A long address stays whole, to be copied."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from doctor.core.rows.base import Row

__all__ = ["Pair", "lines_of", "origin", "wrapped", "yes_no"]

_WIDTH = 80
_LABEL_WIDTH = 20

Pair = tuple[str, str]

#: What a row is called where several stand together.
_NAMES = {
    "Architecture": "architecture",
    "Chip": "chip",
    "DriverBranch": "branch",
    "GpuRow": "id",
    "Product": "product",
    "ToolkitRow": "toolkit",
}


def lines_of(pairs: Iterable[Pair]) -> list[str]:
    """`label  text` lines, wrapped under the text; a pair without text is left out."""
    lines: list[str] = []
    for name, text in pairs:
        if text:
            lines += wrapped(f"  {name:<{_LABEL_WIDTH}}  ", text)
    return lines


def wrapped(first: str, text: str) -> list[str]:
    """Text behind `first`, continued under itself."""
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )


def yes_no(value: bool | None) -> str:
    """A fact that may be unknown; nothing is said then."""
    return "" if value is None else ("yes" if value else "no")


def origin(rows: Sequence[Row]) -> list[str]:
    """What each row rests on, and the sources of all."""
    lines = lines_of((f"{_NAMES.get(type(row).__name__, '')} row".strip(), _standing(row)) for row in rows)
    sources = dict.fromkeys(text for row in rows for text in row.source)
    return [*lines, "  sources", *(line for text in sources for line in wrapped("    - ", text))]


def _standing(row: Row) -> str:
    """How sure a row is, when it was read, what is unverified, and its note."""
    parts = [f"{row.confidence}, read {row.as_of}, to be reviewed by {row.review_by}."]
    if row.overlay:
        parts.append(f"From overlay {row.overlay}.")
    if row.unverified:
        parts.append(f"Unverified: {', '.join(row.unverified)}.")
    return " ".join((*parts, row.note)).strip()
