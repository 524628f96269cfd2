"""Which GPUs the driver does not list: lost, hidden from who asked, beside the others, or never cards."""

from __future__ import annotations

import pytest

from doctor.core.finding import Status
from doctor.core.host import BootLog, Collection, Host
from doctor.core.versions import Dotted
from tests.core.hosts import (
    FIRST,
    GTX_1050_TI,
    L40S,
    RTX_5090,
    SECOND,
    answer,
    at,
    device,
    expect,
    findings,
    having,
    healthy,
    lost_gpu,
    nvml_gpu,
    pci_device,
    put,
    reports,
    said,
    without,
)

ONE = lost_gpu(healthy())
THIRD = "0000:01:00.0"
R595 = Dotted("595.58.03")
USER = Collection(root=False)
JOB = {"SLURM_JOB_ID": "77"}
INIT = ("init_failed", f"NVRM: GPU {SECOND}: RmInitAdapter failed! (0x24:0x65:1417)", SECOND)
NO_WORD_OF_WHOM = ("gsp", "NVRM: GPU1 kgspWaitForGfwBootOk: failed to wait for GFW boot complete")


def with_card(device_id: str, **fields: object) -> Host:
    card = pci_device(THIRD, device_id, **{"class_code": "030000", "driver": "", **fields})
    return put(healthy(), "pci", (*at(healthy(), "pci").value, card))


def as_user(host: Host) -> Host:
    return put(host, "collection", USER)


def cut_log(host: Host) -> Host:
    return put(host, "kernel.logs", (BootLog(index=0, messages=(), is_complete=False),))


# --- hidden from who asked ------------------------------------------------------------------------

HIDDEN: dict[str, tuple[Host, Status]] = {
    "root, no job": (ONE, "fail"),
    "a plain user, and nothing speaks against the card": (as_user(ONE), "unknown"),
    "root in a job": (put(ONE, "system.environment", JOB), "unknown"),
    "a plain user, and the card did not start": (as_user(said(ONE, INIT)), "fail"),
    "in a job, and some card did not start": (
        said(put(ONE, "system.environment", JOB), NO_WORD_OF_WHOM),
        "fail",
    ),
    "a plain user, and the card is gone": (as_user(device(ONE, 1, is_responding=False)), "fail"),
    "a plain user, and no driver is bound": (as_user(device(ONE, 1, driver="")), "fail"),
    "a plain user, and NVML says that it is lost": (
        as_user(reports(ONE, device_errors=("handle.1: GPU is lost",))),
        "fail",
    ),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_card_that_a_job_or_a_user_may_not_see(name: str) -> None:
    host, status = HIDDEN[name]
    expect(host, "driver.gpu_count", status, SECOND, "does not list")


def test_a_whole_log_without_a_word_leaves_the_verdict_standing_and_a_part_of_one_does_not() -> None:
    assert answer(as_user(ONE)).verdict == "ready"
    for host in (cut_log(as_user(ONE)), without(as_user(ONE), ["kernel.logs"])):
        assert answer(host).verdict == "unknown"


# --- what the driver says of one card -------------------------------------------------------------


def stopped(error: str) -> Host:
    """The other witness is missing, and nvidia-smi ended at one card."""
    return reports(healthy(), gpus=(), device_errors=(error,), driver_version=None)


def test_the_card_that_nvidia_smi_names_fails_and_the_others_are_not_known() -> None:
    host = stopped("Unable to determine the device handle for GPU1: 0000:81:00.0: Unknown Error")
    expect(host, "driver.gpu_count", "fail", SECOND, "cannot use it", why="Unknown Error")
    expect(host, "driver.gpu_count", "unknown", FIRST, "stopped at another")


@pytest.mark.parametrize("short", ["81:00.0", "00000000:81:00.0", "0000:81:00.0"])
def test_an_address_is_known_in_each_of_its_forms(short: str) -> None:
    host = stopped(f"Unable to determine the device handle for GPU {short.upper()}: GPU is lost.")
    expect(host, "driver.gpu_count", "fail", SECOND)


def test_a_card_that_is_closed_to_the_user_is_not_known_and_leaves_the_verdict_open() -> None:
    named = reports(ONE, device_errors=(f"{SECOND}: Insufficient Permissions",))
    by_index = reports(ONE, device_errors=("handle.1: Insufficient Permissions",))
    for host in (named, by_index):
        expect(host, "driver.gpu_count", "unknown", SECOND, "may not open")
        assert answer(host).verdict == "unknown"


def test_a_listed_card_that_the_driver_cannot_read_fails_with_and_without_the_bus() -> None:
    broken = reports(healthy(), device_errors=(f"{SECOND}: GPU is lost",))
    expect(broken, "driver.gpu_count", "fail", SECOND, "cannot use it")
    expect(without(broken, ["pci"]), "driver.gpu_count", "fail", SECOND, "cannot use it")
    assert answer(without(broken, ["pci"])).verdict == "not_ready"


def test_where_the_bus_is_hidden_a_card_that_the_kernel_refused_fails() -> None:
    word = (
        "unsupported_gpu",
        f"NVRM: The NVIDIA GPU {THIRD} (PCI ID: 10de:1b82) is not supported by open nvidia.ko",
        THIRD,
    )
    host = said(without(healthy(), ["pci"]), word)
    expect(host, "driver.gpu_count", "fail", THIRD, "does not list", why="open nvidia.ko")
    expect(host, "kernel.messages", "fail", f"{THIRD} unsupported_gpu")
    assert [c.id for c in answer(host).causes] == ["driver.open_on_pre_gsp_gpu"]


def test_a_listing_of_some_cards_only_says_nothing_of_the_others() -> None:
    expect(reports(ONE, is_complete=False), "driver.gpu_count", "unknown", SECOND, why="cut, filtered")


# --- beside the others ----------------------------------------------------------------------------

BESIDE: dict[str, tuple[Host, Status]] = {
    "a display card without a driver": (with_card(GTX_1050_TI), "warn"),
    "one that nouveau has": (with_card(GTX_1050_TI, driver="nouveau"), "warn"),
    "one that the matrix lacks": (with_card("10de:128b"), "warn"),
    "a card for inference": (with_card(RTX_5090), "fail"),
    "a card without outputs": (with_card(GTX_1050_TI, class_code="030200"), "fail"),
    "of the id of those that work": (with_card(L40S), "fail"),
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_card_beside_gpus_that_work(name: str) -> None:
    host, status = BESIDE[name]
    expect(host, "driver.binding", status, THIRD)
    assert answer(host).verdict == ("ready" if status == "warn" else "not_ready")


def test_a_display_card_that_the_driver_took_and_could_not_start_is_broken() -> None:
    word = ("init_failed", f"NVRM: GPU {THIRD}: RmInitAdapter failed!", THIRD)
    expect(said(with_card(GTX_1050_TI), word), "driver.gpu_count", "fail", THIRD)
    expect(with_card(GTX_1050_TI, driver="nvidia"), "driver.gpu_count", "fail", THIRD)


def test_a_display_card_that_the_branch_dropped_is_no_cause() -> None:
    versions = {"driver.kernel_version": R595, "driver.userspace_version": R595}
    host = reports(having(with_card(GTX_1050_TI), versions), driver_version=R595)
    expect(host, "driver.branch", "skip", THIRD, "R595")
    assert (answer(host).verdict, answer(host).causes) == ("ready", ())


# --- never cards ----------------------------------------------------------------------------------


def sliced(*addresses: str, **fields: object) -> Host:
    parts = [pci_device(a, **fields) for a in addresses]
    return put(healthy(), "pci", (*at(healthy(), "pci").value, *parts))


@pytest.mark.parametrize("driver", ["nvidia", "nvidia-vgpu-vfio", ""])
def test_slices_of_a_card_are_no_cards(driver: str) -> None:
    told = sliced("0000:41:00.4", "0000:41:01.0", driver=driver, is_virtual_function=True)
    by_address = sliced("0000:41:00.4", "0000:41:00.5", "0000:41:01.0", driver=driver)
    for host in (told, by_address):
        assert {f.subject for f in findings(host, "driver.binding")} == {FIRST, SECOND}
        assert (answer(host).verdict, answer(host).causes) == ("ready", ())
        assert len(answer(host).host.gpus) == 2


def test_cards_on_one_bus_of_a_virtual_machine_are_cards() -> None:
    slots = ("0000:00:05.0", "0000:00:06.0")
    host = put(healthy(), "pci", tuple(pci_device(a) for a in slots))
    host = reports(host, gpus=tuple(nvml_gpu(n, a) for n, a in enumerate(slots)))
    assert {d.address for d in host.gpus_on_bus} == set(slots)
    assert answer(host).verdict == "ready"


def test_a_witness_that_stopped_at_an_error_and_lists_nothing_has_not_answered() -> None:
    host = stopped(f"Unable to determine the device handle for GPU1: {SECOND}: Unknown Error")
    expect(host, "driver.nvml", "unknown", "", "stopped at an error", why=SECOND)


BAR = ("bar", f"NVRM: This PCI I/O region is invalid: BAR1 is 0M @ 0x0 (PCI:{SECOND})", SECOND)
KERNELS_BAR = ("bar", f"pci {SECOND}: BAR 6: failed to assign [mem size 0x00080000 pref]", SECOND)


def test_where_the_bus_is_hidden_a_card_without_a_memory_window_fails() -> None:
    host = without(said(ONE, BAR), ["pci"])
    expect(host, "driver.gpu_count", "fail", SECOND, "does not list it")
    # Whether the card has fallen off the bus, the bus alone tells.
    assert [(c.id, c.tied_with) for c in answer(host).causes] == [("unknown", ("firmware.bar_or_above4g",))]
    assert answer(without(said(healthy(), BAR), ["pci"])).verdict == "ready"
    assert answer(without(said(ONE, KERNELS_BAR), ["pci"])).verdict == "ready"
