"""Facts about what joins GPUs: NVSwitch, Fabric Manager, the parts of NVLink 5, IMEX."""

from __future__ import annotations

from doctor.core.fact import NOT_COLLECTED, Fact, Value
from doctor.core.versions import Dotted

__all__ = ["Fabric", "NvlinkTotal"]


class NvlinkTotal(Value, frozen=True, kw_only=True):
    """The NVLinks of one GPU, counted; from NVML or `nvidia-smi nvlink --status`."""

    gpu: str
    """PCI address `0000:18:00.0`, or the index as text where the witness gives none."""
    active: int
    inactive: int
    errors: int | None = None
    """Sum of the error counters that the witness showed; None when it showed none."""


class Fabric(Value, frozen=True, kw_only=True):
    """NVSwitches are in `Host.pci`, the state of each GPU in `Gpu.fabric_state`, units in `System.units`."""

    manager_version: Fact[Dotted] = NOT_COLLECTED
    """Of the installed Fabric Manager: its package, else what its log says of itself."""
    manager_log: Fact[tuple[str, ...]] = NOT_COLLECTED
    """Newest lines of its journal and of `/var/log/fabricmanager.log` that speak of errors or states."""
    subnet_manager_version: Fact[str] = NOT_COLLECTED
    """Of `nvlsm`, the subnet manager of NVLink 5."""
    nvlinks: Fact[tuple[NvlinkTotal, ...]] = NOT_COLLECTED
    imex_device_class: Fact[bool] = NOT_COLLECTED
    """Whether `/proc/devices` lists `nvidia-caps-imex-channels`."""
    imex_channels: Fact[tuple[str, ...]] = NOT_COLLECTED
    """Nodes `/dev/nvidia-caps-imex-channels/channel*`."""
    imex_peers: Fact[tuple[str, ...]] = NOT_COLLECTED
    """Addresses in `/etc/nvidia-imex/nodes_config.cfg`."""
