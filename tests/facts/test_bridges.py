"""Between the GPUs on the bus: ACS of bridges, IOMMU groups and domains, displays of others."""

from __future__ import annotations

import struct

import pytest

from doctor.core.host_machine import AcsBridge
from doctor.facts.bridges import (
    acs_control,
    read_acs,
    read_iommu_domain,
    read_iommu_groups,
    read_other_displays,
)
from tests.facts.evidence import evidence

BUS = "/sys/bus/pci/devices"
ROOT, SWITCH, PORTS = "0000:15:01.0", "0000:16:00.0", ("0000:17:00.0", "0000:17:01.0")
GPUS = ("0000:18:00.0", "0000:19:00.0")


def config(control: int | None, *, size: int = 4096) -> bytes:
    """A configuration space: an AER capability, and behind it one of ACS."""
    space = bytearray(size)
    if control is not None and size > 0x150:
        struct.pack_into("<I", space, 0x100, 0x0001 | 1 << 16 | 0x148 << 20)
        struct.pack_into("<IHH", space, 0x148, 0x000D | 1 << 16, 0x1F, control)
    return bytes(space)


def device(
    address: str, vendor: str = "0x10de", code: str = "0x030200", ident: str = "0x2335"
) -> dict[str, str]:
    top = f"{BUS}/{address}"
    return {f"{top}/vendor": vendor, f"{top}/class": code, f"{top}/device": ident}


def two_gpus(configs: dict[str, bytes]) -> tuple[dict[str, str | bytes], dict[str, str]]:
    files: dict[str, str | bytes] = {f"{BUS}/{a}/config": data for a, data in configs.items()}
    stats = {}
    for gpu, port in zip(GPUS, PORTS, strict=True):
        files.update(device(gpu))
        stats[f"{BUS}/{gpu}"] = f"../../../devices/pci0000:15/{ROOT}/{SWITCH}/{port}/{gpu}"
    return files, stats


def test_bridges_above_gpus():
    configs = {ROOT: config(0x1D), SWITCH: config(None), PORTS[0]: config(0x01), PORTS[1]: config(0x08)}
    files, stats = two_gpus(configs)
    assert read_acs(evidence(files, stats=stats)).value == (
        AcsBridge(address=ROOT, redirects=True),
        AcsBridge(address=PORTS[0], redirects=False),
        AcsBridge(address=PORTS[1], redirects=True),
    )


def test_without_root_the_answer_is_unknown():
    files, stats = two_gpus({ROOT: config(0x1D, size=64)})
    assert read_acs(evidence(files, stats=stats)).reason == "denied"


def test_one_gpu_and_none_asked():
    gpu = GPUS[0]
    stats = {f"{BUS}/{gpu}": f"../../../devices/pci0000:00/{gpu}"}
    assert read_acs(evidence(device(gpu), stats=stats)).reason == "not_installed"
    assert read_acs(evidence(device(gpu))).reason == "not_collected"
    assert read_acs(evidence()).reason == "not_collected"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(64),
        bytes(4096),
        b"\xff" * 4096,
        config(None)[:0x100] + struct.pack("<I", 0x0001 | 0x100 << 20) * 8,
    ],
    ids=["nothing", "short", "none", "gone", "a ring"],
)
def test_spaces_without_acs(data):
    assert acs_control(data) is None


LSPCI = """0000:15:01.0 PCI bridge [0604]: Intel Corporation Device [8086:352a] (rev 30)
\tBus: primary=15, secondary=16, subordinate=19, sec-latency=0
\tIOMMU group: 4
\tCapabilities: [148 v1] Access Control Services
\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-

0000:18:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H200 SXM 141GB] [10de:2335] (rev a1)
\tIOMMU group: 5

0000:20:01.0 PCI bridge [0604]: Intel Corporation Device [8086:352a] (rev 30)
\tBus: primary=20, secondary=21, subordinate=21, sec-latency=0
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-

0000:40:00.0 VGA compatible controller [0300]: ASPEED Graphics Family [1a03:2000] (rev 52)
\tIOMMU group: 9
"""
LISTED = {("lspci", "-nnDvvvxxx"): (0, LSPCI)}


def test_what_lspci_lists():
    found = evidence(commands=LISTED)
    assert read_acs(found).value == (AcsBridge(address="0000:15:01.0", redirects=True),)
    assert read_iommu_groups(found).value == 3
    assert read_other_displays(found).value == ("0000:40:00.0 1a03:2000",)


def test_iommu():
    assert read_iommu_groups(evidence(documents={"machine": {"iommu_groups": 0}})).value == 0
    assert (
        read_iommu_groups(evidence(stats={f"/sys/kernel/iommu_groups/{n}": {} for n in range(4)})).value == 4
    )
    assert read_iommu_groups(evidence()).reason == "not_collected"
    files = {f"{BUS}/{a}/iommu_group/type": t for a, t in zip(GPUS, ("identity\n", "DMA-FQ\n"), strict=True)}
    assert read_iommu_domain(evidence(files)).value == "DMA-FQ"
    same = {f"{BUS}/{GPUS[0]}/iommu_group/type": "identity\n"}
    assert read_iommu_domain(evidence(same)).value == "identity"
    none = {f"file:{BUS}/{GPUS[0]}/iommu_group/type": "missing"}
    assert read_iommu_domain(evidence(absent=none)).reason == "not_installed"


def test_displays_of_others():
    files = {
        **device("0000:00:02.0", "0x8086", "0x030000", "0xa7a0"),
        **device("0000:01:00.0"),
        **device("0000:02:00.0", "0x8086", "0x020000", "0x1533"),
    }
    assert read_other_displays(evidence(files)).value == ("0000:00:02.0 8086:a7a0",)
    assert read_other_displays(evidence(device("0000:01:00.0"))).value == ()
    assert read_other_displays(evidence()).reason == "not_collected"
