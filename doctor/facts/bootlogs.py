"""The kernel's messages by boot: the ring buffer and the journal of one boot are one log."""

from __future__ import annotations

import re
from collections import Counter
from typing import Literal

from doctor.core.evidence import Evidence, Reading
from doctor.core.host import Absent, BootLog, Fact, KernelMessage, Known
from doctor.facts.messages import count_xids, is_whole_boot, read_messages
from doctor.facts.source import absent, first_usable

__all__ = ["merge", "read_logs", "secure_boot_line"]

_NOTHING = re.compile(
    r"\s*(?:-- No entries --|No journal files were (?:found|opened).*|-- (?:Logs begin|Journal begins) at .*"
    r"|Data from the specified boot .*|Specifying boot ID .*|Failed to .*|Hint: .*"
    r"|dmesg: read kernel buffer failed.*)?\s*"
)
_DENIED = re.compile(r"Operation not permitted|[Pp]ermission denied|insufficient permissions")


def read_logs(evidence: Evidence) -> Fact[tuple[BootLog, ...]]:
    """The running boot from `dmesg` and the journal together, the one before from the journal."""
    current = [evidence.command("dmesg"), evidence.command("journalctl", "-k", "-b", "0")]
    before = evidence.command("journalctl", "-k", "-b", "-1")
    logs = []
    usable = [reading for reading in current if _has_entries(reading)]
    if usable:
        messages: list[KernelMessage] = []
        for reading in usable:
            messages = merge(messages, read_messages(reading.text))
        logs.append(_log(0, messages, is_complete=any(map(_is_complete, usable))))
    if _has_entries(before):
        logs.append(_log(-1, read_messages(before.text), is_complete=_is_complete(before)))
    if logs:
        return Known(value=tuple(logs), origin=(usable[0] if usable else before).origin)
    return _why_not(evidence, first_usable(*current, before))


def _has_entries(reading: Reading) -> bool:
    return reading.has_data and not all(map(_NOTHING.fullmatch, reading.text.splitlines()[:20]))


def _is_complete(reading: Reading) -> bool:
    return reading.status == "ok" and is_whole_boot(reading.text)


def _log(index: int, messages: list[KernelMessage], *, is_complete: bool) -> BootLog:
    xids = count_xids(messages)
    return BootLog(index=index, messages=tuple(messages), xids=xids, is_complete=is_complete)


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
    only_left = Counter(m.text for m in left)
    only_right = Counter(m.text for m in right)
    taken: Counter[str] = Counter()
    i, j = len(left) - 1, len(right) - 1
    while i >= 0 and j >= 0:
        mine, other = left[i], right[j]
        if taken[mine.text]:
            taken[mine.text] -= 1
            i -= 1
        elif mine.text == other.text:
            merged.append(mine if mine.seconds is not None else other)
            i, j = i - 1, j - 1
            only_right[other.text] -= 1
            only_left[mine.text] -= 1
        elif only_left[other.text] > 0:
            # The other log has it earlier or later: it is skipped when the walk comes to it.
            merged.append(other)
            taken[other.text] += 1
            only_left[other.text] -= 1
            only_right[other.text] -= 1
            j -= 1
        elif only_right[mine.text] > 0:
            merged.append(other)
            only_right[other.text] -= 1
            j -= 1
        else:
            merged.append(mine)
            only_left[mine.text] -= 1
            i -= 1
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
        found = (
            re.search(r"secureboot: Secure boot (enabled|disabled)", reading.text)
            if reading.has_data
            else None
        )
        if found is not None:
            return Known(
                value="enabled" if found.group(1) == "enabled" else "disabled", origin=reading.origin
            )
    return None
