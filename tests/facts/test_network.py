"""InfiniBand and RoCE ports, and whose drivers they have."""

from __future__ import annotations

from doctor.core.host_network import InfinibandPort
from doctor.facts.network import read_network
from tests.facts.evidence import evidence

TOP = "/sys/class/infiniband"


def port(device: str, number: int, **values: str) -> dict[str, str]:
    fields = {
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "rate": "400 Gb/sec (4X NDR)",
        "link_layer": "InfiniBand",
    }
    return {
        f"{TOP}/{device}/ports/{number}/{name}": f"{value}\n" for name, value in {**fields, **values}.items()
    }


def test_ports():
    files = {
        **port("mlx5_0", 1),
        **port(
            "mlx5_1",
            1,
            state="1: DOWN",
            phys_state="3: Disabled",
            rate="2.5 Gb/sec (1X SDR)",
            link_layer="Ethernet",
        ),
        f"{TOP}/mlx5_0/fw_ver": "28.43.2026\n",
        f"{TOP}/mlx5_0/device/numa_node": "1\n",
        f"{TOP}/mlx5_1/device/numa_node": "-1\n",
    }
    stats = {f"{TOP}/mlx5_0/device": "../../../0000:18:00.0", TOP: {"kind": "dir"}}
    assert read_network(evidence(files, stats=stats)).ports.value == (
        InfinibandPort(
            device="mlx5_0",
            port=1,
            state="ACTIVE",
            physical_state="LinkUp",
            rate_gbps=400.0,
            link_layer="InfiniBand",
            firmware="28.43.2026",
            pci_address="0000:18:00.0",
            numa_node=1,
        ),
        InfinibandPort(
            device="mlx5_1",
            port=1,
            state="DOWN",
            physical_state="Disabled",
            rate_gbps=2.5,
            link_layer="Ethernet",
        ),
    )


def test_no_ports():
    assert read_network(evidence(stats={TOP: None})).ports.value == ()
    assert read_network(evidence(stats={TOP: {"kind": "dir"}})).ports.value == ()
    assert read_network(evidence(absent={f"stat:{TOP}": "denied"})).ports.reason == "denied"
    assert read_network(evidence()).ports.reason == "not_collected"


def test_ofed():
    said = {("ofed_info", "-s"): (0, "MLNX_OFED_LINUX-24.10-0.7.0.0:\n")}
    assert read_network(evidence(commands=said)).ofed_version.value == "MLNX_OFED_LINUX-24.10-0.7.0.0"
    assert (
        read_network(evidence(absent={"command:ofed_info-s": "missing"})).ofed_version.reason
        == "not_installed"
    )
    assert read_network(evidence()).ofed_version.reason == "not_collected"


IBSTAT = """CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tFirmware version: 28.39.1002
\tNode GUID: 0xa088c20300000001
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tLink layer: InfiniBand
CA 'mlx5_1'
\tFirmware version: 28.39.1003
\tPort 1:
\t\tState: Down
\t\tPhysical state: Polling
\t\tRate: 10
\t\tLink layer: Ethernet
\tPort 2:
\t\tState: Initializing
"""


def test_ports_of_a_bug_report():
    found = read_network(evidence(commands={("ibstat",): (0, IBSTAT)})).ports.value
    assert [(p.device, p.port, p.state, p.physical_state, p.rate_gbps, p.firmware) for p in found] == [
        ("mlx5_0", 1, "ACTIVE", "LinkUp", 400.0, "28.39.1002"),
        ("mlx5_1", 1, "DOWN", "Polling", 10.0, "28.39.1003"),
        ("mlx5_1", 2, "INIT", "", None, "28.39.1003"),
    ]
    assert read_network(evidence(commands={("ibstat",): (0, "no CA")}, stats={TOP: None})).ports.value == ()
