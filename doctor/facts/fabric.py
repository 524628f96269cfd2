"""What joins GPUs: Fabric Manager and its log, the subnet manager, NVLinks, IMEX."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from doctor.core.evidence import Evidence, Reading
from doctor.core.host import Absent, Fact, Known, Packages
from doctor.core.host_fabric import Fabric, NvlinkTotal
from doctor.core.pattern import pattern
from doctor.core.versions import Dotted
from doctor.facts.engines import package_version
from doctor.facts.source import (
    absent,
    at,
    document,
    dotted,
    first_usable,
    integer,
    is_present,
    pci_address,
    runs,
    stat_of,
    string,
    whole,
)

__all__ = ["read_fabric"]

_LOG = "/var/log/fabricmanager.log"
_BINARY = "/usr/bin/nv-fabricmanager"
#: Ubuntu and old repositories carry the branch in the name.
_MANAGERS = pattern(r"(?:cuda-drivers-fabricmanager|nvidia-fabric-?manager)(?:-[0-9]{3,4})?")
_SPEAKS = pattern(
    r"(?i)error|fail|fatal|abort|mismatch|match|not found|not supported|timed? ?out|inconsistent|unable"
    r"|cannot|invalid|degraded|is running|successfully|trunk|disabled|terminat|starting|stopped|no such"
)
_VERSION = pattern(r"(?i)fabric ?manager version (?:is ?:? ?)?(\d{3,4}(?:\.\d{1,4}){1,3})")
#: Of the table at the head of a bug report.
_TABLE_ROW = pattern(r"^Fabric Manager\s{0,60}\|[^\n\d]{0,80}(\d{3,4}(?:\.\d{1,4}){1,3})", re.MULTILINE)
_LINES_MAX = 60
_LINE_MAX = 500
_LINKS_MAX = 64
_GPUS_MAX = 256
_CHANNELS = "/dev/nvidia-caps-imex-channels"
_PEERS = "/etc/nvidia-imex/nodes_config.cfg"
_DEVICES = "/proc/devices"
_CLASS = pattern(r"^[ \t]{0,8}\d{1,6} nvidia-caps-imex-channels[ \t\r]{0,8}$", re.MULTILINE)
_GPU_LINE = pattern(r"GPU (\d{1,3}): ")
_LINK_LINE = pattern(r"\s+Link (\d{1,3}): (.{1,80})")
_COUNT_LINE = pattern(r"\s+Link \d{1,3}: [^:]{1,60}: (\d{1,18})\s*$")


def read_fabric(evidence: Evidence, packages: Fact[Packages]) -> Fabric:
    """The facts of `Host.fabric`."""
    return Fabric(
        manager_version=_manager_version(evidence, packages),
        manager_log=_manager_log(evidence),
        subnet_manager_version=_subnet_manager(evidence, packages),
        nvlinks=_nvlinks(evidence),
        imex_device_class=_imex_class(evidence),
        imex_channels=_imex_channels(evidence),
        imex_peers=_imex_peers(evidence),
    )


# --- Fabric Manager -------------------------------------------------------------------------------


def _logs(evidence: Evidence) -> list[Reading]:
    """The journal of the running boot first; the file goes on over many boots."""
    return [evidence.command("journalctl", "-u", "nvidia-fabricmanager", "-b", "0"), evidence.file(_LOG)]


def _manager_version(evidence: Evidence, packages: Fact[Packages]) -> Fact[Dotted]:
    if isinstance(packages, Known):
        names = [p.name for p in packages.value.installed if _MANAGERS.fullmatch(p.name)]
        version = package_version(packages, sorted(names, reverse=True))
        if version is not None:
            return Known(value=version, origin=packages.origin)
    for reading in reversed(_logs(evidence)):
        said = _VERSION.findall(reading.text) if reading.has_data else []
        version = dotted(said[-1]) if said else None
        if version is not None:
            return Known(value=version, origin=reading.origin)
    table = evidence.command("nvidia-bug-report.sh", "--versions-table")
    row = _TABLE_ROW.search(table.text) if table.has_data else None
    version = dotted(row[1]) if row is not None else None
    if version is not None:
        return Known(value=version, origin=table.origin)
    binary = is_present(evidence, _BINARY)
    if binary is False:
        return Absent(reason="not_installed", origin=f"stat:{_BINARY}")
    detail = "it is there, and no package and no log names its version" if binary else ""
    reason = stat_of(evidence, _BINARY)
    return Absent(reason="unreadable", origin=reason.origin, detail=detail) if binary else absent(reason)


def _manager_log(evidence: Evidence) -> Fact[tuple[str, ...]]:
    readings = [reading for reading in _logs(evidence) if reading.has_data]
    if readings:
        lines = dict.fromkeys(line for reading in reversed(readings) for line in _telling(reading.text))
        return Known(value=tuple(lines)[-_LINES_MAX:], origin=readings[-1].origin)
    return absent(first_usable(*reversed(_logs(evidence))))


def _telling(text: str) -> Iterable[str]:
    lines = (line.strip()[:_LINE_MAX] for line in text.splitlines()[-2000:])
    return [line for line in lines if line and not line.startswith("-- ") and _SPEAKS.search(line)][
        -_LINES_MAX:
    ]


def _subnet_manager(evidence: Evidence, packages: Fact[Packages]) -> Fact[str]:
    if isinstance(packages, Known):
        version = next((p.version for p in packages.value.installed if p.name == "nvlsm"), None)
        if version is not None:
            return Known(value=version, origin=packages.origin)
        item = evidence.item(packages.origin)
        was_asked = item is not None and any(fnmatchcase("nvlsm", word) for word in item.argv[1:])
        if was_asked and is_present(evidence, "/usr/bin/nvlsm") is not True:
            return Absent(reason="not_installed", origin=packages.origin)
    return absent(stat_of(evidence, "/usr/bin/nvlsm"))


# --- NVLink ---------------------------------------------------------------------------------------


def _nvlinks(evidence: Evidence) -> Fact[tuple[NvlinkTotal, ...]]:
    """From NVML, else from `nvidia-smi nvlink`. One GPU alone was not asked: there is nothing to join."""
    nvml = evidence.read("nvml")
    rows = at(document(nvml.data), "gpus") if nvml.data else None
    gpus = [row for row in rows[:_GPUS_MAX] if isinstance(row, dict)] if isinstance(rows, list) else []
    found = [link for link in map(_by_nvml, gpus) if link is not None]
    if found:
        return Known(value=tuple(found), origin=nvml.origin)
    for reading in runs(evidence, "nvidia-smi"):
        argv = reading.item.argv if reading.item is not None else ()
        if reading.has_data and argv[1:2] == ("nvlink",) and _is_status(argv[2:3]):
            links = _by_smi(reading.text, _smi_errors(evidence))
            return Known(value=links, origin=reading.origin)
    if any("nvlinks" in _errors(row) for row in gpus):
        return Absent(reason="not_installed", origin=nvml.origin, detail="no GPU has NVLink")
    if len(gpus) == 1 and nvml.has_data:
        return Absent(reason="not_installed", origin=nvml.origin, detail="one GPU")
    return Absent(reason="not_collected", origin=nvml.origin)


def _is_status(words: tuple[str, ...]) -> bool:
    return words in (("--status",), ("-s",))


def _errors(row: dict[str, object]) -> dict[str, object]:
    errors = row.get("errors")
    return errors if isinstance(errors, dict) else {}


def _by_nvml(row: dict[str, object]) -> NvlinkTotal | None:
    states = at(row, "nvlinks", "states")
    if not isinstance(states, list):
        return None
    known = [state for state in map(integer, states[:_LINKS_MAX]) if state is not None]
    counters = at(row, "nvlinks", "errors")
    values = (
        [n for n in map(integer, counters.values()) if n is not None] if isinstance(counters, dict) else []
    )
    address = pci_address(string(at(row, "pci_info", "bus_id")) or "")
    return NvlinkTotal(
        gpu=address or str(integer(row.get("index")) or 0),
        active=sum(state == 1 for state in known),
        inactive=sum(state != 1 for state in known),
        errors=sum(values) if values else None,
    )


def _by_smi(text: str, errors: dict[str, int]) -> tuple[NvlinkTotal, ...]:
    """`GPU 0: NVIDIA H200 (UUID: …)`, then a line a link: `Link 0: 26.562 GB/s` or `Link 0: <inactive>`."""
    counts: dict[str, list[int]] = {}
    gpu = ""
    for line in text.splitlines()[:10_000]:
        head, link = _GPU_LINE.match(line), _LINK_LINE.match(line)
        if head is not None:
            gpu = head[1]
            counts.setdefault(gpu, [0, 0])
        elif link is not None and gpu:
            counts[gpu]["GB/s" not in link[2]] += 1
    return tuple(
        NvlinkTotal(gpu=gpu, active=up, inactive=down, errors=errors.get(gpu))
        for gpu, (up, down) in list(counts.items())[:_GPUS_MAX]
        if up or down
    )


def _smi_errors(evidence: Evidence) -> dict[str, int]:
    """Sums by GPU of `nvidia-smi nvlink --errorcounters`: `Link 0: Replay Errors: 0`."""
    sums: dict[str, int] = {}
    for reading in runs(evidence, "nvidia-smi"):
        argv = reading.item.argv if reading.item is not None else ()
        if not reading.has_data or argv[1:3] not in (("nvlink", "--errorcounters"), ("nvlink", "-e")):
            continue
        gpu = ""
        for line in reading.text.splitlines()[:20_000]:
            head, count = _GPU_LINE.match(line), _COUNT_LINE.match(line)
            gpu = head[1] if head is not None else gpu
            if count is not None and gpu:
                sums[gpu] = sums.get(gpu, 0) + (whole(count[1]) or 0)
    return sums


# --- IMEX -----------------------------------------------------------------------------------------


def _imex_class(evidence: Evidence) -> Fact[bool]:
    reading = evidence.file(_DEVICES)
    if reading.has_data:
        found = _CLASS.search(reading.text)
        return Known(value=found is not None, origin=reading.origin)
    if reading.status is None and is_present(evidence, _CHANNELS) is not None:
        # The list is read only where the driver is loaded.
        module = is_present(evidence, "/sys/module/nvidia")
        if module is False:
            return Absent(reason="not_installed", origin="stat:/sys/module/nvidia")
    return absent(reading)


def _imex_channels(evidence: Evidence) -> Fact[tuple[str, ...]]:
    items = [i for i in evidence.below(f"{_CHANNELS}/", "stat") if i.exists]
    nodes = tuple(item.key.removeprefix("stat:") for item in items)
    folder = stat_of(evidence, _CHANNELS)
    if nodes or folder.status in ("ok", "missing"):
        return Known(value=nodes, origin=folder.origin)
    return absent(folder)


def _imex_peers(evidence: Evidence) -> Fact[tuple[str, ...]]:
    """One address a line; `#` begins a comment."""
    reading = evidence.file(_PEERS)
    if not reading.has_data:
        return absent(reading)
    lines = (line.partition("#")[0].strip() for line in reading.text.splitlines()[:10_000])
    return Known(value=tuple(line[:200] for line in lines if line), origin=reading.origin)
