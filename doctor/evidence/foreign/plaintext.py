"""Pasted text made plain: colours, quoting and fences off, prompts and borders marked."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["LINES_MAX", "Line", "clean_lines"]

#: CSI and OSC sequences, then any other two-byte escape.
_ESCAPE = re.compile(r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]|\x1b\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)|\x1b[@-_]?")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]")
_QUOTE = re.compile(r"^(?:> ?){1,10}")
_FENCE = re.compile(r"^\s{0,8}(?:```|~~~)|^\s*</?(?:details|summary|pre|code)\b", re.IGNORECASE)
#: `user@host:~$ cmd`, `[user@host dir]# cmd`, `$ cmd`; a lone `#` only before a tool that is known.
_WHO = r"(?:\(\S{1,40}\) ?)?(?:\S{1,64}@\S{1,64}[:~ ]\S{0,200}?|\[[^\]\n]{1,120}\]|PS [^>]{1,120})?\s?"
_TOOLS = (
    r"nvidia-smi|dmesg|journalctl|lspci|dkms|uname|cat|modinfo|mokutil|python3?|vllm|docker|podman|kubectl"
)
_PROMPT = re.compile(
    rf"^\s{{0,8}}{_WHO}[$%>] ?(?P<command>[A-Za-z./~_].{{0,400}})"
    rf"|^\s{{0,8}}{_WHO}# ?(?:sudo )?(?P<root>(?:/\S{{1,100}}/)?(?:{_TOOLS})\b.{{0,400}})"
)
_LINE_MAX = 16_384
#: A whole `journalctl -k` of months has fewer.
LINES_MAX = 150_000


class Line:
    """A line of text. A border ends whatever stood before; `command` is what was typed there."""

    __slots__ = ("command", "is_border", "text")

    def __init__(self, text: str, *, is_border: bool = False, command: str = "") -> None:
        self.text = text
        self.is_border = is_border
        self.command = command


def clean_lines(data: bytes) -> Iterator[Line]:
    """The lines of a paste, newest conventions of terminals and forums taken off."""
    text = _decoded(data)
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    text = _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    for number, raw in enumerate(text.split("\n")):
        if number >= LINES_MAX:
            return
        yield _line(raw[:_LINE_MAX].rstrip())


def _decoded(data: bytes) -> str:
    """UTF-16 where its mark says so (Windows editors write it), else UTF-8; the rest becomes U+FFFD."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    return data.decode("utf-8-sig", "replace")


def _line(raw: str) -> Line:
    text = _QUOTE.sub("", raw) if raw.startswith(">") else raw
    if _FENCE.match(text):
        return Line("", is_border=True)
    if "$" in text[:300] or "#" in text[:300] or "%" in text[:300]:
        typed = _PROMPT.match(text[:1000])
        if typed is not None:
            return Line("", is_border=True, command=(typed["command"] or typed["root"])[:400])
    return Line(text)
