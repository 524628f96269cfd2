"""What a choice of versions has to know besides versions: whose driver it is, makers, what a change costs."""

from __future__ import annotations

from typing import Literal

from doctor.core.rows.base import Row

__all__ = ["ChangeCost", "DriverOwner", "GpuMaker", "ProductClass"]


class DriverOwner(Row, frozen=True, kw_only=True):
    """Machines whose driver comes from somebody else: rows about data-center releases do not hold there."""

    id: str
    """The relation that answers name: `jetson-driver-from-jetpack`."""
    driver_kind: str
    """A word of the component `driver-kind`."""
    architectures: tuple[str, ...] = ()
    """GPU architectures that mean such a machine."""
    systems: tuple[str, ...] = ()
    """Beginnings of system names that mean one: `dgx-os`."""
    kernels: tuple[str, ...] = ()
    """Words in a kernel's release that mean one: `microsoft`."""
    fact: str
    instead: str
    """What to do in place of installing a driver of one's own choice."""
    known: bool = False
    """Whether the matrix can tell what runs on that driver."""
    nearest: tuple[str, ...] = ()
    """The rows that come nearest."""


class GpuMaker(Row, frozen=True, kw_only=True):
    """A maker of accelerators that no row of this matrix is about."""

    maker: str
    pci_vendor: str
    """`1002`."""
    words: tuple[str, ...]
    """Words in its products' names, lower case."""


class ProductClass(Row, frozen=True, kw_only=True):
    """Which bulletins speak of a card: NVIDIA names floors for GeForce and RTX apart from the others."""

    products: Literal["data-center", "geforce-rtx"]
    words: tuple[str, ...] = ()
    """Words in a card's name, lower case; a class without words is that of every other card."""


class ChangeCost(Row, frozen=True, kw_only=True):
    """What changing a component costs a host in service. Minutes in which its GPUs serve nothing."""

    component: str
    change: Literal["patch", "branch", "version", "word", "install"]
    """`patch`: inside the branch or major; `install`: it was not there."""
    minutes: int
    needs_reboot: bool = False
    is_software_only: bool = False
    """True where only the engine restarts."""
