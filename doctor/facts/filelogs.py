"""Kernel messages in syslog files, which hold many boots one after the other, put to their boots.

A fall of the `[seconds]` stamp begins a new boot; where a file has no stamps, each `NVRM: loading` line
does. A boot counts as one that the journal or the ring buffer holds only when they share a message at
the same time; every other one is an earlier boot, never the present.
"""

from __future__ import annotations

from collections.abc import Iterator

from doctor.core.evidence import Evidence, Reading
from doctor.core.host import KernelMessage, Xid
from doctor.core.pattern import pattern
from doctor.facts.messages import read_messages
from doctor.facts.source import pci_address

__all__ = ["PRESENT_SOURCES", "read_file_boots", "starts_by_load", "xids_by_source"]

#: Logs that syslog daemons append to, boot after boot.
_FILES = ("/var/log/kern.log", "/var/log/messages", "/var/log/kernel.log", "/var/log/syslog")
#: Written once a boot; may be a leftover of an earlier one.
_BOOT_FILE = "/var/log/dmesg"
#: argv of the sources that hold one boot each, and its index.
PRESENT_SOURCES: tuple[tuple[tuple[str, ...], int], ...] = (
    (("dmesg",), 0),
    (("journalctl", "-k", "-b", "0"), 0),
    (("journalctl", "-k", "-b", "-1"), -1),
    (("journalctl", "-k", "-b", "-2"), -2),
)
#: Day of the month and time of day; month names depend on the locale, and syslog writes no year.
_CLOCK = pattern(r"(?<!\d)(\d{1,2})[T ] ?([01]\d|2[0-3]):([0-5]\d):([0-5]\d)\b")
_STAMP = pattern(r"^(?:.{0,160}? kernel: )?\[ *(\d{1,12}\.\d{1,9})\] (?:kernel: )?(.*)")
#: How far syslog's clock may lie behind the journal's while a boot is under way.
_LATE_S = 30
_XID = pattern(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]{7,20})\): (\d{1,5})\b.*")
_LOADING = "NVRM: loading NVIDIA"
#: Of a driver that had been loaded before.
_AT_WORK = pattern(
    r"NVRM: (?:Xid \(|GPU [0-9a-fA-F:.]+: |GPU at |API mismatch|.{0,80}?RmInitAdapter|rm_init_adapter)"
)
_SEGMENTS_MAX = 200

_Line = tuple[int | None, float | None, str]
"""Seconds since the month began, seconds since boot, message."""


def read_file_boots(evidence: Evidence) -> list[tuple[int, list[KernelMessage]]]:
    """(boot, messages) of each boot that a syslog file holds, newest first; unshared ones are numbered on."""
    known = {index: list(_boot_lines(evidence, index)) for index in (0, -1, -2)}
    boots: list[tuple[int, list[KernelMessage]]] = []
    lowest = min((index for index, lines in known.items() if lines), default=0)
    for path in (*_FILES, _BOOT_FILE):
        reading = evidence.file(path)
        for lines in reversed(_segments(reading.text) if reading.has_data else []):
            messages = read_messages("\n".join(lines))
            index = _boot_of(lines, known)
            if index is None and path == _BOOT_FILE:
                continue
            if index is None:
                lowest = index = lowest - 1
            boots.append((index, messages))
    return boots


def _boot_lines(evidence: Evidence, index: int) -> Iterator[_Line]:
    for argv, boot in PRESENT_SOURCES:
        reading = evidence.command(*argv)
        if boot == index and reading.has_data:
            yield from map(_parsed, _relevant(reading.text))


def _relevant(text: str) -> Iterator[str]:
    return (line for line in text.splitlines() if "NVRM" in line or "nvidia" in line)


def _parsed(line: str) -> _Line:
    clock = _CLOCK.search(line[:48]) if not line.startswith("[") else None
    time = None
    if clock is not None:
        day, hour, minute, second = map(int, clock.groups())
        time = ((day * 24 + hour) * 60 + minute) * 60 + second
    stamp = _STAMP.match(line)
    if stamp is not None:
        return time, float(stamp[1]), stamp[2].strip()
    return time, None, line.partition(" kernel: ")[2].strip() or line.strip()


def _segments(text: str) -> list[list[str]]:
    """The lines of each boot, oldest first."""
    lines = text.splitlines()
    has_stamps = any(_STAMP.match(line) for line in lines[:2000])
    starts = _falls(lines) if has_stamps else starts_by_load(lines)
    ends = [*starts, len(lines)]
    segments = [lines[start:end] for start, end in zip([0, *starts], ends, strict=True)]
    return [segment for segment in segments[-_SEGMENTS_MAX:] if segment]


def _falls(lines: list[str]) -> list[int]:
    """Where the `[seconds]` stamp falls."""
    starts, latest = [], -1.0
    for number, line in enumerate(lines):
        stamp = _STAMP.match(line)
        if stamp is None:
            continue
        seconds = float(stamp[1])
        # Lines of one moment may come in any order.
        if seconds < latest - 1:
            starts.append(number)
        latest = seconds
    return starts


def starts_by_load(lines: list[str]) -> list[int]:
    """Where the driver was loaded anew: behind the last line that a driver at work, or a load, left before.

    What it says while it looks for its GPUs (`not supported`, `misconfigured`) stands before its
    `loading` line and belongs to it.
    """
    starts, behind = [], 0
    for number, line in enumerate(lines):
        is_load = _LOADING in line
        if is_load and behind:
            starts.append(behind)
        if is_load or _AT_WORK.search(line):
            behind = number + 1
    return starts


def _boot_of(lines: list[str], known: dict[int, list[_Line]]) -> int | None:
    """The boot that shares a message with these lines at the same time; None when none does."""
    stamps, clocks = set[tuple[float, str]](), dict[str, list[int]]()
    for time, seconds, text in map(_parsed, _relevant("\n".join(lines))):
        if seconds is not None:
            stamps.add((seconds, text))
        if time is not None and len(clocks.setdefault(text, [])) < 50:
            clocks[text].append(time)
    for index, others in known.items():
        for time, seconds, text in others:
            if seconds is not None and (seconds, text) in stamps:
                return index
            if time is not None and any(abs(time - mine) <= _LATE_S for mine in clocks.get(text, ())):
                return index
    return None


def xids_by_source(evidence: Evidence) -> dict[str, tuple[Xid, ...]]:
    """Xid lines of each source by itself, for the same event may stand in four. Only sources with any."""
    counted = {source: _counted(reading.text) for source, reading in _sources(evidence)}
    return {source: xids for source, xids in counted.items() if xids}


def _counted(text: str) -> tuple[Xid, ...]:
    """All of them, however many: messages are kept for the newest few thousand lines only."""
    found: dict[tuple[int, str], list[str | int]] = {}
    for line in _XID.finditer(text):
        event = found.setdefault((int(line[2]), pci_address(line[1])), [line[0][:300], 0])
        event[1] = int(event[1]) + 1
    return tuple(Xid(code=e[0], gpu=e[1], count=int(n), first_text=str(t)) for e, (t, n) in found.items())


def _sources(evidence: Evidence) -> Iterator[tuple[str, Reading]]:
    for path in (*_FILES, _BOOT_FILE):
        if (reading := evidence.file(path)).has_data:
            yield path, reading
    for argv, _ in PRESENT_SOURCES:
        if (reading := evidence.command(*argv)).has_data:
            yield " ".join(argv), reading
