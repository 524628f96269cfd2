"""Operating systems, and Linux kernels against the driver releases that build on them."""

from __future__ import annotations

from typing import Literal

import msgspec

from doctor.core.rows.base import Row
from doctor.core.versions import Dotted

__all__ = ["KernelBuild", "KernelRow", "StableChange", "SystemRow"]


class SystemRow(Row, frozen=True, kw_only=True):
    """A release of an operating system, with what it brings by default."""

    system: str
    """`ubuntu-24.04`: `ID` of os-release, and its version up to what changes the defaults."""
    same_as: tuple[str, ...] = ()
    """Systems of other names with the same defaults: `rhel-9`."""
    codename: str = ""
    released: str = ""
    kernel: Dotted
    """The kernel it was released with."""
    later_kernels: tuple[Dotted, ...] = ()
    """Kernels of its hardware enablement stacks."""
    glibc: Dotted
    gcc: Dotted
    python: Dotted
    more_pythons: tuple[Dotted, ...] = ()
    """Interpreters that it offers as packages besides its own."""
    cuda_repo: str = ""
    """The directory of NVIDIA's CUDA repository that serves it: `rhel9` for Rocky 9."""
    is_in_driver_guide: bool
    """Whether NVIDIA's driver installation guide (R610) lists it."""
    is_tested_by_container_toolkit: bool = False
    precompiled_kernels: tuple[Dotted, ...] = ()
    """Kernels for which the GPU operator has precompiled drivers, of `precompiled_branches`."""
    precompiled_branches: tuple[str, ...] = ()
    support_ends: str
    """Day its ordinary support ends."""
    extended_ends: str = ""
    """Day its paid or long-term support ends."""
    latest: str = ""
    """The newest point release seen."""
    min_cpu: str = ""
    """The x86-64 level it needs: `x86-64-v3`."""


class KernelBuild(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The first release of a driver branch that builds on a kernel."""

    branch: int
    since: Dotted
    """The first release whose own sources know the kernel; with a patch, the release that was patched."""
    patched_by: Literal["", "debian", "ubuntu", "distribution"] = ""
    """Who patched that release; NVIDIA's own package of it does not build."""
    upstream_since: Dotted | None = None
    """With a patch: the first release of the branch that needs none, where there is one."""
    note: str = ""


class StableChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change that a stable kernel series took within itself, and the drivers that know it."""

    since: Dotted
    """The first patch level that has it: `6.12.97`."""
    change: str
    builds: tuple[KernelBuild, ...]
    """The first release of each branch that knows it; a branch that is not named has none, or none known."""
    fails: tuple[Dotted, ...] = ()
    """Releases that were seen not to build on it."""


class KernelRow(Row, frozen=True, kw_only=True):
    """A Linux kernel, and from which release on each driver branch builds on it."""

    kernel: Dotted
    builds: tuple[KernelBuild, ...]
    """A branch that is not named here was not looked at, or has no release that builds."""
    change: str = ""
    """What changed in the kernel, and how an older driver fails."""
    also_in: tuple[Dotted, ...] = ()
    """Patch levels of older stable kernels that took the same change."""
    stable_changes: tuple[StableChange, ...] = ()
    """Oldest first."""
    default_of: tuple[str, ...] = ()
    """Systems that ship it."""

    def changes_in(self, release: Dotted) -> tuple[StableChange, ...]:
        """What a patch level such as `6.12.105` has beyond the first release of its series.

        Distributions number their kernels themselves (`6.8.0-124`): nothing is found for those.
        """
        return tuple(change for change in self.stable_changes if change.since <= release)
