"""Checks of the network that carries tensors, and of the paths between GPUs. No RDMA is no fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from doctor.core.check import Case, Outcome, check, passed, skipped, unknown, warned
from doctor.core.checks.applies import asked, on_gpu_host, outside_containers
from doctor.core.claims.network import (
    acs_redirects,
    active_ports,
    idle_ports,
    memlock_bytes,
    memlock_low,
    peermem_missing,
)
from doctor.core.host import known
from doctor.core.views import loaded

__all__ = ["CHECKS"]

_PORTS = ("network.ports",)
_HAS_PORTS = asked("network.ports", "InfiniBand ports")
_ON_HOST = (on_gpu_host, outside_containers)


def _with_infiniband(case: Case) -> str:
    """Skip where no InfiniBand port is up: nothing here uses RDMA over it."""
    return "no InfiniBand port is up" if active_ports(case) == () else ""


@check("network.infiniband_ports", "InfiniBand ports up", needs=_PORTS, applies=(*_ON_HOST, _HAS_PORTS))
def infiniband_ports(case: Case) -> Iterator[Outcome]:
    """A device without a port up, among others that are up, or a link without a subnet manager."""
    ports, idle = known(case.host.network.ports) or (), idle_ports(case)
    if not ports:
        yield skipped("no InfiniBand device")
    for port in ports:
        name = f"{port.device}/{port.port}"
        state = f"{port.state}, {port.physical_state}".strip(", ")
        if port not in idle:
            rate = f", {port.rate_gbps:g} Gb/s" if port.rate_gbps and port.state == "ACTIVE" else ""
            yield passed(f"{state}{rate}", subject=name)
        elif port.state in ("INIT", "ARMED"):
            why = ("the link is up, and no subnet manager has configured it",)
            yield warned(state, subject=name, wanted="ACTIVE", why=why)
        else:
            why = ("other devices of this host are up; NCCL then uses fewer paths, or waits for this one",)
            yield warned(state, subject=name, wanted="ACTIVE", why=why)


@check(
    "network.peermem",
    "network cards reach GPU memory",
    needs=_PORTS,
    applies=(*_ON_HOST, _HAS_PORTS, _with_infiniband),
)
def peermem(case: Case) -> Iterator[Outcome]:
    """By the module nvidia-peermem, or by dma-buf; else each message goes through host memory."""
    missing, wanted = peermem_missing(case), "nvidia-peermem loaded, or the open modules with dma-buf"
    if missing.holds:
        why = ("GPUDirect RDMA is off: data between hosts is copied through host memory",)
        yield warned(missing.because, wanted=wanted, why=why)
    elif missing.holds is None:
        yield unknown("modules, driver or kernel were not read", wanted=wanted)
    else:
        module = loaded(case, "nvidia_peermem") or loaded(case, "nv_peer_mem")
        yield passed(f"`{module.name}` is loaded" if module else "dma-buf does it")


@check(
    "network.rdma_memlock",
    "memory may be locked for RDMA",
    needs=("network.ports", "system.resources"),
    applies=(on_gpu_host, _HAS_PORTS, asked("system.resources", "limits"), _with_infiniband),
)
def rdma_memlock(case: Case) -> Iterator[Outcome]:
    """RDMA pins its buffers. The limit is that of whoever ran this; a service may have its own."""
    low, limit, wanted = memlock_low(case), memlock_bytes(case), "unlimited, where jobs are started"
    if low.holds:
        why = ("the limit of this session; look inside the job or its unit (`LimitMEMLOCK`) as well",)
        yield warned(low.because, wanted=wanted, why=why)
    elif limit is None:
        yield unknown("the limit was not read", wanted=wanted)
    else:
        yield passed("unlimited" if limit < 0 else f"{limit // 1024**2} MiB", wanted=wanted)


@check(
    "network.acs",
    "direct path between GPUs",
    needs=("machine.acs_bridges",),
    applies=(*_ON_HOST, asked("machine.acs_bridges", "access control of PCIe bridges")),
)
def acs(case: Case) -> Iterator[Outcome]:
    """Redirected traffic between GPUs is slow, and hangs where the IOMMU translates it (nccl issue 2079)."""
    bridges, wanted = known(case.host.machine.acs_bridges) or (), "no redirect on bare metal"
    redirects = acs_redirects(case)
    redirecting = [b.address for b in bridges if b.redirects]
    if case.virtualisation == "vm":
        yield skipped("in a guest the hypervisor's bridges decide")
    elif len(case.host.gpus_on_bus) < 2:
        yield skipped("a single GPU has no peer")
    elif redirects.holds:
        why = ("work over several GPUs is slower, or hangs without a message",)
        yield warned(redirects.because, wanted=wanted, why=why)
    elif redirects.holds is None:
        yield unknown(f"{len(redirecting)} bridge(s) redirect; whether an IOMMU translates was not read")
    elif redirecting:
        yield passed(f"{len(redirecting)} bridge(s) redirect, and no IOMMU translates")
    else:
        yield passed("no bridge above a GPU redirects")


@check(
    "network.numa_affinity",
    "a network card near each GPU",
    needs=("network.ports", "pci"),
    applies=(*_ON_HOST, _HAS_PORTS, _with_infiniband),
)
def numa_affinity(case: Case) -> Iterator[Outcome]:
    """GPUs on a memory node without an InfiniBand card reach it across the socket: a note, it costs speed."""
    gpus = Counter(d.numa_node for d in case.host.gpus_on_bus)
    cards = {p.numa_node for p in active_ports(case) or ()}
    if None in gpus or None in cards:
        yield skipped("the platform does not tell the memory nodes")
        return
    far = {node: count for node, count in gpus.items() if node not in cards}
    if far:
        words = ", ".join(
            f"{count} GPU(s) on node {node}" for node, count in sorted(far.items()) if node is not None
        )
        why = ("no InfiniBand card is on their memory node; traffic crosses the sockets",)
        yield passed(words, why=why)
    else:
        yield passed(f"on {len(gpus)} memory node(s)")


CHECKS = (infiniband_ports, peermem, rdma_memlock, acs, numa_affinity)
