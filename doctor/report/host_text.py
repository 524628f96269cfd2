"""The facts of a host as a short table: what is known, and of the rest why it is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from doctor.core.host import (
    AbsentReason,
    Collection,
    CudaProbe,
    Environment,
    Fact,
    Gpu,
    GpuReport,
    Host,
    Known,
    Packages,
    Resources,
    StuckItem,
    Toolkit,
    Virtualisation,
)
from doctor.report.page import Page, counted

__all__ = ["render_environment", "render_host"]

_GIB = 1024**3

_REASONS: dict[AbsentReason, str] = {
    "not_installed": "none",
    "denied": "not known: needs root",
    "timeout": "not known: no answer in time",
    "not_collected": "not collected",
    "unreadable": "not known: unreadable",
    "failed": "not known: failed",
}


def render_host(host: Host, *, width: int = 80, colour: bool = False, ascii_only: bool = False) -> str:
    """One line a fact, in columns; a fact that is absent says why."""
    page = Page(width=width, colour=colour, ascii_only=ascii_only)
    for label, value in _rows(host):
        page.label(label, value, indent=0)
    return str(page)


def render_environment(host: Host) -> str:
    """What is known of a Python environment, in one line."""
    return _said(host.environment, _environment)


def _environment(inside: Environment) -> str:
    cuda = f" (CUDA {inside.torch_cuda})" if inside.torch_cuda else ""
    available = {True: "CUDA is available", False: "CUDA is not available", None: ""}
    parts = [
        f"Python {inside.python}" if inside.python else "",
        f"glibc {inside.glibc}" if inside.glibc else "",
        f"torch {inside.torch}{cuda}" if inside.torch else "",
        f"vllm {inside.vllm}" if inside.vllm else "",
        f"tensorrt {inside.tensorrt}" if inside.tensorrt else "",
        f"tensorrt-llm {inside.tensorrt_llm}" if inside.tensorrt_llm else "",
        counted(len(inside.wheels), "NVIDIA wheel") if inside.wheels else "",
        available[inside.is_cuda_available],
        counted(len(inside.gpus), "GPU") if inside.gpus else "",
    ]
    return ", ".join(part for part in parts if part) or "nothing is known of it"


def _rows(host: Host) -> list[tuple[str, str]]:
    system, kernel, driver, cuda = host.system, host.kernel, host.driver, host.cuda
    return [
        ("host", _said(system.hostname, str)),
        ("system", f"{_said(system.os, lambda os: os.pretty_name)}, {_said(system.architecture, str)}"),
        ("place", _said(system.virtualisation, _place)),
        ("memory", _said(system.resources, _memory)),
        ("kernel", _said(kernel.release, str)),
        ("boot", f"Secure Boot {_said(kernel.secure_boot, str)}, lockdown {_said(kernel.lockdown, str)}"),
        ("bus", _said(host.pci, lambda _: _bus(host))),
        ("driver", _driver(host)),
        ("nvml", _said(driver.nvml, _report)),
        ("smi", _said(driver.smi, _report)),
        *_gpus(driver.nvml, driver.smi),
        ("cuda", f"{_said(cuda.toolkits, _toolkits)}; cuInit {_said(cuda.probe, _probe)}"),
        ("packages", _said(host.packages, _packages)),
        *_collection(host.collection),
    ]


def _said(fact: Fact[Any], words: Callable[[Any], str]) -> str:
    if isinstance(fact, Known):
        return words(fact.value)
    reason = _REASONS[fact.reason]
    return f"{reason} ({fact.detail})" if fact.detail and fact.reason != "not_installed" else reason


def _place(place: Virtualisation) -> str:
    kind = {"bare_metal": "bare metal", "vm": "virtual machine", "wsl2": "WSL2"}.get(place.kind, place.kind)
    return f"{kind} ({place.name})" if place.name else kind


def _memory(resources: Resources) -> str:
    cpus = f", {counted(resources.cpu_count, 'CPU')}" if resources.cpu_count else ""
    return f"{_gib(resources.memory_bytes)}, {_gib(resources.memory_available_bytes)} available{cpus}"


def _gib(count: int) -> str:
    return f"{count / _GIB:.1f} GiB"


def _bus(host: Host) -> str:
    devices = host.gpus_on_bus
    return ", ".join(f"{d.address} {d.device_id}" for d in devices) or "no NVIDIA GPU"


def _driver(host: Host) -> str:
    driver = host.driver
    loaded, flavour = _said(driver.kernel_version, str), driver.flavour
    aside = f" ({flavour.value})" if isinstance(flavour, Known) else ""
    return f"module {loaded}{aside}, user space {_said(driver.userspace_version, str)}"


def _report(report: GpuReport) -> str:
    if report.error:
        code = "" if report.error_code is None else f" (code {report.error_code})"
        return f"{report.error}{code}"
    cuda = f", CUDA {report.cuda_driver_version} at most" if report.cuda_driver_version else ""
    lost = f"; {'; '.join(report.device_errors)}" if report.device_errors else ""
    return f"driver {report.driver_version or 'not said'}, {counted(len(report.gpus), 'GPU')}{cuda}{lost}"


def _gpus(*reports: Fact[GpuReport]) -> list[tuple[str, str]]:
    """A row for each GPU of the first witness that named any."""
    for report in reports:
        if isinstance(report, Known) and report.value.gpus:
            return [(f"gpu {gpu.index}", _gpu(gpu)) for gpu in report.value.gpus]
    return []


def _gpu(gpu: Gpu) -> str:
    parts = [
        gpu.name or "unnamed",
        gpu.pci_address,
        f"compute {gpu.compute_capability}" if gpu.compute_capability else "",
        _gib(gpu.memory_bytes) if gpu.memory_bytes is not None else "",
        f"{gpu.temperature_c} °C" if gpu.temperature_c is not None else "",
        "MIG" if gpu.mig_mode else "",
        counted(len(gpu.errors), "getter failed", "getters failed") if gpu.errors else "",
    ]
    return ", ".join(part for part in parts if part)


def _toolkits(toolkits: Sequence[Toolkit]) -> str:
    named = [f"{t.version or 'unknown version'} in {t.path}" for t in toolkits]
    return f"toolkit {', '.join(named)}" if named else "no toolkit"


def _probe(probe: CudaProbe) -> str:
    if probe.result is None:
        return f"not reached: {probe.error}" if probe.error else "not reached"
    return probe.name or f"returned {probe.result}"


def _packages(packages: Packages) -> str:
    holds = packages.holds
    held = f", {counted(len(holds.value), 'hold')}" if isinstance(holds, Known) and holds.value else ""
    return f"{counted(len(packages.installed), 'package')} of the GPU stack ({packages.manager}){held}"


def _collection(collection: Collection) -> list[tuple[str, str]]:
    who = {True: "as root", False: "not as root", None: ""}[collection.root]
    taken = ", ".join(part for part in (collection.taken_at, who) if part)
    return [
        ("taken", taken),
        *(("stuck", _stuck(item)) for item in collection.stuck),
        ("denied", ", ".join(f"`{key}`" for key in collection.denied)),
        *(("error", line) for line in collection.errors),
    ]


def _stuck(item: StuckItem) -> str:
    parts = [
        f"pid {item.pid}" if item.pid is not None else "",
        f"state {item.state}" if item.state else "",
        f"waits in `{item.wchan}`" if item.wchan else "",
        f"for {item.waited_s:.1f} s" if item.waited_s is not None else "",
    ]
    where = ", ".join(part for part in parts if part)
    return f"`{item.key}`" + (f": {where}" if where else "")
