"""Xid and SXid codes of the driver, and faults of driver releases that a later release mends."""

from __future__ import annotations

from typing import Literal

import msgspec

from doctor.core.rows.base import Row
from doctor.core.versions import Dotted

__all__ = ["DriverBug", "DriverRange", "SxidRow", "XidKind", "XidRow"]

XidKind = Literal["application", "memory", "bus", "hang", "link", "power", "guest", "event"]


class XidRow(Row, frozen=True, kw_only=True):
    """An Xid code."""

    xid: int
    mnemonic: str
    """NVIDIA's name in the driver's sources."""
    meaning: str
    kind: XidKind
    """What the fault is about, and so what decides whether it still matters."""
    severity: Literal["critical", "error", "warning", "info"]
    immediate: str = ""
    """NVIDIA's bucket for what to do at once: `RESET_GPU`; empty where none is published."""
    investigatory: str = ""
    """NVIDIA's bucket for what to look into afterwards."""
    is_secondary: bool = False
    """True for a consequence or detail of another Xid: it is never the first fault."""
    is_by_word: bool = False
    """True where the text's word Fatal or Nonfatal decides how grave it is."""


class SxidRow(Row, frozen=True, kw_only=True):
    """SXid codes of an NVSwitch that mean alike. Fatal or not is said in each line, not here."""

    id: str
    codes: tuple[int, ...]
    meaning: str
    action: str


class DriverRange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Releases of one branch: from `since` on (empty: from its first) and before `fixed_in`."""

    branch: int
    since: Dotted | None = None
    fixed_in: Dotted | None = None
    """None where no release of the branch has the correction."""


class DriverBug(Row, frozen=True, kw_only=True):
    """A fault of driver releases, with what shows on a host that has it."""

    id: str
    title: str
    ranges: tuple[DriverRange, ...]
    xids: tuple[int, ...] = ()
    """Xid codes by which it shows; one of them is enough."""
    functions: tuple[str, ...] = ()
    """Functions of the driver in which the kernel then stops; one of them is enough."""
    flavour: Literal["open", "proprietary", ""] = ""
    """The flavour of the modules that has it; empty for both."""
    workaround: str = ""
    """What helps until the update, and where it does not."""
