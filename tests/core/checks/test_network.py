"""The checks of the network that carries tensors, and of the path between GPUs."""

from __future__ import annotations

import msgspec
import pytest

from doctor.core.finding import Status
from doctor.core.host import Host
from tests.core.hosts import (
    NOT_THERE,
    answer,
    at,
    devices,
    expect,
    healthy,
    in_container,
    loaded_modules,
    placed,
    put,
    without,
    wrong,
)
from tests.core.hosts_fabric import bridged, memlock, networked, port

MODULES = "kernel.modules"
NO_PEERMEM = networked(**{MODULES: loaded_modules("nvidia", "nvidia_uvm", "mlx5_ib")})
NO_PORTS = put(healthy(), "network.ports", ())
ETHERNET = put(healthy(), "network.ports", (port("mlx5_0", link_layer="Ethernet", rate_gbps=25.0),))


def ports(*more: object) -> Host:
    return networked(**{"network.ports": (*(port(f"mlx5_{i}") for i in range(3)), *more)})


def limited(host: Host, soft: int) -> Host:
    resources = msgspec.structs.replace(at(host, "system.resources").value, limits=(memlock(soft),))
    return put(host, "system.resources", resources)


DOWN = {"state": "DOWN", "physical_state": "Polling"}
TABLE: dict[str, dict[str, tuple[Host, Status, str, str]]] = {
    "network.infiniband_ports": {
        "up": (networked(), "pass", "mlx5_0/1", "400 Gb/s"),
        "one card down": (ports(port("mlx5_3", **DOWN)), "warn", "mlx5_3/1", "DOWN"),
        "a second port without a cable": (ports(port("mlx5_2", port=2, **DOWN)), "pass", "mlx5_2/2", "DOWN"),
        "a port that somebody disabled": (
            ports(port("mlx5_3", state="DOWN", physical_state="Disabled")),
            "pass",
            "mlx5_3/1",
            "Disabled",
        ),
        "an Ethernet port down": (
            ports(port("mlx5_3", link_layer="Ethernet", **DOWN)),
            "pass",
            "mlx5_3/1",
            "",
        ),
        "no subnet manager": (
            ports(port("mlx5_3", state="INIT", physical_state="LinkUp")),
            "warn",
            "mlx5_3/1",
            "INIT",
        ),
        "all down: nobody uses it": (
            put(healthy(), "network.ports", (port("mlx5_0", **DOWN),)),
            "pass",
            "mlx5_0/1",
            "",
        ),
        "no device": (NO_PORTS, "skip", "", "no InfiniBand device"),
        "not read": (without(networked(), ["network.ports"], "denied"), "unknown", "", "needs root"),
        "not asked": (healthy(), "skip", "", "not asked"),
        "inside a container": (placed(networked(), "container"), "skip", "", "the host's"),
    },
    "network.peermem": {
        "loaded": (networked(), "pass", "", "nvidia_peermem"),
        "of an older kind": (
            networked(**{MODULES: loaded_modules("nvidia", "nv_peer_mem")}),
            "pass",
            "",
            "nv_peer_mem",
        ),
        "dma-buf": (NO_PEERMEM, "pass", "", "dma-buf"),
        "the proprietary modules": (
            put(NO_PEERMEM, "driver.flavour", "proprietary"),
            "warn",
            "",
            "not loaded",
        ),
        "a kernel before dma-buf": (
            put(NO_PEERMEM, "kernel.release", "5.4.0-150-generic"),
            "warn",
            "",
            "5.4.0",
        ),
        "the flavour is not known": (without(NO_PEERMEM, ["driver.flavour"]), "unknown", "", "not read"),
        "no InfiniBand": (NO_PORTS, "skip", "", "no InfiniBand port is up"),
        "Ethernet": (ETHERNET, "skip", "", "no InfiniBand port is up"),
        "not read": (without(networked(), ["network.ports"], "timeout"), "unknown", "", "in time"),
    },
    "network.rdma_memlock": {
        "unlimited": (networked(), "pass", "", "unlimited"),
        "enough": (limited(networked(), 64 * 1024**3), "pass", "", "65536 MiB"),
        "8 MiB": (limited(networked(), 8 * 1024**2), "warn", "", "8192 KiB"),
        "8 MiB without InfiniBand": (limited(NO_PORTS, 8 * 1024**2), "skip", "", "no InfiniBand"),
        "not read": (
            put(networked(), "system.resources", at(healthy(), "system.resources")),
            "unknown",
            "",
            "not",
        ),
        "nothing was read": (without(networked(), ["system.resources"], "timeout"), "unknown", "", "in time"),
    },
    "network.acs": {
        "no redirect": (bridged(redirects=False), "pass", "", "no bridge"),
        "redirected and translated": (bridged(), "warn", "", "DMA-FQ"),
        "redirected, passed through": (bridged(domain="identity"), "pass", "", "no IOMMU"),
        "redirected, no IOMMU": (bridged(groups=0), "pass", "", "no IOMMU"),
        "the IOMMU was not read": (
            without(bridged(), ["machine.iommu_groups", "machine.iommu_domain"]),
            "unknown",
            "",
            "not read",
        ),
        "needs root": (without(bridged(), ["machine.acs_bridges"], "denied"), "unknown", "", "needs root"),
        "a guest": (placed(bridged(), "vm", "kvm"), "skip", "", "guest"),
        "one GPU": (put(bridged(), "pci", at(healthy(), "pci").value[:1]), "skip", "", "single GPU"),
        "not asked": (healthy(), "skip", "", "not asked"),
    },
    "network.numa_affinity": {
        "near": (networked(), "pass", "", "1 memory node"),
        "across the socket": (devices(networked(), numa_node=1), "pass", "", "2 GPU(s) on node 1"),
        "not told": (devices(networked(), numa_node=None), "skip", "", "does not tell"),
        "no InfiniBand": (NO_PORTS, "skip", "", "no InfiniBand"),
        "the bus was not read": (without(networked(), ["pci"], "denied"), "unknown", "", "needs root"),
    },
}
ROWS = [(check, name) for check, rows in TABLE.items() for name in rows]


@pytest.mark.parametrize(("check", "name"), ROWS)
def test_check(check: str, name: str) -> None:
    host, status, subject, words = TABLE[check][name]
    expect(host, check, status, subject, words)


@pytest.mark.parametrize(
    "host",
    [NO_PORTS, ETHERNET, networked(), NO_PEERMEM, put(healthy(), "network.ports", NOT_THERE), in_container()],
    ids=["none", "Ethernet", "InfiniBand", "dma-buf", "not there", "container"],
)
def test_a_network_in_order_or_none_warns_of_nothing(host: Host) -> None:
    mine = {key: words for key, words in wrong(host).items() if key.startswith("network.")}
    assert mine == {}
    assert answer(host).verdict == "ready"


def test_a_far_card_is_a_note_and_no_warning() -> None:
    host = devices(networked(), numa_node=1)
    expect(host, "network.numa_affinity", "pass", why="crosses the sockets")
