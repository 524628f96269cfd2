"""Hosts whose GPUs are joined: an HGX H100 with NVSwitches, an HGX B200, a guest with some of their GPUs."""

from __future__ import annotations

from typing import Any

import msgspec

from doctor.core.host import Host, Limit, Unit
from doctor.core.host_fabric import NvlinkTotal
from doctor.core.host_machine import AcsBridge
from doctor.core.host_network import InfinibandPort
from tests.core.hosts import (
    DRIVER,
    H100,
    NOT_THERE,
    WIDE_BARS,
    at,
    failing_probe,
    having,
    healthy,
    loaded_modules,
    nvml_gpu,
    pci_device,
    placed,
    put,
    working_probe,
)

B200, GB200 = "10de:2901", "10de:2941"
NVSWITCH = "10de:22a3"
GPU_BUSES = ("18", "2a", "3a", "5d", "9a", "ab", "ba", "db")
SWITCHES = tuple(f"0000:{bus}:00.0" for bus in ("07", "08", "09", "0a"))
GPUS = tuple(f"0000:{bus}:00.0" for bus in GPU_BUSES)
NOT_READY = failing_probe(802, "CUDA_ERROR_SYSTEM_NOT_READY")
SERVICE = "nvidia-fabricmanager.service"


def unit(name: str = SERVICE, **fields: Any) -> Unit:
    values = {"name": name, "load": "loaded", "active": "active", "sub": "running", "enabled": "enabled"}
    return Unit(**{**values, **fields})


NO_UNIT = unit(load="not-found", active="inactive", sub="dead", enabled="")


def joined(device_id: str, count: int = 8, *, state: str | None = "completed", mig: bool = False) -> Host:
    """A bare-metal host with so many GPUs of one id, on which everything of the driver works."""
    host = healthy()
    report = at(host, "driver.nvml").value
    gpus = tuple(
        nvml_gpu(i, address, fabric_state=state, mig_mode=mig, mig_mode_pending=mig)
        for i, address in enumerate(GPUS[:count])
    )
    report = msgspec.structs.replace(report, gpus=gpus)
    cards = tuple(pci_device(address, device_id, bar_bytes=WIDE_BARS) for address in GPUS[:count])
    links = tuple(NvlinkTotal(gpu=address, active=18, inactive=0, errors=0) for address in GPUS[:count])
    return having(
        host,
        {
            "pci": cards,
            "driver.nvml": report,
            "driver.smi": report,
            "driver.gpu_models": dict.fromkeys(GPUS[:count], "NVIDIA H100 80GB HBM3"),
            "cuda.probe": working_probe(device_count=count),
            "fabric.nvlinks": links,
        },
    )


def with_switches(host: Host, **fields: Any) -> Host:
    """The host with four NVSwitches on its bus."""
    switches = tuple(
        pci_device(
            address,
            NVSWITCH,
            **{
                "class_code": "068000",
                "driver": "nvidia-nvswitch",
                "bar_bytes": (32 * 1024**2, 0, 0, 0, 0, 0),
                **fields,
            },
        )
        for address in SWITCHES
    )
    return put(host, "pci", (*at(host, "pci").value, *switches))


def hgx(*, state: str = "completed", mig: bool = False) -> Host:
    """An HGX H100 with everything in order."""
    return having(
        with_switches(joined(H100, state=state, mig=mig)),
        {"system.units": (unit(),), "fabric.manager_version": DRIVER, "fabric.manager_log": ()},
    )


def waiting(host: Host) -> Host:
    """The host whose fabric does not come up: CUDA waits for it."""
    for path in ("driver.nvml", "driver.smi"):
        report = at(host, path).value
        gpus = tuple(msgspec.structs.replace(g, fabric_state="in_progress") for g in report.gpus)
        host = put(host, path, msgspec.structs.replace(report, gpus=gpus))
    return put(host, "cuda.probe", NOT_READY)


def managed(host: Host, **fields: Any) -> Host:
    """The host with another state of Fabric Manager's unit."""
    return put(host, "system.units", (unit(**fields),))


def port(device: str, **fields: Any) -> InfinibandPort:
    values = {
        "device": device,
        "port": 1,
        "state": "ACTIVE",
        "physical_state": "LinkUp",
        "rate_gbps": 400.0,
        "link_layer": "InfiniBand",
    }
    return InfinibandPort(**{**values, **fields})


def hgx_b200() -> Host:
    """An HGX B200 with everything in order: its switches are behind InfiniBand devices."""
    return having(
        joined(B200),
        {
            "system.units": (unit(),),
            "fabric.manager_version": DRIVER,
            "fabric.manager_log": (),
            "fabric.subnet_manager_version": "2025.06.11-1",
            "kernel.modules": loaded_modules("nvidia_uvm", "nvidia", "mlx5_core", "mlx5_ib", "ib_umad"),
            "network.ports": tuple(port(f"mlx5_{i}") for i in range(4)),
        },
    )


def guest() -> Host:
    """A virtual machine with one GPU of an HGX H100, and without its switches."""
    return having(
        placed(joined(H100, 1), "vm", "kvm"),
        {"system.units": (NO_UNIT,), "fabric.manager_version": NOT_THERE, "fabric.nvlinks": NOT_THERE},
    )


def networked(host: Host | None = None, **facts: Any) -> Host:
    """A bare-metal host whose four InfiniBand cards are up, with nvidia-peermem, memlock unlimited."""
    host = host or healthy()
    resources = at(host, "system.resources").value
    values: dict[str, Any] = {
        "system.resources": msgspec.structs.replace(resources, limits=(memlock(-1),)),
        "network.ports": tuple(port(f"mlx5_{i}", numa_node=0) for i in range(4)),
        "network.ofed_version": NOT_THERE,
        "kernel.modules": loaded_modules("nvidia_uvm", "nvidia", "nvidia_peermem", "mlx5_ib"),
    }
    return having(host, {**values, **facts})


def memlock(soft: int) -> Limit:
    return Limit(name="memlock", soft=soft, hard=soft)


def bridged(*, redirects: bool = True, groups: int = 40, domain: str = "DMA-FQ") -> Host:
    """A bare-metal host with a bridge above each GPU."""
    bridges = tuple(AcsBridge(address=a, redirects=redirects) for a in ("0000:40:01.0", "0000:80:01.0"))
    values = {"acs_bridges": bridges, "iommu_groups": groups, "iommu_domain": domain}
    return having(healthy(), {f"machine.{name}": value for name, value in values.items()})
