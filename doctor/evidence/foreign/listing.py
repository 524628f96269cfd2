"""The `ls -l --full-time` lines of a bug report: mode, owner, and the only clock without a locale."""

from __future__ import annotations

import re
from datetime import datetime, timezone

__all__ = ["Listed", "read_listing", "time_of_report"]

_LINE = re.compile(
    r"\*\*\* ls: (?P<kind>[-bcdlps])(?P<bits>[-rwxsStT]{9})[.+@]? +\d+ +(?P<user>\S+) +(?P<group>\S+) +"
    r"(?:\d+, +)?\d+ +(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)? (?P<zone>[+-]\d{4}) "
    r"(?P<path>.*?)(?: -> (?P<link>.*))?"
)
_CLOCK = re.compile(r"\b(\d{1,2}:[0-5]\d:[0-5]\d)(?: ([AP]M)\b)?")
_DAY = 24 * 3600
#: The script takes seconds, on a host in trouble minutes.
_SPAN_S = 1800
_KINDS = {
    "-": "file",
    "b": "block",
    "c": "char",
    "d": "dir",
    "l": "link",
    "p": "fifo",
    "s": "socket",
}


class Listed:
    """One line: fields of a `stat:` item, and the time of the last change, as listed and in UTC."""

    __slots__ = ("clock", "fields", "path", "utc")

    def __init__(self, path: str, fields: dict[str, str], *, clock: str, utc: str) -> None:
        self.path = path
        self.fields = fields
        self.clock = clock
        """`HH:MM:SS` by the host's own zone."""
        self.utc = utc


def read_listing(line: str) -> Listed | None:
    """What an `*** ls:` line says; None for an error of `ls` or anything else."""
    found = _LINE.fullmatch(line.strip()[:4096])
    if found is None:
        return None
    fields = {
        "kind": _KINDS[found["kind"]],
        "mode": _octal(found["bits"]),
        "owner": f"{found['user']}:{found['group']}",
    }
    if found["link"]:
        fields["link"] = found["link"]
    return Listed(found["path"], fields, clock=found["time"][11:], utc=_utc(found["time"], found["zone"]))


def time_of_report(date_line: str, times: list[tuple[str, str]]) -> str:
    """When a report was written, of (clock, UTC) of files under `/proc` and `/sys`; empty when none is there.

    These carry the time of the boot or that of the report. The prologue's `Date:` tells which, by its
    clock alone: everything else in it depends on the locale.
    """
    found = _CLOCK.search(date_line)
    start = _seconds(found[1], found[2] or "") if found is not None else None
    if start is not None:
        # A boot under a clock set to local time leaves stamps in the future.
        near = [utc for clock, utc in times if (_seconds(clock, "") - start) % _DAY < _SPAN_S]
        if near:
            return max(near)
    return max((utc for _, utc in times), default="")


def _seconds(clock: str, half: str) -> int:
    hour, minute, second = map(int, clock.split(":"))
    if half:
        hour = hour % 12 + (12 if half.upper() == "PM" else 0)
    return (hour * 60 + minute) * 60 + second


def _octal(bits: str) -> str:
    value = 0
    for position, char in enumerate(bits):
        if char not in "-ST":
            value |= 0o400 >> position
    for position, special in ((2, 0o4000), (5, 0o2000), (8, 0o1000)):
        if bits[position] in "sStT":
            value |= special
    return f"{value:04o}"


def _utc(time: str, zone: str) -> str:
    try:
        moment = datetime.fromisoformat(f"{time}{zone[:3]}:{zone[3:]}").astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return ""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
