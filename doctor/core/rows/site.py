"""What a site says about versions: forbidden, pinned, on its mirror, or known to it alone."""

from __future__ import annotations

from typing import Literal

import msgspec

from doctor.core.rows.base import Row
from doctor.core.versions import Dotted

__all__ = ["DriverRelease", "Overlay", "RuleKind", "SiteRule"]

RuleKind = Literal["forbid", "pin", "mirror"]


class SiteRule(Row, frozen=True, kw_only=True):
    """Versions of a component that a site will not have, or will have alone."""

    component: str
    versions: tuple[str, ...]
    """Sets, any of which: `==595.*`; `*` for every version."""
    reason: str


class DriverRelease(Row, frozen=True, kw_only=True):
    """A driver release that the edition does not know yet; what holds for its branch holds for it."""

    version: Dotted
    reason: str


class Overlay(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One site directory: its rules, and how many rows it adds to the edition."""

    name: str
    as_of: str
    digest: str
    """SHA-256 over its files, in name order."""
    rules: tuple[tuple[RuleKind, SiteRule], ...] = ()
    driver_releases: tuple[DriverRelease, ...] = ()
    rows: tuple[tuple[str, str], ...] = ()
    """Table and name of each row that it adds."""
