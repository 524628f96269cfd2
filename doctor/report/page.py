"""Lines of text for a terminal: wrapped, indented, and coloured only on top of what they say anyway."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Sequence
from typing import Literal

from doctor.report.escape import escape, escape_line

__all__ = ["Page", "Paint", "counted"]

#: Green passes, red fails, yellow warns, cyan is not known; nothing else has a colour.
Paint = Literal["", "pass", "fail", "warn", "unknown", "strong", "faint"]

_CODES: dict[Paint, str] = {
    "pass": "32",
    "fail": "31",
    "warn": "33",
    "unknown": "36",
    "strong": "1",
    "faint": "2",
}

#: Labels end here, so that their texts stand in one column.
_LABEL_WIDTH = 9

#: A value longer than this is cut: evidence may hold a line of megabytes.
_CHARACTERS_MAX = 2000


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 item`, `2 items`."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def _shortened(text: str) -> str:
    more = len(text) - _CHARACTERS_MAX
    return f"{text[:_CHARACTERS_MAX]} ({more} more characters)" if more > 0 else text


class Page:
    """Lines being written. Everything given to it may come from evidence: it is escaped here."""

    def __init__(self, *, width: int, colour: bool, ascii_only: bool) -> None:
        self._width = max(40, width)
        self._colour = colour
        self._ascii_only = ascii_only
        self._lines: list[str] = []

    def __str__(self) -> str:
        text = "\n".join(self._lines).rstrip("\n") + "\n"
        return text.encode("ascii", "backslashreplace").decode() if self._ascii_only else text

    def gap(self) -> None:
        """An empty line, never two."""
        if self._lines and self._lines[-1]:
            self._lines.append("")

    def text(self, text: str, *, head: str = "", paint: Paint = "", indent: int = 0, hang: int = 2) -> None:
        """A paragraph; `head` stands painted before it, and lines after the first hang by `hang`."""
        body, head = escape_line(_shortened(text)), escape(head).replace("\n", " ")
        lines = self._wrap(f"{head}{body}", " " * indent, " " * (indent + hang))
        if head and lines[0].startswith(" " * indent + head.rstrip()):
            start = " " * indent + head.rstrip()
            lines[0] = " " * indent + self._painted(head.rstrip(), paint) + lines[0][len(start) :]
        self._lines += lines

    def line(self, text: str) -> None:
        """A line as it is, spaces and all: a row of a table."""
        self._lines.append(escape(_shortened(text)).replace("\n", " ").rstrip())

    def label(self, label: str, text: str, *, indent: int = 2) -> None:
        """A text behind a short word, in a column of its own; nothing when the text is empty."""
        if text:
            head = label.ljust(_LABEL_WIDTH)
            self.text(text, head=head, paint="faint", indent=indent, hang=_LABEL_WIDTH)

    def command(self, argv: Sequence[str], *, indent: int) -> None:
        """A command on a line of its own, quoted for a shell and never wrapped, ready to be copied."""
        line = escape(shlex.join(argv)).replace("\n", "\\x0a")
        self._lines.append(" " * indent + _shortened(line))

    def _wrap(self, text: str, first: str, later: str) -> list[str]:
        return textwrap.wrap(
            text,
            self._width,
            initial_indent=first,
            subsequent_indent=later,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [first.rstrip()]

    def _painted(self, text: str, paint: Paint) -> str:
        code = _CODES.get(paint) if self._colour else None
        return f"\x1b[{code}m{text}\x1b[0m" if code else text
