"""Pairs for the causes of `causes_fabric.yaml`."""

from __future__ import annotations

import msgspec

from doctor.core.versions import Dotted
from tests.core.hosts import (
    MIB,
    NOT_THERE,
    OLD_DRIVER,
    at,
    gpu,
    having,
    healthy,
    loaded_modules,
    put,
)
from tests.core.hosts_fabric import (
    GB200,
    NO_UNIT,
    bridged,
    guest,
    hgx,
    hgx_b200,
    joined,
    managed,
    memlock,
    networked,
    port,
    waiting,
)
from tests.core.pair import Pair

NO_MANAGER = having(waiting(hgx()), {"system.units": (NO_UNIT,), "fabric.manager_version": NOT_THERE})
DIFFERING = managed(put(waiting(hgx()), "fabric.manager_version", OLD_DRIVER), active="failed", sub="failed")
RACK = having(
    joined(GB200, 4),
    {"fabric.imex_device_class": True, "fabric.imex_channels": (), "fabric.imex_peers": ()},
)
LITTLE = msgspec.structs.replace(at(healthy(), "system.resources").value, limits=(memlock(8 * MIB),))
UP = tuple(port(f"mlx5_{i}") for i in range(3))
ONE_DOWN = (*UP, port("mlx5_3", state="DOWN", physical_state="Polling"))
SECOND_PORTS = (*UP, port("mlx5_2", port=2, state="DOWN", physical_state="Polling"))

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
    "nccl.acs_iommu": Pair(bridged(), bridged(domain="identity"), is_advice=True),
    "nccl.memlock": Pair(
        put(networked(), "system.resources", LITTLE),
        put(healthy(), "system.resources", LITTLE),
        is_advice=True,
    ),
    "nccl.peermem_missing": Pair(
        networked(**{"kernel.modules": loaded_modules("nvidia"), "driver.flavour": "proprietary"}),
        networked(**{"kernel.modules": loaded_modules("nvidia")}),
        is_advice=True,
    ),
    "nccl.port_down": Pair(
        networked(**{"network.ports": ONE_DOWN}), networked(**{"network.ports": SECOND_PORTS}), is_advice=True
    ),
    "fabric.imex_missing": Pair(RACK, put(RACK, "fabric.imex_channels", ("channel0",)), is_advice=True),
}
