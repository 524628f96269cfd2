"""The machine around the GPUs: chassis, processors, NUMA, clock, memory limits, locks, keys."""

from __future__ import annotations

import re

from doctor.core.evidence import Evidence, Reading
from doctor.core.host import Absent, Fact, Known
from doctor.core.host_machine import Chassis, LockHolder, Machine, NumaNode
from doctor.core.pattern import pattern
from doctor.facts.bridges import read_acs, read_iommu_domain, read_iommu_groups, read_other_displays
from doctor.facts.pressure import read_oom_kills, read_pcie_errors
from doctor.facts.repositories import read_module_streams, read_repositories
from doctor.facts.source import (
    absent,
    at,
    document,
    first_usable,
    integer,
    line_of,
    runs,
    stat_of,
    string,
    whole,
)

__all__ = ["read_machine"]

#: SMBIOS, *System Enclosure or Chassis Types*: laptops, tablets and convertibles, desktops, servers.
_CHASSIS: dict[Chassis, tuple[int, ...]] = {
    "laptop": (8, 9, 10, 11, 14, 30, 31, 32),
    "desktop": (3, 4, 5, 6, 7, 13, 15, 16, 24, 35, 36),
    "server": (17, 23, 25, 28, 29),
}
_NODES = "/sys/devices/system/node"
_CPUS = "/sys/devices/system/cpu"
_CGROUPS = "/sys/fs/cgroup"
_NODES_MAX = 256
#: Version 1 writes the largest multiple of a page for *no limit*.
_UNLIMITED = 2**62
#: A number in a file may have become another process's.
_DNF = pattern(r"(?i)dnf|yum|packagekit|python|platform-python|microdnf")
_SUBJECT = pattern(r"^[ \t]{0,40}Subject: ?(.{1,500})$", re.MULTILINE)


def read_machine(evidence: Evidence) -> Machine:
    """The facts of `Host.machine`."""
    return Machine(
        chassis=_chassis(evidence),
        other_displays=read_other_displays(evidence),
        governors=_governors(evidence),
        numa_nodes=_numa_nodes(evidence),
        numa_balancing=_numa_balancing(evidence),
        iommu_groups=read_iommu_groups(evidence),
        iommu_domain=read_iommu_domain(evidence),
        acs_bridges=read_acs(evidence),
        clock_synchronised=_clock_synchronised(evidence),
        clocksource=_word(evidence, "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        transparent_hugepages=_hugepages(evidence),
        swappiness=_swappiness(evidence),
        cgroup_memory_limit_bytes=_memory_limit(evidence),
        oom_kills=read_oom_kills(evidence),
        pcie_errors=read_pcie_errors(evidence),
        repositories=read_repositories(evidence),
        module_streams=read_module_streams(evidence),
        package_locks=_package_locks(evidence),
        enrolled_keys=_keys(evidence, "--list-enrolled"),
        pending_keys=_keys(evidence, "--list-new"),
    )


def _chassis(evidence: Evidence) -> Fact[Chassis]:
    reading = evidence.file("/sys/class/dmi/id/chassis_type")
    number = whole(line_of(reading)) if reading.has_data else None
    if number is None:
        return absent(reading, "no number" if reading.has_data else "")
    kind = next((kind for kind, numbers in _CHASSIS.items() if number in numbers), "other")
    return Known(value=kind, origin=reading.origin)  # type: ignore[arg-type]


def _word(evidence: Evidence, path: str) -> Fact[str]:
    """A file that holds one word."""
    reading = evidence.file(path)
    word = line_of(reading)[:100] if reading.has_data else ""
    return Known(value=word, origin=reading.origin) if word else absent(reading)


def _number(evidence: Evidence, path: str) -> tuple[int | None, Reading]:
    reading = evidence.file(path)
    return (whole(line_of(reading)) if reading.has_data else None), reading


def _swappiness(evidence: Evidence) -> Fact[int]:
    number, reading = _number(evidence, "/proc/sys/vm/swappiness")
    return absent(reading) if number is None else Known(value=number, origin=reading.origin)


def _numa_balancing(evidence: Evidence) -> Fact[bool]:
    """2 (memory tiering) moves pages, too."""
    number, reading = _number(evidence, "/proc/sys/kernel/numa_balancing")
    return absent(reading) if number is None else Known(value=number != 0, origin=reading.origin)


def _hugepages(evidence: Evidence) -> Fact[str]:
    """`always [madvise] never`: the one in brackets holds."""
    reading = evidence.file("/sys/kernel/mm/transparent_hugepage/enabled")
    found = re.search(r"\[(\w{1,40})\]", line_of(reading)) if reading.has_data else None
    if found is None:
        return absent(reading, "no mode is marked" if reading.has_data else "")
    return Known(value=found[1], origin=reading.origin)


# --- processors and memory ------------------------------------------------------------------------


def _governors(evidence: Evidence) -> Fact[dict[str, int]]:
    """Counted by the collector; in a tree made by hand from the files of each processor."""
    told = evidence.read("machine")
    counts = at(document(told.data), "governors") if told.has_data else None
    if isinstance(counts, dict):
        found = {str(k)[:40]: n for k, v in list(counts.items())[:32] if (n := integer(v)) is not None}
        if found:
            return Known(value=found, origin=told.origin)
        return Absent(reason="not_installed", origin=told.origin, detail="no cpufreq here")
    by_file: dict[str, int] = {}
    for item in evidence.below(f"{_CPUS}/"):
        if item.key.endswith("/scaling_governor"):
            word = line_of(evidence.read(item.key))[:40]
            by_file[word] = by_file.get(word, 0) + 1
    by_file.pop("", None)
    if by_file:
        return Known(value=by_file, origin=f"file:{_CPUS}/")
    return Absent(reason="not_collected", origin="machine")


def _numa_nodes(evidence: Evidence) -> Fact[tuple[NumaNode, ...]]:
    found = {}
    for item in evidence.below(f"{_NODES}/node"):
        match = re.fullmatch(rf"file:{_NODES}/node(\d{{1,4}})/cpulist", item.key)
        reading = evidence.read(item.key)
        if match is not None and reading.has_data:
            memory = evidence.file(f"{_NODES}/node{match[1]}/meminfo")
            total = (
                re.search(rb"MemTotal: {1,20}(\d{1,15}) kB", memory.data[:8192]) if memory.has_data else None
            )
            size = None if total is None else int(total[1]) * 1024
            found[int(match[1])] = NumaNode(
                index=int(match[1]), cpus=line_of(reading)[:500], memory_bytes=size
            )
    if found:
        return Known(value=tuple(found[i] for i in sorted(found)[:_NODES_MAX]), origin=f"file:{_NODES}/")
    folder = stat_of(evidence, _NODES)
    return absent(folder) if folder.status != "ok" else Absent(reason="not_collected", origin=folder.origin)


def _memory_limit(evidence: Evidence) -> Fact[int]:
    """The least limit of the collector's own cgroup and those above it."""
    items = [
        i for i in evidence.below(f"{_CGROUPS}/") if i.key.endswith(("/memory.max", "/memory.limit_in_bytes"))
    ]
    readings = [evidence.read(item.key) for item in items]
    limits = [(whole(line_of(r)), r.origin) for r in readings if r.has_data]
    known = [(limit, origin) for limit, origin in limits if limit is not None and 0 < limit < _UNLIMITED]
    if known:
        limit, origin = min(known)
        return Known(value=limit, origin=origin)
    # The topmost group of a host has no such file.
    if readings and all(r.has_data or r.status == "missing" for r in readings):
        return Absent(reason="not_installed", origin=readings[0].origin, detail="unlimited")
    return (
        absent(first_usable(*readings))
        if readings
        else Absent(reason="not_collected", origin=f"file:{_CGROUPS}/")
    )


# --- clock, locks, keys ---------------------------------------------------------------------------


def _clock_synchronised(evidence: Evidence) -> Fact[bool]:
    told = evidence.read("machine")
    answer = at(document(told.data), "clock", "synchronised") if told.has_data else None
    if isinstance(answer, bool):
        return Known(value=answer, origin=told.origin)
    for reading in runs(evidence, "timedatectl"):
        found = re.search(r"(?:NTPSynchronized=|System clock synchronized: ?)(yes|no)", reading.text[:10_000])
        if reading.has_data and found is not None:
            return Known(value=found[1] == "yes", origin=reading.origin)
    return (
        absent(told)
        if told.status not in ("ok", "truncated")
        else Absent(reason="failed", origin=told.origin)
    )


def _package_locks(evidence: Evidence) -> Fact[tuple[LockHolder, ...]]:
    told = evidence.read("machine")
    rows = at(document(told.data), "package_locks") if told.has_data else None
    if not isinstance(rows, list):
        return Absent(reason="not_collected", origin=told.origin) if told.has_data else absent(told)
    found = []
    for row in rows[:64]:
        lock, process = string(at(row, "lock"), 200) or "", string(at(row, "process_name"), 100) or ""
        if lock and (not lock.endswith(".pid") or _DNF.match(process)):
            found.append(LockHolder(lock=lock, process=process, pid=integer(at(row, "pid"))))
    return Known(value=tuple(found), origin=told.origin)


def _keys(evidence: Evidence, option: str) -> Fact[tuple[str, ...]]:
    """Subjects of the certificates; an empty list where mokutil says that there are none."""
    reading = evidence.command("mokutil", option)
    if not reading.has_data:
        missing = reading.item.detail or "" if reading.status == "missing" and reading.item else ""
        if "not found" in missing:
            # Without the tool nobody looked.
            return Absent(reason="not_collected", origin=reading.origin, detail="mokutil is not installed")
        return absent(reading)
    said = f"{reading.text[:200_000]}\n{evidence.stderr(reading)[:2000]}"
    subjects = tuple(dict.fromkeys(found.strip() for found in _SUBJECT.findall(said)))
    if subjects or "is empty" in said or not reading.rc:
        return Known(value=subjects[:64], origin=reading.origin)
    if "not supported" in said:
        return Absent(reason="not_installed", origin=reading.origin, detail=said.strip()[:200])
    return Absent(reason="failed", origin=reading.origin, detail=said.strip()[:200])
