"""States of the checks of the GPUs: on the bus, memory, heat, power, link, use, Xids."""

from __future__ import annotations

from typing import Any

from doctor.core.host import GpuProcess, Host
from tests.core.checks.states.base import States
from tests.core.hosts import (
    FIRST,
    GIB,
    device,
    gpu,
    healthy,
    lost_gpu,
    no_driver,
    put,
    without,
)
from tests.core.hosts_fabric import hgx
from tests.core.pairs_machine import ASLEEP, GSP_TIMEOUT, SLOW, events, switch_error

_SILENT = without(healthy(), ["driver.nvml", "driver.smi", "cuda.probe"])


def _one(**fields: Any) -> Host:
    """The healthy machine whose first GPU tells something else, in NVML's words or nvidia-smi's."""
    return gpu(healthy(), **fields)


def _failing(getter: str, **fields: Any) -> Host:
    """The healthy machine whose first GPU does not answer one call of NVML."""
    return _one(errors={getter: "Unknown Error"}, **fields)


_NO_REMAPS = {"remap_pending": None, "remap_failure": None, "retired_pages_pending": None}
_NO_MODES = {"ecc_mode": None, "ecc_mode_pending": None, "mig_mode": None, "mig_mode_pending": None}

STATES: dict[str, States] = {
    "gpu.on_bus": States(
        bad=device(lost_gpu(healthy()), 1, is_responding=False),
        unknown=device(_SILENT, 1, is_responding=None),
    ),
    "gpu.bars": States(bad=device(no_driver(), bar_bytes=(16 * 1024**2, 0, 0, 32 * 1024**2, 0, 0))),
    "gpu.in_matrix": States(unknown=device(healthy(), device_id="10de:ffff")),
    "gpu.row_remap": States(
        bad=_one(remap_pending=True), unknown=_failing("remapped_rows", **_NO_REMAPS), skip=_one(**_NO_REMAPS)
    ),
    "gpu.ecc": States(
        bad=_one(ecc_uncorrected_volatile=2),
        unknown=_failing("total_ecc_errors.uncorrected_volatile", ecc_uncorrected_volatile=None),
        skip=_one(ecc_uncorrected_volatile=None),
    ),
    "gpu.pending_modes": States(
        bad=_one(mig_mode_pending=True), unknown=_failing("ecc_mode", **_NO_MODES), skip=_one(**_NO_MODES)
    ),
    "gpu.temperature": States(
        bad=_one(clock_limits=("hw_thermal_slowdown",)),
        unknown=_failing("current_clocks_event_reasons", clock_limits=None),
        skip=_one(clock_limits=None),
    ),
    "gpu.power": States(
        bad=_one(clock_limits=("hw_power_brake_slowdown",)),
        unknown=_failing("current_clocks_event_reasons", clock_limits=None),
        skip=_one(clock_limits=None),
    ),
    "gpu.recovery_action": States(
        bad=_one(recovery_action="reset"),
        unknown=_failing("gpu_recovery_action", recovery_action=None),
        skip=_one(recovery_action=None),
    ),
    "gpu.pcie_link": States(bad=device(healthy(), link_width=4)),
    "gpu.xid": States(
        bad=events(lost_gpu(healthy(), FIRST), GSP_TIMEOUT),
        unknown=without(healthy(), ["kernel.logs"], "denied"),
    ),
    "gpu.nvswitch_errors": States(ok=hgx(), bad=switch_error(hgx(), 20034)),
    "gpu.runtime_power": States(bad=ASLEEP, unknown=put(ASLEEP, "machine.chassis", "server")),
    "gpu.pcie_errors": States(bad=put(healthy(), "machine.pcie_errors", {FIRST: 400})),
    "gpu.clocks": States(
        bad=_one(**SLOW), unknown=_one(**{**SLOW, "clock_limits": None}), skip=_one(utilisation_percent=None)
    ),
    "gpu.compute_mode": States(
        bad=_one(compute_mode="Prohibited"),
        unknown=_failing("compute_mode", compute_mode=None),
        skip=_one(compute_mode=None),
    ),
    "gpu.memory_in_use": States(
        ok=_one(memory_used_bytes=40 * GIB, processes=(GpuProcess(pid=7, name="python3"),)),
        unknown=_failing("memory_info", memory_used_bytes=None),
    ),
    "gpu.ecc_mode": States(unknown=_failing("ecc_mode", ecc_mode=None), skip=_one(ecc_mode=None)),
    "gpu.persistence": States(
        unknown=_failing("persistence_mode", persistence_mode=None), skip=_one(persistence_mode=None)
    ),
}

__all__ = ["STATES"]
