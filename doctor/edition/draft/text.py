"""Drafted rows as YAML, in the form of the files they are for."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from doctor.edition.draft.release import Draft, Known
from doctor.edition.draft.snapshot import Snapshot

__all__ = ["draft_text"]

#: Words that YAML reads as text without quotes, and as nothing else.
_PLAIN = re.compile(r"[a-z][a-z-]*|cu\d{2}")
_RESERVED = ("yes", "no", "on", "off", "true", "false", "null", "y", "n")


def draft_text(known: Known, drafts: Sequence[Draft], snapshot: Snapshot) -> str:
    """A file's worth of rows: sources, then releases. A TODO is a comment of the row it is about."""
    name, package, day = known.component.component, known.component.package, snapshot.read_on
    lines = [
        f"# Draft of `mopt-doctor matrix import {name}`, {day}, with pip {snapshot.pip}.",
        "# Finish each TODO, or leave its field out: absent is unknown, a guess a wrong verdict. Then move",
        f"# sources and rows into the file of matrices/ that has {name}, date edition.yaml, and run",
        "# `mopt-doctor matrix validate`.",
        "sources:",
        f"  index-{day}: {_quoted(f'package index of {package} as pip sees it, read {day}')}",
        f"  metadata-{day}: {_quoted(f'METADATA of that release on the package index, read {day}')}",
        "",
        "releases:",
    ]
    for draft in drafts:
        lines += _row(draft, day)
    return "\n".join(lines) + "\n"


def _row(draft: Draft, day: str) -> Iterator[str]:
    where = f"after {draft.after}" if draft.after else "first of all"
    yield f"# {where}"
    fields = dict(draft.fields)
    yield f"- version: {_quoted(str(fields.pop('version')))}"
    for todo in draft.todos:
        # What an index or METADATA says may hold a line break of YAML (U+0085): a comment is ASCII.
        plain = re.sub(r"[^\x20-\x7e]", "?", todo)
        yield from textwrap.wrap(f"TODO {plain}", 106, initial_indent="  # ", subsequent_indent="  #   ")
    for name, value in fields.items():
        yield from _field(name, value, "  ")
    yield f'  as_of: "{day}"'
    yield f'  review_by: "{_a_year_later(day)}"'
    yield "  confidence: derived"
    yield f"  source: [index-{day}, metadata-{day}]"


def _a_year_later(day: str) -> str:
    """The same day of next year; the 28th for a 29 February."""
    later = f"{int(day[:4]) + 1}{day[4:]}"
    return later.replace("-02-29", "-02-28")


def _field(name: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, dict):
        yield f"{indent}{name}:"
        for key, inner in value.items():
            yield from _field(key, inner, f"{indent}  ")
    elif isinstance(value, list):
        yield f"{indent}{name}: [{', '.join(_scalar(one) for one in value)}]"
    else:
        yield f"{indent}{name}: {_scalar(value)}"


def _scalar(value: Any) -> str:
    if isinstance(value, int):
        return str(value)
    text = str(value)
    return text if _PLAIN.fullmatch(text) and text not in _RESERVED else _quoted(text)


def _quoted(text: str) -> str:
    """A JSON string is a double-quoted scalar of YAML; what is not ASCII stands as an escape."""
    return json.dumps(text)
