"""`lspci` output, for trees and reports that hold no `/sys`: `-nn`, `-nnk`, `-D`, `-nnDvvv`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from doctor.core.evidence import Evidence
from doctor.core.host import Absent, Fact, Known, PciDevice
from doctor.core.pattern import pattern
from doctor.facts.source import pci_address, runs

__all__ = ["read_lspci"]

_HEAD = pattern(r"(?P<address>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (?P<rest>.*)", re.IGNORECASE)
_CLASS = pattern(r"\[([0-9a-f]{4})\]", re.IGNORECASE)
_ID = pattern(r"\[(10de:[0-9a-f]{4})\]", re.IGNORECASE)
_SUBSYSTEM = pattern(r"\[([0-9a-f]{4}:[0-9a-f]{4})\]", re.IGNORECASE)
_ANY_ID = pattern(r"\[[0-9a-f]{4}:[0-9a-f]{4}\]", re.IGNORECASE)
_REGION = pattern(r"\s*Region ([0-5]): .{0,200}?\[size=(\d{1,6})([KMGT]?)\]")
_LINK = pattern(r"Speed ([0-9.]{1,6})GT/s.{0,100}?Width x(\d{1,2})")
#: More functions than any bus: an SR-IOV host with 16 cards has some 600.
_DEVICES_MAX = 4096
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def read_lspci(evidence: Evidence) -> Fact[tuple[PciDevice, ...]] | None:
    """Functions of vendor 10de in the listing that says most; None when no listing shows ids.

    A listing that was cut or picked from names what is there; what it lacks may be there too.
    """
    listings = [
        (_blocks(reading.text), reading)
        for reading in runs(evidence, "lspci")
        if reading.has_data and not reading.rc
    ]
    # Without `-nn` a listing has names only, and names do not say which device it is.
    with_ids = [listing for listing in listings if any(_ANY_ID.search(block[0]) for block in listing[0])]
    if not with_ids:
        return None
    blocks, reading = max(with_ids, key=lambda listing: (_ours(listing[0]), sum(map(len, listing[0]))))
    details = _details(other for others, _ in listings for other in others if others is not blocks)
    # A listing pasted twice shows each device once; the first word counts.
    once = {_address(block): block for block in reversed(blocks)}
    first = [block for block in blocks if once[_address(block)] is block][:_DEVICES_MAX]
    devices = (_device([*block, *details.get(_address(block), ())]) for block in first)
    found = tuple(d for d in devices if d is not None)
    if not found and all(listed.status == "truncated" for _, listed in with_ids):
        detail = "the listing is a part, and holds no function of vendor 10de"
        return Absent(reason="unreadable", origin=reading.origin, detail=detail)
    return Known(value=found, origin=reading.origin)


def _ours(blocks: list[list[str]]) -> bool:
    return any(_ID.search(block[0]) for block in blocks)


def _address(block: list[str]) -> str:
    head = _HEAD.match(block[0])
    return pci_address(head["address"]) if head is not None else ""


def _details(blocks: Iterable[list[str]]) -> dict[str, list[str]]:
    """Lines below the heads of other listings, by address: old reports show ids and drivers apart."""
    found: dict[str, list[str]] = {}
    for block in blocks:
        if len(block) > 1:
            found.setdefault(_address(block), []).extend(block[1:])
    return found


def _blocks(text: str) -> list[list[str]]:
    """The lines of each function: a head line and the indented ones below it."""
    blocks: list[list[str]] = []
    for line in text.splitlines():
        if _HEAD.match(line):
            blocks.append([line])
        elif blocks and line[:1].isspace():
            blocks[-1].append(line)
    return blocks


def _device(lines: list[str]) -> PciDevice | None:
    head = _HEAD.match(lines[0])
    if head is None:
        return None
    rest = head["rest"]
    ids, code = _ID.search(rest), _CLASS.search(rest)
    if ids is None:
        return None
    details = "\n".join(lines[1:])
    subsystem = _SUBSYSTEM.search(details) if "Subsystem:" in details else None
    speed, width = _link(details, "LnkSta")
    speed_max, width_max = _link(details, "LnkCap")
    return PciDevice(
        address=pci_address(head["address"]),
        device_id=ids.group(1).lower(),
        subsystem_id=subsystem.group(1).lower() if subsystem else "",
        class_code=f"{code.group(1).lower()}00" if code else "",
        driver=_driver(details),
        link_speed_gts=speed,
        link_speed_max_gts=speed_max,
        link_width=width,
        link_width_max=width_max,
        bar_bytes=_bars(details),
        is_responding=_is_responding(rest, details),
    )


def _driver(details: str) -> str | None:
    """`-k` and `-v` name the driver, and say nothing of a function without one."""
    found = re.search(r"Kernel driver in use: (\S+)", details)
    if found is not None:
        return found.group(1)
    return "" if "Kernel modules:" in details else None


def _is_responding(rest: str, details: str) -> bool | None:
    if "(rev ff)" in rest or "Unknown header type 7f" in details:
        return False
    return True if re.search(r"\(rev [0-9a-f]{2}\)", rest) else None


def _link(details: str, label: str) -> tuple[float | None, int | None]:
    line = re.search(rf"{label}:(.*)", details)
    found = _LINK.search(line.group(1)) if line is not None else None
    if found is None or found.group(1).count(".") > 1 or found.group(1) == ".":
        return None, None
    return float(found.group(1)), int(found.group(2)) or None


def _bars(details: str) -> tuple[int, ...]:
    """Sizes of BAR 0 to 5 where the verbose form lists regions."""
    sizes = [0] * 6
    for line in details.splitlines():
        region = _REGION.match(line)
        if region is not None:
            sizes[int(region.group(1))] = int(region.group(2)) * _UNITS[region.group(3)]
    return tuple(sizes) if any(sizes) else ()
