"""Text from evidence made safe for a terminal: nothing in it may move the cursor or hide text."""

from __future__ import annotations

import re

from doctor.core.pattern import pattern

__all__ = ["UNSAFE", "escape", "escape_line"]

# C0 without tab and newline, DEL, C1; soft hyphen and zero-width characters; bidi marks, embeddings,
# overrides and isolates; line and paragraph separators; BOM; interlinear marks; tag characters;
# lone surrogates.
UNSAFE = pattern(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff]"
)


def escape(text: str) -> str:
    r"""The text with every character that steers a terminal written out: ESC becomes `\x1b`.

    Newlines stay; a tab becomes a space, a carriage return before a newline goes.
    """
    return UNSAFE.sub(_written, text.replace("\r\n", "\n").replace("\t", " "))


def escape_line(text: str) -> str:
    """The same on one line: a run of white space becomes one space."""
    return " ".join(escape(text).split())


def _written(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
