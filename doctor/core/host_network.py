"""Facts about the network that carries tensors: InfiniBand and RoCE ports, peer memory."""

from __future__ import annotations

from doctor.core.fact import NOT_COLLECTED, Fact, Value

__all__ = ["InfinibandPort", "Network"]


class InfinibandPort(Value, frozen=True, kw_only=True):
    """A port of `/sys/class/infiniband`."""

    device: str
    """`mlx5_0`."""
    port: int
    state: str = ""
    """`ACTIVE`, `DOWN`, `INIT`, as the kernel names it."""
    physical_state: str = ""
    """`LinkUp`, `Disabled`, `Polling`."""
    rate_gbps: float | None = None
    link_layer: str = ""
    """`InfiniBand` or `Ethernet`."""
    firmware: str = ""
    pci_address: str = ""
    numa_node: int | None = None


class Network(Value, frozen=True, kw_only=True):
    """Modules (`nvidia_peermem`, `ib_umad`) are in `Kernel.modules`."""

    ports: Fact[tuple[InfinibandPort, ...]] = NOT_COLLECTED
    """An empty tuple: there is no InfiniBand device."""
    ofed_version: Fact[str] = NOT_COLLECTED
    """`MLNX_OFED_LINUX-24.10-…` or the version of DOCA-OFED; not installed: the kernel's own stack."""
