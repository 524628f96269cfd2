"""A whole page of HTML around its parts, and text made safe for it: no script, no outside resource."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape as html_escape

from doctor.report.escape import escape

__all__ = ["document", "listed", "pairs", "prose", "text"]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def document(title: str, parts: Iterable[str], *, styles: tuple[str, ...] = ("page.css",)) -> bytes:
    """A whole document in UTF-8; `styles` lie beside this module. It follows dark or light, and prints."""
    lines = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        f"<title>{text(title)}</title><style>{''.join(_style(name) for name in styles)}</style></head><body>",
        *parts,
        "</body></html>",
    ]
    return "\n".join(lines).encode() + b"\n"


def _style(name: str) -> str:
    with open(f"{__file__.rpartition('/')[0]}/{name}", encoding="utf-8") as file:  # noqa: PTH123
        return file.read()


def text(value: object) -> str:
    """Text for element or attribute; characters that steer or hide are written out."""
    return html_escape(escape(str(value)))


def prose(words: str) -> str:
    """The same, with what stands in backticks as code, and a capital at the start."""
    pieces = (words[:1].upper() + words[1:]).split("`")
    if len(pieces) % 2 == 0:  # an odd backtick is only a backtick
        return text("`".join(pieces))
    return "".join(f"<code>{text(p)}</code>" if n % 2 else text(p) for n, p in enumerate(pieces))


def pairs(rows: dict[str, str]) -> str:
    """Names and their values; nothing for a value that is empty."""
    return "<dl>" + "".join(f"<dt>{text(k)}</dt><dd>{prose(v)}</dd>" for k, v in rows.items() if v) + "</dl>"


def listed(heading: str, texts: Iterable[str]) -> Iterable[str]:
    """A heading with a list below it; nothing without texts."""
    rows = "".join(f"<li>{prose(words)}</li>" for words in texts)
    if rows:
        yield f"<p>{heading}:</p><ul>{rows}</ul>"
