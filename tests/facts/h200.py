"""The H200 node of `tests/data/h200` as Evidence."""

from __future__ import annotations

from pathlib import Path

from doctor.core.evidence import Evidence
from tests.facts.evidence import evidence

DATA = Path(__file__).parents[1] / "data" / "h200"
GPU = "/sys/bus/pci/devices/0000:00:06.0"
DPKG = ("dpkg-query", "-W", "-f=${Package}\\t${Version}\\n", "*cuda*", "*nvidia*")


def raw(name: str) -> bytes:
    return (DATA / name).read_bytes()


def char(mode: str) -> dict[str, str]:
    return {"kind": "char", "mode": mode, "owner": "root:root"}


FILES = {
    f"{GPU}/vendor": "0x10de\n",
    f"{GPU}/device": "0x2335\n",
    f"{GPU}/class": "0x030200\n",
    f"{GPU}/subsystem_vendor": "0x10de\n",
    f"{GPU}/subsystem_device": "0x18bf\n",
    f"{GPU}/current_link_speed": "32.0 GT/s PCIe\n",
    f"{GPU}/current_link_width": "16\n",
    f"{GPU}/max_link_speed": "32.0 GT/s PCIe\n",
    f"{GPU}/max_link_width": "16\n",
    f"{GPU}/numa_node": "-1\n",
}
STATS: dict[str, object] = {
    "/sys/bus/pci/devices": {"kind": "dir"},
    f"{GPU}/driver": "../../../bus/pci/drivers/nvidia",
    "/sys/firmware/efi": None,
    "/lib/modules": None,
    "/dev/nvidia0": char("0666"),
    "/dev/nvidiactl": char("0666"),
    "/dev/nvidia-uvm": char("0666"),
    "/dev/nvidia-uvm-tools": char("0666"),
    "/dev/nvidia-caps/nvidia-cap1": char("0400"),
    "/dev/nvidia-caps/nvidia-cap2": char("0444"),
    "/usr/local/nvidia/lib64/libcuda.so.1": "libcuda.so.580.159.04",
    "/usr/local/nvidia/lib64/libcuda.so.580.159.04": {},
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1": "libnvidia-ml.so.580.159.04",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.580.159.04": {},
    "/usr/local/cuda": "/etc/alternatives/cuda",
    "/usr/local/cuda-13": "/etc/alternatives/cuda-13",
    "/usr/local/cuda-13.0": {"kind": "dir"},
    "/usr/local/cuda-13.0/compat/libcuda.so.1": "libcuda.so.580.95.05",
    "/usr/local/cuda-13.0/compat/libcuda.so.580.95.05": {},
}


def h200() -> Evidence:
    files = {
        "/etc/os-release": raw("os-release"),
        "/proc/driver/nvidia/version": raw("version"),
        "/proc/driver/nvidia/params": raw("params"),
        "/proc/modules": raw("modules"),
        **FILES,
    }
    commands = {
        ("uname", "-a"): (0, raw("uname.txt")),
        ("nvidia-smi", "-q"): (0, raw("nvidia-smi-q.txt")),
        ("ldconfig", "-p"): (0, raw("ldconfig.txt")),
        ("/usr/local/cuda/bin/nvcc", "--version"): (0, raw("nvcc.txt")),
        DPKG: (0, raw("dpkg-query.txt")),
    }
    absent = {"command:systemctl": "missing", "command:dkms-status": "missing"}
    return evidence(files, commands, STATS, absent=absent, nvml=raw("nvml.json"), meta={"root": True})
