"""The driver's kernel side: loaded version, flavour, parameters, device nodes; and its witnesses."""

from __future__ import annotations

import re

from msgspec.structs import replace

from doctor.core.evidence import Evidence
from doctor.core.host import (
    NOT_COLLECTED,
    Absent,
    BootLog,
    DeviceNode,
    Driver,
    Fact,
    Flavour,
    GpuReport,
    Known,
)
from doctor.core.pattern import pattern
from doctor.core.versions import Dotted
from doctor.facts.libraries import read_container_root, read_libraries, userspace_version
from doctor.facts.loadedlog import module_by_log
from doctor.facts.nvml import read_nvml
from doctor.facts.smi import read_smi
from doctor.facts.source import absent, dotted, exists, first_usable, line_of, pci_address

__all__ = ["read_driver"]

_PROC = "/proc/driver/nvidia"
_SYS = "/sys/module/nvidia"
_VERSION = pattern(r"Kernel Module(?:\s+for\s+\S+)?\s+(\d{1,6}(?:\.\d{1,6}){1,3})\b")
#: `gpu 1: GPU is lost`, as NVML's witness says it.
_BY_INDEX = pattern(r"(?:gpu|index) ?\d{1,3}: ")
_KINDS = frozenset(("char", "block", "link", "file"))


def read_driver(
    evidence: Evidence, *, is_wsl: bool, logs: Fact[tuple[BootLog, ...]] = NOT_COLLECTED
) -> Driver:
    """The facts of `Host.driver`; the kernel's log names the module where nothing else does."""
    nvml, smi, models = read_nvml(evidence), read_smi(evidence), _gpu_models(evidence)
    nvml = _with_address(nvml, smi, models)
    libraries = read_libraries(evidence)
    version, flavour = _kernel_version(evidence), _flavour(evidence)
    if isinstance(version, Absent) and version.reason == "not_collected" and not is_wsl:
        # Somebody's report: nothing of `/proc` or `/sys` was asked for.
        logged, logged_flavour = module_by_log(logs)
        version = _version_by_witness(nvml, smi) or logged or version
        flavour = (logged_flavour or flavour) if isinstance(flavour, Absent) else flavour
    elif isinstance(version, Absent) and is_wsl:
        version = _version_by_witness(nvml, smi) or version
    return Driver(
        kernel_version=version,
        flavour=flavour,
        module_compiler=_module_compiler(evidence),
        parameters=_parameters(evidence),
        gpu_models=models,
        libraries=libraries,
        userspace_version=userspace_version(evidence, libraries, nvml, smi),
        nvml=nvml,
        smi=smi,
        device_nodes=_device_nodes(evidence),
        container_root=read_container_root(evidence),
    )


def _with_address(
    nvml: Fact[GpuReport], smi: Fact[GpuReport], models: Fact[dict[str, str]]
) -> Fact[GpuReport]:
    """NVML names a GPU that it cannot open by its index: where one address is left over, that is it."""
    if not isinstance(nvml, Known):
        return nvml
    report = nvml.value
    listed = {gpu.pci_address for gpu in report.gpus}
    nameless = [error for error in report.device_errors if _BY_INDEX.match(error)]
    known = set(models.value) if isinstance(models, Known) else set()
    errors = smi.value.device_errors if isinstance(smi, Known) else ()
    known |= {pci_address(error.partition(": ")[0]) for error in errors} - {""}
    left = sorted(known - listed)
    if len(nameless) != 1 or len(left) != 1 or "" in listed:
        return nvml
    named = (f"{left[0]}: {error}" if error in nameless else error for error in report.device_errors)
    return Known(value=replace(report, device_errors=tuple(named)), origin=nvml.origin)


def _kernel_version(evidence: Evidence) -> Fact[Dotted]:
    """Of the module in memory; `not_installed` when the kernel shows none."""
    proc, module = evidence.file(f"{_PROC}/version"), evidence.file(f"{_SYS}/version")
    found = _VERSION.search(proc.text) if proc.has_data else None
    version = dotted(found.group(1)) if found is not None else None
    if version is not None:
        return Known(value=version, origin=proc.origin)
    version = dotted(line_of(module)) if module.has_data else None
    if version is not None:
        return Known(value=version, origin=module.origin)
    if proc.status == "missing" and exists(evidence, _SYS):
        detail = f"`{_SYS}` exists, but neither it nor `{_PROC}` gives a version"
        return Absent(reason="unreadable", origin=module.origin, detail=detail)
    return absent(proc if proc.status is not None else module)


def _version_by_witness(nvml: Fact[GpuReport], smi: Fact[GpuReport]) -> Fact[Dotted] | None:
    """Both answer only with a driver of one version on either side, and name it.

    Under WSL2 that is the Windows driver, which nobody else can tell.
    """
    for fact in (nvml, smi):
        if isinstance(fact, Known) and fact.value.driver_version is not None and not fact.value.error:
            return Known(value=fact.value.driver_version, origin=fact.origin)
    return None


def _flavour(evidence: Evidence) -> Fact[Flavour]:
    """From the module's own words, else from its taint: only the proprietary licence gives `P`."""
    proc = evidence.file(f"{_PROC}/version")
    first = line_of(proc) if proc.has_data else ""
    if _VERSION.search(first):
        return Known(value="open" if "Open Kernel Module" in first else "proprietary", origin=proc.origin)
    taint = evidence.file(f"{_SYS}/taint")
    if taint.has_data and line_of(taint):
        return Known(value="proprietary" if "P" in line_of(taint) else "open", origin=taint.origin)
    modules = evidence.file("/proc/modules")
    row = re.search(r"^nvidia \d+ .*\((\w+)\)\s*$", modules.text, re.MULTILINE) if modules.has_data else None
    if row is not None:
        return Known(value="proprietary" if "P" in row.group(1) else "open", origin=modules.origin)
    return absent(first_usable(proc, taint))


def _module_compiler(evidence: Evidence) -> Fact[str]:
    reading = evidence.file(f"{_PROC}/version")
    if not reading.has_data:
        return absent(reading)
    found = re.search(r"^GCC version:[ \t]*(.*)$", reading.text, re.MULTILINE)
    said = found.group(1).strip() if found is not None else ""
    if said:
        return Known(value=said[:300], origin=reading.origin)
    # Modules that a distribution built and signed leave the line empty.
    return Absent(reason="not_installed", origin=reading.origin, detail="the module names no compiler")


def _parameters(evidence: Evidence) -> Fact[dict[str, str]]:
    reading = evidence.file(f"{_PROC}/params")
    if not reading.has_data:
        return absent(reading)
    rows = re.findall(r"^(\w{1,100}):[ \t]*(.*)$", reading.text, re.MULTILINE)
    return Known(value={name: value.strip().strip('"')[:1000] for name, value in rows}, origin=reading.origin)


def _gpu_models(evidence: Evidence) -> Fact[dict[str, str]]:
    """A GPU whose file blocked is missing from the answer, unless all of them did."""
    prefix, models, failed = f"{_PROC}/gpus/", {}, []
    for item in evidence.below(prefix):
        reading = evidence.read(item.key)
        address = pci_address(item.key.removeprefix(f"file:{prefix}").partition("/")[0])
        found = re.search(r"^Model:[ \t]*(.+)$", reading.text, re.MULTILINE) if reading.has_data else None
        if found is not None and address:
            models[address] = found.group(1).strip()[:200]
        elif not reading.has_data:
            failed.append(reading)
    if models:
        return Known(value=models, origin=f"file:{prefix}")
    if failed:
        return absent(failed[0])
    version = evidence.file(f"{_PROC}/version")
    return (
        absent(version)
        if version.status == "missing"
        else Absent(reason="not_collected", origin=f"file:{prefix}")
    )


def _device_nodes(evidence: Evidence) -> Fact[tuple[DeviceNode, ...]]:
    items = [i for prefix in ("/dev/nvidia", "/dev/dri/", "/dev/dxg") for i in evidence.below(prefix, "stat")]
    nodes = [
        DeviceNode(
            path=item.key.removeprefix("stat:"),
            mode=item.mode or "",
            owner=item.owner or "",
            kind=item.kind or "char",
        )
        for item in items
        if item.status == "ok" and item.exists is not False and (item.kind is None or item.kind in _KINDS)
    ]
    if not items:
        return Absent(reason="not_collected", origin="stat:/dev/nvidia")
    silent = next((i for i in items if i.status not in ("ok", "missing", "truncated")), None)
    if silent is not None:
        # One node without an answer, and the list claims the absence of what may be there.
        return absent(evidence.read(silent.key))
    return Known(value=tuple(nodes), origin="stat:/dev/nvidia")
