"""What the kernel's log of the running boot says of memory that ran out and of PCIe links that fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from doctor.core.evidence import Evidence, Reading
from doctor.core.host import Absent, Fact, Known
from doctor.core.host_machine import OomKill
from doctor.core.pattern import pattern
from doctor.facts.source import absent, first_usable, is_newest_part, pci_address

__all__ = ["read_oom_kills", "read_pcie_errors"]

_EVENTS_MAX = 200
_LINES_MAX = 20_000
_LINE_MAX = 2000
#: `oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),…,oom_memcg=/a,task_memcg=/b,task=python,pid=7,uid=0`
_OOM = pattern(r"oom-kill:constraint=(\w{1,40}),(.{0,1500}?)task=(.{1,64}?),pid=(\d{1,10})")
_MEMCG = pattern(r"oom_memcg=([^,]{1,600})")
#: Before Linux 5.0, and where only this line is left of the log.
_KILLED = pattern(
    r"(Memory cgroup out of memory: |Out of memory:? ?)?Kill(?:ed)? process (\d{1,10}),? "
    r".{0,40}?\(([^)]{1,64})\)"
)
_BUS_ERROR = "PCIe Bus Error: severity="
_RECEIVED = "error message received from "
_RECEIVED_OLD = " error received: "
_ADDRESS = pattern(r"([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


def _logs(evidence: Evidence) -> list[Reading]:
    return [evidence.command("dmesg"), evidence.command("journalctl", "-k", "-b", "0")]


def _lines(reading: Reading, phrase: str) -> Iterator[str]:
    """The lines that hold a phrase, found without looking at the others."""
    data, mark = reading.data, phrase.encode()
    place, count = data.find(mark), 0
    while place >= 0 and count < _LINES_MAX:
        start, end = data.rfind(b"\n", 0, place) + 1, data.find(b"\n", place)
        end = len(data) if end < 0 else end
        yield data[max(start, place - _LINE_MAX) : min(end, place + _LINE_MAX)].decode("utf-8", "replace")
        place, count = data.find(mark, end), count + 1


def _of_boot(evidence: Evidence) -> tuple[list[Reading], Absent | None]:
    """The readable logs of the running boot, or why there is none."""
    logs = _logs(evidence)
    usable = [log for log in logs if log.has_data and log.data.strip() and not log.rc]
    if usable:
        return usable, None
    return [], absent(first_usable(*logs), "the log is empty" if any(log.has_data for log in logs) else "")


def _only_a_part(log: Reading) -> Absent:
    detail = "none in that part of the log which is here, which says nothing of the rest"
    return Absent(reason="unreadable", origin=log.origin, detail=detail)


def read_oom_kills(evidence: Evidence) -> Fact[tuple[OomKill, ...]]:
    """Newest first; of the two logs that hold one boot the one with more counts."""
    logs, why_not = _of_boot(evidence)
    if why_not is not None:
        return why_not
    best, log = max(((_kills(log), log) for log in logs), key=lambda pair: len(pair[0]))
    if not best and not any(map(is_newest_part, logs)):
        return _only_a_part(log)
    return Known(value=tuple(reversed(best))[:_EVENTS_MAX], origin=log.origin)


def _kills(log: Reading) -> list[OomKill]:
    found: dict[tuple[int, str], OomKill] = {}
    for number, line in enumerate(_lines(log, "oom-kill:constraint=")):
        match = _OOM.search(line)
        if match is not None:
            group = _MEMCG.search(match[2])
            kill = OomKill(
                process=match[3], constraint=match[1], memory_cgroup="" if group is None else group[1]
            )
            found[number, match[4]] = kill
    if found:
        return list(found.values())
    kills = {}
    for phrase in ("Killed process ", "Kill process "):
        for line in _lines(log, phrase):
            match = _KILLED.search(line)
            # Old kernels announce a kill and report it: one event, one process number.
            if match is not None and match[2] not in kills:
                is_group = (match[1] or "").startswith("Memory cgroup")
                constraint = "CONSTRAINT_MEMCG" if is_group else "CONSTRAINT_NONE" if match[1] else ""
                kills[match[2]] = OomKill(process=match[3], constraint=constraint)
    return list(kills.values())


def read_pcie_errors(evidence: Evidence) -> Fact[dict[str, int]]:
    """Reports of a device's own (`PCIe Bus Error`), else of the root port that heard of them."""
    logs, why_not = _of_boot(evidence)
    if why_not is not None:
        return why_not
    counted = [(_reports(log), log) for log in logs]
    best, log = max(counted, key=lambda pair: sum(pair[0].values()))
    if not best and not any(map(is_newest_part, logs)):
        return _only_a_part(log)
    return Known(value=dict(sorted(best.items(), key=lambda pair: -pair[1])[:_EVENTS_MAX]), origin=log.origin)


def _reports(log: Reading) -> Counter[str]:
    counts: Counter[str] = Counter()
    for line in _lines(log, _BUS_ERROR):
        # `nvidia 0000:01:00.0: PCIe Bus Error: severity=Corrected, …`
        named = _ADDRESS.findall(line.partition(_BUS_ERROR)[0])
        if named:
            counts[pci_address(named[-1])] += 1
    if not counts:
        for phrase in (_RECEIVED, _RECEIVED_OLD):
            for line in _lines(log, phrase):
                named = _ADDRESS.findall(line.partition(phrase)[2])
                if named and "AER" in line:
                    counts[pci_address(named[0])] += 1
    return counts
