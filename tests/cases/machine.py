"""A whole, healthy host from a few parameters: what the collector would have found on it.

`machine` in a case's YAML says which system, kernel, driver and GPUs; everything here follows from it and
agrees with itself: a driver that is not loaded has no device nodes, no NVML and no `/proc/driver/nvidia`.
"""

from __future__ import annotations

from tests.cases.driver import add_driver
from tests.cases.gpus import gpu_of
from tests.cases.params import BOOTED, Described, Items, driver_of, gpus_of, kernels
from tests.cases.software import add_logs, add_software

__all__ = ["host_of"]

GIB = 1024**3

SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
SETUP_MODE = SECURE_BOOT.replace("SecureBoot", "SetupMode")


def host_of(machine: Described) -> Items:
    """The items of the host that the parameters describe."""
    items = Items()
    items.family = machine["os"]["packages"]
    items.dir(
        "/usr/local", "/dev", "/sys/module", "/etc/modprobe.d", "/usr/lib/modprobe.d", "/sys/bus/pci/devices"
    )
    items.dir("/etc/ld.so.conf.d", "/dev/char", "/usr/lib", "/lib")
    if kernels(machine):
        items.dir("/lib/modules")
    gpus = [gpu_of(gpu, i) for i, gpu in enumerate(gpus_of(machine))]
    for part in (_system, _kernel, _firmware, _machine, _infiniband, _bridges):
        part(items, machine)
    driver = driver_of(machine)
    add_driver(items, machine, driver, gpus)
    add_software(items, machine, driver)
    add_logs(items, machine, driver, gpus)
    return items


def _system(items: Items, machine: Described) -> None:
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


def _kernel(items: Items, machine: Described) -> None:
    kernel = machine["kernel"]
    running, built = kernel["running"], kernel["built"]
    arch = machine.get("architecture", "x86_64")
    items.files["/proc/version"] = f"Linux version {running} {built}\n"
    items.files["/proc/cmdline"] = kernel.get(
        "cmdline", f"BOOT_IMAGE=/boot/vmlinuz-{running} root=/dev/mapper/vg0-root ro\n"
    )
    items.files["/proc/sys/kernel/osrelease"] = f"{running}\n"
    items.files["/proc/sys/kernel/random/boot_id"] = "bb13cfa6-0bff-4131-a840-6eeee47702a2\n"
    items.command(
        "uname -a", f"Linux node {running} {built[built.find('#') :]} {arch} {arch} {arch} GNU/Linux\n"
    )
    items.files["/proc/stat"] = (
        f"cpu  3357 0 4313 1362393 0 0 0 0 0 0\nbtime {kernel.get('booted', BOOTED)}\n"
    )
    if kernel.get("gcc"):
        items.command(
            "gcc --version", f"{kernel['gcc']}\nCopyright (C) 2023 Free Software Foundation, Inc.\n"
        )
    for release, told in kernels(machine).items():
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


def _firmware(items: Items, machine: Described) -> None:
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


def _machine(items: Items, machine: Described) -> None:
    memory = machine.get("memory_gib", 512)
    free = machine.get("memory_free_gib", memory * 9 // 10)
    swap = machine.get("swap_gib", 0)
    items.files["/proc/meminfo"] = (
        f"MemTotal: {memory * 1048576:>15} kB\nMemFree: {free * 1048576:>15} kB\n"
        f"MemAvailable: {free * 1048576:>12} kB\n"
        f"SwapTotal: {swap * 1048576:>12} kB\nSwapFree: {swap * 1048576:>12} kB\n"
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
            *(
                {"path": p, "total": 900 * GIB, "free": int(f * GIB), "kind": "ext4"}
                for p, f in disks.items()
            ),
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


def _infiniband(items: Items, machine: Described) -> None:
    """`infiniband: {mlx5_0: {state, link_layer, rate}}`; without it the class is not there."""
    devices = machine.get("infiniband")
    if not devices:
        items.stats["/sys/class/infiniband"] = None
        return
    items.dir("/sys/class/infiniband")
    for place, name in enumerate(devices):
        here, told = f"/sys/class/infiniband/{name}", devices[name] or {}
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


def _bridges(items: Items, machine: Described) -> None:
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
