"""Driver branches and CUDA toolkits, and sentences about both."""

from __future__ import annotations

from typing import Literal

import msgspec

from doctor.core.rows.base import Row
from doctor.core.versions import Dotted

__all__ = ["DriverBranch", "DriverRule", "ToolkitRow", "ToolkitUpdate"]


class DriverBranch(Row, frozen=True, kw_only=True):
    """A driver branch."""

    branch: str
    """`R580`."""
    major: int
    kind: str
    """`LTSB`, `production`, `new feature`, …"""
    status: Literal["supported", "ended", "superseded"]
    ends: str = ""
    """Month its support ends, `2028-06`; empty when no source says."""
    cuda_version: Dotted | None = None
    """The highest CUDA its driver API speaks."""
    min_architecture: str = ""
    last_for: tuple[str, ...] = ()
    """Architectures that no later branch drives."""
    security_floor: Dotted | None = None
    latest_known: Dotted | None = None
    open_module: bool | None = None
    """False when the branch is older than the open modules."""
    proprietary_module: bool | None = None
    """False when the branch has open modules only."""
    releases: tuple[Dotted, ...] = ()
    lists_all: bool = False
    """Whether `releases` is every one there was and will be: another number was never released."""


class DriverRule(Row, frozen=True, kw_only=True):
    """A sentence about drivers or CUDA that has a source but no table; explanations quote its id."""

    id: str
    fact: str


class ToolkitUpdate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An update release of a toolkit, and the driver it came with."""

    version: Dotted
    driver: Dotted | None = None


class ToolkitRow(Row, frozen=True, kw_only=True):
    """A CUDA toolkit minor release."""

    cuda: Dotted
    driver: Dotted | None = None
    """The Linux driver it was released with: full features, no hard floor within the major."""
    driver_floor: Dotted
    """The least driver for minor-version compatibility within the major."""
    updates: tuple[ToolkitUpdate, ...] = ()
    sm_targets: tuple[str, ...] = ()
    max_host_gcc_major: int | None = None
    max_host_clang_major: int | None = None
