"""Claims about the network that carries tensors: ports, peer memory, locked memory, traffic between GPUs."""

from __future__ import annotations

from doctor.core.check import Case
from doctor.core.claims.claimed import UNTOLD, Claimed, either, no, yes
from doctor.core.host import Known, is_not_there, known
from doctor.core.host_network import InfinibandPort
from doctor.core.versions import Dotted
from doctor.core.views import loaded

__all__ = [
    "acs_redirects",
    "active_ports",
    "idle_ports",
    "memlock_bytes",
    "memlock_low",
    "peermem_missing",
    "port_down",
]

#: NCCL registers its buffers, hundreds of MiB a GPU; distributions leave 8 MiB to a session, or 64 KiB.
_MEMLOCK_BYTES = 1024**3
#: dma-buf stands in for nvidia-peermem from these on, with the open modules (GPUDirect RDMA guide).
_DMABUF_DRIVER, _DMABUF_KERNEL = Dotted("515"), Dotted("5.12")


def active_ports(case: Case) -> tuple[InfinibandPort, ...] | None:
    """InfiniBand ports that are up; None when nobody looked. An Ethernet port may be for anything."""
    fact = case.host.network.ports
    if is_not_there(fact):
        return ()
    ports = known(fact)
    return None if ports is None else tuple(p for p in ports if _is_infiniband(p) and p.state == "ACTIVE")


def _is_infiniband(port: InfinibandPort) -> bool:
    return port.link_layer in ("InfiniBand", "")


def idle_ports(case: Case) -> tuple[InfinibandPort, ...]:
    """Ports that ought to be up: of a device with no port up, where at least two other devices are up.

    A second port without a cable, and a port that somebody disabled, are as they were meant.
    """
    up = {p.device for p in active_ports(case) or ()}
    rest = [p for p in known(case.host.network.ports) or () if _is_infiniband(p) and p.device not in up]
    no_master = [p for p in rest if p.state in ("INIT", "ARMED") and p.physical_state == "LinkUp"]
    down = [p for p in rest if p.state == "DOWN" and p.physical_state != "Disabled" and len(up) > 1]
    return tuple(p for p in rest if p in no_master or p in down)


def port_down(case: Case) -> Claimed:
    """An InfiniBand port does not work while others of this host do, or has no subnet manager."""
    if active_ports(case) is None:
        return UNTOLD
    idle = idle_ports(case)
    return either(bool(idle), ", ".join(f"{p.device} port {p.port} is {p.state}" for p in idle[:3]))


def peermem_missing(case: Case) -> Claimed:
    """InfiniBand is up, nvidia-peermem is not loaded, and dma-buf cannot stand in for it."""
    up = active_ports(case)
    if up is None:
        return UNTOLD
    if not up or loaded(case, "nvidia_peermem") or loaded(case, "nv_peer_mem"):
        return no()
    host = case.host
    flavour, driver, release = (
        known(host.driver.flavour),
        known(host.driver.kernel_version),
        known(host.kernel.release),
    )
    if not isinstance(host.kernel.modules, Known) or driver is None or flavour is None or release is None:
        return UNTOLD
    kernel = Dotted(release.partition("-")[0])
    if flavour == "open" and driver >= _DMABUF_DRIVER and kernel >= _DMABUF_KERNEL:
        return no()
    lack = f"the {flavour} modules of {driver} on Linux {kernel} share nothing by dma-buf"
    return yes(f"{len(up)} InfiniBand port(s) up, `nvidia_peermem` is not loaded; {lack}")


def memlock_bytes(case: Case) -> int | None:
    """The soft limit of locked memory of whoever asked; -1 is unlimited."""
    resources = known(case.host.system.resources)
    limits = resources.limits if resources else ()
    return next((limit.soft for limit in limits if limit.name == "memlock"), None)


def memlock_low(case: Case) -> Claimed:
    """InfiniBand is up, and little memory may be locked for it."""
    up, limit = active_ports(case), memlock_bytes(case)
    if up == ():
        return no()
    if up is None or limit is None:
        return UNTOLD
    words = f"`ulimit -l` is {limit // 1024} KiB, and {len(up)} InfiniBand port(s) are up"
    return either(0 <= limit < _MEMLOCK_BYTES, words)


def acs_redirects(case: Case) -> Claimed:
    """Bridges above several GPUs of a bare-metal host send peer traffic up, where an IOMMU translates it."""
    machine, bridges = case.host.machine, known(case.host.machine.acs_bridges)
    if case.virtualisation not in ("bare_metal", "") or len(case.host.gpus_on_bus) == 1:
        return no()
    if bridges is None or case.virtualisation == "" or not isinstance(case.host.pci, Known):
        return no() if is_not_there(machine.acs_bridges) else UNTOLD
    redirecting = [b.address for b in bridges if b.redirects]
    groups, domain = known(machine.iommu_groups), known(machine.iommu_domain)
    if not redirecting or groups == 0 or domain == "identity":
        return no()
    if groups is None and domain is None:
        return UNTOLD
    words = f"{len(redirecting)} bridge(s) above the GPUs redirect peer traffic ({redirecting[0]})"
    return yes(f"{words}, and an IOMMU translates it" + (f" (domain {domain})" if domain else ""))
