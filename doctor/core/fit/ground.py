"""What a machine offers to an environment: driver, GPUs, C library, compilers; read off a host."""

from __future__ import annotations

import re

import msgspec

from doctor.core.host import Host, Known, Limit, is_not_there, known
from doctor.core.matrix import GpuRow, Matrix
from doctor.core.versions import Dotted

__all__ = ["Card", "Ground", "forward_compat", "ground_of_host"]


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU as code for it sees it."""

    name: str
    capability: Dotted | None = None
    takes_compat: bool | None = None
    """Whether it runs with driver libraries newer than its driver; None: no source says."""


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """A machine. None: not told."""

    driver: Dotted | None = None
    driver_cuda: Dotted | None = None
    """The highest CUDA that its libcuda speaks."""
    compat: Dotted | None = None
    """The version of newer driver libraries (`cuda-compat`) that a question says are used there."""
    has_fabric_manager: bool | None = None
    """False where an NVSwitch joins the GPUs, and the fabric manager that they need does not run."""
    cards: tuple[Card, ...] = ()
    has_gpu: bool | None = None
    glibc: Dotted | None = None
    glibc_source: tuple[str, ...] = ()
    architecture: str = ""
    os: str = ""
    toolkits: tuple[tuple[str, Dotted], ...] | None = None
    """Path and CUDA version of each toolkit; empty: there is none."""
    has_compiler: bool | None = None
    tensorrt: str = ""
    """Of the system's packages."""
    cuda_home: str | None = None
    """The caller's `CUDA_HOME` or `CUDA_PATH`; None where it sets none, or nobody asked."""
    limits: tuple[Limit, ...] = ()
    is_jetson: bool = False
    tooled: bool = False
    """True for a host, whose compilers and limits can be told; a named target has none."""


def ground_of_host(matrix: Matrix, host: Host) -> Ground:
    """The machine that evidence describes."""
    resources = known(host.system.resources)
    os = known(host.system.os)
    environment = host.system.environment
    return Ground(
        driver=_driver(host),
        driver_cuda=_speaks(host),
        cards=_cards(matrix, host),
        has_gpu=_has_gpu(host),
        glibc=_libc(host),
        architecture=known(host.system.architecture) or "",
        os=f"{os.id}-{os.version}" if os else "",
        toolkits=_toolkits(host),
        has_compiler=_has_compiler(host),
        tensorrt=_system_tensorrt(host),
        cuda_home=environment.get("CUDA_HOME", environment.get("CUDA_PATH")),
        limits=resources.limits if resources else (),
        is_jetson=known(host.system.platform) == "jetson",
        tooled=True,
    )


# --- facts ----------------------------------------------------------------------------------------


def _driver(host: Host) -> Dotted | None:
    told = [report.driver_version for report in (known(host.driver.nvml), known(host.driver.smi)) if report]
    return known(host.driver.kernel_version) or next((version for version in told if version), None)


def _speaks(host: Host) -> Dotted | None:
    """By cuInit's own libcuda, which may be a newer compat library; else by NVML."""
    probe = known(host.cuda.probe)
    if probe is not None and probe.result == 0 and probe.driver_version is not None:
        return probe.driver_version
    told = [
        r.cuda_driver_version for r in (known(host.driver.nvml), known(host.driver.smi)) if r and not r.error
    ]
    return next((version for version in told if version), None)


def _cards(matrix: Matrix, host: Host) -> tuple[Card, ...]:
    """One of each kind: by the driver's own word, else by the rows of their PCI ids."""
    devices = {device.address: device for device in host.gpus_on_bus}
    reports = [r for r in (known(host.driver.nvml), known(host.driver.smi)) if r and r.gpus]
    found: list[Card] = []
    for gpu in reports[0].gpus if reports else ():
        device = devices.get(gpu.pci_address)
        row = (
            matrix.gpu(device.device_id, device.subsystem_id)
            if device
            else _row_by_name(matrix, gpu.name or "")
        )
        capability = gpu.compute_capability or (row.compute_capability if row else "")
        found.append(_card(matrix, gpu.name or (row.name if row else ""), capability, row))
    for device in devices.values() if not reports else ():
        row = matrix.gpu(device.device_id, device.subsystem_id)
        found.append(
            _card(matrix, row.name if row else device.device_id, row.compute_capability if row else "", row)
        )
    return tuple(dict.fromkeys(found))


def _card(matrix: Matrix, name: str, capability: str, row: GpuRow | None) -> Card:
    compat = forward_compat(matrix, row.pci_device_id) if row else None
    return Card(name=name, capability=Dotted(capability) if capability else None, takes_compat=compat)


def _row_by_name(matrix: Matrix, name: str) -> GpuRow | None:
    """A report may name a GPU and no address: `NVIDIA GeForce RTX 5090`."""
    wanted = name.casefold().removeprefix("nvidia ").removeprefix("tesla ").strip()
    rows = [row for row in matrix.edition.gpus if wanted and _plain(row.name) == _plain(wanted)]
    kinds = {row.compute_capability for row in rows}
    return rows[0] if len(kinds) == 1 else None


def _plain(name: str) -> str:
    return name.casefold().removeprefix("nvidia ").removeprefix("tesla ").strip()


def forward_compat(matrix: Matrix, pci_id: str) -> bool | None:
    """Whether a card takes driver libraries newer than its driver; None where no source says."""
    product = matrix.product(pci_id) if pci_id else None
    return product.supports_forward_compat if product else None


def _has_gpu(host: Host) -> bool | None:
    reports = [r for r in (known(host.driver.nvml), known(host.driver.smi)) if r]
    if host.gpus_on_bus or any(r.gpus for r in reports):
        return True
    place = known(host.system.virtualisation)
    if known(host.system.platform) == "jetson":
        return True
    if place is not None and place.kind == "wsl2":
        return None
    return False if isinstance(host.pci, Known) else None


def _libc(host: Host) -> Dotted | None:
    packages = known(host.packages)
    for package in packages.installed if packages else ():
        if package.name in ("libc6", "glibc") and package.state == "installed":
            found = re.match(r"(?:\d+:)?(2\.\d{1,3})", package.version)
            return Dotted(found.group(1)) if found else None
    return None


def _toolkits(host: Host) -> tuple[tuple[str, Dotted], ...] | None:
    if is_not_there(host.cuda.toolkits):
        return ()
    toolkits = known(host.cuda.toolkits)
    if toolkits is None:
        return None
    versions = [(kit.path, kit.nvcc_release or kit.version) for kit in toolkits]
    return tuple((path, version) for path, version in versions if version is not None)


def _has_compiler(host: Host) -> bool | None:
    fact = host.kernel.compiler_on_path
    return True if known(fact) else False if is_not_there(fact) else None


def _system_tensorrt(host: Host) -> str:
    packages = known(host.packages)
    for package in packages.installed if packages else ():
        if re.fullmatch(r"libnvinfer\d+", package.name) and package.state == "installed":
            found = re.match(r"(?:\d+:)?(\d+(?:\.\d+){1,3})", package.version)
            return found.group(1) if found else ""
    return ""
