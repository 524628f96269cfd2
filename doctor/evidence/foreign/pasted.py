"""Text that people paste when they ask for help: one tool's output, or several together, as evidence.

Each part is recognised by its content; prompts, Markdown fences, quoting and colours around it are
tolerated. What nobody recognises is left alone, and what was not pasted was not collected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.core.evidence import Evidence
from doctor.errors import EvidenceError
from doctor.evidence.archive import shown
from doctor.evidence.foreign.gather import Gathered
from doctor.evidence.foreign.kernelscan import newest
from doctor.evidence.foreign.plaintext import LINES_MAX, Line, clean_lines
from doctor.evidence.foreign.recognise import Form, form_of, goes_on
from doctor.evidence.foreign.unpack import Unpacker
from doctor.timeouts import FOREIGN_PASTE_BYTES_MAX

__all__ = ["read_pasted"]

_BOOT = re.compile(r"-- (?:Boot [0-9a-f]{8,40}|Reboot) --")
_INDEX = re.compile(r"(?:^|\s)(?:-b|--boot)[ =]?(-[12])\b")
_SECONDS = re.compile(r"^(?:.{0,160}? kernel: )?\[ *(\d{1,12}\.\d{1,9})\]")
#: Logs: everything pasted of them belongs together. Of anything else the first that says something counts.
_LOGS = ("dmesg", "journal")


def read_pasted(stream: Unpacker, origin: str) -> Evidence:
    """The evidence in pasted text. Raises `EvidenceError` when nothing in it is known."""
    data, is_cut = _taken(stream)
    is_cut = is_cut or data.count(b"\n") > LINES_MAX
    found, names = Gathered(), dict[str, None]()
    logs: dict[tuple[str, ...], list[str]] = {}
    for form, hint, lines in _parts(clean_lines(data)):
        names[form.name] = None
        if form.name in _LOGS:
            for argv, part in _boots(form, hint, lines):
                logs.setdefault(argv, []).extend(part)
        elif form.path:
            found.file(form.path, _bytes(lines))
        else:
            found.command(form.argv_of(lines), _bytes(lines))
    for argv, lines in logs.items():
        # Somebody chose these lines: what is missing among them proves nothing.
        if argv == _OLDER:
            found.file("/var/log/kern.log", newest(_bytes(lines)), "truncated", "pasted lines")
        else:
            found.command(argv, newest(_bytes(lines)), "truncated", "pasted lines")
    if not len(found):
        raise _nothing(origin)
    notes = [*dict.fromkeys(stream.notes), *(["only its first part was read"] if is_cut else [])]
    if notes:
        found.note("paste", "; ".join(notes))
    return found.evidence(tool=f"pasted text ({', '.join(names)})")


def _taken(stream: Unpacker) -> tuple[bytes, bool]:
    pieces, size = [], 0
    for piece in stream:
        pieces.append(piece)
        size += len(piece)
        if size > FOREIGN_PASTE_BYTES_MAX:
            return b"".join(pieces)[:FOREIGN_PASTE_BYTES_MAX], True
    return b"".join(pieces), False


def _nothing(origin: str) -> EvidenceError:
    from doctor.evidence.foreign import ACCEPTED

    return EvidenceError(
        f"`{shown(origin)}` holds nothing that is known here", hints=(f"accepted are {ACCEPTED}",)
    )


def _bytes(lines: list[str]) -> bytes:
    return ("\n".join(lines).strip("\n") + "\n").encode("utf-8", "replace")


def _parts(lines: Iterator[Line]) -> Iterator[tuple[Form, str, list[str]]]:
    """(form, the command typed before it, its lines) of each part that is recognised."""
    form: Form | None = None
    kept: list[str] = []
    hint, margin = "", 0
    for line in lines:
        text = line.text[margin:] if not line.text[:margin].strip() else line.text
        other = None if line.is_border else form_of(line.text.lstrip(" "), form)
        if form is not None and (line.is_border or other is not None or not goes_on(form, text)):
            yield form, hint, kept
            if other is None and not line.is_border:
                # The same form again, behind a line that did not fit.
                other = form_of(line.text.lstrip(" "), None)
            form, kept, margin = None, [], 0
        if line.is_border:
            hint = line.command or hint
        elif form is not None:
            kept.append(text)
        elif other is not None:
            margin = len(line.text) - len(line.text.lstrip(" "))
            form, kept = other, [line.text[margin:]]
    if form is not None:
        yield form, hint, kept


_NOW = ("journalctl", "-k", "-b", "0")
_OLDER = ("kern.log",)


def _boots(form: Form, hint: str, lines: list[str]) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """A log by boots: the newest one is taken as the present, unless the command asked for another."""
    asked = _INDEX.search(hint) if "journalctl" in hint else None
    if asked is not None:
        yield ("journalctl", "-k", "-b", asked.group(1)), lines
        return
    last = _last_start(lines)
    argv = ("dmesg",) if form.name == "dmesg" else _NOW
    if last:
        yield _OLDER, lines[:last]
    yield argv, lines[last:]


def _last_start(lines: list[str]) -> int:
    """Where the newest boot begins: after the last mark of a boot, or fall of the `[seconds]` stamp."""
    start, latest = 0, -1.0
    for number, line in enumerate(lines):
        found = _SECONDS.match(line)
        if _BOOT.search(line):
            start, latest = number, -1.0
        elif found is not None:
            seconds = float(found.group(1))
            if seconds < latest - 1:
                start = number
            latest = seconds
    return start
