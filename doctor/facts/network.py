"""InfiniBand and RoCE ports, and whose drivers they have."""

from __future__ import annotations

import re

from doctor.core.evidence import Evidence
from doctor.core.host import Fact, Known
from doctor.core.host_network import InfinibandPort, Network
from doctor.core.pattern import pattern
from doctor.facts.source import absent, fraction, line_of, pci_address, runs, stat_of, whole

__all__ = ["read_network"]

_TOP = "/sys/class/infiniband"
_PORTS_MAX = 256
#: As the kernel names what `ibstat` writes out.
_STATES = {"Initializing": "INIT"}
_DEVICE = pattern(r"CA '([^']{1,64})'\s*")
_PORT = pattern(r"\s*Port (\d{1,3}):\s*")


def read_network(evidence: Evidence) -> Network:
    """The facts of `Host.network`."""
    return Network(ports=_ports(evidence), ofed_version=_ofed(evidence))


def _ports(evidence: Evidence) -> Fact[tuple[InfinibandPort, ...]]:
    places: dict[tuple[str, int], None] = {}
    for item in evidence.below(f"{_TOP}/"):
        match = re.fullmatch(rf"file:{_TOP}/([^/]{{1,64}})/ports/(\d{{1,3}})/\w{{1,40}}", item.key)
        if match is not None:
            places[match[1], int(match[2])] = None
    ports = [_port(evidence, device, number) for device, number in sorted(places)[:_PORTS_MAX]]
    folder = stat_of(evidence, _TOP)
    if ports:
        return Known(value=tuple(ports), origin=f"file:{_TOP}/")
    for reading in runs(evidence, "ibstat"):
        listed = _by_ibstat(reading.text) if reading.has_data and not reading.rc else ()
        if listed:
            return Known(value=listed, origin=reading.origin)
    # The directory is there only once the kernel's InfiniBand stack is loaded.
    return Known(value=(), origin=folder.origin) if folder.status in ("ok", "missing") else absent(folder)


def _port(evidence: Evidence, device: str, number: int) -> InfinibandPort:
    def field(name: str) -> str:
        reading = evidence.file(f"{_TOP}/{device}/{name}")
        return line_of(reading)[:100] if reading.has_data else ""

    top = f"ports/{number}"
    node = whole(field("device/numa_node"))
    link = evidence.item(f"stat:{_TOP}/{device}/device")
    return InfinibandPort(
        device=device,
        port=number,
        # `4: ACTIVE`, `5: LinkUp`: the number is the same in words.
        state=field(f"{top}/state").rpartition(":")[2].strip(),
        physical_state=field(f"{top}/phys_state").rpartition(":")[2].strip(),
        rate_gbps=fraction(field(f"{top}/rate")),
        link_layer=field(f"{top}/link_layer"),
        firmware=field("fw_ver"),
        pci_address=pci_address((link.link or "").rpartition("/")[2]) if link is not None else "",
        numa_node=node if node is not None and node >= 0 else None,
    )


def _by_ibstat(text: str) -> tuple[InfinibandPort, ...]:
    """`CA 'mlx5_0'`, then fields of the device, then `Port 1:` and fields of the port; of bug reports."""
    found: list[InfinibandPort] = []
    device, number, own, fields = "", 0, dict[str, str](), dict[str, str]()
    for line in [*text.splitlines()[:10_000], "CA 'end'"]:
        head, port = _DEVICE.fullmatch(line), _PORT.fullmatch(line)
        if (head or port) and device and number:
            found.append(_port_of(device, number, {**own, **fields}))
            number = 0
        if head is not None:
            device, own, fields = head[1], {}, {}
        elif port is not None:
            number, fields = int(port[1]), {}
        else:
            key, colon, value = line.strip().partition(":")
            if colon:
                (fields if number else own)[key[:60]] = value.strip()[:100]
    return tuple(found[:_PORTS_MAX])


def _port_of(device: str, number: int, fields: dict[str, str]) -> InfinibandPort:
    return InfinibandPort(
        device=device,
        port=number,
        state=_STATES.get(fields.get("State", ""), fields.get("State", "").upper()),
        physical_state=fields.get("Physical state", ""),
        rate_gbps=fraction(fields.get("Rate")),
        link_layer=fields.get("Link layer", ""),
        firmware=fields.get("Firmware version", ""),
    )


def _ofed(evidence: Evidence) -> Fact[str]:
    """`MLNX_OFED_LINUX-24.10-0.7.0.0:`, `OFED-internal-25.01-0.6.0:`; without the tool: the kernel's own."""
    reading = evidence.command("ofed_info", "-s")
    word = line_of(reading).rstrip(":")[:200] if reading.has_data and not reading.rc else ""
    return Known(value=word, origin=reading.origin) if word else absent(reading)
