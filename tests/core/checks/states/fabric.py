"""States of the checks of what joins GPUs, and of the network that carries tensors."""

from __future__ import annotations

from typing import Any

import msgspec

from doctor.core.host import Host
from tests.core.checks.states.base import States
from tests.core.hosts import (
    OLD_DRIVER,
    at,
    device,
    gpu,
    having,
    healthy,
    loaded_modules,
    pci_device,
    placed,
    put,
    without,
)
from tests.core.hosts_fabric import (
    GB200,
    bridged,
    hgx,
    hgx_b200,
    joined,
    managed,
    memlock,
    networked,
    port,
    waiting,
)

_NO_UNITS = without(hgx(), ["system.units", "fabric.manager_version"], "timeout")
_RACK = having(
    joined(GB200, 4),
    {"fabric.imex_device_class": True, "fabric.imex_channels": ("channel0",), "fabric.imex_peers": ()},
)
#: A service that nobody needs: no NVSwitch is on the bus.
_NEEDLESS = managed(healthy(), active="failed", sub="failed")


def _first_links(host: Host, **fields: int) -> Host:
    first, *rest = at(host, "fabric.nvlinks").value
    return put(host, "fabric.nvlinks", (msgspec.structs.replace(first, **fields), *rest))


def _with_ports(**fields: Any) -> Host:
    return networked(**{"network.ports": (port("mlx5_0"), port("mlx5_1"), port("mlx5_2", **fields))})


STATES: dict[str, States] = {
    "fabric.manager": States(
        ok=hgx(), bad=managed(waiting(hgx()), active="failed", sub="failed"), unknown=_NO_UNITS
    ),
    "fabric.manager_version": States(
        ok=hgx(), bad=put(waiting(hgx()), "fabric.manager_version", OLD_DRIVER), unknown=_NO_UNITS
    ),
    "fabric.nvlink5": States(
        ok=hgx_b200(),
        bad=put(waiting(hgx_b200()), "network.ports", ()),
        unknown=without(hgx_b200(), ["kernel.modules"], "denied"),
    ),
    "fabric.state": States(
        ok=hgx(),
        bad=waiting(hgx()),
        unknown=gpu(hgx(), fabric_state=None, errors={"gpu_fabric_info": "Unknown Error"}),
        skip=healthy(),
    ),
    "fabric.switches": States(
        ok=hgx(), bad=device(hgx(), 8, is_responding=False), unknown=device(hgx(), 8, driver=None)
    ),
    "fabric.nvlinks": States(
        ok=hgx(),
        bad=_first_links(hgx(), active=17, inactive=1),
        unknown=without(hgx(), ["fabric.nvlinks"], "timeout"),
    ),
    "fabric.not_needed": States(ok=_NEEDLESS, unknown=without(_NEEDLESS, ["pci"], "denied"), skip=hgx()),
    "fabric.imex": States(
        ok=_RACK,
        bad=put(_RACK, "fabric.imex_channels", ()),
        unknown=without(_RACK, ["fabric.imex_channels"], "denied"),
        skip=having(hgx(), {"fabric.imex_device_class": True, "fabric.imex_channels": ()}),
    ),
    "network.infiniband_ports": States(
        ok=networked(),
        bad=_with_ports(state="DOWN", physical_state="Polling"),
        skip=put(healthy(), "network.ports", ()),
    ),
    "network.peermem": States(
        ok=networked(),
        bad=having(
            networked(),
            {
                "kernel.modules": loaded_modules("nvidia", "nvidia_uvm", "mlx5_ib"),
                "driver.flavour": "proprietary",
            },
        ),
        unknown=without(networked(), ["kernel.modules", "driver.flavour"], "denied"),
        skip=put(healthy(), "network.ports", ()),
    ),
    "network.rdma_memlock": States(
        ok=networked(),
        bad=put(
            networked(),
            "system.resources",
            msgspec.structs.replace(at(healthy(), "system.resources").value, limits=(memlock(8 * 1024**2),)),
        ),
        unknown=put(networked(), "system.resources", at(healthy(), "system.resources").value),
        skip=put(healthy(), "network.ports", ()),
    ),
    "network.acs": States(
        ok=bridged(redirects=False),
        bad=bridged(),
        unknown=without(bridged(), ["machine.iommu_groups", "machine.iommu_domain"], "denied"),
        skip=placed(bridged(), "vm", "kvm"),
    ),
    "network.numa_affinity": States(
        ok=networked(), skip=put(networked(), "pci", (pci_device("0000:41:00.0", numa_node=None),))
    ),
}

__all__ = ["STATES"]
