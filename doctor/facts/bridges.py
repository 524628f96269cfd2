"""What lies between GPUs on the bus: IOMMU groups, bridges with Access Control Services, other displays."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.core.evidence import Evidence, Reading
from doctor.core.host import Absent, Fact, Known
from doctor.core.host_machine import AcsBridge
from doctor.core.pattern import pattern
from doctor.facts.source import (
    absent,
    at,
    document,
    first_usable,
    integer,
    line_of,
    pci_address,
    runs,
    stat_of,
    whole,
)

__all__ = ["read_acs", "read_iommu_domain", "read_iommu_groups", "read_other_displays"]

_BUS = "/sys/bus/pci/devices"
_GROUPS = "/sys/kernel/iommu_groups"
_OURS = 0x10DE
_DISPLAY = 0x03
_DEVICES_MAX = 4096
#: PCI Express Base Specification, *ACS Extended Capability*: its id, and two bits of its control register.
_ACS_ID = 0x000D
_REQUEST_REDIRECT, _COMPLETION_REDIRECT = 0x04, 0x08
_EXTENDED = 0x100
_HOPS_MAX = 96
_BLOCK = pattern(
    r"(?P<address>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (?P<rest>.*)", re.IGNORECASE
)
_BUSES = pattern(r"\bsecondary=([0-9a-f]{2}), subordinate=([0-9a-f]{2})")
_CONTROL = pattern(r"\bACSCtl:.{0,80}?ReqRedir([+-]) CmpltRedir([+-])")
_IDS = pattern(r"\[([0-9a-f]{4})\]: .{0,300}?\[([0-9a-f]{4}:[0-9a-f]{4})\]")


def read_other_displays(evidence: Evidence) -> Fact[tuple[str, ...]]:
    """Displays of other vendors, from `/sys`, else from `lspci -nn`."""
    found, is_seen = [], False
    for address in _addresses(evidence):
        vendor, device, code = (_hex(evidence, address, name) for name in ("vendor", "device", "class"))
        is_seen = is_seen or vendor is not None
        if vendor not in (None, _OURS) and code is not None and code >> 16 == _DISPLAY:
            found.append(f"{pci_address(address)} {vendor:04x}:{device or 0:04x}")
    folder = stat_of(evidence, _BUS)
    if is_seen or folder.status == "ok":
        return Known(value=tuple(found), origin=folder.origin)
    for reading, blocks in _listings(evidence):
        named = [(pci_address(b[0]), _IDS.search(b[1])) for b in blocks]
        if any(ids is not None for _, ids in named):
            others = [
                f"{address} {ids[2]}"
                for address, ids in named
                if ids is not None and ids[1].startswith("03") and not ids[2].startswith("10de:")
            ]
            return Known(value=tuple(others), origin=reading.origin)
    return absent(folder)


def _addresses(evidence: Evidence) -> list[str]:
    names = {i.key.partition(f":{_BUS}/")[2].partition("/")[0] for i in evidence.below(f"{_BUS}/")}
    return sorted(name for name in names if pci_address(name))[:_DEVICES_MAX]


def _hex(evidence: Evidence, address: str, name: str) -> int | None:
    reading = evidence.file(f"{_BUS}/{address}/{name}")
    return whole(line_of(reading), 16) if reading.has_data else None


def _is_gpu(evidence: Evidence, address: str) -> bool:
    code = _hex(evidence, address, "class")
    return _hex(evidence, address, "vendor") == _OURS and code is not None and code >> 16 == _DISPLAY


# --- IOMMU ----------------------------------------------------------------------------------------


def read_iommu_groups(evidence: Evidence) -> Fact[int]:
    """Counted by the collector, else from a listing, else from `lspci -v`."""
    told = evidence.read("machine")
    count = integer(at(document(told.data), "iommu_groups")) if told.has_data else None
    if count is not None and count >= 0:
        return Known(value=count, origin=told.origin)
    listed = {
        item.key.partition(f"{_GROUPS}/")[2].partition("/")[0]
        for kind in ("stat", "file")
        for item in evidence.below(f"{_GROUPS}/", kind)
    }
    if listed:
        return Known(value=len(listed), origin=f"stat:{_GROUPS}")
    for reading in runs(evidence, "lspci"):
        groups = set(re.findall(rb"\n\tIOMMU group: (\d{1,6})", reading.data)) if reading.has_data else None
        if groups:
            return Known(value=len(groups), origin=reading.origin)
    return absent(told) if not told.has_data else Absent(reason="not_collected", origin=told.origin)


def read_iommu_domain(evidence: Evidence) -> Fact[str]:
    """Of several groups one that translates counts: it is the one that costs and that stops peers."""
    readings = [evidence.file(f"{_BUS}/{a}/iommu_group/type") for a in _addresses(evidence)]
    words = [(line_of(r)[:40], r.origin) for r in readings if r.has_data and line_of(r)]
    if words:
        word, origin = next(((w, o) for w, o in words if w != "identity"), words[0])
        return Known(value=word, origin=origin)
    asked = [r for r in readings if r.status is not None]
    return absent(first_usable(*asked)) if asked else Absent(reason="not_collected", origin=f"file:{_BUS}/")


# --- Access Control Services ----------------------------------------------------------------------


def read_acs(evidence: Evidence) -> Fact[tuple[AcsBridge, ...]]:
    """Bridges above GPUs that have ACS; an empty tuple where they were read and none has it."""
    bridges = _bridges(evidence)
    readings = [evidence.file(f"{_BUS}/{address}/config") for address in bridges]
    asked = [reading for reading in readings if reading.status is not None]
    whole_ones = [
        (a, r) for a, r in zip(bridges, readings, strict=True) if r.has_data and len(r.data) > _EXTENDED
    ]
    if whole_ones:
        found = [(address, acs_control(reading.data)) for address, reading in whole_ones]
        return Known(value=_as_bridges(found), origin=whole_ones[0][1].origin)
    if any(reading.has_data for reading in asked):
        detail = "only root reads more than the first 64 bytes of a bridge's configuration"
        return Absent(reason="denied", origin=asked[0].origin, detail=detail)
    by_lspci = _acs_by_lspci(evidence)
    if by_lspci is not None:
        return by_lspci
    if bridges == [] and _gpus_linked(evidence) == 1:
        return Absent(reason="not_installed", origin=f"stat:{_BUS}", detail="one GPU: there is no peer")
    return absent(first_usable(*asked)) if asked else Absent(reason="not_collected", origin=f"stat:{_BUS}")


def _as_bridges(found: list[tuple[str, int | None]]) -> tuple[AcsBridge, ...]:
    redirect = _REQUEST_REDIRECT | _COMPLETION_REDIRECT
    return tuple(
        AcsBridge(address=address, redirects=bool(control & redirect))
        for address, control in found
        if control is not None
    )


def _links(evidence: Evidence) -> Iterator[list[str]]:
    """Of each GPU the addresses in its link, itself last: `../../../devices/pci0000:15/0000:15:01.0/…`."""
    for address in _addresses(evidence):
        item = evidence.item(f"stat:{_BUS}/{address}")
        parts = [pci_address(part) for part in (item.link or "").split("/")] if item is not None else []
        if any(parts) and _is_gpu(evidence, address):
            yield [part for part in parts if part]


def _gpus_linked(evidence: Evidence) -> int:
    return sum(chain[-1].endswith(".0") for chain in _links(evidence))


def _bridges(evidence: Evidence) -> list[str]:
    """Bridges that somebody read, where there are several GPUs."""
    above = dict.fromkeys(part for chain in _links(evidence) for part in chain[:-1])
    return [address for address in above if evidence.item(f"file:{_BUS}/{address}/config") is not None]


def acs_control(config: bytes) -> int | None:
    """The control register of the ACS capability in a configuration space; None where it has none."""
    place = _EXTENDED
    for _ in range(_HOPS_MAX):
        if place < _EXTENDED or place + 8 > len(config):
            return None
        header = int.from_bytes(config[place : place + 4], "little")
        if header in (0, 0xFFFFFFFF):
            return None
        if header & 0xFFFF == _ACS_ID:
            return int.from_bytes(config[place + 6 : place + 8], "little")
        place = header >> 20
    return None


def _listings(evidence: Evidence) -> Iterator[tuple[Reading, list[tuple[str, str, str]]]]:
    """Each `lspci` listing as (address, rest of the head line, details)."""
    for reading in runs(evidence, "lspci"):
        if not reading.has_data or reading.rc:
            continue
        blocks: list[tuple[str, str, list[str]]] = []
        for line in reading.text.splitlines():
            head = _BLOCK.match(line)
            if head is not None:
                blocks.append((head["address"], head["rest"][:600], []))
            elif blocks and line[:1].isspace():
                blocks[-1][2].append(line[:600])
        yield reading, [(address, rest, "\n".join(lines)) for address, rest, lines in blocks[:_DEVICES_MAX]]


def _acs_by_lspci(evidence: Evidence) -> Fact[tuple[AcsBridge, ...]] | None:
    """`lspci -vvv` as root: `ACSCtl: SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ …` of bridges above GPUs."""
    for reading, blocks in _listings(evidence):
        if not any("ACSCtl:" in details for _, _, details in blocks):
            continue
        gpus = [pci_address(address) for address, rest, _ in blocks if _is_our_display(rest)]
        found = []
        for address, _, details in blocks:
            control, buses = _CONTROL.search(details), _BUSES.search(details)
            place = pci_address(address)
            if (
                control is not None
                and buses is not None
                and any(_is_above(place, buses, gpu) for gpu in gpus)
            ):
                found.append(AcsBridge(address=place, redirects="+" in control.groups()))
        return Known(value=tuple(found), origin=reading.origin)
    return None


def _is_our_display(rest: str) -> bool:
    ids = _IDS.search(rest)
    return ids is not None and ids[1].startswith("03") and ids[2].startswith("10de:")


def _is_above(bridge: str, buses: re.Match[str], gpu: str) -> bool:
    """Whether a GPU's bus lies in the range that a bridge leads to."""
    domain, bus = gpu.split(":", 2)[:2]
    return bridge.partition(":")[0] == domain and int(buses[1], 16) <= int(bus, 16) <= int(buses[2], 16)
