"""Puts make-believe cards into a lab host: the PCI bus as `lspci` reads it, and what the driver would find."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["MODELS", "Gpu", "plant", "secure_boot"]

SECURE_BOOT = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A card. `open_modules`: what flavour of the kernel modules can run it."""

    name: str
    device: int
    subsystem: int
    memory_mib: int
    capability: tuple[int, int]
    open_modules: Literal["only", "either", "never"] = "either"
    pci_class: int = 0x030200
    nvlinks: int = 0
    power_limit_w: int = 300
    architecture: int = 9
    """nvmlDeviceArchitecture_t: 5 Volta, 6 Turing, 7 Ampere, 8 Ada, 9 Hopper, 10 Blackwell."""


MODELS = {
    "H200": Gpu(
        name="NVIDIA H200", device=0x2335, subsystem=0x18BE10DE, memory_mib=143771, capability=(9, 0), nvlinks=18, power_limit_w=700
    ),
    "H100": Gpu(
        name="NVIDIA H100 80GB HBM3", device=0x2330, subsystem=0x16C110DE, memory_mib=81559, capability=(9, 0), nvlinks=18, power_limit_w=700
    ),
    "B200": Gpu(
        name="NVIDIA B200", device=0x2901, subsystem=0x1999_10DE, memory_mib=183359, capability=(10, 0),
        open_modules="only", nvlinks=18, power_limit_w=1000, architecture=10,
    ),
    "L40S": Gpu(
        name="NVIDIA L40S", device=0x26B9, subsystem=0x1851_10DE, memory_mib=46068, capability=(8, 9), power_limit_w=350, architecture=8
    ),
    "L4": Gpu(name="NVIDIA L4", device=0x27B8, subsystem=0x16CA10DE, memory_mib=23034, capability=(8, 9), power_limit_w=72, architecture=8),
    "T4": Gpu(name="Tesla T4", device=0x1EB8, subsystem=0x12A210DE, memory_mib=15360, capability=(7, 5), power_limit_w=70, architecture=6),
    "V100": Gpu(
        name="Tesla V100-PCIE-16GB", device=0x1DB4, subsystem=0x121410DE, memory_mib=16384, capability=(7, 0),
        open_modules="never", architecture=5,
    ),
}  # fmt: skip


def plant(root: Path, gpus: Sequence[Gpu]) -> None:
    """Write the bus and the cards' description; a boot brings them up."""
    top = root / "opt/lab"
    shutil.rmtree(top / "pci", ignore_errors=True)
    (top / "pci/drivers").mkdir(parents=True)
    (top / "pci/devices").mkdir()
    rows, state = [], [f"count = {len(gpus)}"]
    for index, gpu in enumerate(gpus):
        address = f"0000:{0x18 + 0x11 * index:02x}:00.0"
        _device(top / "pci/devices" / address, gpu)
        rows.append(
            {
                "address": address, "name": gpu.name, "open": gpu.open_modules, "vbios": "96.00.D0.00.03",
                "uuid": f"GPU-00000000-0000-4000-8000-{index:012x}",
            }
        )  # fmt: skip
        state += _state(index, address, gpu)
    (top / "gpus.json").write_text(json.dumps(rows, indent=1) + "\n")
    (top / "nvml.conf").write_text("\n".join(state) + "\n")


def _device(folder: Path, gpu: Gpu) -> None:
    folder.mkdir(parents=True)
    config = bytearray(256)
    struct.pack_into("<HHHHI", config, 0, 0x10DE, gpu.device, 0x0006, 0x0010, (gpu.pci_class << 8) | 0xA1)
    struct.pack_into("<HH", config, 0x2C, gpu.subsystem & 0xFFFF, gpu.subsystem >> 16)
    (folder / "config").write_bytes(config)
    bars = "0x0000380000000000 0x0000380000ffffff 0x000000000014220c\n0x0000382000000000 0x0000383fffffffff 0x000000000014220c\n"
    for name, value in {
        "vendor": "0x10de",
        "device": f"0x{gpu.device:04x}",
        "class": f"0x{gpu.pci_class:06x}",
        "subsystem_vendor": f"0x{gpu.subsystem & 0xFFFF:04x}",
        "subsystem_device": f"0x{gpu.subsystem >> 16:04x}",
        "revision": "0xa1",
        "irq": "64",
        "numa_node": "0",
        "enable": "1",
        "current_link_speed": "32.0 GT/s PCIe",
        "max_link_speed": "32.0 GT/s PCIe",
        "current_link_width": "16",
        "max_link_width": "16",
        "resource": bars + "0x0000000000000000 0x0000000000000000 0x0000000000000000\n" * 11,
        "modalias": f"pci:v000010DEd{gpu.device:08X}sv000010DEsd0000{gpu.subsystem >> 16:04X}bc03sc02i00",
    }.items():
        (folder / name).write_text(value if value.endswith("\n") else value + "\n")


def _state(index: int, address: str, gpu: Gpu) -> list[str]:
    """What the NVML stand-in answers for this card."""
    values = {
        "name": gpu.name,
        "bus": address,
        "mem_total_mib": gpu.memory_mib,
        "cc_major": gpu.capability[0],
        "cc_minor": gpu.capability[1],
        "pci_device": f"0x{gpu.device:04x}10de",
        "pci_subsystem": f"0x{gpu.subsystem:08x}",
        "nvlinks": gpu.nvlinks,
        "arch": gpu.architecture,
        "power_limit_mw": gpu.power_limit_w * 1000,
        "power_max_mw": gpu.power_limit_w * 1000,
        "power_default_mw": gpu.power_limit_w * 1000,
    }
    return [f"gpu{index}.{key} = {value}" for key, value in values.items()]


def secure_boot(root: Path, *, is_on: bool) -> None:
    """Make the firmware EFI with Secure Boot on or off; seen from the next boot on."""
    variables = root / "opt/lab/efi/efivars"
    variables.mkdir(parents=True, exist_ok=True)
    (variables / SECURE_BOOT).write_bytes(b"\x06\0\0\0" + bytes([is_on]))
    (variables / SECURE_BOOT.replace("SecureBoot", "SetupMode")).write_bytes(b"\x06\0\0\0\0")
    (root / "opt/lab/mok").mkdir(parents=True, exist_ok=True)
    (root / "opt/lab/mok/enrolled").touch()
