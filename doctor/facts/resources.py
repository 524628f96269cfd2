"""Memory, swap, file systems and limits: from psutil's document, else from `/proc`."""

from __future__ import annotations

import re

from doctor.core.evidence import Evidence
from doctor.core.host import Fact, Filesystem, Known, Limit, Resources
from doctor.facts.source import Document, absent, at, document, first_usable, integer, string

__all__ = ["read_resources"]

#: Row of `/proc/self/limits` -> the name psutil and ulimit users know.
_LIMITS = {
    "Max locked memory": "memlock",
    "Max open files": "nofile",
    "Max stack size": "stack",
    "Max address space": "as",
    "Max processes": "nproc",
}


def read_resources(evidence: Evidence) -> Fact[Resources]:
    """The answer of psutil where it was collected; memory and limits alone from `/proc` otherwise."""
    reading = evidence.read("resources")
    doc = document(reading.data) if reading.has_data else None
    value = _by_document(doc) if doc is not None else None
    if value is not None:
        return Known(value=value, origin=reading.origin)
    meminfo = evidence.file("/proc/meminfo")
    value = _by_proc(evidence, meminfo.text) if meminfo.has_data else None
    if value is not None:
        return Known(value=value, origin=meminfo.origin)
    return absent(first_usable(reading, meminfo))


def _by_document(doc: Document) -> Resources | None:
    total = integer(at(doc, "memory", "total"))
    if total is None:
        return None
    available = integer(at(doc, "memory", "available"))
    return Resources(
        memory_bytes=total,
        memory_available_bytes=total if available is None else available,
        swap_bytes=integer(at(doc, "swap", "total")) or 0,
        cpu_count=integer(at(doc, "cpu_count")),
        filesystems=_filesystems(at(doc, "filesystems")),
        limits=_limits(at(doc, "limits")),
    )


def _filesystems(rows: object) -> tuple[Filesystem, ...]:
    found = []
    for row in rows[:1000] if isinstance(rows, list) else []:
        path, total, free = string(at(row, "path")), integer(at(row, "total")), integer(at(row, "free"))
        if path is not None and total is not None and free is not None:
            kind = string(at(row, "kind")) or ""
            found.append(Filesystem(path=path, total_bytes=total, free_bytes=free, kind=kind))
    return tuple(found)


def _limits(rows: object) -> tuple[Limit, ...]:
    found = []
    for name, pair in rows.items() if isinstance(rows, dict) else ():
        soft, hard = integer(at(pair, 0)), integer(at(pair, 1))
        if soft is not None and hard is not None:
            found.append(Limit(name=str(name)[:100], soft=soft, hard=hard))
    return tuple(found)


def _by_proc(evidence: Evidence, meminfo: str) -> Resources | None:
    rows: dict[str, str] = dict(re.findall(r"^(\w+):\s+([0-9]{1,15}) kB", meminfo, re.MULTILINE))
    if "MemTotal" not in rows:
        return None
    cpu = evidence.file("/proc/cpuinfo")
    # The collector keeps the first part only: a cut list is no count.
    count = len(re.findall(rb"^processor\s*:", cpu.data, re.MULTILINE)) if cpu.status == "ok" else 0
    limits = evidence.file("/proc/self/limits")
    return Resources(
        memory_bytes=int(rows["MemTotal"]) * 1024,
        memory_available_bytes=int(rows.get("MemAvailable", rows["MemTotal"])) * 1024,
        swap_bytes=int(rows.get("SwapTotal", "0")) * 1024,
        cpu_count=count or None,
        limits=_proc_limits(limits.text) if limits.has_data else (),
    )


def _proc_limits(text: str) -> tuple[Limit, ...]:
    found = []
    for title, name in _LIMITS.items():
        row = re.search(
            rf"^{title}\s+(unlimited|[0-9]{{1,18}})\s+(unlimited|[0-9]{{1,18}})\b", text, re.MULTILINE
        )
        if row is not None:
            soft, hard = (-1 if part == "unlimited" else int(part) for part in row.groups())
            found.append(Limit(name=name, soft=soft, hard=hard))
    return tuple(found)
