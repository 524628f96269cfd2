"""When a check does not apply: reasons, or the empty string. Skips only on what is known."""

from __future__ import annotations

from collections.abc import Callable

from doctor.core.check import Case, fact_at
from doctor.core.checks.told import is_unasked
from doctor.core.claims.bus import no_gpu_on_bus, vfio_bound_all
from doctor.core.claims.modules import module_loaded
from doctor.core.views import gpu_is_likely, on_jetson, report

_JETPACK = "on Jetson kernel and driver come with JetPack"

__all__ = [
    "answering",
    "asked",
    "inside_container",
    "not_jetson",
    "not_wsl",
    "on_gpu_host",
    "on_own_kernel",
    "outside_containers",
    "with_module",
]


def on_gpu_host(case: Case) -> str:
    """Skip where the bus was read and holds no NVIDIA GPU, or all of them belong to virtual machines."""
    if case.virtualisation == "wsl2" or on_jetson(case):
        return ""
    if no_gpu_on_bus(case).holds and not (report(case) and report(case).gpus):  # type: ignore[union-attr]
        return "no NVIDIA GPU on this host"
    if vfio_bound_all(case).holds:
        return "every GPU is handed to a virtual machine (vfio-pci)"
    return "" if gpu_is_likely(case) else "whether this host has an NVIDIA GPU is not known"


def not_wsl(case: Case) -> str:
    """Skip under WSL2, where libraries and driver are Windows's and have versions of their own."""
    return "under WSL2 the driver is the one of Windows" if case.virtualisation == "wsl2" else ""


def not_jetson(case: Case) -> str:
    """Skip on Jetson, whose driver has no files, nodes and libraries of a desktop driver to look for."""
    return _JETPACK if on_jetson(case) else ""


def on_own_kernel(case: Case) -> str:
    """Skip where modules, headers and boot are somebody else's."""
    if case.virtualisation == "container":
        return "inside a container the kernel is the host's"
    if on_jetson(case):
        return _JETPACK
    return "under WSL2 the driver is the one of Windows" if case.virtualisation == "wsl2" else ""


def with_module(case: Case) -> str:
    """Skip where the module is known not to be loaded: another finding says so."""
    return "module `nvidia` is not loaded" if module_loaded(case).holds is False else ""


def answering(case: Case) -> str:
    """Skip where neither NVML nor nvidia-smi lists a GPU: another finding says so."""
    answered = report(case)
    return "" if answered is None or answered.gpus else "the driver lists no GPU"


def outside_containers(case: Case) -> str:
    """Skip inside a container, whose engine and kernel settings are the host's."""
    return "inside a container this is the host's" if case.virtualisation == "container" else ""


def inside_container(case: Case) -> str:
    """Skip outside of containers."""
    if case.virtualisation == "container":
        return ""
    return (
        "it is about the inside of a container"
        if case.virtualisation
        else "whether this is a container is not known"
    )


def asked(path: str, words: str) -> Callable[[Case], str]:
    """Skip where evidence never asked for a fact: foreign reports and older bundles hold no such thing."""

    def applies(case: Case) -> str:
        return f"{words}: not asked in this evidence" if is_unasked(fact_at(case.host, path)) else ""

    return applies
