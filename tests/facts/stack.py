"""One host with everything around its two GPUs: engines of containers, fabric, network, repositories."""

from __future__ import annotations

import struct

from doctor.core.evidence import Evidence
from tests.facts.evidence import evidence

__all__ = ["stack_host"]

_BUS = "/sys/bus/pci/devices"
_IB = "/sys/class/infiniband/mlx5_0"
_CUDA = "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64"
_LIBCUDA = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.126.09"
_NAME = "plugins.'io.containerd.cri.v1.runtime'.containerd"
_CONTAINERD = f"""version = 3
imports = ["/etc/containerd/conf.d/*.toml"]
[{_NAME}]
default_runtime_name = "nvidia"
[{_NAME}.runtimes.nvidia.options]
BinaryName = "/usr/bin/nvidia-container-runtime"
"""
_SPEC = f"""cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
containerEdits:
  mounts:
  - hostPath: {_LIBCUDA}
    containerPath: {_LIBCUDA}
"""
_KERNEL = """[    0.000000] Linux version 6.8.0-45-generic
[  100.1] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/a,task=python3,pid=7,uid=0
[  101.0] nvidia 0000:18:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)
"""
_PACKAGES = "".join(
    f"{name}\t{version}\tamd64\tii \tx\n"
    for name, version in {
        "nvidia-container-toolkit": "1.18.1-1",
        "nvidia-fabricmanager": "580.126.09-1",
        "docker-ce": "5:28.5.1-1~ubuntu.24.04~noble",
        "containerd.io": "2.1.4-1",
        "nvlsm": "2025.10.14-1",
    }.items()
)


def _files() -> dict[str, str | bytes]:
    return {
        "/proc/sys/kernel/osrelease": "6.8.0-45-generic\n",
        "/etc/docker/daemon.json": '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}',
        "/etc/containerd/config.toml": _CONTAINERD,
        "/etc/crio/crio.conf": '[crio.runtime]\ncgroup_manager = "systemd"\n',
        "/etc/containers/containers.conf": '[engine]\nruntime = "crun"\n',
        "/etc/nvidia-container-runtime/config.toml": '[nvidia-container-runtime]\nmode = "auto"\n',
        "/etc/cdi/nvidia.yaml": _SPEC,
        "/run/cdi/other.json": '{"cdiVersion": "0.6.0", "kind": "a.b/c", "devices": [{"name": "x"}]}',
        "/sys/fs/selinux/enforce": "1",
        "/sys/fs/selinux/booleans/container_use_devices": "0 0",
        "/var/log/audit/audit.log": 'type=AVC avc:  denied  { read } path="/dev/nvidia0"\n',
        "/proc/devices": "195 nvidia\n234 nvidia-caps-imex-channels\n",
        "/var/log/fabricmanager.log": "[INFO] Fabric Manager version 580.126.09 is running\n",
        "/etc/nvidia-imex/nodes_config.cfg": "10.0.0.1\n",
        f"{_IB}/fw_ver": "28.43.2026\n",
        f"{_IB}/device/numa_node": "0\n",
        f"{_IB}/ports/1/state": "4: ACTIVE\n",
        f"{_IB}/ports/1/phys_state": "5: LinkUp\n",
        f"{_IB}/ports/1/rate": "400 Gb/sec (4X NDR)\n",
        f"{_IB}/ports/1/link_layer": "InfiniBand\n",
        "/proc/sys/kernel/numa_balancing": "0\n",
        "/proc/sys/vm/swappiness": "60\n",
        "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
        "/sys/devices/system/node/node0/cpulist": "0-63\n",
        "/sys/devices/system/node/node0/meminfo": "Node 0 MemTotal: 131862224 kB\n",
        "/sys/fs/cgroup/user.slice/memory.max": "8589934592\n",
        "/sys/class/dmi/id/chassis_type": "23\n",
        "/etc/apt/sources.list.d/cuda.list": f"deb [signed-by=/usr/share/keyrings/c.gpg] {_CUDA} /\n",
        "/etc/apt/sources.list.d/x.sources": "Types: deb\nURIs: https://x.example.org\nSuites: noble\n",
        "/etc/yum.repos.d/cuda.repo": f"[cuda]\nbaseurl={_CUDA}\ngpgcheck=1\n",
        "/etc/dnf/modules.d/nvidia-driver.module": "[nvidia-driver]\nstream=580-open\nstate=enabled\n",
    }


def _bus(files: dict[str, str | bytes], stats: dict[str, object]) -> None:
    space = bytearray(4096)
    struct.pack_into("<IHH", space, 0x100, 0x000D | 1 << 16, 0x1F, 0x1D)
    files[f"{_BUS}/0000:15:01.0/config"] = bytes(space)
    for gpu in ("0000:18:00.0", "0000:19:00.0"):
        values = {"vendor": "0x10de", "device": "0x2335", "class": "0x030200", "iommu_group/type": "DMA-FQ"}
        files.update({f"{_BUS}/{gpu}/{name}": f"{value}\n" for name, value in values.items()})
        stats[f"{_BUS}/{gpu}"] = f"../../../devices/pci0000:15/0000:15:01.0/{gpu}"


def _stats() -> dict[str, object]:
    there = ["/usr/bin/dockerd", "/usr/bin/docker", "/usr/bin/containerd", "/usr/bin/crio", "/usr/bin/podman"]
    there += ["/usr/bin/kubelet", "/usr/bin/nvidia-container-runtime", "/sys/fs/cgroup/cgroup.controllers"]
    there += ["/run/nvidia/validations", "/usr/share/keyrings/c.gpg", "/dev/nvidiactl", "/dev/nvidia0"]
    plugins, channels = "/var/lib/kubelet/device-plugins", "/dev/nvidia-caps-imex-channels"
    folders = [plugins, channels, "/dev/char", _BUS, "/sys/class/infiniband"]
    return {
        **{path: {} for path in there},
        **{path: {"kind": "dir"} for path in folders},
        f"{plugins}/nvidia-gpu.sock": {"kind": "socket"},
        f"{channels}/channel0": {"kind": "char"},
        "/dev/char/195:0": "../nvidia0",
        f"{_IB}/device": "../../../0000:20:00.0",
        _LIBCUDA: None,
    }


def stack_host() -> Evidence:
    """A new evidence each time; every fact of the four areas can be read from it."""
    files, stats = _files(), _stats()
    _bus(files, stats)
    machine = {
        "governors": {"performance": 64},
        "iommu_groups": 88,
        "clock": {"synchronised": True},
        "package_locks": [{"lock": "/var/lib/dpkg/lock-frontend", "pid": 42, "process_name": "apt-get"}],
    }
    links = {"states": [1] * 18, "errors": {"replay": 0}}
    gpus = [
        {"index": n, "pci_info": {"bus_id": f"00000000:1{8 + n}:00.0"}, "nvlinks": links} for n in range(2)
    ]
    word = {"pid_file": "/run/docker.pid", "ServerVersion": "28.5.1", "Runtimes": {"runc": {"path": "runc"}}}
    commands = {
        ("dpkg-query", "-W", "-f=x", "*"): (0, _PACKAGES),
        ("dmesg",): (0, _KERNEL),
        ("journalctl", "-u", "nvidia-fabricmanager", "-b", "0"): (0, "Nov 30 08:00:00 n nv[1]: error\n"),
        ("mokutil", "--list-enrolled"): (
            0,
            "[key 1]\n        Subject: CN=n Secure Boot Module Signature key\n",
        ),
        ("mokutil", "--list-new"): (0, "MokNew is empty\n"),
        ("nvidia-ctk", "--version"): (0, "NVIDIA Container Toolkit CLI version 1.18.1\n"),
        ("ofed_info", "-s"): (0, "MLNX_OFED_LINUX-24.10-0.7.0.0:\n"),
        ("ibstat",): (0, "CA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n"),
        ("nvidia-smi", "nvlink", "--status"): (0, "GPU 0: NVIDIA H200 (UUID: x)\n\t Link 0: 26.562 GB/s\n"),
        ("lspci", "-nnDvvv"): (
            0,
            "0000:18:00.0 3D controller [0302]: NVIDIA [10de:2335]\n\tIOMMU group: 5\n",
        ),
    }
    return evidence(
        files,
        commands,
        stats,
        nvml={"count": 2, "gpus": gpus},
        documents={"machine": machine, "docker": word},
    )
