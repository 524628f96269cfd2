"""Host values for tests: a healthy machine with everything known, and small changes to it.

Bare-metal Ubuntu 24.04, two L40S, driver 580.178.04 with open modules built by DKMS, CUDA 13.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from doctor.core.check import Case
from doctor.core.finding import CheckReport, Finding, Status
from doctor.core.host import (
    Absent,
    AbsentReason,
    BootLog,
    Collection,
    Cuda,
    CudaProbe,
    DeviceNode,
    DkmsBuild,
    Driver,
    Filesystem,
    Gpu,
    GpuReport,
    Host,
    InstalledKernel,
    Kernel,
    KernelMessage,
    Known,
    Library,
    LoadedModule,
    MessageKind,
    ModuleFile,
    Os,
    Package,
    Packages,
    PciDevice,
    Resources,
    System,
    Toolkit,
    Unit,
    Virtualisation,
    Xid,
)
from doctor.core.host_container import Containers
from doctor.core.host_fabric import Fabric
from doctor.core.host_machine import Machine, NumaNode
from doctor.core.host_network import Network
from doctor.core.judge import judge
from doctor.core.matrix import Matrix
from doctor.core.versions import Dotted
from doctor.edition.load import load_matrix

RELEASE = "6.8.0-138-generic"
OTHER_RELEASE = "6.8.0-142-generic"
DRIVER = Dotted("580.178.04")
OLD_DRIVER = Dotted("580.95.05")
FIRST, SECOND = "0000:41:00.0", "0000:81:00.0"
L40S, P40, RTX_5090, H100, T4 = "10de:26b9", "10de:1b38", "10de:2b85", "10de:2330", "10de:1eb8"
GTX_1050_TI = "10de:1c82"
MIB, GIB = 1024**2, 1024**3
LIBRARY_DIR = "/usr/lib/x86_64-linux-gnu"

#: BAR 0, 1 and 3 of a card whose BAR 0 is a 32-bit one; a 64-bit BAR takes two places.
NARROW_BARS = (16 * MIB, 64 * GIB, 0, 32 * MIB, 0, 0)
#: BAR 0, 2 and 4 where BAR 0 is a 64-bit one.
WIDE_BARS = (16 * MIB, 0, 128 * GIB, 0, 32 * MIB, 0)

#: Every fact of a host, as a path from Host.
FACTS = (
    *(f"system.{name}" for name in System.__struct_fields__ if name != "environment"),
    *(f"kernel.{name}" for name in Kernel.__struct_fields__),
    "pci",
    *(f"driver.{name}" for name in Driver.__struct_fields__),
    *(f"cuda.{name}" for name in Cuda.__struct_fields__),
    "packages",
    *(f"machine.{name}" for name in Machine.__struct_fields__),
    *(f"fabric.{name}" for name in Fabric.__struct_fields__),
    *(f"containers.{name}" for name in Containers.__struct_fields__),
    *(f"network.{name}" for name in Network.__struct_fields__),
)
REASONS: tuple[AbsentReason, ...] = ("denied", "timeout", "not_collected", "unreadable", "failed")
NOT_THERE = Absent(reason="not_installed")

Change = Callable[[Host], Host]


def known_of(value: Any, origin: str = "test") -> Known[Any]:
    return Known(value=value, origin=origin)


# --- changes --------------------------------------------------------------------------------------


def put(host: Host, path: str, value: Any) -> Host:
    """The host with another value at a path; a bare value of a fact becomes a known one."""
    head, _, rest = path.partition(".")
    old = getattr(host, head)
    if rest:
        return msgspec.structs.replace(host, **{head: put(old, rest, value)})
    is_fact = isinstance(old, Known | Absent) and not isinstance(value, Known | Absent)
    return msgspec.structs.replace(host, **{head: known_of(value) if is_fact else value})


def having(host: Host, values: Mapping[str, Any]) -> Host:
    """The host with several values, by path."""
    for path, value in values.items():
        host = put(host, path, value)
    return host


def without(host: Host, paths: Iterable[str], reason: AbsentReason = "not_collected") -> Host:
    """The host without some facts: they were not asked for, or another reason."""
    return having(host, {path: Absent(reason=reason) for path in paths})


def device(host: Host, index: int = 0, /, **fields: Any) -> Host:
    """The host with other fields of one function on the bus."""
    assert isinstance(host.pci, Known)
    devices = list(host.pci.value)
    devices[index] = msgspec.structs.replace(devices[index], **fields)
    return put(host, "pci", tuple(devices))


def devices(host: Host, **fields: Any) -> Host:
    """The host with other fields of every function on the bus."""
    assert isinstance(host.pci, Known)
    return put(host, "pci", tuple(msgspec.structs.replace(d, **fields) for d in host.pci.value))


def gpu(host: Host, index: int = 0, /, **fields: Any) -> Host:
    """The host with other fields of one GPU, in both witnesses."""
    for path in ("driver.nvml", "driver.smi"):
        report = at(host, path).value
        gpus = list(report.gpus)
        gpus[index] = msgspec.structs.replace(gpus[index], **fields)
        host = put(host, path, msgspec.structs.replace(report, gpus=tuple(gpus)))
    return host


def reports(host: Host, **fields: Any) -> Host:
    """The host with other fields of both witnesses' reports."""
    for path in ("driver.nvml", "driver.smi"):
        host = put(host, path, msgspec.structs.replace(at(host, path).value, **fields))
    return host


def at(host: Host, path: str) -> Any:
    """What lies at a path."""
    here: Any = host
    for step in path.split("."):
        here = getattr(here, step)
    return here


def said(host: Host, *messages: tuple[str, ...], **log: Any) -> Host:
    """The host whose kernel said this in the running boot: (kind, text[, GPU])."""
    kinds = [msgspec.convert(m[0], MessageKind) for m in messages]
    spoken = tuple(
        KernelMessage(kind=kind, text=m[1], gpu="".join(m[2:]))
        for kind, m in zip(kinds, messages, strict=True)
    )
    old = at(host, "kernel.logs").value[0]
    new = msgspec.structs.replace(old, messages=(*old.messages, *spoken), **log)
    return put(host, "kernel.logs", (new, *at(host, "kernel.logs").value[1:]))


def fallen(address: str) -> tuple[Xid, ...]:
    text = f"NVRM: Xid (PCI:{address[:-2]}): 79, pid=1, name=x, GPU has fallen off the bus."
    return (Xid(code=79, gpu=address, count=1, first_text=text),)


# --- the healthy machine --------------------------------------------------------------------------


def pci_device(address: str, device_id: str = L40S, **fields: Any) -> PciDevice:
    values: dict[str, Any] = {
        "address": address,
        "device_id": device_id,
        "class_code": "030200",
        "driver": "nvidia",
        "link_speed_gts": 2.5,
        "link_speed_max_gts": 16.0,
        "link_width": 16,
        "link_width_max": 16,
        "numa_node": 0,
        "bar_bytes": NARROW_BARS,
        "is_responding": True,
        "power_state": "D0",
    }
    return PciDevice(**{**values, **fields})


def nvml_gpu(index: int, address: str, **fields: Any) -> Gpu:
    values: dict[str, Any] = {
        "index": index,
        "pci_address": address,
        "name": "NVIDIA L40S",
        "uuid": f"GPU-00000000-0000-0000-0000-00000000000{index}",
        "compute_capability": "8.9",
        "memory_bytes": 46068 * MIB,
        "ecc_mode": True,
        "ecc_mode_pending": True,
        "ecc_uncorrected_volatile": 0,
        "ecc_uncorrected_aggregate": 0,
        "remapped_rows_correctable": 0,
        "remapped_rows_uncorrectable": 0,
        "remap_pending": False,
        "remap_failure": False,
        "retired_pages_pending": False,
        "temperature_c": 34,
        "power_w": 35.5,
        "power_limit_w": 350.0,
        "power_limit_default_w": 350.0,
        "clock_limits": ("gpu_idle",),
        "mig_mode": False,
        "mig_mode_pending": False,
        "persistence_mode": False,
        "compute_mode": "default",
        "clock_sm_mhz": 210,
        "clock_sm_max_mhz": 2520,
        "performance_state": "P8",
        "utilisation_percent": 0,
        "recovery_action": "none",
    }
    return Gpu(**{**values, **fields})


def module_files(release: str, **fields: Any) -> tuple[ModuleFile, ...]:
    """The driver's module of one kernel, signed by DKMS's own key."""
    values: dict[str, Any] = {
        "name": "nvidia",
        "kernel": release,
        "path": f"/lib/modules/{release}/updates/dkms/nvidia.ko.zst",
        "version": DRIVER,
        "license": "Dual MIT/GPL",
        "signer": "host Secure Boot Module Signature key",
        "vermagic": f"{release} SMP preempt mod_unload modversions",
        "flavour": "open",
    }
    return (ModuleFile(**{**values, **fields}),)


def installed_kernel(release: str, **fields: Any) -> InstalledKernel:
    values: dict[str, Any] = {
        "release": release,
        "is_bootable": True,
        "has_headers": True,
        "nvidia_modules": known_of(module_files(release)),
    }
    return InstalledKernel(**{**values, **fields})


def library(soname: str, version: Dotted | None = DRIVER, **fields: Any) -> Library:
    values: dict[str, Any] = {
        "soname": soname,
        "path": f"{LIBRARY_DIR}/{soname.removesuffix('.1')}.{version}",
        "version": version,
        "package": "libnvidia-compute-580",
        "is_default": True,
    }
    return Library(**{**values, **fields})


def compat_library(version: Dotted, **fields: Any) -> Library:
    values = {
        "path": f"/usr/local/cuda-13.0/compat/libcuda.so.{version}",
        "is_compat": True,
        "package": "cuda-compat-13-0",
    }
    return library("libcuda.so.1", version, **{**values, **fields})


def loaded_modules(*names: str) -> tuple[LoadedModule, ...]:
    return tuple(
        LoadedModule(
            name=name,
            refcount=0,
            taint="OE",
            version=DRIVER if name.startswith("nvidia") else None,
            parameters={"uvm_disable_hmm": "N"} if name == "nvidia_uvm" else {},
        )
        for name in names
    )


def nodes(*paths: str, mode: str = "0666") -> tuple[DeviceNode, ...]:
    return tuple(DeviceNode(path=path, mode=mode, owner="root:root") for path in paths)


def dkms_build(**fields: Any) -> DkmsBuild:
    values: dict[str, Any] = {
        "module": "nvidia",
        "version": DRIVER.raw,
        "kernel": RELEASE,
        "architecture": "x86_64",
        "state": "installed",
    }
    return DkmsBuild(**{**values, **fields})


def package(name: str, **fields: Any) -> Package:
    return Package(**{"name": name, "version": f"{DRIVER}-0ubuntu1", "architecture": "amd64", **fields})


def packages_of(*installed: Package, **fields: Any) -> Packages:
    values: dict[str, Any] = {
        "manager": "dpkg",
        "installed": installed,
        "holds": known_of(()),
        "changes": known_of(()),
        "automatic_updates": known_of(value=False),
        "automatic_update_exclusions": known_of(()),
        "reboot_required": known_of(value=False),
    }
    return Packages(**{**values, **fields})


def driver_packages(**fields: Any) -> Packages:
    names = ("nvidia-driver-580-open", "nvidia-dkms-580-open", "libnvidia-compute-580")
    return packages_of(*(package(name) for name in names), **fields)


def working_probe(**fields: Any) -> CudaProbe:
    values: dict[str, Any] = {
        "result": 0,
        "name": "CUDA_SUCCESS",
        "library_path": f"{LIBRARY_DIR}/libcuda.so.{DRIVER}",
        "library_version": DRIVER,
        "driver_version": Dotted("13.0"),
        "device_count": 2,
    }
    return CudaProbe(**{**values, **fields})


def failing_probe(code: int, name: str, **fields: Any) -> CudaProbe:
    return working_probe(**{"result": code, "name": name, "device_count": None, **fields})


def unloadable_probe(error: str = "") -> CudaProbe:
    text = error or "libcuda.so.1: cannot open shared object file: No such file or directory"
    return CudaProbe(error=text)


def _system() -> System:
    resources = Resources(
        memory_bytes=512 * GIB,
        memory_available_bytes=500 * GIB,
        cpu_count=64,
        filesystems=(Filesystem(path="/", total_bytes=900 * GIB, free_bytes=700 * GIB, kind="ext4"),),
    )
    unit = Unit(name="nvidia-persistenced.service", load="loaded", active="inactive", enabled="disabled")
    return System(
        os=known_of(Os(id="ubuntu", version="24.04", pretty_name="Ubuntu 24.04.4 LTS", id_like=("debian",))),
        architecture=known_of("x86_64"),
        virtualisation=known_of(Virtualisation(kind="bare_metal")),
        platform=known_of(""),
        resources=known_of(resources),
        units=known_of((unit,)),
        boot_time=known_of("2026-11-30T08:00:00Z"),
        hostname=known_of("node"),
    )


def _kernel() -> Kernel:
    loading = KernelMessage(kind="loading", text=f"NVRM: loading NVIDIA UNIX Open Kernel Module  {DRIVER}")
    return Kernel(
        release=known_of(RELEASE),
        compiler=known_of("x86_64-linux-gnu-gcc-13 (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0"),
        command_line=known_of(("BOOT_IMAGE=/vmlinuz", "ro", "quiet")),
        secure_boot=known_of("disabled"),
        lockdown=known_of("none"),
        installed=known_of((installed_kernel(RELEASE),)),
        next_release=known_of(RELEASE),
        modules=known_of(loaded_modules("nvidia_uvm", "nvidia")),
        module_options=known_of(()),
        dkms=known_of((dkms_build(),)),
        logs=known_of((BootLog(index=0, messages=(loading,)),)),
        compiler_on_path=known_of("gcc (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0"),
    )


def _driver() -> Driver:
    report = GpuReport(
        driver_version=DRIVER,
        library_version=DRIVER,
        cuda_driver_version=Dotted("13.0"),
        gpus=(nvml_gpu(0, FIRST), nvml_gpu(1, SECOND)),
    )
    return Driver(
        kernel_version=known_of(DRIVER),
        flavour=known_of("open"),
        container_root=NOT_THERE,
        module_compiler=known_of("gcc version 13.3.0"),
        parameters=known_of({"ExcludedGpus": ""}),
        gpu_models=known_of({FIRST: "NVIDIA L40S", SECOND: "NVIDIA L40S"}),
        libraries=known_of((library("libcuda.so.1"), library("libnvidia-ml.so.1"))),
        userspace_version=known_of(DRIVER),
        nvml=known_of(report),
        smi=known_of(report),
        device_nodes=known_of(
            nodes(
                "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"
            )
        ),
    )


def healthy() -> Host:
    """The machine on which nothing is wrong and everything is known."""
    toolkit = Toolkit(
        path="/usr/local/cuda-13.0",
        version=Dotted("13.0.2"),
        nvcc_release=Dotted("13.0"),
        is_default=True,
    )
    return Host(
        collection=Collection(taken_at="2026-11-30T10:00:00Z", boot_id="b", root=True),
        system=_system(),
        kernel=_kernel(),
        pci=known_of((pci_device(FIRST), pci_device(SECOND))),
        driver=_driver(),
        cuda=Cuda(probe=known_of(working_probe()), probe_caller=NOT_THERE, toolkits=known_of((toolkit,))),
        packages=known_of(driver_packages()),
        machine=_machine(),
    )


def _machine() -> Machine:
    return Machine(
        chassis=known_of("server"),
        other_displays=known_of(()),
        governors=known_of({"performance": 64}),
        numa_nodes=known_of((NumaNode(index=0, cpus="0-63", memory_bytes=512 * GIB),)),
        numa_balancing=known_of(value=False),
        clock_synchronised=known_of(value=True),
        clocksource=known_of("tsc"),
        cgroup_memory_limit_bytes=NOT_THERE,
        oom_kills=known_of(()),
        pcie_errors=known_of({}),
        repositories=known_of(()),
        module_streams=NOT_THERE,
        package_locks=known_of(()),
        enrolled_keys=NOT_THERE,
        pending_keys=known_of(()),
    )


# --- other machines -------------------------------------------------------------------------------


def placed(host: Host, kind: str, name: str = "") -> Host:
    return put(host, "system.virtualisation", Virtualisation(kind=kind, name=name))  # type: ignore[arg-type]


def in_container() -> Host:
    """A container with the GPU: the kernel's files are the host's, or hidden."""
    hidden = (
        "kernel.installed",
        "kernel.next_release",
        "kernel.secure_boot",
        "kernel.logs",
        "kernel.lockdown",
    )
    host = without(placed(healthy(), "container", "docker"), hidden, "denied")
    return having(host, {"kernel.dkms": NOT_THERE, "packages": packages_of(package("cuda-cudart-13-0"))})


def jetson() -> Host:
    """An Orin with JetPack: the GPU is not on PCI, `nvgpu` drives it, and CUDA works."""
    host = without_module_file(without_module(healthy()))
    return having(
        host,
        {
            "system.platform": "jetson",
            "system.architecture": "aarch64",
            "pci": (),
            "kernel.dkms": NOT_THERE,
            "kernel.modules": loaded_modules("nvgpu"),
            "driver.libraries": (),
            "driver.userspace_version": NOT_THERE,
            "driver.nvml": NOT_THERE,
            "driver.smi": NOT_THERE,
            "cuda.probe": working_probe(library_path="/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1.1"),
            "packages": packages_of(),
        },
    )


def beside_a_driver_container() -> Host:
    """A node of the GPU Operator: module loaded, and no libraries of the driver on the host itself."""
    return having(
        healthy(),
        {
            "driver.container_root": "/run/nvidia/driver",
            "driver.libraries": (),
            "driver.userspace_version": NOT_THERE,
            "driver.nvml": NOT_THERE,
            "driver.smi": NOT_THERE,
            "cuda.probe": unloadable_probe(),
            "packages": packages_of(),
        },
    )


def in_wsl2() -> Host:
    """WSL2: no GPU on the bus, no module, no nodes; NVML answers with the Windows driver's version."""
    windows = Dotted("581.57")
    host = placed(without_module(healthy()), "wsl2", "wsl")
    report = GpuReport(
        driver_version=windows,
        library_version=Dotted("580.95"),
        cuda_driver_version=Dotted("13.0"),
        gpus=(nvml_gpu(0, "0000:01:00.0", remap_pending=None, remap_failure=None),),
    )
    probe = working_probe(
        library_path="/usr/lib/wsl/lib/libcuda.so.1.1", library_version=None, device_count=1
    )
    return having(
        host,
        {
            "pci": (),
            "driver.kernel_version": windows,
            "driver.userspace_version": Dotted("580.95"),
            "driver.libraries": (),
            "driver.nvml": report,
            "driver.smi": report,
            "driver.device_nodes": nodes("/dev/dxg"),
            "kernel.release": "6.6.87.2-microsoft-standard-WSL2",
            "kernel.installed": (),
            "kernel.next_release": NOT_THERE,
            "kernel.dkms": NOT_THERE,
            "cuda.probe": probe,
            "cuda.toolkits": (),
            "packages": packages_of(),
        },
    )


def without_module(host: Host) -> Host:
    """The host whose module is not loaded, with what follows from it in every witness."""
    error = GpuReport(error="Driver Not Loaded", error_code=9)
    host = devices(host, driver="")
    log = at(host, "kernel.logs").value[0]
    quiet = tuple(m for m in log.messages if m.kind != "loading")
    return having(
        host,
        {
            "driver.kernel_version": NOT_THERE,
            "driver.flavour": NOT_THERE,
            "driver.module_compiler": NOT_THERE,
            "driver.parameters": NOT_THERE,
            "driver.gpu_models": NOT_THERE,
            "driver.nvml": error,
            "driver.smi": GpuReport(
                error="NVIDIA-SMI has failed because it couldn't communicate", error_code=9
            ),
            "driver.device_nodes": (),
            "kernel.modules": (),
            "kernel.logs": (msgspec.structs.replace(log, messages=quiet),),
            "cuda.probe": failing_probe(100, "CUDA_ERROR_NO_DEVICE"),
        },
    )


def without_module_file(host: Host) -> Host:
    """The host whose running kernel has no module on disk."""
    return put(host, "kernel.installed", (installed_kernel(RELEASE, nvidia_modules=known_of(())),))


def no_driver() -> Host:
    """A host with GPUs and nothing of a driver."""
    return having(
        without_module_file(without_module(healthy())),
        {
            "kernel.dkms": NOT_THERE,
            "driver.libraries": (),
            "driver.userspace_version": NOT_THERE,
            "driver.nvml": NOT_THERE,
            "driver.smi": NOT_THERE,
            "cuda.probe": unloadable_probe(),
            "packages": packages_of(),
        },
    )


def lost_gpu(host: Host, address: str = SECOND) -> Host:
    """The host whose witnesses do not list one GPU."""
    for path in ("driver.nvml", "driver.smi"):
        report = at(host, path).value
        left = tuple(g for g in report.gpus if g.pci_address != address)
        host = put(host, path, msgspec.structs.replace(report, gpus=left))
    return put(host, "cuda.probe", working_probe(device_count=1))


# --- judging --------------------------------------------------------------------------------------


def matrix() -> Matrix:
    return _MATRIX


_MATRIX = load_matrix()


def case_of(host: Host) -> Case:
    return Case(host=host, matrix=_MATRIX)


def answer(host: Host) -> CheckReport:
    return judge(host, _MATRIX)


def findings(host: Host, check_id: str) -> list[Finding]:
    """The findings of one check, in order."""
    return [f for f in answer(host).findings if f.id == check_id]


def statuses(host: Host) -> dict[tuple[str, str], Status]:
    """(check, subject) -> status."""
    return {(f.id, f.subject): f.status for f in answer(host).findings}


def wrong(host: Host) -> dict[str, str]:
    """What fails, warns or is open, with its words: for messages of failing tests."""
    bad = ("fail", "warn", "unknown")
    return {f"{f.id}@{f.subject}": f"{f.status}: {f.found}" for f in answer(host).findings if f.status in bad}


def expect(
    host: Host, check_id: str, status: Status, subject: str = "", found: str = "", **also: str
) -> None:
    """Hold one finding to its status and subject, and to words in `found`, `wanted`, `why`."""
    mine = findings(host, check_id)
    here = [f for f in mine if f.subject == subject]
    assert [f.status for f in here] == [status], [(f.subject, f.status, f.found) for f in mine]
    texts = {"found": here[0].found, "wanted": here[0].wanted, "why": " ".join(here[0].why)}
    for field, words in {"found": found, **also}.items():
        assert words in texts[field], texts
