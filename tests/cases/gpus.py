"""GPUs as the bus, NVML and `nvidia-smi -q -x` show them, from one description of each card."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any
from xml.sax.saxutils import escape

__all__ = ["MODELS", "NVSWITCHES", "gpu_of", "information", "nvml_gpu", "pci_files", "smi_xml", "switch_files"]

MIB, GIB = 1024**2, 1024**3

#: name, PCI id, subsystem, compute capability, memory MiB, BAR1 MiB, watts, PCIe generation, architecture,
#: clocks (idle and highest of SM and memory). `old`: before Ampere (retired pages, no row remapping).
_FIELDS = ("name", "device", "subsystem", "cc", "mib", "bar1", "watts", "gen", "arch", "clocks")
MODELS: dict[str, dict[str, Any]] = {
    key: dict(zip(_FIELDS, row, strict=True))
    for key, row in {
        "h100-pcie": (
            "NVIDIA H100 PCIe", "2331", "1626", (9, 0), 81559, 131072, 350, 5, "Hopper", (345, 1755, 1593, 1593)
        ),
        "h100-sxm": (
            "NVIDIA H100 80GB HBM3", "2330", "16c1", (9, 0), 81559, 131072, 700, 5, "Hopper", (345, 1980, 2619, 2619)
        ),
        "h200-sxm": (
            "NVIDIA H200", "2335", "18be", (9, 0), 143771, 262144, 700, 5, "Hopper", (345, 1980, 3201, 3201)
        ),
        "b200": (
            "NVIDIA B200", "2901", "1999", (10, 0), 183359, 262144, 1000, 5, "Blackwell", (120, 1965, 3996, 3996)
        ),
        "b300": (
            "NVIDIA B300 SXM6 AC", "3182", "20e6", (10, 3), 275040, 524288, 1100, 6, "Blackwell", (120, 2032, 3996, 3996)
        ),
        "gb200": (
            "NVIDIA GB200", "2941", "2046", (10, 0), 189471, 262144, 1200, 6, "Blackwell", (120, 2062, 3996, 3996)
        ),
        "rtx-pro-6000": (
            "NVIDIA RTX PRO 6000 Blackwell Server Edition", "2bb5", "204e", (12, 0), 97887, 131072, 600, 5,
            "Blackwell", (180, 2430, 405, 12481),
        ),
        "rtx-5090": (
            "NVIDIA GeForce RTX 5090", "2b85", "2057", (12, 0), 32607, 32768, 575, 5, "Blackwell", (180, 3105, 405, 14001)
        ),
        "rtx-5080": (
            "NVIDIA GeForce RTX 5080", "2c02", "2059", (12, 0), 16303, 16384, 360, 5, "Blackwell", (180, 3090, 405, 15001)
        ),
        "rtx-5070-ti": (
            "NVIDIA GeForce RTX 5070 Ti", "2c05", "205a", (12, 0), 16303, 16384, 300, 5, "Blackwell",
            (180, 3090, 405, 14001),
        ),
        "l40s": ("NVIDIA L40S", "26b9", "1851", (8, 9), 46068, 65536, 350, 4, "Ada Lovelace", (210, 2520, 405, 9001)),
        "l4": ("NVIDIA L4", "27b8", "16ee", (8, 9), 23034, 32768, 72, 4, "Ada Lovelace", (210, 2040, 405, 6251)),
        "rtx-6000-ada": (
            "NVIDIA RTX 6000 Ada Generation", "26b1", "16a1", (8, 9), 49140, 65536, 300, 4, "Ada Lovelace",
            (210, 3105, 405, 10001),
        ),
        "rtx-4090": (
            "NVIDIA GeForce RTX 4090", "2684", "16f4", (8, 9), 24564, 32768, 450, 4, "Ada Lovelace",
            (210, 3105, 405, 10501),
        ),
        "rtx-4070-laptop": (
            "NVIDIA GeForce RTX 4070 Laptop GPU", "2860", "3b9a", (8, 9), 8188, 8192, 115, 4, "Ada Lovelace",
            (210, 3105, 405, 8001),
        ),
        "a100-pcie": (
            "NVIDIA A100 80GB PCIe", "20b5", "1533", (8, 0), 81920, 131072, 300, 4, "Ampere", (210, 1410, 1512, 1512)
        ),
        "a100-sxm": (
            "NVIDIA A100-SXM4-80GB", "20b2", "147f", (8, 0), 81920, 131072, 400, 4, "Ampere", (210, 1410, 1593, 1593)
        ),
        "a40": ("NVIDIA A40", "2235", "145a", (8, 6), 46068, 65536, 300, 4, "Ampere", (210, 1740, 405, 7251)),
        "a10": ("NVIDIA A10", "2236", "1482", (8, 6), 23028, 32768, 150, 4, "Ampere", (210, 1695, 405, 6251)),
        "rtx-3090": (
            "NVIDIA GeForce RTX 3090", "2204", "147d", (8, 6), 24576, 256, 350, 4, "Ampere", (210, 2100, 405, 9751)
        ),
        "rtx-3060": (
            "NVIDIA GeForce RTX 3060", "2504", "397d", (8, 6), 12288, 16384, 170, 4, "Ampere", (210, 2100, 405, 7501)
        ),
        "t4": ("Tesla T4", "1eb8", "12a2", (7, 5), 15360, 256, 70, 3, "Turing", (300, 1590, 405, 5001)),
        "rtx-2080-ti": (
            "NVIDIA GeForce RTX 2080 Ti", "1e07", "12a4", (7, 5), 11264, 256, 250, 3, "Turing", (300, 2100, 405, 7000)
        ),
        "v100": (
            "Tesla V100-PCIE-16GB", "1db4", "1214", (7, 0), 16384, 16384, 250, 3, "Volta", (135, 1380, 877, 877)
        ),
        "v100-sxm3": (
            "Tesla V100-SXM3-32GB", "1db6", "124a", (7, 0), 32768, 32768, 250, 3, "Volta", (135, 1380, 877, 877)
        ),
        "p100": ("Tesla P100-PCIE-16GB", "15f8", "118f", (6, 0), 16384, 16384, 250, 3, "Pascal", (405, 1328, 715, 715)),
        "p4": ("Tesla P4", "1bb3", "11d8", (6, 1), 7680, 256, 75, 3, "Pascal", (455, 1531, 405, 3003)),
        "gtx-1050": (
            "NVIDIA GeForce GTX 1050", "1c81", "3765", (6, 1), 2048, 256, 75, 3, "Pascal", (139, 1911, 405, 3504)
        ),
        "gtx-1080-ti": (
            "NVIDIA GeForce GTX 1080 Ti", "1b06", "120f", (6, 1), 11264, 256, 250, 3, "Pascal", (139, 1911, 405, 5505)
        ),
        "a40-vgpu": ("NVIDIA A40-48Q", "2235", "14dc", (8, 6), 49152, 256, 300, 4, "Ampere", (210, 1740, 405, 7251)),
        "gh200": ("NVIDIA GH200 480GB", "2342", "16eb", (9, 0), 97871, 131072, 900, 5, "Hopper", (345, 1980, 2619, 2619)),
        "gb10": ("NVIDIA GB10", "2e12", "21ec", (12, 1), 122570, 16384, 140, 5, "Blackwell", (208, 3003, 405, 8533)),
        "rtx-3080": (
            "NVIDIA GeForce RTX 3080", "2206", "1467", (8, 6), 10240, 256, 320, 4, "Ampere", (210, 2100, 405, 9501)
        ),
        "rtx-3050": (
            "NVIDIA GeForce RTX 3050", "2507", "3783", (8, 6), 8192, 8192, 130, 4, "Ampere", (210, 2100, 405, 7001)
        ),
        "rtx-5880-ada": (
            "NVIDIA RTX 5880 Ada Generation", "26b3", "1934", (8, 9), 49140, 65536, 285, 4, "Ada Lovelace",
            (210, 2460, 405, 10001),
        ),
        "a10-vgpu": ("NVIDIA A10-24Q", "2236", "14b8", (8, 6), 24512, 32768, 150, 4, "Ampere", (210, 1695, 405, 6251)),
        "orin": ("Orin (nvgpu)", "229e", "0000", (8, 7), 30697, 0, 60, 4, "Ampere", (306, 1300, 204, 3199)),
    }.items()
}  # fmt: skip

#: The switch of each generation: PCI id and subsystem.
NVSWITCHES = {"a100": ("1af1", "1438"), "h100": ("22a3", "1796")}

_GRAPHICS = {"GeForce", "RTX"}


def gpu_of(given: Mapping[str, Any], index: int) -> dict[str, Any]:
    """One card: its model's figures, its place and what the case says of it."""
    model = {**MODELS[given["model"]], **{k: v for k, v in given.items() if k in _FIELDS}}
    at = str(given["at"])
    digits = hashlib.sha256(f"{given['model']}{at}".encode()).hexdigest()
    uuid = f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"
    return {**given, **model, "at": at, "index": index, "uuid": given.get("uuid", uuid)}


def is_old(gpu: Mapping[str, Any]) -> bool:
    return tuple(gpu["cc"]) < (8, 0)


def is_display(gpu: Mapping[str, Any]) -> bool:
    return bool(_GRAPHICS & set(gpu["name"].split()))


# --- the bus --------------------------------------------------------------------------------------


def _speed(generation: int) -> str:
    rates = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}
    return f"{rates[generation]} GT/s PCIe\n"


def _resource(bars: tuple[int, ...]) -> str:
    """Sizes of the six BARs in bytes, as `resource` shows them; BAR 0 below 4 GiB."""
    rows, high = [], 0x380000000000
    for place, size in enumerate(bars):
        if not size:
            rows.append((0, 0, 0))
        elif place == 0 and bars[1]:
            rows.append((0xB2000000, 0xB2000000 + size - 1, 0x40200))
        else:
            high += (-high) % size
            rows.append((high, high + size - 1, 0x14220C))
            high += size
    return "".join(f"0x{a:016x} 0x{b:016x} 0x{c:016x}\n" for a, b, c in [*rows, *[(0, 0, 0)] * 7])


def _config(device: str, subsystem: str, class_code: str) -> bytes:
    head = bytes.fromhex("de10") + int(device, 16).to_bytes(2, "little")
    body = bytes.fromhex("06041000a1") + bytes.fromhex(class_code)[::-1] + bytes.fromhex("10000000")
    bars = bytes.fromhex("000000b00c00000080030000" + "0c00000090030000" + "00" * 8)
    tail = bytes.fromhex("de10") + int(subsystem, 16).to_bytes(2, "little") + bytes.fromhex("0000000060")
    return (head + body + bars + tail).ljust(60, b"\0") + bytes.fromhex("ff010000")


def pci_files(gpu: Mapping[str, Any]) -> dict[str, str | bytes]:
    """The files of the function below /sys/bus/pci/devices/ADDRESS/; what `pci` of the card says comes last."""
    bar1 = gpu["bar1"] * MIB
    narrow = tuple(gpu["cc"]) < (9, 0)
    bars = (16 * MIB, bar1, 0, 32 * MIB, 0, 0) if narrow else (16 * MIB, 0, bar1, 0, 32 * MIB, 0)
    class_code = "030000" if is_display(gpu) else "030200"
    files: dict[str, str | bytes] = {
        "vendor": "0x10de\n",
        "device": f"0x{gpu['device']}\n",
        "subsystem_vendor": "0x10de\n",
        "subsystem_device": f"0x{gpu['subsystem']}\n",
        "class": f"0x{class_code}\n",
        "current_link_speed": _speed(gpu["gen"]),
        "current_link_width": "16\n",
        "max_link_speed": _speed(gpu["gen"]),
        "max_link_width": "16\n",
        "numa_node": "0\n",
        "power_state": "D0\n",
        "resource": _resource(bars),
        "config": _config(gpu["device"], gpu["subsystem"], class_code),
    }
    if gpu.get("fallen"):
        # Every read of a device that is gone gives ones.
        files |= {"config": b"\xff" * 64, "current_link_speed": "Unknown\n", "current_link_width": "63\n"}
    return {**files, **gpu.get("pci", {})}


def switch_files(generation: str) -> dict[str, str | bytes]:
    """The files of one NVSwitch."""
    device, subsystem = NVSWITCHES[generation]
    return {
        "vendor": "0x10de\n",
        "device": f"0x{device}\n",
        "subsystem_vendor": "0x10de\n",
        "subsystem_device": f"0x{subsystem}\n",
        "class": "0x068000\n",
        "numa_node": "0\n",
        "power_state": "D0\n",
        "resource": _resource((32 * MIB, 0, 0, 0, 0, 0)),
        "config": _config(device, subsystem, "068000"),
    }


def information(gpu: Mapping[str, Any], firmware: str) -> str:
    """/proc/driver/nvidia/gpus/ADDRESS/information."""
    name = gpu["name"]
    rows = (
        ("Model:", f"\t {name}"),
        ("IRQ:  ", f"\t {90 + gpu['index']}"),
        ("GPU UUID:", f" {gpu['uuid']}"),
        ("Video BIOS:", " 96.00.89.00.01"),
        ("Bus Type:", " PCIe"),
        ("DMA Size:", " 52 bits"),
        ("DMA Mask:", " 0xfffffffffffff"),
        ("Bus Location:", f" {gpu['at']}"),
        ("Device Minor:", f" {gpu['index']}"),
        ("GPU Firmware:", f" {firmware}"),
    )
    return "".join(f"{head} \t{tail}\n" for head, tail in rows) + "GPU Excluded:\t No\n"


# --- NVML -----------------------------------------------------------------------------------------


def _pci_info(gpu: Mapping[str, Any]) -> dict[str, Any]:
    domain, bus, rest = gpu["at"].split(":")
    return {
        "bus_id": f"{int(domain, 16):08X}:{bus.upper()}:{rest.upper()}",
        "domain": int(domain, 16),
        "bus": int(bus, 16),
        "device": int(rest.split(".")[0], 16),
        "pci_device_id": int(gpu["device"] + "10de", 16),
        "pci_sub_system_id": int(gpu["subsystem"] + "10de", 16),
    }


def nvml_gpu(gpu: Mapping[str, Any], driver: str) -> dict[str, Any]:
    """What NVML says of a healthy idle card; `nvml` of the card says what is else (null: not supported)."""
    idle_sm, sm, idle_mem, mem = gpu["clocks"]
    total, used = gpu["mib"] * MIB, 512 * MIB
    milliwatts = gpu["watts"] * 1000
    errors = {"margin_temperature": "Not Supported", "temperature_threshold.mem_max": "Not Supported"}
    doc: dict[str, Any] = {
        "index": gpu["index"],
        "name": gpu["name"],
        "uuid": gpu["uuid"],
        "cuda_compute_capability": list(gpu["cc"]),
        "pci_info": _pci_info(gpu),
        "memory_info": {"total": total, "free": total - used, "used": used},
        "temperature": 34,
        "temperature_threshold": {"shutdown": 95, "slowdown": 92, "gpu_max": 87},
        "power_usage": milliwatts // 8,
        "enforced_power_limit": milliwatts,
        "power_management_default_limit": milliwatts,
        "power_management_limit_constraints": [milliwatts // 3, milliwatts],
        "current_clocks_event_reasons": 1,
        "performance_state": 8 if idle_mem < mem else 0,
        "persistence_mode": 1,
        "compute_mode": 0,
        "curr_pcie_link_generation": gpu["gen"],
        "max_pcie_link_generation": gpu["gen"],
        "curr_pcie_link_width": 16,
        "max_pcie_link_width": 16,
        "pcie_replay_counter": 0,
        "virtualization_mode": 0,
        "clock_info": {"sm": idle_sm, "mem": idle_mem},
        "max_clock_info": {"sm": sm, "mem": mem},
        "utilization_rates": {"gpu": 0, "memory": 0},
        "compute_running_processes": [],
        "graphics_running_processes": [],
        "gpu_recovery_action": 0,
        "gpu_fabric_info": {
            "state": 0,
            "status": 0,
            "clique_id": 0,
            "cluster_uuid": "00000000-0000-0000-0000-000000000000",
            "health_mask": 0,
        },
    }
    if is_display(gpu) and not gpu["name"].endswith("Edition"):
        errors |= {"ecc_mode": "Not Supported", "total_ecc_errors": "Not Supported", "remapped_rows": "Not Supported"}
    else:
        doc["ecc_mode"] = [1, 1]
        counts = ("corrected_volatile", "uncorrected_volatile", "corrected_aggregate", "uncorrected_aggregate")
        doc["total_ecc_errors"] = dict.fromkeys(counts, 0)
    if is_old(gpu):
        errors |= {"remapped_rows": "Not Supported", "mig_mode": "Not Supported"}
        doc["retired_pages_pending_status"] = 0
    else:
        doc |= {} if "remapped_rows" in errors else {"remapped_rows": [0, 0, 0, 0]}
        errors["retired_pages_pending_status"] = "Not Supported"
    if tuple(gpu["cc"]) >= (7, 5) and driver.split(".")[0] >= "510":
        doc |= {"gsp_firmware_version": driver, "gsp_firmware_mode": [1, 1]}
    if gpu["arch"] in ("Ampere", "Hopper", "Blackwell") and tuple(gpu["cc"]) in ((8, 0), (9, 0), (10, 0), (10, 3)):
        doc["mig_mode"] = [0, 0]
    else:
        errors["mig_mode"] = "Not Supported"
    doc["errors"] = errors
    return _said(doc, gpu.get("nvml", {}))


def _said(doc: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in given.items():
        if value is None:
            doc.pop(key, None)
            doc["errors"][key] = "Not Supported"
        else:
            doc[key] = {**doc[key], **value} if isinstance(value, dict) and isinstance(doc.get(key), dict) else value
            doc["errors"].pop(key, None)
    return doc


# --- nvidia-smi -q -x -----------------------------------------------------------------------------

_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x20: "sw_thermal_slowdown",
}
_FABRIC = {0: "N/A", 1: "Not Started", 2: "In Progress", 3: "Completed"}


def smi_xml(gpus: list[dict[str, Any]], docs: list[dict[str, Any]], driver: str, cuda: str) -> str:
    """The same answers as NVML's documents, as `nvidia-smi -q -x` prints them."""
    lines = [
        '<?xml version="1.0" ?>',
        '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">',
        "<nvidia_smi_log>",
        "\t<timestamp>Mon Nov 30 09:12:05 2026</timestamp>",
        *_elements({"driver_version": driver, "cuda_version": cuda, "attached_gpus": len(docs)}, 1),
    ]
    for gpu, doc in zip(gpus, docs, strict=True):
        lines += [f'\t<gpu id="{doc["pci_info"]["bus_id"]}">', *_elements(_smi_gpu(gpu, doc, driver), 2), "\t</gpu>"]
    return "\n".join([*lines, "</nvidia_smi_log>", ""])


def _elements(tree: Mapping[str, Any], depth: int) -> Iterator[str]:
    for tag, value in tree.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict):
                yield "\t" * depth + f"<{tag}>"
                yield from _elements(one, depth + 1)
                yield "\t" * depth + f"</{tag}>"
            else:
                yield "\t" * depth + f"<{tag}>{escape(str(one))}</{tag}>"


def _enabled(pair: list[int] | None, place: int) -> str:
    return "N/A" if pair is None else ("Enabled" if pair[place] else "Disabled")


def _smi_gpu(gpu: Mapping[str, Any], doc: dict[str, Any], driver: str) -> dict[str, Any]:
    pci, memory, fabric = doc["pci_info"], doc["memory_info"], doc.get("gpu_fabric_info", {"state": 0})
    mig, ecc = doc.get("mig_mode"), doc.get("ecc_mode")
    domain, bus, rest = pci["bus_id"].split(":")
    reasons = {
        f"clocks_event_reason_{name}": "Active" if doc["current_clocks_event_reasons"] & bit else "Not Active"
        for bit, name in _REASONS.items()
    }
    return {
        "product_name": doc["name"],
        "product_architecture": gpu["arch"],
        "persistence_mode": "Enabled" if doc["persistence_mode"] else "Disabled",
        "mig_mode": {"current_mig": _enabled(mig, 0), "pending_mig": _enabled(mig, 1)},
        "uuid": doc["uuid"],
        "minor_number": doc["index"],
        "vbios_version": "96.00.89.00.01",
        "gpu_virtualization_mode": {
            "virtualization_mode": {0: "None", 1: "Pass-Through", 2: "VGPU"}[doc["virtualization_mode"]]
        },
        "gpu_recovery_action": {0: "None", 1: "Reset", 2: "Reboot", 3: "Drain P2P", 4: "Drain and Reset"}[
            doc.get("gpu_recovery_action", 0)
        ],
        "gsp_firmware_version": doc.get("gsp_firmware_version", "N/A"),
        "pci": {
            "pci_bus": bus,
            "pci_device": rest.split(".")[0],
            "pci_domain": domain[-4:],
            "pci_device_id": f"{pci['pci_device_id']:08X}",
            "pci_bus_id": pci["bus_id"],
            "pci_sub_system_id": f"{pci['pci_sub_system_id']:08X}",
            "pci_gpu_link_info": {
                "pcie_gen": {
                    "max_link_gen": doc["max_pcie_link_generation"],
                    "current_link_gen": doc["curr_pcie_link_generation"],
                },
                "link_widths": {
                    "max_link_width": f"{doc['max_pcie_link_width']}x",
                    "current_link_width": f"{doc['curr_pcie_link_width']}x",
                },
            },
            "replay_counter": doc.get("pcie_replay_counter", 0),
        },
        "performance_state": f"P{doc['performance_state']}",
        "clocks_event_reasons": reasons,
        "fb_memory_usage": {key: f"{memory[key] // MIB} MiB" for key in ("total", "used", "free")},
        "compute_mode": "Default",
        "utilization": {"gpu_util": f"{doc['utilization_rates']['gpu']} %"},
        "ecc_mode": {"current_ecc": _enabled(ecc, 0), "pending_ecc": _enabled(ecc, 1)},
        **_smi_errors(gpu, doc),
        "temperature": {"gpu_temp": f"{doc['temperature']} C"},
        "gpu_power_readings": {
            "power_state": f"P{doc['performance_state']}",
            "average_power_draw": f"{doc['power_usage'] / 1000:.2f} W",
            "instant_power_draw": f"{doc['power_usage'] / 1000:.2f} W",
            "current_power_limit": f"{doc['enforced_power_limit'] / 1000:.2f} W",
            "default_power_limit": f"{doc['power_management_default_limit'] / 1000:.2f} W",
            "max_power_limit": f"{doc['power_management_limit_constraints'][1] / 1000:.2f} W",
        },
        "clocks": {f"{k}_clock": f"{v} MHz" for k, v in doc["clock_info"].items()},
        "max_clocks": {f"{k}_clock": f"{v} MHz" for k, v in doc["max_clock_info"].items()},
        "fabric": {"state": _FABRIC[fabric["state"]], "status": "Success" if fabric["state"] == 3 else "N/A"},
        "processes": {"process_info": [_process(p) for p in doc.get("compute_running_processes", [])]},
    }


def _process(process: Mapping[str, Any]) -> dict[str, Any]:
    used = process["used_gpu_memory"] // MIB
    return {
        "pid": process["pid"],
        "type": "C",
        "process_name": process.get("name", ""),
        "used_memory": f"{used} MiB",
    }


def _smi_errors(gpu: Mapping[str, Any], doc: dict[str, Any]) -> dict[str, Any]:
    ecc, rows = doc.get("total_ecc_errors"), doc.get("remapped_rows")
    counts: dict[str, Any] = {}
    if ecc:
        counts = {
            when: {
                "sram_correctable": 0,
                "sram_uncorrectable": 0,
                "dram_correctable": ecc[f"corrected_{when}"],
                "dram_uncorrectable": ecc[f"uncorrected_{when}"],
            }
            for when in ("volatile", "aggregate")
        }
    yes = {0: "No", 1: "Yes"}
    remapped = "N/A" if rows is None else {
        "remapped_row_corr": rows[0],
        "remapped_row_unc": rows[1],
        "remapped_row_pending": yes[rows[2]],
        "remapped_row_failure": yes[rows[3]],
    }
    pending = doc.get("retired_pages_pending_status")
    return {
        "ecc_errors": counts or "N/A",
        "retired_pages": {"pending_retirement": "N/A" if pending is None else yes[pending]},
        "remapped_rows": remapped,
    }
