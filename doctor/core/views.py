"""Views of a case that checks and claims share: the running kernel's module, the driver's own word, …"""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.core.check import Case
from doctor.core.host import (
    CudaProbe,
    DkmsBuild,
    GpuReport,
    InstalledKernel,
    KernelMessage,
    Known,
    Library,
    LoadedModule,
    ModuleFile,
    PciDevice,
    known,
)
from doctor.core.pattern import pattern
from doctor.core.versions import Dotted

__all__ = [
    "DRIVER_PACKAGE",
    "card_name",
    "cut_short",
    "default_library",
    "driver_builds",
    "driver_major",
    "first_branch",
    "gpu_is_likely",
    "is_stub",
    "last_branch",
    "loaded",
    "log_is_whole",
    "messages",
    "named_in",
    "names_gpu",
    "nvidia_file",
    "on_jetson",
    "probe",
    "report",
    "running_kernel",
    "same_version",
    "speaks_of_gpu",
    "working_gpus",
    "xid_counts",
]

#: Packages that bring the kernel driver or its user space, on any of the systems.
DRIVER_PACKAGE = pattern(
    r"^(nvidia-(driver(?!-(?:assistant|pinning))|open|headless|dkms|kernel|compute-utils|utils)|linux-modules-nvidia|kmod-nvidia"
    r"|akmod-nvidia|cuda-drivers|libnvidia-(compute|ml)|nvidia-kmod|nvidia-utils|xserver-xorg-video-nvidia)"
)


def loaded(case: Case, name: str) -> LoadedModule | None:
    """The loaded module of that name; None when it is not loaded or the list was not read."""
    return next((m for m in known(case.host.kernel.modules) or () if m.name == name), None)


def running_kernel(case: Case) -> InstalledKernel | None:
    """The entry of the running kernel under `/lib/modules`."""
    release = known(case.host.kernel.release)
    return next((k for k in known(case.host.kernel.installed) or () if k.release == release), None)


def nvidia_file(kernel: InstalledKernel | None) -> ModuleFile | None:
    """The `nvidia` module file of a kernel, where there is one."""
    files = known(kernel.nvidia_modules) if kernel else None
    return next((f for f in files or () if f.name == "nvidia"), None)


#: Modules of the vendor that dkms builds beside the driver.
_BESIDE_DRIVER = ("nvidia-fs", "nvidia-peermem", "nvidia-p2p")


def driver_builds(case: Case) -> tuple[DkmsBuild, ...]:
    """What dkms knows of the driver's own module; empty when it knows nothing or was not asked."""
    builds = known(case.host.kernel.dkms) or ()
    return tuple(
        b for b in builds if b.module.startswith("nvidia") and not b.module.startswith(_BESIDE_DRIVER)
    )


def messages(case: Case, *kinds: str) -> Iterator[KernelMessage]:
    """Messages of the running boot with one of these kinds. Earlier boots are history, not cause."""
    for boot in known(case.host.kernel.logs) or ():
        if boot.index == 0:
            yield from (m for m in boot.messages if m.kind in kinds)


def log_is_whole(case: Case) -> bool:
    """True when the running boot's log was read whole, so that a missing message means something."""
    return any(b.index == 0 and b.is_complete for b in known(case.host.kernel.logs) or ())


def xid_counts(case: Case, *codes: int) -> dict[tuple[int, str], int]:
    """(code, GPU) -> count, for the running boot."""
    boots = known(case.host.kernel.logs) or ()
    return {(x.code, x.gpu): x.count for b in boots if b.index == 0 for x in b.xids if x.code in codes}


def report(case: Case) -> GpuReport | None:
    """NVML's word, else nvidia-smi's; the one that answers before one that gives an error."""
    nvml, smi = known(case.host.driver.nvml), known(case.host.driver.smi)
    if nvml is not None and nvml.error and smi is not None and smi.gpus and not smi.error:
        return smi
    return nvml or smi


def cut_short(answered: GpuReport) -> bool:
    """True when the witness was stopped by its deadline: what it does not list may well be there."""
    return any("before the deadline" in error for error in answered.device_errors)


def same_version(one: Dotted, other: Dotted) -> bool:
    """Equal as far as both are given: NVML's message shows `580.173` for `580.173.02`."""
    length = min(len(one.parts), len(other.parts))
    return one.parts[:length] == other.parts[:length]


def default_library(case: Case, soname: str) -> Library | None:
    """The library that the loader takes for a soname."""
    found = [x for x in known(case.host.driver.libraries) or () if x.soname == soname]
    alone = found[0] if len(found) == 1 and found[0].is_default is None else None
    return next((x for x in found if x.is_default), alone)


def is_stub(library: Library) -> bool:
    """True for the empty libcuda of a toolkit that programs are linked against, and never run with."""
    return "/stubs/" in library.path


def probe(case: Case) -> CudaProbe | None:
    """What cuInit said."""
    return known(case.host.cuda.probe)


def driver_major(case: Case) -> int | None:
    """The branch in question: of the loaded module, else of the one on disk."""
    version = known(case.host.driver.kernel_version)
    found = nvidia_file(running_kernel(case))
    version = version or (found.version if found else None) or known(case.host.driver.userspace_version)
    return version.major if version else None


def last_branch(case: Case, device_id: str) -> int | None:
    """The last driver branch for a PCI id, from its row or its architecture."""
    return case.matrix.branches_for(device_id)[1]


def first_branch(case: Case, device_id: str) -> int | None:
    """The first driver branch for a PCI id: of its architecture."""
    return case.matrix.branches_for(device_id)[0]


def working_gpus(case: Case) -> frozenset[str]:
    """PCI addresses of GPUs that NVML or nvidia-smi lists without calling them lost.

    Where neither was read, CUDA's count stands in when it is the number of GPUs bound to `nvidia`.
    """
    if "working" not in case.memo:
        case.memo["working"] = frozenset(_working(case))
    working: frozenset[str] = case.memo["working"]
    return working


def _working(case: Case) -> set[str]:
    answered = report(case)
    if answered is None:
        said, bound = probe(case), [d for d in case.host.gpus_on_bus if d.driver in ("nvidia", None)]
        all_work = said is not None and said.result == 0 and said.device_count == len(bound)
        return {d.address for d in bound} if all_work else set()
    broken = {address for error in answered.device_errors for address in named_in(error)}
    lost = {g.pci_address for g in answered.gpus if any("lost" in e.lower() for e in g.errors.values())}
    return {g.pci_address for g in answered.gpus} - broken - lost


_ADDRESS = pattern(
    r"(?<![0-9a-f:.])(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?![0-9a-f])", re.IGNORECASE
)


def named_in(text: str) -> tuple[str, ...]:
    """The PCI addresses that a text names, as facts write them: `CA:00.0` is `0000:ca:00.0`."""
    found = _ADDRESS.findall(text)
    return tuple(f"{int(domain or '0', 16):04x}:{rest.lower()}" for domain, rest in found)


def names_gpu(text: str, address: str) -> bool:
    """Whether a text is about this card, by its address."""
    return address in named_in(text)


def card_name(case: Case, device: PciDevice) -> str:
    """`NVIDIA L40S [10de:26b9]`; the id alone where the matrix has no name."""
    row = case.matrix.gpu(device.device_id, device.subsystem_id)
    return f"{row.name} [{device.device_id}]" if row else f"[{device.device_id}]"


#: What the driver and the kernel say about a GPU that is there.
_ABOUT_A_GPU = (
    "open_modules_required",
    "unsupported_gpu",
    "legacy_gpu",
    "init_failed",
    "fallen_off_bus",
    "firmware_missing",
    "gsp",
    "bar",
    "api_mismatch",
    "loading",
)


def speaks_of_gpu(case: Case) -> bool:
    """Whether the kernel said something in this boot that needs an NVIDIA GPU to be there."""
    return any(m.text.startswith(("NVRM", "nvidia ")) for m in messages(case, *_ABOUT_A_GPU))


def gpu_is_likely(case: Case) -> bool:
    """True when something speaks for a GPU: bus, platform, module, kernel, an NVML that met a driver."""
    answered = report(case)
    met_driver = answered is not None and (
        answered.gpus
        or answered.driver_version
        or answered.error_code == 18
        or answered.device_errors
        or "insufficient permissions" in answered.error.lower()
    )
    has_module = isinstance(case.host.driver.kernel_version, Known) or loaded(case, "nvidia") is not None
    has_xid = any(boot.index == 0 and boot.xids for boot in known(case.host.kernel.logs) or ())
    is_told = has_module or met_driver or has_xid or on_jetson(case)
    return bool(case.host.gpus_on_bus or is_told or speaks_of_gpu(case))


def on_jetson(case: Case) -> bool:
    """True where the GPU is part of the chip, and kernel and driver come with JetPack."""
    return known(case.host.system.platform) == "jetson"
