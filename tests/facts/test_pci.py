"""The PCI bus, from sysfs and from lspci."""

from __future__ import annotations

import pytest

from doctor.core.evidence import Evidence, Item, Meta
from doctor.core.host import Absent, Known
from doctor.evidence.foreign import read_foreign
from doctor.facts.pci import read_pci
from tests.facts.evidence import evidence

TOP = "/sys/bus/pci/devices"
GPU = f"{TOP}/0000:41:00.0"
BUS = {TOP: {"kind": "dir"}}
FIELDS = {
    "vendor": "0x10de",
    "device": "0x26b9",
    "class": "0x030200",
    "subsystem_vendor": "0x10de",
    "subsystem_device": "0x1851",
    "current_link_speed": "2.5 GT/s PCIe",
    "max_link_speed": "16.0 GT/s PCIe",
    "current_link_width": "16",
    "max_link_width": "16",
    "numa_node": "1",
    "power_state": "D0",
}
RESOURCE = (
    "0x00000000b0000000 0x00000000b0ffffff 0x0000000000040200\n"
    "0x0000380000000000 0x0000380fffffffff 0x000000000014220c\n"
    "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
    "0x0000381000000000 0x0000381001ffffff 0x000000000014220c\n"
    "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
    "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
    "0x00000000b1000000 0x00000000b107ffff 0x0000000000046200\n"
)


def gpu(address: str = "0000:41:00.0", **fields: str | bytes) -> dict[str, str | bytes]:
    return {f"{TOP}/{address}/{name}": value for name, value in {**FIELDS, **fields}.items()}


def test_sysfs():
    built = evidence(
        gpu(resource=RESOURCE, config=b"\xde\x10\xb9\x26"), stats={**BUS, f"{GPU}/driver": "../../x/nvidia"}
    )
    (device,) = read_pci(built).value
    assert (device.address, device.device_id, device.subsystem_id) == (
        "0000:41:00.0",
        "10de:26b9",
        "10de:1851",
    )
    assert (device.class_code, device.driver, device.numa_node, device.power_state) == (
        "030200",
        "nvidia",
        1,
        "D0",
    )
    assert (device.link_speed_gts, device.link_speed_max_gts) == (2.5, 16.0)
    assert (device.link_width, device.link_width_max) == (16, 16)
    assert device.bar_bytes == (16 * 2**20, 64 * 2**30, 0, 32 * 2**20, 0, 0)
    assert device.is_responding is True


@pytest.mark.parametrize(
    ("stats", "driver"),
    [
        ({f"{GPU}/driver": "../../../bus/pci/drivers/nouveau"}, "nouveau"),
        ({f"{GPU}/driver": None}, ""),
        ({}, None),
    ],
)
def test_bound_driver(stats, driver):
    (device,) = read_pci(evidence(gpu(), stats={**BUS, **stats})).value
    assert device.driver == driver


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"config": b"\xff" * 64}, {"is_responding": False}),
        ({}, {"is_responding": None, "bar_bytes": ()}),
        ({"numa_node": "-1"}, {"numa_node": None}),
        (
            {"current_link_speed": "Unknown", "current_link_width": "63"},
            {"link_speed_gts": None, "link_width": None},
        ),
        # The kernel marks a range that got no address; its size stands there all the same.
        ({"resource": "0x0 0xfffffffff 0x20142208\n" * 6}, {"bar_bytes": (0,) * 6}),
        ({"resource": "0x0 nonsense\n"}, {"bar_bytes": ()}),
        ({"class": "", "subsystem_device": ""}, {"class_code": "", "subsystem_id": ""}),
        ({"device": "0x22a3", "class": "0x068000"}, {"is_nvswitch": True, "is_gpu": False}),
    ],
)
def test_fields(fields, expected):
    (device,) = read_pci(evidence(gpu(**fields), stats=BUS)).value
    assert {name: getattr(device, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("stats", "is_virtual"),
    [({f"{GPU}/physfn": "../0000:41:00.0"}, True), ({f"{GPU}/physfn": None}, False), ({}, None)],
)
def test_a_slice_of_another_function_says_so(stats, is_virtual):
    (device,) = read_pci(evidence(gpu(), stats={**BUS, **stats})).value
    assert device.is_virtual_function is is_virtual


def test_other_vendors_and_broken_ones_are_left_out():
    files = {**gpu("0000:01:00.0", vendor="0x1002"), **gpu("0000:02:00.0", vendor="x"), **gpu("0000:03:00.0")}
    assert [d.address for d in read_pci(evidence(files, stats=BUS)).value] == ["0000:03:00.0"]


def test_what_an_empty_answer_means():
    assert read_pci(evidence(stats=BUS)) == Known(value=(), origin=f"stat:{TOP}")
    missing = read_pci(evidence(stats={TOP: None}))
    assert isinstance(missing, Absent)
    # A bus that cannot be seen is no proof that there is no GPU.
    assert missing.reason == "unreadable"
    assert read_pci(evidence()).reason == "not_collected"
    assert read_pci(evidence(absent={f"stat:{TOP}": "denied"})).reason == "denied"


@pytest.mark.parametrize("status", ["timeout", "denied"])
def test_a_function_that_does_not_say_whose_it_is_may_be_a_gpu(status):
    absent = {f"file:{GPU}/vendor": status}
    assert read_pci(evidence(stats=BUS, absent=absent)).reason == status
    # Asked for its driver alone: it is there, and nobody read its vendor.
    assert read_pci(evidence(stats={**BUS, f"{GPU}/driver": "x/nvidia"})).reason == "not_collected"


NN = """00:00.0 Host bridge [0600]: Intel Corporation Device [8086:0d57]
41:00.0 3D controller [0302]: NVIDIA Corporation AD102GL [L40S] [10de:26b9] (rev a1)
c1:00.0 VGA compatible controller [0300]: NVIDIA Corporation Device [10de:2c02] (rev ff)
c1:00.1 Audio device [0403]: NVIDIA Corporation Device [10de:22e9] (rev ff)
"""
NNK = """41:00.0 3D controller [0302]: NVIDIA Corporation AD102GL [L40S] [10de:26b9] (rev a1)
\tSubsystem: NVIDIA Corporation AD102GL [L40S] [10de:1851]
\tKernel driver in use: vfio-pci
\tKernel modules: nvidiafb, nouveau, nvidia
61:00.0 3D controller [0302]: NVIDIA Corporation AD102GL [L40S] [10de:26b9] (rev a1)
\tKernel modules: nvidiafb, nouveau, nvidia
"""
VERBOSE = """0000:41:00.0 3D controller [0302]: NVIDIA Corporation AD102GL [L40S] [10de:26b9] (rev a1)
\tSubsystem: NVIDIA Corporation AD102GL [L40S] [10de:1851]
\tRegion 0: Memory at b0000000 (32-bit, non-prefetchable) [size=16M]
\tRegion 1: Memory at 380000000000 (64-bit, prefetchable) [size=64G]
\tRegion 3: Memory at 381000000000 (64-bit, prefetchable) [size=32M]
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1
\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x8 (downgraded)
\tKernel driver in use: nvidia
10000:e1:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2335] (rev ff) (prog-if ff)
\t!!! Unknown header type 7f
"""


def lspci(text: str, *options: str, hand_made: bool = False):
    return evidence(commands={("lspci", *options): (0, text)}, hand_made=hand_made)


@pytest.mark.parametrize("hand_made", [False, True])
def test_lspci_nn(hand_made):
    l40s, lost, audio = read_pci(lspci(NN, "-nn", hand_made=hand_made)).value
    assert (l40s.address, l40s.device_id, l40s.class_code, l40s.is_responding) == (
        "0000:41:00.0",
        "10de:26b9",
        "030200",
        True,
    )
    assert (lost.device_id, lost.class_code, lost.is_responding, lost.driver) == (
        "10de:2c02",
        "030000",
        False,
        None,
    )
    assert not audio.is_gpu


def test_lspci_nnk():
    bound, free = read_pci(lspci(NNK, "-nnk")).value
    assert (bound.driver, bound.subsystem_id, free.driver) == ("vfio-pci", "10de:1851", "")


def test_lspci_verbose():
    gpu_, lost = read_pci(lspci(VERBOSE, "-nnDvvv")).value
    assert gpu_.bar_bytes == (16 * 2**20, 64 * 2**30, 0, 32 * 2**20, 0, 0)
    assert (gpu_.link_speed_gts, gpu_.link_width, gpu_.link_speed_max_gts, gpu_.link_width_max) == (
        2.5,
        8,
        16,
        16,
    )
    assert (lost.address, lost.is_responding) == ("10000:e1:00.0", False)


def test_lspci_without_ids_or_without_gpus():
    assert (
        read_pci(lspci("41:00.0 3D controller: NVIDIA Corporation AD102GL [L40S] (rev a1)\n")).reason
        == "not_collected"
    )
    assert read_pci(lspci("00:00.0 Host bridge [0600]: Intel [8086:0d57]\n", "-nn")).value == ()


def part(text: str) -> Evidence:
    item = Item(key="command:lspci-nn", status="truncated", path="commands/lspci-nn", argv=("lspci", "-nn"))
    return Evidence(Meta(items=(item,)), {"commands/lspci-nn": text.encode()})


def test_a_part_of_a_listing_says_what_is_there_and_not_what_is_not():
    fact = read_pci(part("00:02.0 VGA compatible controller [0300]: Intel [8086:46a6]\n"))
    assert isinstance(fact, Absent)
    assert (fact.reason, fact.origin) == ("unreadable", "command:lspci-nn")
    assert [d.address for d in read_pci(part(NN)).value if d.is_gpu] == [
        d.address for d in read_pci(lspci(NN, "-nn")).value if d.is_gpu
    ]


def test_a_pasted_listing_may_be_picked():
    text = "3d:00.0 Ethernet controller [0200]: Intel Corporation X710 [8086:1572] (rev 02)\n"
    fact = read_pci(read_foreign(f"$ lspci -nn | grep -i eth\n{text}".encode()))
    assert isinstance(fact, Absent)
    assert "a part" in fact.detail


def test_sysfs_is_better_than_lspci():
    built = evidence(gpu("0000:99:00.0"), {("lspci", "-nn"): (0, NN)}, BUS)
    assert [d.address for d in read_pci(built).value] == ["0000:99:00.0"]
