"""The checks of the GPUs themselves: on the bus, memory, heat, power, link, what the driver asks for."""

from __future__ import annotations

from typing import Any

import pytest

from doctor.core.finding import Status
from doctor.core.host import Host
from tests.core.hosts import (
    FIRST,
    GIB,
    H100,
    NARROW_BARS,
    NOT_THERE,
    P40,
    REASONS,
    SECOND,
    WIDE_BARS,
    answer,
    device,
    devices,
    expect,
    failing_probe,
    fallen,
    findings,
    gpu,
    having,
    healthy,
    in_container,
    in_wsl2,
    lost_gpu,
    matrix,
    no_driver,
    pci_device,
    put,
    reports,
    said,
    without,
    working_probe,
)

UNLISTED = "10de:ffff"
LOST = lost_gpu(healthy())
SILENT = without(healthy(), ["driver.nvml", "driver.smi", "cuda.probe"])
GONE = ("fallen_off_bus", f"NVRM: GPU {SECOND}: GPU has fallen off the bus.", SECOND)

# --- on the bus -----------------------------------------------------------------------------------

ON_BUS: dict[str, tuple[Host, Status, str]] = {
    "listed by the driver": (healthy(), "pass", "the driver lists it"),
    "answers, and nobody asked the driver": (SILENT, "pass", "config space answers"),
    "all ones": (device(LOST, 1, is_responding=False), "fail", "all ones"),
    "Xid 79 of this boot": (said(LOST, xids=fallen(SECOND)), "fail", "fallen off the bus"),
    "a message of this boot": (said(LOST, GONE), "fail", "fallen off the bus"),
    "all ones and a message": (said(device(LOST, 1, is_responding=False), GONE), "fail", "all ones"),
    "lost in this boot and back again": (said(healthy(), GONE), "warn", "the driver lists it"),
    "lost in this boot, answers again, driver not asked": (said(SILENT, GONE), "unknown", "fallen off"),
    "lost in this boot, nothing else was read": (
        said(device(SILENT, 1, is_responding=None), GONE),
        "fail",
        "fallen off the bus",
    ),
    "asleep, as in a hybrid laptop": (
        device(LOST, 1, is_responding=False, power_state="D3cold"),
        "unknown",
        "asleep, or gone",
    ),
    "D3cold after it was reported lost": (
        said(device(LOST, 1, is_responding=False, power_state="D3cold"), GONE),
        "fail",
        "all ones",
    ),
    "config space not read, and it works": (device(healthy(), 1, is_responding=None), "pass", "lists it"),
    "config space not read, driver not asked": (device(SILENT, 1, is_responding=None), "unknown", "not read"),
}


@pytest.mark.parametrize("name", ON_BUS)
def test_on_bus(name: str) -> None:
    host, status, found = ON_BUS[name]
    expect(host, "gpu.on_bus", status, SECOND, found)


def test_a_card_that_left_the_bus_altogether_is_named_by_the_kernel() -> None:
    host = put(said(LOST, GONE), "pci", (pci_device(FIRST),))
    expect(host, "gpu.on_bus", "fail", SECOND, "fallen off the bus")


def test_a_loss_of_an_earlier_boot_is_history() -> None:
    host = said(healthy(), GONE, xids=fallen(SECOND), index=-1)
    expect(host, "gpu.on_bus", "pass", SECOND)


# --- memory windows -------------------------------------------------------------------------------

UNMAPPED = (16 * 1024**2, 0, 0, 32 * 1024**2, 0, 0)
IDLE = having(no_driver(), {"cuda.probe": failing_probe(100, "CUDA_ERROR_NO_DEVICE")})
OWN_WORD = ("bar", "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid: BAR1 is 0M", FIRST)
KERNEL_WORD = ("bar", f"pci {FIRST}: BAR 1: failed to assign [mem size 0x1000000000 64bit pref]", FIRST)
ROM_WORD = ("bar", f"pci {FIRST}: BAR 6: failed to assign [mem size 0x00080000 pref]", FIRST)
PORTS_WORD = ("bar", f"pci {FIRST}: BAR 5: can't assign; no space [io size 0x0080]", FIRST)
BRIDGE_WORD = ("bar", "pcieport 0000:40:01.0: BAR 13: failed to assign [io size 0x1000]", "0000:40:01.0")

BARS: dict[str, tuple[Host, Status, str]] = {
    "works": (devices(healthy(), bar_bytes=UNMAPPED), "pass", "the GPU works"),
    "mapped, no driver": (IDLE, "pass", "65536 MiB"),
    "mapped as on Hopper, where BAR 0 takes two places": (
        devices(IDLE, device_id=H100, bar_bytes=WIDE_BARS),
        "pass",
        "131072 MiB",
    ),
    "not mapped": (device(IDLE, bar_bytes=UNMAPPED), "fail", "no address"),
    "registers not mapped": (device(IDLE, bar_bytes=(0, 64 * GIB, 0, 0, 0, 0)), "fail", "no address"),
    "the driver says so": (said(device(IDLE, bar_bytes=()), OWN_WORD), "fail", "BAR1 is 0M"),
    "the kernel says so, ranges not read": (said(device(IDLE, bar_bytes=()), KERNEL_WORD), "fail", "BAR 1"),
    "the kernel says so, and found a place at last": (said(IDLE, KERNEL_WORD), "pass", "65536 MiB"),
    "no place for the ROM": (said(device(IDLE, bar_bytes=()), ROM_WORD), "unknown", "not read"),
    "no place for I/O ports": (said(device(IDLE, bar_bytes=()), PORTS_WORD), "unknown", "not read"),
    "no place for a bridge's window": (said(IDLE, BRIDGE_WORD), "pass", "65536 MiB"),
    "ranges not read": (device(IDLE, bar_bytes=()), "unknown", "not read"),
}


@pytest.mark.parametrize("name", BARS)
def test_bars(name: str) -> None:
    host, status, found = BARS[name]
    expect(host, "gpu.bars", status, FIRST, found)


def test_cuda_that_starts_on_all_gpus_proves_their_windows() -> None:
    host = without(devices(healthy(), bar_bytes=()), ["driver.nvml", "driver.smi"])
    expect(host, "gpu.bars", "pass", FIRST, "works")
    fewer = put(host, "cuda.probe", working_probe(device_count=1))
    expect(fewer, "gpu.bars", "unknown", FIRST, "not read")


# --- the matrix -----------------------------------------------------------------------------------


def test_in_matrix() -> None:
    expect(healthy(), "gpu.in_matrix", "pass", FIRST, "NVIDIA L40S")
    text = f"{UNLISTED} is not in matrix {matrix().edition.name}: newer than it, or not recorded"
    expect(device(healthy(), device_id=UNLISTED), "gpu.in_matrix", "unknown", FIRST, text)
    assert answer(devices(healthy(), device_id=UNLISTED)).verdict == "ready"


def test_an_unverified_row_is_said_to_be_one() -> None:
    rows = (r for r in matrix().edition.gpus if r.confidence == "unverified")
    row = next(rows, None)
    if row is None:
        expect(healthy(), "gpu.in_matrix", "pass", FIRST, "L40S")
    else:
        host = device(healthy(), device_id=row.pci_device_id, subsystem_id=(*row.subsystem_ids, "")[0])
        expect(host, "gpu.in_matrix", "pass", FIRST, why="unverified")


# --- memory, modes, heat, power -------------------------------------------------------------------

Fields = dict[str, Any]

STATES: dict[str, tuple[str, Fields, Status, str]] = {
    "no rows": ("row_remap", {}, "pass", ""),
    "some rows, repaired": ("row_remap", {"remapped_rows_correctable": 3}, "pass", "3 row(s) remapped"),
    "a remap waits": ("row_remap", {"remap_pending": True}, "fail", "a row remap waits"),
    "a retirement waits": ("row_remap", {"retired_pages_pending": True}, "fail", "a page retirement waits"),
    "a remap failed": ("row_remap", {"remap_failure": True, "remap_pending": True}, "fail", "failed"),
    "no row remapper": ("row_remap", {"remap_pending": None, "remap_failure": None}, "pass", ""),
    "no errors": ("ecc", {}, "pass", "none"),
    "uncorrected errors": ("ecc", {"ecc_uncorrected_volatile": 2}, "warn", "2 uncorrected"),
    "old uncorrected errors": ("ecc", {"ecc_uncorrected_aggregate": 9}, "pass", "none"),
    "no ECC": ("ecc", {"ecc_uncorrected_volatile": None}, "skip", "no ECC counters"),
    "nothing pending": ("pending_modes", {}, "pass", ""),
    "MIG on": ("pending_modes", {"mig_mode": True, "mig_mode_pending": True}, "pass", ""),
    "MIG pending": ("pending_modes", {"mig_mode_pending": True}, "warn", "MIG"),
    "ECC pending": ("pending_modes", {"ecc_mode_pending": False}, "warn", "ECC"),
    "ECC told half": ("pending_modes", {"ecc_mode": None}, "pass", ""),
    "cool": ("temperature", {}, "pass", "34 °C"),
    "idle": ("temperature", {"clock_limits": ("gpu_idle",)}, "pass", ""),
    "too hot": ("temperature", {"clock_limits": ("hw_thermal_slowdown",)}, "fail", "34 °C"),
    "hot": ("temperature", {"clock_limits": ("sw_thermal_slowdown",)}, "warn", "for heat"),
    "no sensor": ("temperature", {"temperature_c": None}, "pass", ""),
    "the usual limit": ("power", {}, "pass", "limit 350 W"),
    "a lowered limit": ("power", {"power_limit_w": 300.0}, "pass", "limit 300 W, default 350 W"),
    "at the limit": ("power", {"clock_limits": ("sw_power_cap",)}, "pass", ""),
    "power brake": ("power", {"clock_limits": ("hw_power_brake_slowdown",)}, "fail", "power brake"),
    "no power meter": ("power", {"power_limit_w": None}, "pass", ""),
    "asks for nothing": ("recovery_action", {}, "pass", "none"),
    "asks for a reset": ("recovery_action", {"recovery_action": "reset"}, "fail", "`reset`"),
    "answers a number of a newer driver": (
        "recovery_action",
        {"recovery_action": "unknown_7"},
        "unknown",
        "unknown_7",
    ),
    "an older driver that cannot be asked": (
        "recovery_action",
        {"recovery_action": None},
        "skip",
        "cannot be asked",
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_state_of_a_gpu(name: str) -> None:
    check, fields, status, found = STATES[name]
    host = gpu(healthy(), 0, **fields)
    expect(host, f"gpu.{check}", status, FIRST, found)
    expect(host, f"gpu.{check}", "pass", SECOND)


ASKED = ("row_remap", "ecc", "pending_modes", "temperature", "power", "recovery_action")


@pytest.mark.parametrize("check", ASKED)
@pytest.mark.parametrize("reason", REASONS)
def test_silent_witnesses_tell_no_state(check: str, reason: str) -> None:
    host = without(healthy(), ["driver.nvml", "driver.smi"], reason)  # type: ignore[arg-type]
    expect(host, f"gpu.{check}", "unknown")


@pytest.mark.parametrize("check", ASKED)
def test_state_where_nothing_answers(check: str) -> None:
    neither = having(healthy(), {"driver.nvml": NOT_THERE, "driver.smi": NOT_THERE})
    expect(neither, f"gpu.{check}", "skip", "", "neither")
    expect(reports(healthy(), gpus=(), error="Driver Not Loaded"), f"gpu.{check}", "skip", "", "lists no GPU")


@pytest.mark.parametrize("check", ASKED)
def test_state_in_a_container_and_under_wsl2(check: str) -> None:
    expect(in_container(), f"gpu.{check}", "pass", FIRST)
    expect(in_wsl2(), f"gpu.{check}", "pass", "0000:01:00.0")


# --- a GPU that does not answer --------------------------------------------------------------------

#: What a card says of itself where every call fails with the same words; a lost one stays in the list.
LOST_FIELDS: Fields = {
    **dict.fromkeys(("ecc_mode", "ecc_mode_pending", "mig_mode", "mig_mode_pending", "compute_mode")),
    **dict.fromkeys(("ecc_uncorrected_volatile", "remap_pending", "remap_failure", "retired_pages_pending")),
    **dict.fromkeys(("temperature_c", "power_limit_w", "clock_limits", "recovery_action")),
    **dict.fromkeys(("persistence_mode", "utilisation_percent", "memory_used_bytes")),
}
GETTERS = (
    *("ecc_mode", "mig_mode", "total_ecc_errors.uncorrected_volatile", "remapped_rows", "compute_mode"),
    *("current_clocks_event_reasons", "gpu_recovery_action", "persistence_mode", "utilization_rates"),
    "memory_info",
)
OF_STATE = (*ASKED, "clocks", "compute_mode", "memory_in_use", "ecc_mode", "persistence")


@pytest.mark.parametrize("check", OF_STATE)
def test_a_gpu_that_answers_no_call_passes_nothing(check: str) -> None:
    errors = dict.fromkeys(GETTERS, "GPU is lost")
    host = gpu(healthy(), 0, **LOST_FIELDS, errors=errors)
    expect(host, f"gpu.{check}", "unknown", FIRST, why="GPU is lost")
    status = {f.status for f in findings(host, f"gpu.{check}") if f.subject == SECOND}
    assert status == ({"skip"} if check == "memory_in_use" else {"pass"})


@pytest.mark.parametrize("check", OF_STATE)
def test_a_gpu_of_which_nothing_is_told_passes_nothing(check: str) -> None:
    expect(gpu(healthy(), 0, **LOST_FIELDS), f"gpu.{check}", "skip", FIRST)


# --- link -----------------------------------------------------------------------------------------

LINK: dict[str, tuple[Fields, Status, str]] = {
    "full width, slow at rest": ({}, "pass", "x16 at 2.5 GT/s of 16: links slow down at rest"),
    "full speed": ({"link_speed_gts": 16.0}, "pass", "x16 at 16 GT/s"),
    "half, as where two cards share a slot": ({"link_width": 8}, "pass", "x8"),
    "narrow": ({"link_width": 4}, "warn", "x4"),
    "not told": ({"link_width": None}, "skip", "does not tell"),
    "what a sleeping device shows": ({"link_width": 255, "link_width_max": 255}, "skip", "does not tell"),
    "a virtual port": ({"link_width": 0}, "skip", "does not tell"),
    "no speed told": ({"link_speed_gts": None}, "pass", "x16"),
}


@pytest.mark.parametrize("name", LINK)
def test_pcie_link(name: str) -> None:
    fields, status, found = LINK[name]
    expect(device(healthy(), **fields), "gpu.pcie_link", status, FIRST, found)


@pytest.mark.parametrize("check", ["bars", "in_matrix", "pcie_link"])
@pytest.mark.parametrize("reason", REASONS)
def test_a_bus_that_was_not_read_tells_nothing(check: str, reason: str) -> None:
    host = without(healthy(), ["pci"], reason)  # type: ignore[arg-type]
    expect(host, f"gpu.{check}", "unknown")


@pytest.mark.parametrize("check", ["on_bus", "bars", "in_matrix", "pcie_link", *ASKED])
def test_without_a_gpu_nothing_is_judged(check: str) -> None:
    assert {f.status for f in findings(put(no_driver(), "pci", ()), f"gpu.{check}")} == {"skip"}


def test_an_old_card_is_judged_by_its_own_row() -> None:
    expect(device(healthy(), device_id=P40), "gpu.in_matrix", "pass", FIRST, "Tesla P40")


def test_the_two_layouts_of_memory_windows_differ() -> None:
    assert NARROW_BARS[1] > 0 == WIDE_BARS[1] and WIDE_BARS[2] > 0 == NARROW_BARS[2]  # noqa: PT018 - one picture
