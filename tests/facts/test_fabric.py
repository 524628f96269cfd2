"""Fabric Manager, NVLinks and IMEX, as facts."""

from __future__ import annotations

import pytest

from doctor.core.evidence import command_name
from doctor.core.host import NOT_COLLECTED, Known, Package, Packages
from doctor.core.host_fabric import Fabric, NvlinkTotal
from doctor.facts.fabric import read_fabric
from tests.facts.evidence import evidence

LOG = "/var/log/fabricmanager.log"
#: Head of a line of its log.
AT = "[Nov 28 2026 08:00:01] [INFO] [tid 2210] "
STARTED = (
    f"{AT}Fabric Manager version 580.126.09 is running with the following configuration options\n\n"
    f"{AT}Logging level = 4\n"
    f"{AT}Successfully configured all the available NVSwitches to route GPU NVLink traffic.\n"
)
MISMATCH = (
    "Nov 30 08:00:00 node nv-fabricmanager[2210]: fabric manager NVIDIA GPU driver interface version "
    "580.126.09 don't match with driver version 580.126.20. Please update with matching driver package.\n"
)
JOURNAL = ("journalctl", "-u", "nvidia-fabricmanager", "-b", "0")
STATUS = ("nvidia-smi", "nvlink", "--status")
LINKS = """GPU 0: NVIDIA H200 (UUID: GPU-c9b83ce7-7284-0a65-dc7b-06efba261d25)
\t Link 0: 26.562 GB/s
\t Link 1: 26.562 GB/s
GPU 1: NVIDIA H200 (UUID: GPU-0a65dc7b-7284-0a65-dc7b-06efba261d25)
\t Link 0: <inactive>
\t Link 1: 26.562 GB/s
GPU 2: NVIDIA L4 (UUID: GPU-1a65dc7b-7284-0a65-dc7b-06efba261d25)
"""
ERRORS = """GPU 0: NVIDIA H200 (UUID: GPU-c9b83ce7-7284-0a65-dc7b-06efba261d25)
\t Link 0: Replay Errors: 3
\t Link 0: Recovery Errors: 0
\t Link 0: CRC Errors: 4

\t Link 1: Replay Errors: 0
GPU 1: NVIDIA H200 (UUID: GPU-0a65dc7b-7284-0a65-dc7b-06efba261d25)
\t Link 1: Replay Errors: 0
"""


def read(files=None, commands=None, stats=None, packages=NOT_COLLECTED, **kwargs) -> Fabric:
    return read_fabric(evidence(files, commands, stats, **kwargs), packages)


def installed(**versions: str) -> Known[Packages]:
    rows = tuple(Package(name=n.replace("_", "-"), version=v) for n, v in versions.items())
    return Known(value=Packages(manager="dpkg", installed=rows), origin="command:dpkg-query")


@pytest.mark.parametrize(
    "name",
    [
        "nvidia-fabricmanager",
        "nvidia-fabricmanager-580",
        "nvidia-fabric-manager",
        "cuda-drivers-fabricmanager-580",
    ],
)
def test_the_version_of_its_package(name):
    fact = read(
        packages=installed(**{name: "580.126.09-0ubuntu0.24.04.1", "nvidia-fabricmanager-dev": "1"})
    ).manager_version
    assert (str(fact.value), fact.origin) == ("580.126.09", "command:dpkg-query")


def test_the_version_that_its_log_names():
    fact = read({LOG: STARTED.replace("580.126.09", "570.86.15") + STARTED}).manager_version
    assert (str(fact.value), fact.origin) == ("580.126.09", f"file:{LOG}")


def test_no_fabric_manager_and_one_without_a_version():
    binary = "/usr/bin/nv-fabricmanager"
    assert read(stats={binary: None}, packages=installed()).manager_version.reason == "not_installed"
    assert read(stats={binary: {}}, packages=installed()).manager_version.reason == "unreadable"
    assert read(packages=installed()).manager_version.reason == "not_collected"


def test_its_log_keeps_what_speaks():
    lines = read({LOG: STARTED}, {JOURNAL: (0, f"-- Boot 1 --\n{MISMATCH}")}).manager_log.value
    assert [line.partition("] ")[2][:20] for line in lines[:2]] == [
        "[INFO] [tid 2210] Fa",
        "[INFO] [tid 2210] Su",
    ]
    assert lines[-1] == MISMATCH.strip()
    assert not any("Logging level" in line or line.startswith("--") for line in lines)


def test_no_log():
    assert read(absent={f"file:{LOG}": "missing"}).manager_log.reason == "not_installed"
    assert read(absent={f"file:{LOG}": "denied"}).manager_log.reason == "denied"
    assert read().manager_log.reason == "not_collected"


def test_the_subnet_manager():
    assert read(packages=installed(nvlsm="2025.10.14-1")).subnet_manager_version.value == "2025.10.14-1"
    asked = ("dpkg-query", "-W", "-f=x", "*nvidia*", "nvlsm*")
    name = f"command:{command_name(asked)}"
    rows = Known(value=installed(nvidia_imex="580").value, origin=name)
    assert read(commands={asked: (0, "x")}, packages=rows).subnet_manager_version.reason == "not_installed"
    # Somebody who asked for other packages knows nothing of this one.
    assert read(packages=installed(nvidia_imex="580")).subnet_manager_version.reason == "not_collected"
    assert read().subnet_manager_version.reason == "not_collected"


# --- NVLink ---------------------------------------------------------------------------------------


def gpu(index: int, **fields: object) -> dict[str, object]:
    return {"index": index, "pci_info": {"bus_id": f"00000000:{index + 1:02X}:00.0"}, "errors": {}, **fields}


def test_links_by_nvml():
    states = {"states": [1] * 17 + [0], "errors": {"replay": 2, "recovery": 0, "crc": 5}}
    rows = [gpu(0, nvlinks=states), gpu(1, nvlinks={"states": [1] * 18, "errors": {}})]
    assert read(nvml={"count": 2, "gpus": rows}).nvlinks.value == (
        NvlinkTotal(gpu="0000:01:00.0", active=17, inactive=1, errors=7),
        NvlinkTotal(gpu="0000:02:00.0", active=18, inactive=0),
    )


def test_links_by_smi():
    asked = {STATUS: (0, LINKS), ("nvidia-smi", "nvlink", "--errorcounters"): (0, ERRORS)}
    assert read(commands=asked).nvlinks.value == (
        NvlinkTotal(gpu="0", active=2, inactive=0, errors=7),
        NvlinkTotal(gpu="1", active=1, inactive=1, errors=0),
    )


def test_gpus_without_links_and_one_that_is_alone():
    refused = [gpu(n, errors={"nvlinks": "Not Supported"}) for n in range(2)]
    assert read(nvml={"count": 2, "gpus": refused}).nvlinks.reason == "not_installed"
    assert read(nvml={"count": 1, "gpus": [gpu(0)]}).nvlinks.reason == "not_installed"
    # An older collector did not ask.
    assert read(nvml={"count": 2, "gpus": [gpu(0), gpu(1)]}).nvlinks.reason == "not_collected"
    assert read(absent={"nvml": "missing"}).nvlinks.reason == "not_collected"


# --- IMEX -----------------------------------------------------------------------------------------


def test_imex():
    devices = "Character devices:\n  1 mem\n195 nvidia\n234 nvidia-caps-imex-channels\n\nBlock devices:\n"
    channels = "/dev/nvidia-caps-imex-channels"
    found = read(
        {
            "/proc/devices": devices,
            "/etc/nvidia-imex/nodes_config.cfg": "10.0.0.1\n# old: 10.0.0.9\n\n10.0.0.2 # b\n",
        },
        stats={channels: {"kind": "dir"}, f"{channels}/channel0": {"kind": "char"}},
    )
    assert found.imex_device_class.value is True
    assert found.imex_channels.value == (f"{channels}/channel0",)
    assert found.imex_peers.value == ("10.0.0.1", "10.0.0.2")


def test_no_imex():
    found = read(
        {"/proc/devices": "195 nvidia\n235 nvidia-caps\n"},
        stats={"/dev/nvidia-caps-imex-channels": None},
        absent={"file:/etc/nvidia-imex/nodes_config.cfg": "missing"},
    )
    assert found.imex_device_class.value is False
    assert found.imex_channels.value == ()
    assert found.imex_peers.reason == "not_installed"
    gone = read(stats={"/dev/nvidia-caps-imex-channels": None, "/sys/module/nvidia": None})
    assert gone.imex_device_class.reason == "not_installed"
    assert read().imex_device_class.reason == read().imex_channels.reason == "not_collected"


def test_the_version_in_a_bug_reports_table():
    rows = "Component   | Details\n=====\nFabric Manager     | Fabric Manager version is : 580.95.05\n-----\n"
    asked = ("nvidia-bug-report.sh", "--versions-table")
    assert str(read(commands={asked: (0, rows)}).manager_version.value) == "580.95.05"
    none = rows.replace("Fabric Manager version is : 580.95.05", "None")
    assert read(commands={asked: (0, none)}).manager_version.reason == "not_collected"
