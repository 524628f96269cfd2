"""`nvidia-smi -q -x` of a host, with the same answers as NVML's documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from xml.sax.saxutils import escape

__all__ = ["smi_xml"]

MIB = 1024**2


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
        lines += [
            f'\t<gpu id="{doc["pci_info"]["bus_id"]}">',
            *_elements(_smi_gpu(gpu, doc, driver), 2),
            "\t</gpu>",
        ]
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
    remapped = (
        "N/A"
        if rows is None
        else {
            "remapped_row_corr": rows[0],
            "remapped_row_unc": rows[1],
            "remapped_row_pending": yes[rows[2]],
            "remapped_row_failure": yes[rows[3]],
        }
    )
    pending = doc.get("retired_pages_pending_status")
    return {
        "ecc_errors": counts or "N/A",
        "retired_pages": {"pending_retirement": "N/A" if pending is None else yes[pending]},
        "remapped_rows": remapped,
    }
