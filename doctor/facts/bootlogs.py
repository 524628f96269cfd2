"""The kernel's messages by boot: the ring buffer and the journal of one boot are one log."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from doctor.core.evidence import Evidence, Reading
from doctor.core.host import Absent, BootLog, Fact, KernelMessage, Known
from doctor.core.pattern import pattern
from doctor.facts.filelogs import read_file_boots
from doctor.facts.messages import count_sxids, count_xids, is_whole_boot, read_messages
from doctor.facts.source import absent, first_usable

__all__ = ["merge", "read_logs", "secure_boot_line"]

#: Lines of an empty log, and of a tool that could not read it.
_NOTHING = (
    "-- No entries --",
    "No journal files were ",
    "-- Logs begin at ",
    "-- Journal begins at ",
    "Data from the specified boot ",
    "Specifying boot ID ",
    "Failed to ",
    "Hint: ",
    "dmesg: read kernel buffer failed",
)
#: A radio's firmware says `Secure boot is enabled` too; only the kernel's own words count.
_SECURE_BOOT = pattern(
    r"secureboot: Secure boot (enabled|disabled)|Kernel is locked down from (?:EFI )?Secure Boot"
)
_DENIED = pattern(r"Operation not permitted|[Pp]ermission denied|insufficient permissions")


def read_logs(evidence: Evidence) -> Fact[tuple[BootLog, ...]]:
    """Each boot from all that hold it: ring buffer, journal, syslog files. What several hold counts once."""
    current = [evidence.command("dmesg"), evidence.command("journalctl", "-k", "-b", "0")]
    before = evidence.command("journalctl", "-k", "-b", "-1")
    earlier = [(-1, before), (-2, evidence.command("journalctl", "-k", "-b", "-2"))]
    usable = [(index, r) for index, r in [*((0, r) for r in current), *earlier] if _has_entries(r)]
    boots: dict[int, list[KernelMessage]] = {}
    for index, reading in usable:
        boots[index] = merge(boots.get(index, []), read_messages(reading.text))
    for index, messages in read_file_boots(evidence):
        boots[index] = merge(messages, boots.get(index, []))
    whole = {index for index, reading in usable if _is_complete(reading)}
    logs = [_log(i, boots[i], is_complete=i in whole) for i in sorted(boots, reverse=True)]
    if logs:
        origin = usable[0][1].origin if usable else "file:/var/log/"
        return Known(value=tuple(logs), origin=origin)
    return _why_not(evidence, first_usable(*current, before))


def _has_entries(reading: Reading) -> bool:
    lines = [line.strip() for line in reading.text.splitlines()[:20]] if reading.has_data else []
    return any(line and not line.startswith(_NOTHING) for line in lines)


def _is_complete(reading: Reading) -> bool:
    return reading.status == "ok" and is_whole_boot(reading.text)


def _log(index: int, messages: list[KernelMessage], *, is_complete: bool) -> BootLog:
    return BootLog(
        index=index,
        messages=tuple(messages),
        xids=count_xids(messages),
        sxids=count_sxids(messages),
        is_complete=is_complete,
    )


def _why_not(evidence: Evidence, reading: Reading) -> Absent:
    said = (evidence.stderr(reading) or reading.text).strip()[:300]
    if reading.has_data and _DENIED.search(said):
        return Absent(reason="denied", origin=reading.origin, detail=said)
    return absent(reading, said or ("the log is empty" if reading.has_data else ""))


def merge(left: list[KernelMessage], right: list[KernelMessage]) -> list[KernelMessage]:
    """Two logs of one boot as one, in order; an event that both hold counts once.

    Walked from the newest message back, because each log may have lost its beginning. A message that
    both have is taken once, with the time stamp of the one that carries it.
    """
    merged: list[KernelMessage] = []
    in_left, in_right = Counter(m.text for m in left), Counter(m.text for m in right)
    taken: Counter[str] = Counter()
    i, j = len(left) - 1, len(right) - 1
    while i >= 0 and j >= 0:
        mine, other = left[i], right[j]
        if taken[mine.text]:
            taken[mine.text] -= 1
            i -= 1
            continue
        is_same = mine.text == other.text
        if not is_same and not in_right[mine.text]:
            merged.append(mine)
            in_left[mine.text] -= 1
            i -= 1
            continue
        merged.append(mine if is_same and mine.seconds is not None else other)
        in_right[other.text] -= 1
        j -= 1
        if is_same:
            in_left[mine.text] -= 1
            i -= 1
        elif in_left[other.text]:
            # The two logs disagree on the order: the walk skips it when it comes to it on the left.
            in_left[other.text] -= 1
            taken[other.text] += 1
    merged += reversed(right[: j + 1])
    for mine in reversed(left[: i + 1]):
        if taken[mine.text]:
            taken[mine.text] -= 1
        else:
            merged.append(mine)
    return merged[::-1]


def secure_boot_line(evidence: Evidence) -> Fact[Literal["enabled", "disabled", "unsupported"]] | None:
    """What the kernel said of Secure Boot at boot; None when no log of this boot says it for sure."""
    for argv in (("dmesg",), ("journalctl", "-k", "-b", "0")):
        reading = evidence.command(*argv)
        found = _SECURE_BOOT.search(reading.text) if reading.has_data else None
        if found is not None:
            value: Literal["enabled", "disabled"] = "disabled" if found.group(1) == "disabled" else "enabled"
            return Known(value=value, origin=reading.origin)
    return None
