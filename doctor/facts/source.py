"""What the parsers share: reasons for absence, numbers read with care, JSON of unknown shape.

Evidence is hostile until read: nothing here raises on any bytes, and every number is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from doctor.core.evidence import Evidence, Reading
from doctor.core.host import Absent, AbsentReason
from doctor.core.pattern import pattern
from doctor.core.versions import Dotted

__all__ = [
    "Document",
    "absent",
    "at",
    "document",
    "dotted",
    "driver_version_in",
    "exists",
    "first_usable",
    "fraction",
    "integer",
    "is_newest_part",
    "is_present",
    "line_of",
    "parent",
    "pci_address",
    "runs",
    "stat_of",
    "string",
    "whole",
]

#: A decoded JSON object whose fields nobody has checked yet.
Document = dict[str, object]

_INT_MAX = 2**63 - 1
_VERSION_MAX = 64
_PCI = pattern(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?")


def absent(reading: Reading, detail: str = "") -> Absent:
    """Why a reading holds no fact; bytes that came back but say nothing usable are `unreadable`."""
    said = detail or (reading.item.detail if reading.item and reading.item.detail else "")
    return Absent(reason=_reason(reading), origin=reading.origin, detail=said[:500])


def _reason(reading: Reading) -> AbsentReason:
    if reading.status is None:
        return "not_collected"
    if reading.status == "missing":
        return "not_installed"
    if reading.status == "denied":
        return "denied"
    if reading.status == "timeout":
        return "timeout"
    if reading.status == "error" and not reading.origin.startswith(("file:", "stat:")):
        return "failed"
    return "unreadable"


def first_usable(*readings: Reading) -> Reading:
    """The first reading with data; else the first that was asked for; else the first."""
    for reading in readings:
        if reading.has_data and reading.data.strip():
            return reading
    for reading in readings:
        if reading.status is not None:
            return reading
    return readings[0]


def runs(evidence: Evidence, tool: str) -> Iterator[Reading]:
    """All runs of a tool; where a tree was made by hand, by the name of its output."""
    yield from evidence.commands(tool)
    for item in evidence.meta.items:
        rest = item.key.removeprefix(f"command:{tool}")
        if not item.argv and item.scope == "host" and rest != item.key and rest[:1] in ("", "-"):
            yield evidence.read(item.key)


def stat_of(evidence: Evidence, path: str) -> Reading:
    """What was said of a path's existence."""
    return evidence.read(f"stat:{path}")


def exists(evidence: Evidence, path: str) -> bool | None:
    """Whether a path exists; None when that was not asked or not answered."""
    item = evidence.item(f"stat:{path}")
    if item is None or item.status not in ("ok", "missing", "truncated"):
        return None
    return item.status != "missing" and item.exists is not False


def is_present(evidence: Evidence, path: str) -> bool | None:
    """As `exists`; a file whose bytes are here is there, too (trees made by hand have no `stat:` items)."""
    said = exists(evidence, path)
    if said is None:
        item = evidence.item(f"file:{path}")
        if item is not None and item.status in ("ok", "truncated", "missing"):
            return item.status != "missing"
    return said


def is_newest_part(log: Reading) -> bool:
    """Whether a log is whole or holds its newest part, so that what it lacks did not happen of late.

    What somebody's script picked from a log, or pasted from it, says nothing of the rest.
    """
    detail = log.item.detail or "" if log.item is not None else ""
    return log.status == "ok" or (log.status == "truncated" and detail.endswith(" bytes kept"))


def line_of(reading: Reading) -> str:
    """The first line that is not blank, without its margins; empty when there is none."""
    for line in reading.text.splitlines():
        if line.strip(" \t\0"):
            return line.strip(" \t\0")[:4096]
    return ""


def parent(path: str, levels: int = 1) -> str:
    """The directory that holds a path."""
    for _ in range(levels):
        path = path.rpartition("/")[0]
    return path or "/"


def dotted(text: str | None) -> Dotted | None:
    """A dotted version, or None when the text is none. Placeholders (`N/A`) are none."""
    if text is None or len(text) > _VERSION_MAX:
        return None
    try:
        return Dotted(text)
    except ValueError:
        return None


def driver_version_in(path: str) -> Dotted | None:
    """The driver version at the end of a library's file name; `.so.1` and WSL's `.so.1.1` name none."""
    found = re.search(r"\.so\.(\d{3,6}(?:\.\d{1,6}){1,3})$", path)
    return dotted(found.group(1)) if found is not None else None


def whole(text: str | None, base: Literal[8, 10, 16] = 10) -> int | None:
    """An integer at the start of a text (`37 C` gives 37); None when there is none or it is huge."""
    digits = {8: "[0-7]{1,21}", 10: "[0-9]{1,18}", 16: "[0-9a-fA-F]{1,16}"}[base]
    prefix = "(?:0[xX])?" if base == 16 else ""
    found = re.match(rf"\s*(-?){prefix}({digits})(?![0-9])", text or "")
    return None if found is None else int(found.group(1) + found.group(2), base)


def fraction(text: str | None) -> float | None:
    """A decimal number at the start of a text (`123.53 W`); None when there is none."""
    found = re.match(r"\s*(-?[0-9]{1,15}(?:\.[0-9]{1,9})?)(?![0-9])", text or "")
    return None if found is None else float(found.group(1))


def pci_address(text: str) -> str:
    """`00000000:41:00.0`, `41:00.0` or `0000:41:00` as `0000:41:00.0`; empty when it is no address.

    A domain above four digits keeps them.
    """
    found = _PCI.fullmatch(text.strip())
    if found is None:
        return ""
    domain, bus, device, function = found.groups()
    number = int(domain or "0", 16)
    return f"{number:04x}:{bus}:{device}.{function or 0}".lower()


def document(data: bytes) -> Document | None:
    """A JSON object; None for anything else, however broken or deep."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def at(doc: object, *path: str | int) -> object:
    """The value at a path of keys and positions; None where the shape is another one."""
    for step in path:
        if isinstance(doc, dict) and isinstance(step, str):
            doc = doc.get(step)
        elif isinstance(doc, list) and isinstance(step, int) and step < len(doc):
            doc = doc[step]
        else:
            return None
    return doc


def integer(value: object) -> int | None:
    """A JSON number as an integer; None for other types and for what 64 bits cannot hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not -_INT_MAX <= value <= _INT_MAX:
        return None
    return int(value)


def string(value: object, limit: int = 1000) -> str | None:
    """A JSON string, cut at a limit; None for other types and for an empty one."""
    return value[:limit] if isinstance(value, str) and value else None
