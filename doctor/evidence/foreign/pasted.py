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
from doctor.facts.filelogs import starts_by_load
from doctor.facts.smi import RUN_AGAIN
from doctor.timeouts import FOREIGN_PASTE_BYTES_MAX

__all__ = ["read_pasted"]

_BOOT = re.compile(r"-- (?:Boot [0-9a-f]{8,40}|Reboot) --")
_INDEX = re.compile(r"(?:^|\s)(?:-b|--boot)[ =]?(-[12])\b")
_SECONDS = re.compile(r"^(?:.{0,160}? kernel: )?\[ *(\d{1,12}\.\d{1,9})\]")
#: `nvidia-smi -i 0`, `nvidia-smi | head`: what it leaves out may be there.
_PART = re.compile(r"nvidia-smi\b.*(?:\s-i\b|\s-i\d|--id\b|\|)")
#: `docker run --gpus all IMAGE nvidia-smi`: what it prints is true of the container.
_INSIDE = re.compile(
    r"\b(?:(?:docker|podman|nerdctl|crictl|kubectl)\b.*\b(?:run|exec)|nvidia-docker run"
    r"|(?:apptainer|singularity) (?:exec|shell|run)|enroot start)\s"
)
_INSIDE_SCOPE = "container:pasted"
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
        # The kernel's messages are the host's, wherever they were read.
        found.scope = _INSIDE_SCOPE if _INSIDE.search(hint) and form.name not in _LOGS else "host"
        if form.name in _LOGS:
            for argv, part in _boots(form, hint, lines):
                logs.setdefault(argv, []).extend(part)
        elif form.path:
            found.file(form.path, _bytes(lines))
        elif form.argv[:1] == ("nvidia-smi",):
            _add_smi(found, form.argv, _bytes(lines), is_part=_PART.search(hint) is not None)
        else:
            # Whoever pastes a listing of the bus may have picked lines from it.
            found.command(form.argv_of(lines), _bytes(lines), "truncated" if form.name == "lspci" else "ok")
    found.scope = "host"
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


def _add_smi(found: Gathered, argv: tuple[str, ...], data: bytes, *, is_part: bool) -> None:
    """Each run by itself: of a thread that shows it before and after, the later one counts."""
    detail = RUN_AGAIN if found.has_run(argv[0]) else None
    found.command(argv, data, "truncated" if is_part else "ok", detail, is_again=detail is not None)


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
    hint, is_used, margin = "", False, 0
    for line in lines:
        text = line.text[margin:] if not line.text[:margin].strip() else line.text
        other = None if line.is_border else form_of(line.text.lstrip(" "), form)
        if form is not None and (line.is_border or other is not None or not goes_on(form, text)):
            yield form, hint, kept
            if other is None and not line.is_border:
                # The same form again, behind a line that did not fit.
                other = form_of(line.text.lstrip(" "), None)
            form, kept, margin, is_used = None, [], 0, True
        if line.is_border:
            # A command speaks for what follows it, not for what somebody shows next.
            hint = line.command or ("" if is_used else hint)
            is_used = is_used and not line.command
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
    """Where the newest boot begins: after the last mark of a boot, or fall of the `[seconds]` stamp.

    Without such stamps each load of the driver begins one: what came before is history either way.
    """
    start, latest = 0, -1.0
    if not any(_SECONDS.match(line) for line in lines):
        start = max(starts_by_load(lines), default=0)
    for number, line in enumerate(lines):
        found = _SECONDS.match(line)
        if _BOOT.search(line):
            start, latest = max(start, number), -1.0
        elif found is not None:
            seconds = float(found.group(1))
            if seconds < latest - 1:
                start = number
            latest = seconds
    return start
