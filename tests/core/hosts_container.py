"""Hosts with container engines: Docker with NVIDIA's toolkit on bare metal, a Kubernetes node, containers."""

from __future__ import annotations

from typing import Any

from doctor.core.host import Filesystem, GpuReport, Host, Resources
from doctor.core.host_container import CdiSpec, ContainerEngine, Kubernetes, ToolkitConfig
from doctor.core.versions import Dotted
from tests.core.hosts import DRIVER, GIB, MIB, NOT_THERE, at, having, healthy, in_container, put, reports

TOOLKIT = Dotted("1.20.0")
CONFIG = "/etc/nvidia-container-runtime/config.toml"
SPEC = "/run/cdi/nvidia.yaml"
LIBCUDA = f"/usr/lib/x86_64-linux-gnu/libcuda.so.{DRIVER}"


def docker(**fields: Any) -> ContainerEngine:
    values: dict[str, Any] = {
        "name": "docker",
        "version": Dotted("29.1.3"),
        "path": "/usr/bin/docker",
        "is_snap": False,
        "is_rootless": False,
        "config_path": "/etc/docker/daemon.json",
        "runtimes": ("nvidia", "runc"),
        "configured_runtimes": ("nvidia",),
        "runtime_paths": {"nvidia": "nvidia-container-runtime"},
        "default_runtime": "runc",
        "cgroup_driver": "systemd",
        "cdi_enabled": True,
        "cdi_dirs": ("/etc/cdi", "/var/run/cdi"),
    }
    return ContainerEngine(**{**values, **fields})


def other(name: Any, **fields: Any) -> ContainerEngine:
    return ContainerEngine(**{"name": name, "path": f"/usr/bin/{name}", **fields})


def spec(**fields: Any) -> CdiSpec:
    values: dict[str, Any] = {
        "path": SPEC,
        "kind": "nvidia.com/gpu",
        "cdi_version": "0.5.0",
        "devices": ("0", "1", "all"),
        "driver_versions": (DRIVER.raw,),
        "host_paths": ("/dev/nvidia0", LIBCUDA),
        "missing_paths": (),
    }
    return CdiSpec(**{**values, **fields})


def config(**fields: Any) -> ToolkitConfig:
    return ToolkitConfig(**{"path": CONFIG, "mode": "auto", "no_cgroups": False, **fields})


def serving(*engines: ContainerEngine, **facts: Any) -> Host:
    """A healthy host whose Docker gives containers their GPUs; other engines, and facts of containers."""
    values: dict[str, Any] = {
        "engines": engines or (docker(),),
        "toolkit_version": TOOLKIT,
        "toolkit_config": config(),
        "cdi_specs": (spec(),),
        "cgroup_version": 2,
        "char_links": True,
        "selinux": "disabled",
        "selinux_denials": (),
        "selinux_use_devices": NOT_THERE,
        "kubernetes": Kubernetes(),
        "runtime_hook_present": True,
    }
    return having(healthy(), {f"containers.{name}": value for name, value in {**values, **facts}.items()})


def without_toolkit(*engines: ContainerEngine, **facts: Any) -> Host:
    values = {
        "toolkit_version": NOT_THERE,
        "toolkit_config": NOT_THERE,
        "cdi_specs": (),
        "runtime_hook_present": False,
    }
    return serving(*engines, **{**values, **facts})


BARE_DOCKER = docker(
    runtimes=("runc",), configured_runtimes=(), runtime_paths={}, cdi_enabled=False, cdi_dirs=None
)
LEGACY_DOCKER = docker(cdi_enabled=False, cdi_dirs=None)


def node(engine: ContainerEngine | None = None, **fields: Any) -> Host:
    """A Kubernetes node with containerd and the toolkit, which the GPU Operator does not look after."""
    values = {"distribution": "kubelet", "has_nvidia_operator": False, "has_device_plugin_socket": True}
    one = engine or containerd()
    return serving(one, kubernetes=Kubernetes(**{**values, **fields}), cdi_specs=())


def containerd(**fields: Any) -> ContainerEngine:
    values = {
        "runtimes": ("nvidia", "runc"),
        "default_runtime": "nvidia",
        "cgroup_driver": "systemd",
        "cdi_enabled": False,
        "config_path": "/etc/containerd/config.toml",
    }
    return other("containerd", **{**values, **fields})


def refused(words: str, code: int = 999, **variables: str) -> Host:
    """A container whose NVML gives an error."""
    host = reports(in_container(), error=words, error_code=code, gpus=(), driver_version=None)
    return put(host, "system.environment", variables)


def inside(shm: int | None = 16 * GIB, **variables: str) -> Host:
    """A container with two GPUs, so much shared memory, and these variables."""
    places = [Filesystem(path="/", total_bytes=100 * GIB, free_bytes=50 * GIB, kind="overlay")]
    if shm is not None:
        places.append(Filesystem(path="/dev/shm", total_bytes=shm, free_bytes=shm, kind="tmpfs"))
    resources = Resources(memory_bytes=512 * GIB, memory_available_bytes=500 * GIB, filesystems=tuple(places))
    return having(in_container(), {"system.resources": resources, "system.environment": variables})


def alone(host: Host) -> Host:
    """The host whose witnesses list its first GPU only."""
    for path in ("driver.nvml", "driver.smi"):
        report: GpuReport = at(host, path).value
        host = put(host, path, GpuReport(driver_version=report.driver_version, gpus=report.gpus[:1]))
    return host


__all__ = [
    "BARE_DOCKER",
    "CONFIG",
    "LEGACY_DOCKER",
    "LIBCUDA",
    "MIB",
    "SPEC",
    "TOOLKIT",
    "alone",
    "config",
    "containerd",
    "docker",
    "inside",
    "node",
    "other",
    "refused",
    "serving",
    "spec",
    "without_toolkit",
]
