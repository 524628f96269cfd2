"""GPUs: architectures, chips, PCI ids, and cards as they are sold."""

from __future__ import annotations

from typing import Literal

from doctor.core.rows.base import OpenModule, Row
from doctor.core.versions import Dotted

__all__ = ["Architecture", "Chip", "GpuRow", "Product"]


class Architecture(Row, frozen=True, kw_only=True):
    """A GPU architecture: what all its chips share."""

    architecture: str
    compute_capability: tuple[str, ...]
    """`("5.0", "5.2")`."""
    sm: tuple[str, ...]
    """nvcc target numbers, as `ToolkitRow.sm_targets` has them; Thor has two, `("101", "110")`."""
    open_module: OpenModule | None = None
    first_cuda: Dotted | None = None
    last_cuda_major: int | None = None
    first_branch: int | None = None
    """The first driver branch that drives it: 570."""
    last_branch: int | None = None
    """The last one that does: 580 for Volta; None while it is still supported."""
    bf16: bool | None = None
    fp16_tensor: bool | None = None
    int8_tensor: bool | None = None
    fp8: bool | None = None
    fp4: bool | None = None
    mig: bool | None = None


class Product(Row, frozen=True, kw_only=True):
    """A card as it is sold; its ids point into the PCI table."""

    product: str
    pci_device_ids: tuple[str, ...]
    """`10de:2335`, lower case."""
    architecture: str
    compute_capability: str
    memory_gb: float | None = None
    memory_type: str = ""
    bandwidth_gb_s: float | None = None
    pcie_generation: int | None = None
    ecc: bool | None = None
    nvlink: str = ""
    """`yes`, `bridge` or empty."""
    needs_fabric_manager: bool | None = None
    fabric: Literal["nvswitch", "nvlink5", "rack", ""] = ""
    """What joins boards of this card: NVSwitches on the PCI bus; NVSwitches of NVLink 5, which the host
    reaches through InfiniBand devices; the switch trays of a rack, whose managers are not on this host."""
    open_module: OpenModule | None = None
    min_driver: Dotted | None = None
    mig_instances: int | None = None
    mig_min_driver: Dotted | None = None
    is_arm64: bool = False
    supports_forward_compat: bool | None = None


class Chip(Row, frozen=True, kw_only=True):
    """A chip code: what decides the architecture and capability of every id that carries it."""

    chip: str
    """`GH100`."""
    architecture: str
    compute_capability: str


class GpuRow(Row, frozen=True, kw_only=True):
    """A PCI device id, or the boards of one id that a name or a memory size sets apart.

    The build fills `architecture` and `compute_capability` in from the chip, `open_module` and
    `last_branch` from the architecture; all rows of an id agree on them.
    """

    pci_device_id: str
    """`10de:26b9`, lower case."""
    name: str
    former_names: tuple[str, ...] = ()
    """Names that earlier lists gave to the same boards."""
    chip: str
    architecture: str
    compute_capability: str
    open_module: OpenModule | None = None
    last_branch: int | None = None
    min_driver: Dotted | None = None
    """The first public open-module release that lists the id, where one does (no floor by itself)."""
    memory_gb: float | None = None
    memory_type: str = ""
    bandwidth_gb_s: float | None = None
    subsystem_ids: tuple[str, ...] = ()
    """The boards meant, `10de:14a9`; empty when the row is for every board no other row names."""
    unlisted_subsystems: int = 0
    """How many boards carry the name when the matrix does not list their ids."""

    @property
    def is_general(self) -> bool:
        """True for the row of every board that no other row names."""
        return not self.subsystem_ids and not self.unlisted_subsystems
