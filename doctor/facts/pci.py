"""NVIDIA functions on the PCI bus, from `/sys/bus/pci/devices`, else from `lspci`."""

from __future__ import annotations

from doctor.core.evidence import Evidence, Reading
from doctor.core.host import Absent, Fact, Known, PciDevice
from doctor.facts.lspci import read_lspci
from doctor.facts.source import absent, exists, fraction, line_of, pci_address, stat_of, whole

__all__ = ["VENDOR", "read_pci"]

VENDOR = "10de"
_BUS = "/sys/bus/pci/devices"
#: `IORESOURCE_UNSET` of linux/ioport.h: the kernel found no address for this range.
_UNSET = 0x2000_0000
_BARS = 6


def read_pci(evidence: Evidence) -> Fact[tuple[PciDevice, ...]]:
    """All functions of vendor 10de; an empty tuple only where a bus was read."""
    addresses = _addresses(evidence)
    origin = f"stat:{_BUS}" if evidence.item(f"stat:{_BUS}") else f"file:{_BUS}/"
    found = [d for d in (_device(evidence, a) for a in addresses) if d is not None]
    if found:
        return Known(value=tuple(found), origin=origin)
    listed = read_lspci(evidence)
    if listed is not None:
        return listed
    unread = _unread(evidence, addresses)
    if unread is not None:
        # A function that did not say whose it is may be a GPU.
        return absent(unread)
    if addresses or exists(evidence, _BUS):
        return Known(value=(), origin=origin)
    bus = stat_of(evidence, _BUS)
    if bus.status in ("ok", "missing"):
        # No answer about GPUs: a bus that cannot be seen (a bare container, a chroot) may hold some.
        return Absent(reason="unreadable", origin=origin, detail=f"`{_BUS}` does not exist")
    return absent(bus)


def _addresses(evidence: Evidence) -> list[str]:
    items = [*evidence.below(f"{_BUS}/"), *evidence.below(f"{_BUS}/", "stat")]
    names = {item.key.partition(f":{_BUS}/")[2].partition("/")[0] for item in items}
    return sorted(name for name in names if pci_address(name))


def _unread(evidence: Evidence, addresses: list[str]) -> Reading | None:
    """The first vendor file that gave nothing; None when every function said whose it is."""
    readings = (evidence.file(f"{_BUS}/{address}/vendor") for address in addresses)
    return next((r for r in readings if not r.has_data and r.status != "missing"), None)


def _device(evidence: Evidence, address: str) -> PciDevice | None:
    top = f"{_BUS}/{address}"

    def field(name: str) -> str:
        reading = evidence.file(f"{top}/{name}")
        return line_of(reading) if reading.has_data else ""

    vendor, device, code = (whole(field(name), 16) for name in ("vendor", "device", "class"))
    if vendor is None or f"{vendor:04x}" != VENDOR or device is None:
        return None
    maker, board = whole(field("subsystem_vendor"), 16), whole(field("subsystem_device"), 16)
    return PciDevice(
        address=pci_address(address),
        device_id=f"{vendor:04x}:{device:04x}",
        subsystem_id="" if maker is None or board is None else f"{maker:04x}:{board:04x}",
        class_code="" if code is None else f"{code:06x}",
        driver=_driver(evidence, top),
        link_speed_gts=fraction(field("current_link_speed")),
        link_speed_max_gts=fraction(field("max_link_speed")),
        link_width=_width(field("current_link_width")),
        link_width_max=_width(field("max_link_width")),
        numa_node=_numa_node(field("numa_node")),
        bar_bytes=_bars(evidence, top),
        is_responding=_is_responding(evidence, top),
        power_state=field("power_state"),
        # The kernel gives this link to virtual functions only.
        is_virtual_function=exists(evidence, f"{top}/physfn"),
    )


def _driver(evidence: Evidence, top: str) -> str | None:
    item = evidence.item(f"stat:{top}/driver")
    if item is not None and item.status == "ok" and item.link:
        return item.link.rstrip("/").rpartition("/")[2]
    return "" if exists(evidence, f"{top}/driver") is False else None


def _width(text: str) -> int | None:
    """Lanes; 0, 63 and 255 are what a link that does not answer reads as."""
    lanes = whole(text)
    return lanes if lanes is not None and 0 < lanes <= 32 else None


def _numa_node(text: str) -> int | None:
    node = whole(text)
    return node if node is not None and node >= 0 else None


def _bars(evidence: Evidence, top: str) -> tuple[int, ...]:
    """Sizes of BAR 0 to 5 from `resource`: start, end and flags in hexadecimal on each line."""
    reading = evidence.file(f"{top}/resource")
    if not reading.has_data:
        return ()
    sizes = []
    for line in reading.text.splitlines()[:_BARS]:
        numbers = [whole(word, 16) for word in line.split()[:3]]
        start, end, flags = (*numbers, None, None, None)[:3]
        if start is None or end is None:
            return ()
        is_assigned = end > start and not (flags or 0) & _UNSET
        sizes.append(end - start + 1 if is_assigned else 0)
    return tuple(sizes)


def _is_responding(evidence: Evidence, top: str) -> bool | None:
    reading = evidence.file(f"{top}/config")
    if not reading.has_data or not reading.data:
        return None
    return reading.data.strip(b"\xff") != b""
