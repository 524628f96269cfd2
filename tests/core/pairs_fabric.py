"""Pairs for the causes of `causes_fabric.yaml`."""

from __future__ import annotations

from doctor.core.versions import Dotted
from tests.core.hosts import (
    NOT_THERE,
    OLD_DRIVER,
    gpu,
    having,
    healthy,
    loaded_modules,
    put,
)
from tests.core.hosts_fabric import GB200, NO_UNIT, guest, hgx, hgx_b200, joined, managed, waiting
from tests.core.pair import Pair

NO_MANAGER = having(waiting(hgx()), {"system.units": (NO_UNIT,), "fabric.manager_version": NOT_THERE})
DIFFERING = managed(put(waiting(hgx()), "fabric.manager_version", OLD_DRIVER), active="failed", sub="failed")
RACK = having(
    joined(GB200, 4),
    {"fabric.imex_device_class": True, "fabric.imex_channels": (), "fabric.imex_peers": ()},
)

PAIRS = {
    "fabric.fm_missing": Pair(
        NO_MANAGER, gpu(put(healthy(), "cuda.probe", NO_MANAGER.cuda.probe)), "unknown"
    ),
    "fabric.fm_version_mismatch": Pair(
        DIFFERING, put(DIFFERING, "fabric.manager_version", Dotted("580.178.04")), "fabric.fm_missing"
    ),
    "fabric.nvlink5_prereq_missing": Pair(
        having(
            managed(waiting(hgx_b200()), active="failed"),
            {"kernel.modules": loaded_modules("nvidia_uvm", "nvidia", "mlx5_core"), "network.ports": ()},
        ),
        managed(waiting(hgx_b200()), active="failed"),
        "fabric.fm_missing",
    ),
    "fabric.provider_not_ready": Pair(waiting(guest()), guest()),
    "fabric.imex_missing": Pair(RACK, put(RACK, "fabric.imex_channels", ("channel0",)), is_advice=True),
}
