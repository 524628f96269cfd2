"""A host as typed facts (`mopt.host/1`): each one a value with its origin, or the reason it is absent.

Nothing here judges. A fact that was asked for and is not there has the reason `not_installed`:
that is knowledge, and a check may build on it. Every other reason is ignorance, and the judge turns
it into `unknown`.

Longer than this project's other files: it is the one vocabulary of facts, declarations only, and a
reader looks a fact up in one place. What joins GPUs, runs containers, carries tensors and stands
around the cards lies beside it: `host_fabric`, `host_container`, `host_engine`, `host_network`,
`host_machine`.
"""

from __future__ import annotations

from typing import Literal

from doctor.core.fact import (
    NOT_COLLECTED,
    Absent,
    AbsentReason,
    Fact,
    Known,
    Value,
    is_not_there,
    is_untold,
    known,
)
from doctor.core.host_container import Containers
from doctor.core.host_engine import Environment
from doctor.core.host_fabric import Fabric
from doctor.core.host_machine import Machine
from doctor.core.host_network import Network
from doctor.core.versions import Dotted

__all__ = [
    "HOST_SCHEMA",
    "NOT_COLLECTED",
    "Absent",
    "AbsentReason",
    "BootLog",
    "Collection",
    "Cuda",
    "CudaProbe",
    "DeviceNode",
    "DkmsBuild",
    "Driver",
    "Environment",
    "Fact",
    "Flavour",
    "Gpu",
    "GpuProcess",
    "GpuReport",
    "Host",
    "InstalledKernel",
    "Kernel",
    "KernelMessage",
    "Known",
    "Library",
    "LoadedModule",
    "MessageKind",
    "ModprobeLine",
    "ModuleFile",
    "Os",
    "Package",
    "PackageChange",
    "Packages",
    "PciDevice",
    "PlatformName",
    "Resources",
    "StuckItem",
    "Sxid",
    "System",
    "Toolkit",
    "Unit",
    "Virtualisation",
    "Xid",
    "is_not_there",
    "is_untold",
    "known",
]

HOST_SCHEMA = "mopt.host/1"

Flavour = Literal["open", "proprietary"]


# --- system ---------------------------------------------------------------------------------------


class Os(Value, frozen=True, kw_only=True):
    """The distribution, from `distro` or `/etc/os-release`."""

    id: str
    """Lower case, as in os-release: `ubuntu`, `rocky`, `debian`, `rhel`."""
    version: str
    """`24.04`, `9.6`; empty for a rolling release."""
    pretty_name: str
    id_like: tuple[str, ...] = ()
    codename: str = ""


VirtualisationKind = Literal["bare_metal", "vm", "container", "wsl2"]


class Virtualisation(Value, frozen=True, kw_only=True):
    """Where this system runs. Inside a container the kernel and the modules are the host's."""

    kind: VirtualisationKind
    name: str = ""
    """`kvm`, `vmware`, `docker`, `lxc`, … as the witness names it; empty on bare metal."""
    vgpu_guest: bool | None = None
    """True when the GPU is a slice handed out by a vGPU host; None when nothing said so."""


class Filesystem(Value, frozen=True, kw_only=True):
    path: str
    total_bytes: int
    free_bytes: int
    """Free for an unprivileged process."""
    kind: str = ""


class Limit(Value, frozen=True, kw_only=True):
    """A resource limit of the process that ran the collector; -1 is unlimited."""

    name: str
    soft: int
    hard: int


class Resources(Value, frozen=True, kw_only=True):
    """What the machine has, apart from its GPUs."""

    memory_bytes: int
    memory_available_bytes: int
    swap_bytes: int = 0
    cpu_count: int | None = None
    filesystems: tuple[Filesystem, ...] = ()
    limits: tuple[Limit, ...] = ()


class Unit(Value, frozen=True, kw_only=True):
    """A systemd unit that matters for the GPU stack."""

    name: str
    load: str
    """`loaded`, `not-found`, `masked`, …"""
    active: str
    """`active`, `inactive`, `failed`, …"""
    sub: str = ""
    enabled: str = ""
    result: str = ""


PlatformName = Literal["jetson", "dgx_os", ""]


class System(Value, frozen=True, kw_only=True):
    """Operating system, place and resources."""

    os: Fact[Os] = NOT_COLLECTED
    platform: Fact[PlatformName] = NOT_COLLECTED
    """`jetson`: the GPU is part of the chip, not on PCI, and the driver comes with JetPack. `dgx_os`:
    NVIDIA's own image of a distribution. Empty when both were looked for and neither is there."""
    architecture: Fact[str] = NOT_COLLECTED
    """`x86_64` or `aarch64`, from `uname`."""
    virtualisation: Fact[Virtualisation] = NOT_COLLECTED
    resources: Fact[Resources] = NOT_COLLECTED
    units: Fact[tuple[Unit, ...]] = NOT_COLLECTED
    boot_time: Fact[str] = NOT_COLLECTED
    """UTC, ISO 8601."""
    hostname: Fact[str] = NOT_COLLECTED
    environment: dict[str, str] = {}
    """The caller's variables that steer CUDA (`LD_LIBRARY_PATH`, `CUDA_HOME`, `PATH`, …), and those by
    which a batch job knows itself (`SLURM_JOB_ID`): it may be shown some of the GPUs only."""


# --- kernel ---------------------------------------------------------------------------------------


class ModuleFile(Value, frozen=True, kw_only=True):
    """A kernel module file on disk, as `modinfo` describes it."""

    name: str
    """With underscores: `nvidia`, `nvidia_uvm`."""
    kernel: str
    path: str
    version: Dotted | None = None
    license: str = ""
    signer: str = ""
    """Empty when the module carries no signature."""
    vermagic: str = ""
    flavour: Flavour | None = None
    """Of `nvidia` only, from its licence: `Dual MIT/GPL` is open, `NVIDIA` proprietary."""


class InstalledKernel(Value, frozen=True, kw_only=True):
    """A kernel that has a directory under `/lib/modules`."""

    release: str
    is_bootable: bool | None = None
    """True when its image lies in `/boot` or its module directory; None when that was not read."""
    has_headers: bool | None = None
    """True when `/lib/modules/RELEASE/build` leads somewhere; None when it could not be told."""
    nvidia_modules: Fact[tuple[ModuleFile, ...]] = NOT_COLLECTED
    """The NVIDIA module files found below it; an empty tuple when there are none."""


class LoadedModule(Value, frozen=True, kw_only=True):
    """A row of `/proc/modules`, with what `/sys/module` adds."""

    name: str
    size_bytes: int = 0
    refcount: int | None = None
    """None where the kernel does not say (`-`)."""
    used_by: tuple[str, ...] = ()
    taint: str = ""
    """`P` proprietary, `O` out of tree, `E` unsigned."""
    version: Dotted | None = None
    parameters: dict[str, str] = {}


class ModprobeLine(Value, frozen=True, kw_only=True):
    """One directive of a modprobe.d file: `options`, `blacklist`, `install`, `alias`, …"""

    file: str
    directive: str
    module: str
    arguments: str = ""


class DkmsBuild(Value, frozen=True, kw_only=True):
    """A row of `dkms status`, and why the build failed where a make.log says so."""

    module: str
    version: str
    kernel: str = ""
    """Empty when the module is only `added`."""
    architecture: str = ""
    state: str
    """`added`, `built`, `installed`, `broken`, …"""
    failure: str = ""
    """The first error line of its make.log; empty when there is no log or it shows no error."""
    log: str = ""
    """Where that log lies on the host."""


MessageKind = Literal[
    "xid",
    "sxid",
    "api_mismatch",
    "open_modules_required",
    "unsupported_gpu",
    "legacy_gpu",
    "init_failed",
    "fallen_off_bus",
    "firmware_missing",
    "gsp",
    "bar",
    "probe_failed",
    "no_devices_probed",
    "nouveau",
    "module_verification",
    "module_signature_rejected",
    "module_symbol",
    "lockdown",
    "uvm",
    "oops",
    "sleep",
    "loading",
    "other",
]
"""`oops`: the kernel stopped over a fault of its own inside one of the driver's modules. `sleep`: the machine
woke from suspend or hibernation."""


class KernelMessage(Value, frozen=True, kw_only=True):
    """One message of the kernel about the GPU stack; lines that belong together are joined."""

    kind: MessageKind
    text: str
    gpu: str = ""
    """PCI address `0000:41:00.0` the message names, normalised; empty when it names none."""
    device_id: str = ""
    """`10de:1db5`, where the message gives the id of the GPU that it is about."""
    seconds: float | None = None
    """Since boot, where the line carries it."""


class Xid(Value, frozen=True, kw_only=True):
    """An Xid event counted: how often one code was reported for one GPU in one boot."""

    code: int
    gpu: str
    count: int
    first_text: str
    first_seconds: float | None = None
    """Of the first one since boot, where its line carries it."""


class Sxid(Value, frozen=True, kw_only=True):
    """SXid events counted: how often one NVSwitch reported one code with one severity in one boot."""

    code: int
    switch: str
    """PCI address of the NVSwitch: `0000:c1:00.0`."""
    is_fatal: bool | None = None
    """As the line says; None where it says neither."""
    count: int
    first_text: str


class BootLog(Value, frozen=True, kw_only=True):
    """The kernel's messages of one boot. `index` 0 is the running boot, -1 the one before."""

    index: int
    messages: tuple[KernelMessage, ...]
    xids: tuple[Xid, ...] = ()
    sxids: tuple[Sxid, ...] = ()
    is_complete: bool = True
    """False when the ring had wrapped or the log was cut: absence of a message proves nothing."""


class Kernel(Value, frozen=True, kw_only=True):
    """The running kernel, what is installed beside it, and what it said about the GPU stack."""

    release: Fact[str] = NOT_COLLECTED
    compiler: Fact[str] = NOT_COLLECTED
    """As `/proc/version` has it: `gcc-13 (Ubuntu 13.3.0-…) 13.3.0`."""
    command_line: Fact[tuple[str, ...]] = NOT_COLLECTED
    secure_boot: Fact[Literal["enabled", "disabled", "unsupported"]] = NOT_COLLECTED
    """`unsupported`: not booted through EFI."""
    lockdown: Fact[str] = NOT_COLLECTED
    """`none`, `integrity` or `confidentiality`; `not_installed` when the kernel has no such file."""
    installed: Fact[tuple[InstalledKernel, ...]] = NOT_COLLECTED
    next_release: Fact[str] = NOT_COLLECTED
    """The kernel the next boot takes: the boot loader's default, else the newest bootable one."""
    modules: Fact[tuple[LoadedModule, ...]] = NOT_COLLECTED
    """Loaded modules that matter: nvidia*, nouveau, nova*, vfio-pci, ib_umad, mlx5*, drm, ecc…"""
    module_options: Fact[tuple[ModprobeLine, ...]] = NOT_COLLECTED
    dkms: Fact[tuple[DkmsBuild, ...]] = NOT_COLLECTED
    logs: Fact[tuple[BootLog, ...]] = NOT_COLLECTED
    """Newest boot first."""
    compiler_on_path: Fact[str] = NOT_COLLECTED
    """First line of `gcc --version`; `not_installed` when there is no gcc."""


# --- devices --------------------------------------------------------------------------------------


class PciDevice(Value, frozen=True, kw_only=True):
    """A function of vendor 10de on the PCI bus."""

    address: str
    """`0000:41:00.0`, lower case."""
    device_id: str
    """`10de:26b9`, lower case."""
    subsystem_id: str = ""
    class_code: str
    """Six hex digits, lower case: `030200`."""
    driver: str | None
    """The kernel driver bound to it; empty when none is; None when that was not read."""
    link_speed_gts: float | None = None
    link_speed_max_gts: float | None = None
    link_width: int | None = None
    link_width_max: int | None = None
    numa_node: int | None = None
    """None when the platform says -1 or nothing."""
    bar_bytes: tuple[int, ...] = ()
    """Sizes of BAR 0..5; 0 is an unassigned or unused one. Empty when not read."""
    is_responding: bool | None = None
    """False when its config space reads all ones (`rev ff`): the device is gone from the bus."""
    power_state: str = ""
    is_virtual_function: bool | None = None
    """True for an SR-IOV slice of another function (vGPU, MIG-backed), which is no card; None: not read."""

    @property
    def bus(self) -> str:
        """`0000:41`."""
        return self.address.rpartition(":")[0]

    @property
    def function(self) -> str:
        """`0`; a card is always the first function of its device."""
        return self.address.rpartition(".")[2]

    @property
    def is_gpu(self) -> bool:
        """True for a VGA or 3D controller; audio, USB and NVSwitch functions are not GPUs."""
        return self.class_code[:4] in ("0300", "0302")

    @property
    def is_nvswitch(self) -> bool:
        """True for an NVSwitch: class 0680, a bridge of the vendor."""
        return self.class_code[:4] == "0680"


def _is_slice(device: PciDevice, *, is_sliced: bool) -> bool:
    """Whether a function is a virtual one. Where that was not read (`lspci`), its address tells.

    NVIDIA's are the functions from 4 on, and go on over the device numbers of the card's own bus.
    """
    if device.is_virtual_function is not None:
        return device.is_virtual_function
    return is_sliced and not device.address.endswith(":00.0")


class DeviceNode(Value, frozen=True, kw_only=True):
    """A device node under `/dev`."""

    path: str
    mode: str
    """Octal permission bits: `0666`."""
    owner: str
    """`root:video`."""
    kind: str = "char"


class GpuProcess(Value, frozen=True, kw_only=True):
    """A process that holds memory of a GPU."""

    pid: int
    name: str = ""
    memory_bytes: int | None = None


class Gpu(Value, frozen=True, kw_only=True):
    """One GPU as NVML or `nvidia-smi -q -x` reports it. None: that witness did not say."""

    index: int
    pci_address: str
    """`0000:41:00.0`, lower case, four-digit domain where it fits."""
    name: str | None = None
    uuid: str | None = None
    serial: str | None = None
    compute_capability: str | None = None
    """`9.0`."""
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None
    ecc_mode: bool | None = None
    ecc_mode_pending: bool | None = None
    ecc_uncorrected_volatile: int | None = None
    ecc_uncorrected_aggregate: int | None = None
    ecc_corrected_aggregate: int | None = None
    remapped_rows_correctable: int | None = None
    remapped_rows_uncorrectable: int | None = None
    remap_pending: bool | None = None
    remap_failure: bool | None = None
    retired_pages_pending: bool | None = None
    temperature_c: int | None = None
    temperature_slowdown_c: int | None = None
    """Absolute threshold, where the card states one."""
    temperature_margin_c: int | None = None
    """Degrees below the slowdown limit (`T.Limit`), where the card states that instead."""
    power_w: float | None = None
    power_limit_w: float | None = None
    power_limit_default_w: float | None = None
    power_limit_max_w: float | None = None
    clock_sm_mhz: int | None = None
    clock_sm_max_mhz: int | None = None
    clock_memory_mhz: int | None = None
    clock_limits: tuple[str, ...] | None = None
    """Reasons that limit the clocks now: `gpu_idle`, `sw_power_cap`, `hw_thermal_slowdown`; empty: none."""
    performance_state: str | None = None
    mig_mode: bool | None = None
    mig_mode_pending: bool | None = None
    persistence_mode: bool | None = None
    compute_mode: str | None = None
    link_generation: int | None = None
    link_generation_max: int | None = None
    link_width: int | None = None
    link_width_max: int | None = None
    pcie_replays: int | None = None
    virtualisation_mode: str | None = None
    """`none`, `passthrough`, `vgpu`, `host_vgpu`, `host_vsga`."""
    recovery_action: str | None = None
    """`none`, `reset`, `reboot`, `drain_p2p`, … as the driver asks for it."""
    gsp_firmware: str | None = None
    fabric_state: str | None = None
    """`completed`, `in_progress`, `not_started`, `not_supported`."""
    fabric_status: str | None = None
    """How that ended, once the state is `completed`: `success`, or the error."""
    process_count: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    """Who uses it now; None when that was not said."""
    utilisation_percent: int | None = None
    errors: dict[str, str] = {}
    """Getter -> error, for calls that failed with something other than *not supported*."""


class GpuReport(Value, frozen=True, kw_only=True):
    """What one witness (NVML, or nvidia-smi) said about driver and GPUs."""

    error: str = ""
    """Why it could not start, in its own words; empty when it answered."""
    error_code: int | None = None
    """The NVML return code, or the exit status of nvidia-smi."""
    driver_version: Dotted | None = None
    library_version: Dotted | None = None
    """The version of libnvidia-ml that answered or refused, where it says so."""
    cuda_driver_version: Dotted | None = None
    """The highest CUDA the driver API speaks: `13.0`. Nothing about an installed toolkit."""
    gpus: tuple[Gpu, ...] = ()
    device_errors: tuple[str, ...] = ()
    """GPUs that could not be opened or read: `0000:ca:00.0: GPU is lost`, else `index 1: GPU is lost`."""
    is_complete: bool = True
    """False when the listing was cut or filtered: a GPU that it lacks may well be there."""


# --- driver ---------------------------------------------------------------------------------------


class Library(Value, frozen=True, kw_only=True):
    """A user-space driver library found on disk."""

    soname: str
    """`libcuda.so.1`."""
    path: str
    """The real file, links followed: `/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05`."""
    version: Dotted | None = None
    """From the file name."""
    package: str | None = None
    """The package that owns it; empty when none does; None when that was not asked."""
    is_compat: bool = False
    """True below a `compat` directory of a CUDA toolkit (forward compatibility)."""
    is_default: bool | None = None
    """True when the loader's cache gives this file for the soname; None when it was not read."""


class Driver(Value, frozen=True, kw_only=True):
    """The NVIDIA driver: kernel side, user side, and what each witness says of it."""

    kernel_version: Fact[Dotted] = NOT_COLLECTED
    """Of the *loaded* module: `/proc/driver/nvidia/version`, else `/sys/module/nvidia/version`."""
    flavour: Fact[Flavour] = NOT_COLLECTED
    module_compiler: Fact[str] = NOT_COLLECTED
    parameters: Fact[dict[str, str]] = NOT_COLLECTED
    """`/proc/driver/nvidia/params`."""
    gpu_models: Fact[dict[str, str]] = NOT_COLLECTED
    """PCI address -> model, from `/proc/driver/nvidia/gpus/*/information`."""
    libraries: Fact[tuple[Library, ...]] = NOT_COLLECTED
    userspace_version: Fact[Dotted] = NOT_COLLECTED
    """Of the installed user space: the default libnvidia-ml/libcuda, else nvidia-smi's own word."""
    nvml: Fact[GpuReport] = NOT_COLLECTED
    smi: Fact[GpuReport] = NOT_COLLECTED
    device_nodes: Fact[tuple[DeviceNode, ...]] = NOT_COLLECTED
    container_root: Fact[str] = NOT_COLLECTED
    """The root of a driver container that holds a libcuda (`/run/nvidia/driver`): the GPU Operator
    manages the driver there. `not_installed` when there is none."""


class Toolkit(Value, frozen=True, kw_only=True):
    """A CUDA toolkit on disk."""

    path: str
    version: Dotted | None = None
    """`13.0` or `13.0.2`, from version.json, nvcc or the directory's name."""
    nvcc_release: Dotted | None = None
    is_default: bool = False
    """True for what `/usr/local/cuda` leads to."""


class CudaProbe(Value, frozen=True, kw_only=True):
    """What `cuInit(0)` returned in a process of its own."""

    result: int | None = None
    """The CUresult; 0 is success. None when the library could not be loaded."""
    name: str = ""
    """`CUDA_ERROR_NO_DEVICE`."""
    error: str = ""
    """Why the library could not be loaded, in the loader's words."""
    library_path: str = ""
    """The file the loader really mapped."""
    library_version: Dotted | None = None
    driver_version: Dotted | None = None
    """`cuDriverGetVersion`: the highest CUDA this libcuda speaks."""
    device_count: int | None = None


class Cuda(Value, frozen=True, kw_only=True):
    """CUDA on the host: toolkits, compat libraries and the probe."""

    probe: Fact[CudaProbe] = NOT_COLLECTED
    """With the loader's own search order, no caller's variable."""
    probe_caller: Fact[CudaProbe] = NOT_COLLECTED
    """With the caller's LD_LIBRARY_PATH; `not_installed` when that would load the same file."""
    toolkits: Fact[tuple[Toolkit, ...]] = NOT_COLLECTED


# --- packages -------------------------------------------------------------------------------------


class Package(Value, frozen=True, kw_only=True):
    """An installed package of the GPU stack."""

    name: str
    version: str
    architecture: str = ""
    origin: str = ""
    """The repository or vendor it came from, where the package manager knows."""
    state: str = "installed"
    """dpkg's word when it is not plainly installed: `half-configured`, `unpacked`, …"""


class PackageChange(Value, frozen=True, kw_only=True):
    """A change that the package manager logged."""

    when: str
    """As logged; UTC where the log says so."""
    command: str
    names: tuple[str, ...]
    """`NAME OLD -> NEW`, NVIDIA-related ones only."""


class Packages(Value, frozen=True, kw_only=True):
    """The package manager's view of the GPU stack."""

    manager: Literal["dpkg", "rpm"]
    installed: tuple[Package, ...]
    holds: Fact[tuple[str, ...]] = NOT_COLLECTED
    """Held or version-locked package names or patterns."""
    changes: Fact[tuple[PackageChange, ...]] = NOT_COLLECTED
    """Newest first."""
    automatic_updates: Fact[bool] = NOT_COLLECTED
    """Whether packages are upgraded without a person (unattended-upgrades, dnf-automatic)."""
    automatic_update_exclusions: Fact[tuple[str, ...]] = NOT_COLLECTED
    """Patterns that these updates leave alone."""
    reboot_required: Fact[bool] = NOT_COLLECTED


# --- the whole ------------------------------------------------------------------------------------


class StuckItem(Value, frozen=True, kw_only=True):
    """Something that did not answer in time."""

    key: str
    pid: int | None = None
    state: str = ""
    wchan: str = ""
    waited_s: float | None = None


class Collection(Value, frozen=True, kw_only=True):
    """How the evidence was taken."""

    taken_at: str = ""
    boot_id: str = ""
    root: bool | None = None
    tool: str = ""
    sysroot: str | None = None
    stuck: tuple[StuckItem, ...] = ()
    denied: tuple[str, ...] = ()
    """Keys that need root."""
    errors: tuple[str, ...] = ()
    """`KEY: what the system said`, for items that failed otherwise."""


class Host(Value, frozen=True, kw_only=True):
    """Everything known about one host in one scope."""

    schema: str = HOST_SCHEMA
    scope: str = "host"
    collection: Collection = Collection()
    system: System = System()
    kernel: Kernel = Kernel()
    pci: Fact[tuple[PciDevice, ...]] = NOT_COLLECTED
    """Functions of vendor 10de; an empty tuple when the bus was read and holds none."""
    driver: Driver = Driver()
    cuda: Cuda = Cuda()
    packages: Fact[Packages] = NOT_COLLECTED
    machine: Machine = Machine()
    fabric: Fabric = Fabric()
    containers: Containers = Containers()
    network: Network = Network()
    environment: Fact[Environment] = NOT_COLLECTED
    """Of a scope `venv:PATH` only: what is inside it. Host and containers have none of their own."""

    @property
    def gpus_on_bus(self) -> tuple[PciDevice, ...]:
        """The GPUs among the PCI functions, slices of them left out; empty when the bus was not read."""
        gpus = [d for d in self.pci.value if d.is_gpu] if isinstance(self.pci, Known) else []
        sliced = {d.bus for d in gpus if d.function != "0"}
        return tuple(d for d in gpus if not _is_slice(d, is_sliced=d.bus in sliced))
