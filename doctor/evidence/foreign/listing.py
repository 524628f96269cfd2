"""The `ls -l --full-time` lines of a bug report: mode, owner, and the only clock without a locale."""

from __future__ import annotations

import re
from datetime import datetime, timezone

__all__ = ["Listed", "read_listing"]

_LINE = re.compile(
    r"\*\*\* ls: (?P<kind>[-bcdlps])(?P<bits>[-rwxsStT]{9})[.+@]? +\d+ +(?P<user>\S+) +(?P<group>\S+) +"
    r"(?:\d+, +)?\d+ +(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)? (?P<zone>[+-]\d{4}) "
    r"(?P<path>.*?)(?: -> (?P<link>.*))?"
)
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
    """One line: fields of a `stat:` item, and the time of the last change in UTC."""

    __slots__ = ("fields", "path", "utc")

    def __init__(self, path: str, fields: dict[str, str], utc: str) -> None:
        self.path = path
        self.fields = fields
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
    return Listed(found["path"], fields, _utc(found["time"], found["zone"]))


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
