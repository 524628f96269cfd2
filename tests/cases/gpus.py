"""GPUs as the bus, the driver and NVML show them, from one description of each card."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

__all__ = ["gpu_of", "information", "nvml_gpu", "pci_files", "switch_files"]

MIB, GIB = 1024**2, 1024**3

_DATA = Path(__file__).parent.parent / "data" / "cases" / "_gpu-models.yaml"
MODELS: dict[str, dict[str, Any]] = yaml.safe_load(_DATA.read_text())

#: The switch of each generation: PCI id and subsystem.
NVSWITCHES = {"a100": ("1af1", "1438"), "h100": ("22a3", "1796")}

_GRAPHICS = {"GeForce", "RTX"}


def gpu_of(given: Mapping[str, Any], index: int) -> dict[str, Any]:
    """One card: its model's figures, its place and what the case says of it."""
    model = {**MODELS[given["model"]], **{k: v for k, v in given.items() if k in MODELS[given["model"]]}}
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
    """The files below /sys/bus/pci/devices/ADDRESS/; what `pci` of the card says comes last."""
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
        "power_usage": milliwatts // 80 * 10,
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
        errors |= {
            "ecc_mode": "Not Supported",
            "total_ecc_errors": "Not Supported",
            "remapped_rows": "Not Supported",
        }
    else:
        doc["ecc_mode"] = [1, 1]
        counts = (
            "corrected_volatile",
            "uncorrected_volatile",
            "corrected_aggregate",
            "uncorrected_aggregate",
        )
        doc["total_ecc_errors"] = dict.fromkeys(counts, 0)
    if is_old(gpu):
        errors |= {"remapped_rows": "Not Supported", "mig_mode": "Not Supported"}
        doc["retired_pages_pending_status"] = 0
    else:
        doc |= {} if "remapped_rows" in errors else {"remapped_rows": [0, 0, 0, 0]}
        errors["retired_pages_pending_status"] = "Not Supported"
    if tuple(gpu["cc"]) >= (7, 5) and driver.split(".", maxsplit=1)[0] >= "510":
        doc |= {"gsp_firmware_version": driver, "gsp_firmware_mode": [1, 1]}
    if gpu["arch"] in ("Ampere", "Hopper", "Blackwell") and tuple(gpu["cc"]) in (
        (8, 0),
        (9, 0),
        (10, 0),
        (10, 3),
    ):
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
            doc[key] = (
                {**doc[key], **value} if isinstance(value, dict) and isinstance(doc.get(key), dict) else value
            )
            doc["errors"].pop(key, None)
    return doc
