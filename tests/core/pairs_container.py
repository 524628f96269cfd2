"""Pairs for the causes of `causes_container.yaml`."""

from __future__ import annotations

from typing import Any

from doctor.core.host import Host, Package, Xid
from doctor.core.versions import Dotted
from tests.core.hosts import (
    FIRST,
    MIB,
    NARROW_BARS,
    NOT_THERE,
    devices,
    driver_packages,
    failing_probe,
    having,
    in_container,
    in_wsl2,
    lost_gpu,
    package,
    packages_of,
    placed,
    put,
    reports,
    said,
    unloadable_probe,
)
from tests.core.hosts_container import (
    LEGACY_DOCKER,
    LIBCUDA,
    alone,
    config,
    containerd,
    docker,
    inside,
    node,
    other,
    serving,
    spec,
    without_toolkit,
)
from tests.core.pair import Pair

BARE = having(
    in_container(),
    {
        "driver.device_nodes": (),
        "driver.libraries": (),
        "driver.userspace_version": NOT_THERE,
        "driver.nvml": NOT_THERE,
        "driver.smi": NOT_THERE,
        "cuda.probe": unloadable_probe(),
    },
)
UNKNOWN_ERROR = failing_probe(999, "CUDA_ERROR_UNKNOWN")
SNAP = docker(
    path="/snap/bin/docker", is_snap=True, runtimes=("runc",), configured_runtimes=(), cdi_enabled=False
)
MANAGED = put(serving(), "driver.container_root", "/run/nvidia/driver")
XID_78 = Xid(
    code=78,
    gpu=FIRST,
    count=1,
    first_text="NVRM: Xid (PCI:0000:41:00): 78, vGPU: Guest driver is incompatible with host driver",
)
REFUSED = having(
    reports(
        said(lost_gpu(lost_gpu(serving()), FIRST), xids=(XID_78,)),
        error="No devices were found",
        error_code=6,
    ),
    {"cuda.probe": failing_probe(100, "CUDA_ERROR_NO_DEVICE")},
)
STRAY = put(
    in_wsl2(), "packages", packages_of(package("libnvidia-compute-535"), package("nvidia-container-toolkit"))
)
STALE = serving(cdi_specs=(spec(driver_versions=("575.57.08",)),))
GONE = spec(missing_paths=(LIBCUDA,))
PODMAN = other("podman", version=Dotted("5.4.2"), cdi_dirs=("/etc/cdi", "/run/cdi"))
PARTS = ("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container1")
EVEN = driver_packages().installed + tuple(package(name, version="1.20.0-1") for name in PARTS)
ODD = (*EVEN, package("libnvidia-container-tools", version="1.17.8-1"))


def driver_packages_of(*installed: Package) -> Host:
    """A serving host with these packages."""
    return put(serving(), "packages", packages_of(*installed))


A10, GIB_4 = "10de:2236", (16 * MIB, 4096 * MIB, 0, 32 * MIB, 0, 0)


def slice_of_a10(**fields: Any) -> Host:
    """A virtual machine with a slice of an A10, whose driver is the data-centre one and lists no GPU."""
    host = placed(lost_gpu(lost_gpu(serving()), FIRST), "vm", "microsoft")
    host = reports(host, error="No devices were found", error_code=6, gpus=())
    host = put(host, "cuda.probe", failing_probe(100, "CUDA_ERROR_NO_DEVICE"))
    values = {"device_id": A10, "subsystem_id": "10de:14bb", "bar_bytes": GIB_4}
    return devices(host, **{**values, **fields})


PAIRS = {
    "container.toolkit_not_configured": Pair(
        BARE, put(in_container(), "cuda.probe", UNKNOWN_ERROR), "unknown"
    ),
    "container.docker_snap": Pair(
        serving(SNAP), serving(docker(path="/snap/bin/docker", is_snap=True)), is_advice=True
    ),
    "container.cgroup_device_loss": Pair(
        serving(LEGACY_DOCKER, toolkit_config=config(mode="legacy"), char_links=False),
        serving(LEGACY_DOCKER, toolkit_config=config(mode="legacy")),
        is_advice=True,
    ),
    "container.no_cgroups_misconfig": Pair(
        serving(toolkit_config=config(no_cgroups=True)),
        serving(docker(is_rootless=True), toolkit_config=config(no_cgroups=True)),
        is_advice=True,
    ),
    "container.cdi_spec_stale": Pair(STALE, serving(), is_advice=True),
    "container.cdi_not_seen": Pair(serving(PODMAN, cdi_specs=()), without_toolkit(PODMAN), is_advice=True),
    "container.selinux_denied": Pair(
        serving(selinux="enforcing", selinux_denials=("avc: denied { read } /dev/nvidia0",)),
        serving(
            selinux="enforcing",
            selinux_denials=("avc: denied { read } /dev/nvidia0",),
            selinux_use_devices=True,
        ),
        is_advice=True,
    ),
    "container.runtime_not_default": Pair(
        node(containerd(default_runtime="runc"), has_device_plugin_socket=False),
        node(containerd(default_runtime="runc")),
        is_advice=True,
    ),
    "container.wsl_linux_driver_shadow": Pair(STRAY, in_wsl2(), is_advice=True),
    "container.shm_too_small": Pair(inside(64 * MIB), alone(inside(64 * MIB)), is_advice=True),
    "container.driver_double_managed": Pair(MANAGED, put(MANAGED, "packages", packages_of()), is_advice=True),
    "container.engine_config_unreadable": Pair(
        serving(docker(config_fault="it is no JSON: line 3")), serving(), is_advice=True
    ),
    "container.toolkit_misconfigured": Pair(
        serving(toolkit_config=config(mode="csv")), serving(toolkit_config=config(mode="cdi")), is_advice=True
    ),
    "container.rootless_without_devices": Pair(
        serving(docker(is_rootless=True, cdi_enabled=False)),
        serving(docker(is_rootless=True)),
        is_advice=True,
    ),
    "container.toolkit_versions_mixed": Pair(
        driver_packages_of(*ODD),
        driver_packages_of(*EVEN),
        is_advice=True,
    ),
    "vgpu.wrong_driver_type": Pair(
        slice_of_a10(), slice_of_a10(subsystem_id="10de:1482", bar_bytes=NARROW_BARS), "unknown"
    ),
    "vgpu.guest_host_branch": Pair(REFUSED, said(serving(), xids=(XID_78,))),
}
