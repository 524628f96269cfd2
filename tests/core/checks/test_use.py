"""How GPUs are set up and used: power state, PCIe errors, clocks, compute mode, memory, ECC, persistence."""

from __future__ import annotations

import pytest

from doctor.core.finding import Status
from doctor.core.host import GpuProcess, Host, Unit
from tests.core.hosts import (
    FIRST,
    GIB,
    NOT_THERE,
    answer,
    device,
    expect,
    gpu,
    having,
    healthy,
    in_wsl2,
    jetson,
    lost_gpu,
    put,
    reports,
    without,
)
from tests.core.pairs_machine import ASLEEP, SLOW, laptop

NO_GPU = having(
    reports(put(healthy(), "pci", ()), gpus=()), {"driver.nvml": NOT_THERE, "driver.smi": NOT_THERE}
)
ERRORS = put(healthy(), "machine.pcie_errors", {})
BUSY = {"utilisation_percent": 99, "clock_sm_mhz": 2400}
DAEMON = Unit(name="nvidia-persistenced.service", load="loaded", active="active")
RUNNING = GpuProcess(pid=7, name="python3", memory_bytes=GIB)

CASES: dict[str, tuple[str, Host, Status, str]] = {
    "powered": ("gpu.runtime_power", healthy(), "pass", "D0"),
    "asleep and listed": (
        "gpu.runtime_power",
        device(put(healthy(), "machine.chassis", "laptop"), 0, power_state="D3cold"),
        "pass",
        "D3cold",
    ),
    "a laptop's card without power": ("gpu.runtime_power", ASLEEP, "fail", "no power"),
    "a server's card without power": (
        "gpu.runtime_power",
        put(ASLEEP, "machine.chassis", "server"),
        "unknown",
        "asleep, or gone",
    ),
    "a laptop's card with power": ("gpu.runtime_power", laptop(healthy()), "pass", "D0"),
    "no link errors": ("gpu.pcie_errors", ERRORS, "pass", "0 error"),
    "a few link errors": ("gpu.pcie_errors", put(healthy(), "machine.pcie_errors", {FIRST: 9}), "pass", "9"),
    "many link errors": (
        "gpu.pcie_errors",
        put(healthy(), "machine.pcie_errors", {FIRST: 400}),
        "warn",
        "400",
    ),
    "at rest": ("gpu.clocks", healthy(), "pass", "210 MHz at 0 %"),
    "busy and fast": ("gpu.clocks", gpu(healthy(), **BUSY), "pass", "2400 MHz at 99 %"),
    "busy and slow": ("gpu.clocks", gpu(healthy(), **SLOW), "warn", "210 of 2520 MHz in P8"),
    "busy and slow for a reason": (
        "gpu.clocks",
        gpu(healthy(), **{**SLOW, "clock_limits": ("hw_thermal_slowdown",)}),
        "pass",
        "210 MHz",
    ),
    "busy and slow, and the reasons were not told": (
        "gpu.clocks",
        gpu(healthy(), **{**SLOW, "clock_limits": None}),
        "unknown",
        "was not told",
    ),
    "power state not told": (
        "gpu.runtime_power",
        device(lost_gpu(lost_gpu(healthy()), FIRST), 0, power_state=""),
        "skip",
        "not told",
    ),
    "load not told": ("gpu.clocks", gpu(healthy(), utilisation_percent=None), "skip", "not told"),
    "default mode": ("gpu.compute_mode", healthy(), "pass", "default"),
    "one process at a time": (
        "gpu.compute_mode",
        gpu(healthy(), compute_mode="Exclusive_Process"),
        "pass",
        "exclusive",
    ),
    "one of two prohibited": (
        "gpu.compute_mode",
        gpu(healthy(), compute_mode="Prohibited"),
        "warn",
        "prohibited",
    ),
    "all prohibited": (
        "gpu.compute_mode",
        gpu(gpu(healthy(), compute_mode="Prohibited"), 1, compute_mode="Prohibited"),
        "fail",
        "prohibited",
    ),
    "memory free": ("gpu.memory_in_use", gpu(healthy(), memory_used_bytes=0), "pass", "0 of 46068 MiB"),
    "memory taken": (
        "gpu.memory_in_use",
        gpu(healthy(), memory_used_bytes=40 * GIB, processes=(RUNNING,)),
        "pass",
        "40960 of 46068 MiB",
    ),
    "memory not told": ("gpu.memory_in_use", gpu(healthy(), memory_used_bytes=None), "skip", "not told"),
    "ECC on": ("gpu.ecc_mode", healthy(), "pass", "on"),
    "ECC off": ("gpu.ecc_mode", gpu(healthy(), ecc_mode=False), "pass", "off"),
    "no ECC": ("gpu.ecc_mode", gpu(healthy(), ecc_mode=None), "skip", "no ECC"),
    "persistence on": ("gpu.persistence", gpu(healthy(), persistence_mode=True), "pass", "on"),
    "the daemon holds it": ("gpu.persistence", put(healthy(), "system.units", (DAEMON,)), "pass", "on"),
    "persistence off": ("gpu.persistence", healthy(), "pass", "off"),
    "persistence not told": ("gpu.persistence", gpu(healthy(), persistence_mode=None), "skip", "not told"),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    check_id, host, status, words = CASES[name]
    expect(host, check_id, status, FIRST, words)


def test_who_holds_the_memory_is_told() -> None:
    host = gpu(healthy(), memory_used_bytes=40 * GIB, processes=(RUNNING,))
    expect(host, "gpu.memory_in_use", "pass", FIRST, why="python3 (pid 7)")


WITNESS = ("gpu.clocks", "gpu.compute_mode", "gpu.memory_in_use", "gpu.ecc_mode", "gpu.persistence")


@pytest.mark.parametrize("check_id", WITNESS)
def test_without_a_witness_it_is_not_known(check_id: str) -> None:
    expect(without(healthy(), ["driver.nvml", "driver.smi"]), check_id, "unknown", "")


@pytest.mark.parametrize("fact", ["pci", "machine.pcie_errors"])
def test_without_its_fact_it_is_not_known(fact: str) -> None:
    check_id = "gpu.runtime_power" if fact == "pci" else "gpu.pcie_errors"
    expect(without(healthy(), [fact], "denied"), check_id, "unknown", "")


@pytest.mark.parametrize("check_id", [*WITNESS, "gpu.runtime_power", "gpu.pcie_errors"])
def test_it_does_not_apply_without_a_gpu(check_id: str) -> None:
    expect(NO_GPU, check_id, "skip", "")


def test_platforms_that_keep_the_gpu_awake_themselves() -> None:
    expect(in_wsl2(), "gpu.persistence", "skip", "")
    expect(jetson(), "gpu.runtime_power", "skip", "")


def test_a_lost_card_of_a_server_is_not_said_to_be_without_power() -> None:
    host = device(lost_gpu(healthy()), 1, is_responding=False)
    assert "fail" not in {f.status for f in answer(host).findings if f.id == "gpu.runtime_power"}
