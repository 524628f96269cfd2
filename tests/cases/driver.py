"""The driver of a host as bus, files, device nodes, NVML, nvidia-smi and `cuInit` show it."""

from __future__ import annotations

from typing import Any

from tests.cases.gpus import information, nvml_gpu, pci_files, switch_files
from tests.cases.params import Cards, Described, Items, driver_of, filled, is_rpm
from tests.cases.smi import smi_xml

__all__ = ["BUILT", "add_driver", "title_of"]

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


def add_driver(items: Items, machine: Described, driver: Described, gpus: Cards) -> None:
    """All that bus and driver show."""
    _bus(items, machine, gpus)
    _modules_on_disk(items, machine, driver)
    _libraries(items, machine, driver)
    _loaded(items, machine, driver, gpus)
    _witnesses(items, machine, driver, gpus)


def title_of(driver: Described) -> str:
    """What the module calls itself in the kernel's log."""
    is_open = driver["flavour"] == "open"
    return "NVIDIA UNIX Open Kernel Module for x86_64" if is_open else "NVIDIA UNIX x86_64 Kernel Module"


def _bus(items: Items, machine: Described, gpus: Cards) -> None:
    bound = driver_of(machine)["bound"]
    functions = [(gpu["at"], pci_files(gpu), gpu.get("bound", bound)) for gpu in gpus]
    switches = machine.get("nvswitches") or {}
    functions += [
        (at, switch_files(switches["model"]), "nvidia-nvswitch" if bound else None)
        for at in switches.get("at", ())
    ]
    for at, files, owner in functions:
        here = f"/sys/bus/pci/devices/{at}"
        for name, text in files.items():
            items.files[f"{here}/{name}"] = text
        items.stats[f"{here}/physfn"] = None
        items.stats[f"{here}/driver"] = None
        if owner:
            items.link(f"{here}/driver", f"../../../../bus/pci/drivers/{owner}")


def _place_of_module(machine: Described, driver: Described, kernel: str, name: str) -> str:
    key = (
        f"{driver['source']}-rpm"
        if f"{driver['source']}-rpm" in MODULE_PLACES and is_rpm(machine)
        else driver["source"]
    )
    flavour = "-open" if driver["flavour"] == "open" else ""
    return MODULE_PLACES[key].format(kernel=kernel, name=name, branch=driver["branch"], open=flavour)


def _modules_on_disk(items: Items, machine: Described, driver: Described) -> None:
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


def _modinfo(path: str, kernel: str, version: str, driver: Described) -> str:
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


def _libraries(items: Items, machine: Described, driver: Described) -> None:
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
                items.owners[f"{folder}/{soname}.{version}"] = filled(machine["os"]["owner"], machine)
            else:
                items.owners[f"{folder}/{soname}.{version}"] = ""
    rows = "".join(f"\t{name} (libc6,x86-64) => {folder}/{name}\n" for name in cached)
    items.command("ldconfig -p", f"{len(cached)} libs found in cache `/etc/ld.so.cache'\n{rows}")


def _loaded(items: Items, machine: Described, driver: Described, gpus: Cards) -> None:
    loaded = driver["loaded"]
    is_open = driver["flavour"] == "open"
    taint = "OE" if is_open else "POE"
    others = "".join(
        f"{name} 40960 2 - Live 0x0000000000000000\n" for name in machine.get("modules", ("drm",))
    )
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
        version_files = {
            "version": loaded,
            "taint": taint,
            "refcnt": "2",
            "srcversion": "1E3E90AD9155B66DCD53719",
        }
        items.files |= {f"/sys/module/{name}/{key}": f"{value}\n" for key, value in version_files.items()}
    items.files["/proc/modules"] = (
        "".join(f"{name} 2101248 2 - Live 0x0000000000000000 ({taint})\n" for name in names) + others
    )
    items.files["/proc/sys/kernel/tainted"] = "12288\n" if is_open else "12289\n"
    by = "  Release Build  (dvs-builder@U22-I3-AM24-12-4)" if is_open else ""
    gcc = str(machine["kernel"].get("gcc") or "gcc (GCC) 13.3.0").replace("gcc ", "gcc version ", 1)
    items.files["/proc/driver/nvidia/version"] = (
        f"NVRM version: {title_of(driver)}  {loaded}{by}  {BUILT}\nGCC version:  {gcc} \n"
    )
    items.files["/proc/driver/nvidia/params"] = (
        "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\n"
        "DeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n"
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
    items.files["/proc/devices"] = (
        "Character devices:\n195 nvidia\n195 nvidiactl\n508 nvidia-uvm\n\nBlock devices:\n"
    )
    if driver["uvm"]:
        items.char("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
    else:
        items.stats["/dev/nvidia-uvm"] = items.stats["/dev/nvidia-uvm-tools"] = None
    for place, _at in enumerate((machine.get("nvswitches") or {}).get("at", ())):
        items.char(f"/dev/nvidia-nvswitch{place}", "/dev/nvidia-nvswitchctl")


_SMI_FAILED = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n\n"
)


def _cuda_number(cuda: str) -> int:
    major, _, minor = cuda.partition(".")
    return int(major) * 1000 + int(minor) * 10


def _witnesses(items: Items, machine: Described, driver: Described, gpus: Cards) -> None:
    version, loaded = driver["libraries"], driver["loaded"]
    folder = machine["os"]["libraries"]
    if not version:
        text = "{}: cannot open shared object file: No such file or directory"
        items.documents["nvml"] = {"errors": {"init": {"code": 12, "text": text.format("libnvidia-ml.so.1")}}}
        items.documents["cuinit"] = {
            "result": None,
            "name": "",
            "library_path": "",
            "error": text.format("libcuda.so.1"),
        }
        items.commands["nvidia-smi -q -x"] = None
        return
    ml, cuda = f"{folder}/libnvidia-ml.so.{version}", f"{folder}/libcuda.so.{version}"
    number = _cuda_number(driver["cuda"])
    cuinit = {
        "result": 0,
        "name": "CUDA_SUCCESS",
        "error": "",
        "library_path": cuda,
        "driver_version": number,
    }
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
