"""A whole, healthy host from a few parameters: what the collector would have found on it.

`machine` in a case's YAML says which system, kernel, driver and GPUs; everything here follows from it and agrees
with itself (a driver that is not loaded has no device nodes, no NVML and no `/proc/driver/nvidia`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tests.cases.gpus import gpu_of, information, nvml_gpu, pci_files, smi_xml, switch_files

__all__ = ["GIB", "Items", "host_of"]

GIB = 1024**3
BOOTED = 1795673524
"""26 Nov 2026 06:12:04 UTC."""

SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
SETUP_MODE = SECURE_BOOT.replace("SecureBoot", "SetupMode")

#: Where each way of installation puts the module, and what the file is called.
MODULE_PLACES = {
    "dkms": "/lib/modules/{kernel}/updates/dkms/{name}.ko.zst",
    "dkms-rpm": "/lib/modules/{kernel}/extra/{name}.ko.xz",
    "precompiled": "/lib/modules/{kernel}/kernel/nvidia-{branch}{open}/{name}.ko",
    "precompiled-rpm": "/lib/modules/{kernel}/extra/drivers/video/nvidia/{name}.ko",
    "runfile": "/lib/modules/{kernel}/kernel/drivers/video/{name}.ko",
}
MODULES = ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm", "nvidia-peermem")
BUILT = "Fri May 30 17:46:21 UTC 2025"


class Items:
    """What is on the host, by path or command line; `None` where it is known not to be there."""

    def __init__(self) -> None:
        self.files: dict[str, str | bytes | None] = {}
        self.stats: dict[str, dict[str, Any] | None] = {}
        self.commands: dict[str, dict[str, Any] | None] = {}
        self.documents: dict[str, dict[str, Any] | None] = {}
        self.env: dict[str, str | None] = {}
        self.packages: dict[str, Any] = {}
        self.units: dict[str, Any] = {}
        self.owners: dict[str, str] = {}
        self.family = "dpkg"

    def link(self, path: str, target: str) -> None:
        self.stats[path] = {"kind": "link", "mode": "0777", "link": target}

    def dir(self, *paths: str) -> None:
        for path in paths:
            self.stats[path] = {"kind": "dir", "mode": "0755"}

    def file(self, path: str, mode: str = "0644") -> None:
        self.stats[path] = {"kind": "file", "mode": mode}

    def char(self, *paths: str, mode: str = "0666") -> None:
        for path in paths:
            self.stats[path] = {"kind": "char", "mode": mode}

    def command(self, line: str, out: str, rc: int = 0, err: str = "") -> None:
        self.commands[line] = {"out": out, "rc": rc, "err": err}


def host_of(machine: Mapping[str, Any]) -> Items:
    """The items of the host that the parameters describe."""
    items = Items()
    items.family = machine["os"]["packages"]
    items.dir("/usr/local", "/dev", "/sys/module", "/etc/modprobe.d", "/usr/lib/modprobe.d", "/sys/bus/pci/devices")
    items.dir("/etc/ld.so.conf.d", "/dev/char", "/usr/lib", "/lib")
    if _kernels(machine):
        items.dir("/lib/modules")
    gpus = [gpu_of(gpu, i) for i, gpu in enumerate(_gpus(machine))]
    for part in (_system, _kernel, _firmware, _machine, _infiniband, _bridges):
        part(items, machine)
    _bus(items, machine, gpus)
    driver = _driver_of(machine)
    _modules_on_disk(items, machine, driver)
    _libraries(items, machine, driver)
    _loaded(items, machine, driver, gpus)
    _witnesses(items, machine, driver, gpus)
    _software(items, machine, driver)
    _logs(items, machine, driver, gpus)
    return items


def _gpus(machine: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    gpus = machine.get("gpus") or []
    if isinstance(gpus, Mapping):
        rest = {k: v for k, v in gpus.items() if k not in ("at", "each")}
        each = gpus.get("each", {})
        return [{**rest, "at": at, **each.get(place, each.get(str(place), {}))} for place, at in enumerate(gpus["at"])]
    return list(gpus)


def _driver_of(machine: Mapping[str, Any]) -> dict[str, Any]:
    """The driver's parameters with what follows from them."""
    given = dict(machine.get("driver") or {"version": None})
    version = given["version"]
    given.setdefault("flavour", "open")
    given.setdefault("source", "dkms")
    given.setdefault("loaded", version)
    given.setdefault("libraries", version)
    given.setdefault("cuda", "13.0")
    given.setdefault("uvm", given["loaded"] is not None)
    given.setdefault("bound", "nvidia" if given["loaded"] else None)
    given["branch"] = str(version).split(".")[0]
    running = machine["kernel"]["running"]
    built = {k: version for k, v in _kernels(machine).items() if v.get("headers", True)} if version else {}
    given.setdefault("modules", built if running else {})
    return given


def _kernels(machine: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    kernel = machine["kernel"]
    own = kernel["installed"] if kernel.get("installed") is not None else {kernel["running"]: {}}
    return {release: dict(own[release] or {}) for release in own}


def _filled(text: str, machine: Mapping[str, Any]) -> str:
    """A text of a base with `{driver}`, `{branch}`, `{kernel}`, `{open}` filled in."""
    driver = _driver_of(machine)
    values = {
        "{driver}": str(driver.get("libraries") or driver["version"]),
        "{branch}": driver["branch"],
        "{kernel}": machine["kernel"]["running"],
        "{open}": "-open" if driver["flavour"] == "open" else "",
    }
    for word, value in values.items():
        text = text.replace(word, value)
    return text


# --- system, kernel, firmware ---------------------------------------------------------------------


def _system(items: Items, machine: Mapping[str, Any]) -> None:
    system = machine["os"]
    fields = {
        "PRETTY_NAME": system["name"],
        "NAME": system["name"].split(" ")[0],
        "VERSION_ID": system["version"],
        "VERSION_CODENAME": system.get("codename", ""),
        "ID": system["id"],
        "ID_LIKE": system.get("like", ""),
    }
    release = "".join(f'{key}="{value}"\n' for key, value in fields.items() if value)
    items.files["/etc/os-release"] = items.files["/usr/lib/os-release"] = release
    if items.family == "rpm":
        items.files["/etc/redhat-release"] = f"{system['name']}\n"
    elif items.family == "dpkg":
        items.files["/etc/debian_version"] = f"{system.get('debian', 'trixie/sid')}\n"
    items.documents["distro"] = {
        "id": system["id"],
        "version": system["version"],
        "name": system["name"],
        "codename": system.get("codename", ""),
        "like": system.get("like", ""),
    }
    items.files["/proc/sys/kernel/hostname"] = "node\n"
    place = machine.get("place", "none")
    items.command("systemd-detect-virt", f"{place}\n", rc=1 if place == "none" else 0)
    for name, value in machine.get("dmi", {}).items():
        items.files[f"/sys/class/dmi/id/{name}"] = f"{value}\n"
    items.files["/proc/1/cgroup"] = "0::/init.scope\n"
    items.link("/proc/self/ns/pid", "pid:[4026531836]")
    items.link("/proc/self/ns/uts", "uts:[4026531838]")
    items.link("/proc/self/ns/cgroup", "cgroup:[4026531835]")
    items.env["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    items.files["/etc/ld.so.conf"] = "include /etc/ld.so.conf.d/*.conf\n"


def _kernel(items: Items, machine: Mapping[str, Any]) -> None:
    kernel = machine["kernel"]
    running, built = kernel["running"], kernel["built"]
    arch = machine.get("architecture", "x86_64")
    items.files["/proc/version"] = f"Linux version {running} {built}\n"
    items.files["/proc/cmdline"] = kernel.get(
        "cmdline", f"BOOT_IMAGE=/boot/vmlinuz-{running} root=/dev/mapper/vg0-root ro\n"
    )
    items.files["/proc/sys/kernel/osrelease"] = f"{running}\n"
    items.files["/proc/sys/kernel/random/boot_id"] = "bb13cfa6-0bff-4131-a840-6eeee47702a2\n"
    items.command("uname -a", f"Linux node {running} {built[built.find('#') :]} {arch} {arch} {arch} GNU/Linux\n")
    items.files["/proc/stat"] = f"cpu  3357 0 4313 1362393 0 0 0 0 0 0\nbtime {kernel.get('booted', BOOTED)}\n"
    if kernel.get("gcc"):
        items.command("gcc --version", f"{kernel['gcc']}\nCopyright (C) 2023 Free Software Foundation, Inc.\n")
    for release, told in _kernels(machine).items():
        here = f"/lib/modules/{release}"
        items.dir(here)
        source = kernel.get("headers_at", "/usr/src/linux-headers-{kernel}").replace("{kernel}", release)
        if told.get("headers", True):
            items.link(f"{here}/build", source)
            items.file(f"{here}/build/Makefile")
        else:
            items.stats[f"{here}/build"] = None
            items.stats[f"{here}/build/Makefile"] = None
        bootable = told.get("bootable", True)
        items.stats[f"/boot/vmlinuz-{release}"] = {"kind": "file", "mode": "0600"} if bootable else None
        items.stats[f"{here}/vmlinuz"] = (
            {"kind": "file", "mode": "0600"} if bootable and items.family == "rpm" else None
        )
    if items.family == "rpm":
        items.command("grubby --default-kernel", f"/boot/vmlinuz-{kernel.get('default', running)}\n")


def _firmware(items: Items, machine: Mapping[str, Any]) -> None:
    secure = machine.get("secure_boot", False)
    items.files["/sys/kernel/security/lockdown"] = (
        "none [integrity] confidentiality\n" if secure else "[none] integrity confidentiality\n"
    )
    if secure is None:
        items.command("mokutil --sb-state", "", rc=1, err="EFI variables are not supported on this system\n")
        return
    items.dir("/sys/firmware/efi")
    items.files[SECURE_BOOT] = b"\x06\0\0\0" + bytes([int(secure)])
    items.files[SETUP_MODE] = b"\x06\0\0\0\0"
    items.command("mokutil --sb-state", f"SecureBoot {'enabled' if secure else 'disabled'}\n")
    items.command("mokutil --list-enrolled", machine.get("enrolled", ""))
    items.command("mokutil --list-new", machine.get("enrolling", ""))


def _machine(items: Items, machine: Mapping[str, Any]) -> None:
    memory = machine.get("memory_gib", 512)
    free = machine.get("memory_free_gib", memory * 9 // 10)
    swap = machine.get("swap_gib", 0)
    items.files["/proc/meminfo"] = (
        f"MemTotal: {memory * 1048576:>15} kB\nMemFree: {free * 1048576:>15} kB\n"
        f"MemAvailable: {free * 1048576:>12} kB\nSwapTotal: {swap * 1048576:>12} kB\nSwapFree: {swap * 1048576:>12} kB\n"
    )
    flags = " hypervisor" if machine.get("place", "none") not in ("none", "docker", "podman") else ""
    items.files["/proc/cpuinfo"] = (
        "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) Gold 6430\n"
        f"flags\t\t: fpu vme de pse tsc msr pae{flags}\n\n"
    )
    memlock = machine.get("memlock", "unlimited")
    items.files["/proc/self/limits"] = (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max cpu time              unlimited            unlimited            seconds   \n"
        "Max open files            1048576              1048576              files     \n"
        f"Max locked memory         {memlock!s:<20} {memlock!s:<20} bytes     \n"
    )
    shm = machine.get("shm_mib", memory * 512)
    disks = machine.get("disks_free_gib", {"/": 570})
    locked = -1 if memlock == "unlimited" else memlock
    items.documents["resources"] = {
        "memory": {"total": memory * GIB, "available": free * GIB},
        "swap": {"total": swap * GIB},
        "cpu_count": machine.get("cpus", 64),
        "filesystems": [
            *({"path": p, "total": 900 * GIB, "free": int(f * GIB), "kind": "ext4"} for p, f in disks.items()),
            {"path": "/dev/shm", "total": shm * 1024**2, "free": shm * 1024**2, "kind": "tmpfs"},
        ],
        "limits": {"memlock": [locked, locked], "nofile": [1048576, 1048576]},
    }
    items.documents["machine"] = {
        "governors": {"performance": machine.get("cpus", 64)},
        "iommu_groups": machine.get("iommu_groups", 0),
        "clock": {"synchronised": True, "state": 0, "status": 24833, "max_error_us": 42000},
        "package_locks": [],
    }
    items.files["/proc/self/cgroup"] = "0::/user.slice\n"
    items.files["/sys/fs/cgroup/user.slice/memory.max"] = "max\n"
    items.file("/sys/fs/cgroup/cgroup.controllers", "0444")
    node = "/sys/devices/system/node/node0"
    items.files[f"{node}/cpulist"] = f"0-{machine.get('cpus', 64) - 1}\n"
    items.files[f"{node}/meminfo"] = (
        f"Node 0 MemTotal:       {memory * 1048576} kB\nNode 0 MemFree:        {free * 1048576} kB\n"
    )
    for path, value in (
        ("/proc/sys/kernel/numa_balancing", "0"),
        ("/proc/sys/vm/swappiness", "10"),
        ("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never"),
        ("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc"),
    ):
        items.files[path] = f"{value}\n"


def _infiniband(items: Items, machine: Mapping[str, Any]) -> None:
    """`infiniband: {mlx5_0: {state, link_layer, rate}}`; without it the class is not there."""
    devices = machine.get("infiniband")
    if not devices:
        items.stats["/sys/class/infiniband"] = None
        return
    items.dir("/sys/class/infiniband")
    for place, (name, told) in enumerate(devices.items()):
        here, told = f"/sys/class/infiniband/{name}", told or {}
        state = told.get("state", "4: ACTIVE")
        items.link(f"{here}/device", f"../../../0000:{0x29 + 16 * place:02x}:00.0")
        items.files |= {
            f"{here}/fw_ver": "28.43.2026\n",
            f"{here}/device/numa_node": "0\n",
            f"{here}/ports/1/state": f"{state}\n",
            f"{here}/ports/1/phys_state": "5: LinkUp\n" if "ACTIVE" in state else "3: Disabled\n",
            f"{here}/ports/1/rate": f"{told.get('rate', '400 Gb/sec (4X NDR)')}\n",
            f"{here}/ports/1/link_layer": f"{told.get('link_layer', 'InfiniBand')}\n",
        }


def _bridges(items: Items, machine: Mapping[str, Any]) -> None:
    """`bridges: {GPU: [BRIDGE, ACS control]}`: the bridge above each GPU; IOMMU groups of the GPUs."""
    for gpu, (bridge, control) in (machine.get("bridges") or {}).items():
        items.link(f"/sys/bus/pci/devices/{gpu}", f"../../../devices/pci{bridge[:7]}/{bridge}/{gpu}")
        config = bytearray(4096)
        config[:16] = bytes.fromhex("22108314070410000000040610008100")
        config[0x34] = 0x50
        # Access Control Services, the only extended capability: id 0x000d, version 1, no next one.
        config[0x100:0x108] = bytes.fromhex("0d000100" + "5f00") + int(control).to_bytes(2, "little")
        items.files[f"/sys/bus/pci/devices/{bridge}/config"] = bytes(config)
        kind = "DMA-FQ" if machine.get("iommu_groups") else None
        items.files[f"/sys/bus/pci/devices/{gpu}/iommu_group/type"] = f"{kind}\n" if kind else None


# --- bus, driver ----------------------------------------------------------------------------------


def _bus(items: Items, machine: Mapping[str, Any], gpus: list[dict[str, Any]]) -> None:
    bound = _driver_of(machine)["bound"]
    functions = [(gpu["at"], pci_files(gpu), gpu.get("bound", bound)) for gpu in gpus]
    switches = machine.get("nvswitches") or {}
    functions += [
        (at, switch_files(switches["model"]), "nvidia-nvswitch" if bound else None) for at in switches.get("at", ())
    ]
    for at, files, owner in functions:
        here = f"/sys/bus/pci/devices/{at}"
        for name, text in files.items():
            items.files[f"{here}/{name}"] = text
        items.stats[f"{here}/physfn"] = None
        items.stats[f"{here}/driver"] = None
        if owner:
            items.link(f"{here}/driver", f"../../../../bus/pci/drivers/{owner}")


def _place_of_module(machine: Mapping[str, Any], driver: Mapping[str, Any], kernel: str, name: str) -> str:
    key = f"{driver['source']}-rpm" if f"{driver['source']}-rpm" in MODULE_PLACES and _is_rpm(machine) else driver["source"]
    flavour = "-open" if driver["flavour"] == "open" else ""
    return MODULE_PLACES[key].format(kernel=kernel, name=name, branch=driver["branch"], open=flavour)


def _is_rpm(machine: Mapping[str, Any]) -> bool:
    return bool(machine["os"]["packages"] == "rpm")


def _modules_on_disk(items: Items, machine: Mapping[str, Any], driver: Mapping[str, Any]) -> None:
    rows = []
    for kernel, version in driver["modules"].items():
        paths = [_place_of_module(machine, driver, kernel, name) for name in MODULES]
        items.dir(paths[0].rsplit("/", 1)[0])
        for path in paths:
            items.file(path)
        items.command(f"modinfo {paths[0]}", _modinfo(paths[0], kernel, version, driver))
        rows.append(f"nvidia/{version}, {kernel}, x86_64: installed\n")
    if driver["source"] == "dkms" and driver["version"]:
        items.command("dkms status", "".join(rows) or f"nvidia/{driver['version']}: added\n")


def _modinfo(path: str, kernel: str, version: str, driver: Mapping[str, Any]) -> str:
    is_open = driver["flavour"] == "open"
    lines = [
        f"filename:       {path}",
        f"version:        {version}",
        "supported:      external",
        f"license:        {'Dual MIT/GPL' if is_open else 'NVIDIA'}",
        f"firmware:       nvidia/{version}/gsp_tu10x.bin",
        f"firmware:       nvidia/{version}/gsp_ga10x.bin",
        "srcversion:     CCFA1B1501BC6919AD3C589",
        "alias:          pci:v000010DEd*sv*sd*bc03sc02i00*",
        "alias:          pci:v000010DEd*sv*sd*bc03sc00i00*",
        "depends:        ",
        "name:           nvidia",
        f"vermagic:       {kernel} SMP preempt mod_unload modversions ",
    ]
    if driver.get("signer"):
        key = driver.get("sig_key", "0E:2E:62:64:C0:80:83:DA:FB:8C:9F:11:00:85:BF:0C:38:72:BD:33")
        lines += ["sig_id:         PKCS#7", f"signer:         {driver['signer']}", f"sig_key:        {key}"]
        lines += ["sig_hashalgo:   sha512"]
    return "\n".join([*lines, "parm:           NVreg_EnableGpuFirmware:int", ""])


def _libraries(items: Items, machine: Mapping[str, Any], driver: Mapping[str, Any]) -> None:
    version = driver["libraries"]
    folder = machine["os"]["libraries"]
    cached = ["libz.so.1", "libstdc++.so.6", "libc.so.6"]
    if version:
        for soname in ("libcuda.so", "libnvidia-ml.so"):
            items.link(f"{folder}/{soname}", f"{soname}.1")
            items.link(f"{folder}/{soname}.1", f"{soname}.{version}")
            items.file(f"{folder}/{soname}.{version}")
            cached += [f"{soname}.1", soname]
            if driver["source"] != "runfile" and not driver.get("libraries_unowned"):
                items.owners[f"{folder}/{soname}.{version}"] = _filled(machine["os"]["owner"], machine)
            else:
                items.owners[f"{folder}/{soname}.{version}"] = ""
    rows = "".join(f"\t{name} (libc6,x86-64) => {folder}/{name}\n" for name in cached)
    items.command("ldconfig -p", f"{len(cached)} libs found in cache `/etc/ld.so.cache'\n{rows}")


def _loaded(items: Items, machine: Mapping[str, Any], driver: Mapping[str, Any], gpus: list[dict[str, Any]]) -> None:
    loaded = driver["loaded"]
    is_open = driver["flavour"] == "open"
    taint = "OE" if is_open else "POE"
    others = "".join(f"{name} 40960 2 - Live 0x0000000000000000\n" for name in machine.get("modules", ("drm",)))
    items.files["/proc/modules"] = others
    items.files["/proc/sys/kernel/tainted"] = "0\n"
    items.stats["/sys/module/nouveau"] = None
    items.char("/dev/dri/card0", mode="0660") if machine.get("display") else None
    if not loaded:
        for path in ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm", "/sys/module/nvidia"):
            items.stats[path] = None
        for path in ("/proc/driver/nvidia/version", "/proc/driver/nvidia/params"):
            items.files[path] = None
        return
    items.dir("/sys/module/nvidia")
    names = ["nvidia_modeset", "nvidia_drm", "nvidia", *(["nvidia_uvm"] if driver["uvm"] else [])]
    names += ["nvidia_peermem"] if machine.get("peermem") else []
    for name in names:
        version_files = {"version": loaded, "taint": taint, "refcnt": "2", "srcversion": "1E3E90AD9155B66DCD53719"}
        items.files |= {f"/sys/module/{name}/{key}": f"{value}\n" for key, value in version_files.items()}
    items.files["/proc/modules"] = (
        "".join(f"{name} 2101248 2 - Live 0x0000000000000000 ({taint})\n" for name in names) + others
    )
    items.files["/proc/sys/kernel/tainted"] = "12288\n" if is_open else "12289\n"
    title = "NVIDIA UNIX Open Kernel Module for x86_64" if is_open else "NVIDIA UNIX x86_64 Kernel Module"
    by = "  Release Build  (dvs-builder@U22-I3-AM24-12-4)" if is_open else ""
    gcc = str(machine["kernel"].get("gcc") or "gcc (GCC) 13.3.0").replace("gcc ", "gcc version ", 1)
    items.files["/proc/driver/nvidia/version"] = (
        f"NVRM version: {title}  {loaded}{by}  {BUILT}\nGCC version:  {gcc} \n"
    )
    items.files["/proc/driver/nvidia/params"] = (
        "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n"
        "EnableMSI: 1\nEnableGpuFirmware: 18\nEnableGpuFirmwareLogs: 2\nOpenRmEnableUnsupportedGpus: 1\n"
        'RegistryDwords: ""\nExcludedGpus: ""\n'
    )
    for gpu in gpus:
        if gpu.get("bound", driver["bound"]) == "nvidia":
            items.files[f"/proc/driver/nvidia/gpus/{gpu['at']}/information"] = information(gpu, loaded)
            items.char(f"/dev/nvidia{gpu['index']}")
    if not gpus:
        items.stats["/dev/nvidia0"] = None
    items.char("/dev/nvidiactl")
    items.files["/proc/devices"] = "Character devices:\n195 nvidia\n195 nvidiactl\n508 nvidia-uvm\n\nBlock devices:\n"
    if driver["uvm"]:
        items.char("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
    else:
        items.stats["/dev/nvidia-uvm"] = items.stats["/dev/nvidia-uvm-tools"] = None
    for place, _at in enumerate((machine.get("nvswitches") or {}).get("at", ())):
        items.char(f"/dev/nvidia-nvswitch{place}", "/dev/nvidia-nvswitchctl")


# --- NVML, nvidia-smi, cuInit ---------------------------------------------------------------------

_SMI_FAILED = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n\n"
)


def _cuda_number(cuda: str) -> int:
    major, _, minor = cuda.partition(".")
    return int(major) * 1000 + int(minor) * 10


def _witnesses(items: Items, machine: Mapping[str, Any], driver: Mapping[str, Any], gpus: list[dict[str, Any]]) -> None:
    version, loaded = driver["libraries"], driver["loaded"]
    folder = machine["os"]["libraries"]
    if not version:
        text = "{}: cannot open shared object file: No such file or directory"
        items.documents["nvml"] = {"errors": {"init": {"code": 12, "text": text.format("libnvidia-ml.so.1")}}}
        items.documents["cuinit"] = {"result": None, "name": "", "library_path": "", "error": text.format("libcuda.so.1")}
        items.commands["nvidia-smi -q -x"] = None
        return
    ml, cuda = f"{folder}/libnvidia-ml.so.{version}", f"{folder}/libcuda.so.{version}"
    number = _cuda_number(driver["cuda"])
    cuinit = {"result": 0, "name": "CUDA_SUCCESS", "error": "", "library_path": cuda, "driver_version": number}
    said: dict[str, Any] = {"init_ms": 11.8, "library_path": ml}
    if loaded is None:
        items.documents["nvml"] = {**said, "errors": {"init": {"code": 9, "text": "Driver Not Loaded"}}}
        items.command("nvidia-smi -q -x", _SMI_FAILED, rc=9)
        items.documents["cuinit"] = {**cuinit, "result": 100, "name": "CUDA_ERROR_NO_DEVICE"}
    elif loaded != version:
        text = "RM has detected an NVML/RM version mismatch."
        items.documents["nvml"] = {**said, "errors": {"init": {"code": 18, "text": text}}}
        short = ".".join(version.split(".")[:2])
        first = "Failed to initialize NVML: Driver/library version mismatch"
        items.command("nvidia-smi -q -x", f"{first}\nNVML library version: {short}\n", rc=18)
        items.documents["cuinit"] = {**cuinit, "result": 803, "name": "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}
    else:
        seen = [gpu for gpu in gpus if gpu.get("bound", driver["bound"]) == "nvidia" and not gpu.get("lost")]
        docs = [nvml_gpu(gpu, loaded) for gpu in seen]
        for doc in docs if machine.get("fabric_completed") else ():
            doc["gpu_fabric_info"]["state"] = 3
        major = number // 1000
        items.documents["nvml"] = {
            **said,
            "driver_version": loaded,
            "nvml_version": f"{major}.{loaded}",
            "cuda_driver_version": number,
            "count": len(docs),
            "gpus": docs,
        }
        if gpus and not docs:
            items.command("nvidia-smi -q -x", "No devices were found\n", rc=6)
        else:
            items.command("nvidia-smi -q -x", smi_xml(seen, docs, loaded, driver["cuda"]))
        ready = {"device_count": len(docs)} if docs and driver["uvm"] else {}
        wrong = {"result": 100, "name": "CUDA_ERROR_NO_DEVICE"} if not docs else {}
        wrong = wrong or ({} if driver["uvm"] else {"result": 999, "name": "CUDA_ERROR_UNKNOWN"})
        items.documents["cuinit"] = {**cuinit, **ready, **wrong}


# --- packages, units, logs ------------------------------------------------------------------------


def _software(items: Items, machine: Mapping[str, Any], driver: Mapping[str, Any]) -> None:
    packages = {_filled(k, machine): v for k, v in (machine.get("packages") or {}).items() if v}
    items.packages = {
        name: _filled(value, machine) if isinstance(value, str) else {k: _filled(str(v), machine) for k, v in value.items()}
        for name, value in packages.items()
        if (driver["version"] and driver["source"] != "runfile") or not ("nvidia" in name and driver["branch"] in name)
    }
    for release, told in _kernels(machine).items():
        for name, version in (machine["kernel"].get("packages") or {}).items():
            is_headers = "headers" in name or "devel" in name
            if (told.get("headers", True) if is_headers else told.get("bootable", True)) and version:
                number = release.rsplit(".", 1)[0] if _is_rpm(machine) else told.get("version", version)
                items.packages[name.replace("{kernel}", release)] = number.replace("{kernel}", release)
    items.units = dict(machine.get("units") or {})
    if machine.get("history"):
        path = "/var/log/dnf.rpm.log" if _is_rpm(machine) else "/var/log/apt/history.log"
        items.files[path] = machine["history"]


def _logs(items: Items, machine: Mapping[str, Any], driver: Mapping[str, Any], gpus: list[dict[str, Any]]) -> None:
    running, built = machine["kernel"]["running"], machine["kernel"]["built"]
    secure = machine.get("secure_boot", False)
    lines = [f"[    0.000000] Linux version {running} {built}"]
    lines += ["[    0.000000] " + str(items.files["/proc/cmdline"]).strip().join(("Command line: ", ""))]
    if secure is not None:
        lines += [f"[    0.000000] secureboot: Secure boot {'enabled' if secure else 'disabled'}"]
    lines += [f"[    1.4{i:05}] pci {g['at']}: [10de:{g['device']}] type 00 class 0x030200" for i, g in enumerate(gpus)]
    lines += ["[    5.100000] systemd[1]: Inserted module 'autofs4'"]
    if driver["loaded"]:
        lines += _driver_lines(driver, gpus)
    lines += [line if line.startswith("[") else f"[  {60 + i}.000000] {line}" for i, line in enumerate(machine.get("log") or ())]
    items.command("dmesg", "".join(f"{line}\n" for line in lines))
    items.command("journalctl -k -b 0", "".join(_journal(line, BOOTED) for line in lines))
    before = machine.get("log_before")
    if before:
        items.command("journalctl -k -b -1", "".join(_journal(f"[ {90 + i}.0] {x}", BOOTED - 86400) for i, x in enumerate(before)))
    else:
        absent = "Data from the specified boot (-1) is not available: No such boot ID in journal\n"
        items.command("journalctl -k -b -1", "", rc=1, err=absent)


def _driver_lines(driver: Mapping[str, Any], gpus: list[dict[str, Any]]) -> list[str]:
    title = "NVIDIA UNIX Open Kernel Module for x86_64" if driver["flavour"] == "open" else "NVIDIA UNIX x86_64 Kernel Module"
    lines = ["nvidia: loading out-of-tree module taints kernel."]
    if not driver.get("signer"):
        lines += ["nvidia: module verification failed: signature and/or required key missing - tainting kernel"]
    lines += ["nvidia-nvlink: Nvlink Core is being initialized, major device number 234"]
    lines += [f"nvidia {gpu['at']}: enabling device (0000 -> 0002)" for gpu in gpus[:8]]
    lines += [f"NVRM: loading {title}  {driver['loaded']}  {BUILT}"]
    if driver["uvm"]:
        lines += ["nvidia-uvm: Loaded the UVM driver, major device number 508."]
    return [f"[    8.{20 + i}0000] {line}" for i, line in enumerate(lines)]


def _journal(line: str, booted: int) -> str:
    stamp, _, text = line.partition("] ")
    at = time.gmtime(booted + float(stamp.strip("[ ")))
    return f"{time.strftime('%b %d %H:%M:%S', at)} node kernel: {text}\n"
