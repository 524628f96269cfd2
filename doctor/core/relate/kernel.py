"""The driver releases that build on the running kernel, as far as the rows of kernels prove it."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.core.rows.system import KernelBuild, KernelRow, StableChange
from doctor.core.solve.model import Model
from doctor.core.solve.universe import Universe, minor_of
from doctor.core.versions import Dotted, Version

__all__ = ["relate_kernel"]

_KERNEL = ("kernel", 1)


def relate_kernel(model: Model) -> None:
    """The relations of driver and kernel; none where either is not in question."""
    if "driver" not in model or "kernel" not in model or not isinstance(model.domain("kernel")[0], Version):
        return
    kernel = model.domain("kernel")[0]
    assert isinstance(kernel, Dotted)
    rows = sorted(model.universe.matrix.edition.kernels, key=lambda row: row.kernel.key)
    for row in rows:
        _taken_early(model, kernel, row, rows)
    minor = minor_of(kernel)
    below = [row for row in rows if minor_of(row.kernel) <= minor]
    above = [row for row in rows if minor_of(row.kernel) >= minor]
    if not below:
        return  # older than the oldest row: `advice` says that no row tells of it
    if not above:
        near = f"kernel {below[-1].kernel}"
        says = f"is newer than this matrix knows kernels (to {below[-1].kernel})"
        model.relate("nearest-known-row", _KERNEL, says, is_soft=True, nearest=near)
    low, later = below[-1], above or below[-1:]
    if minor_of(low.kernel) == minor:
        _patch_levels(model, kernel, low)
    possible = model.where("driver", lambda driver: _named(driver, low) != "no")
    sure = model.where("driver", lambda driver: _builds(model.universe, driver, later) == "yes")
    says = f"is known to drivers {', '.join(map(_text, low.builds))}"
    is_weak = "builds" in low.unverified
    model.relate("kernel-driver-build", _KERNEL, says, ("driver", possible), rows=(low,), is_soft=is_weak)
    high = later[0]
    says = f"is known to drivers {', '.join(map(_text, high.builds))}{_and_later(model.universe, high)}"
    model.relate("kernel-driver-build", _KERNEL, says, ("driver", sure), rows=(high,), is_soft=True)


# --- what a release knows -------------------------------------------------------------------------


def _builds(universe: Universe, driver: Version, rows: Sequence[KernelRow]) -> str:
    """Whether a release builds on the kernel of the first row: `yes`, `no` or `unknown`.

    Of a branch that this row does not name, a row of a later kernel may say that it knows more than that.
    """
    words = universe.kept(f"builds on kernel {rows[0].kernel}", dict[Version, str])
    if driver not in words:
        words[driver] = _named(driver, rows[0]) or _by_later(universe, driver, rows)
    return words[driver]


def _by_later(universe: Universe, driver: Version, rows: Sequence[KernelRow]) -> str:
    checked = [row for row in rows if "builds" not in row.unverified]
    if any(_named(driver, row) == "yes" or _is_of_trunk(universe, driver, row) for row in checked):
        return "yes"
    return "unknown"


def _is_of_trunk(universe: Universe, driver: Version, row: KernelRow) -> bool:
    """Whether a branch was cut from sources that knew the kernel.

    That is proved where the newest branch named knew it from its first release on: branches after it were cut
    later. Where that branch learnt it in a correction, releases of later branches may be older than that one.
    """
    trunk = _trunk(universe, row)
    return trunk is not None and minor_of(driver)[0] > trunk


def _trunk(universe: Universe, row: KernelRow) -> int | None:
    newest = max(row.builds, key=lambda build: build.branch)
    branch = universe.branches.get(newest.branch)
    is_first = branch is not None and branch.releases[:1] == (newest.since,)
    return newest.branch if is_first and not newest.patched_by else None


def _and_later(universe: Universe, row: KernelRow) -> str:
    trunk = None if "builds" in row.unverified else _trunk(universe, row)
    return "" if trunk is None else f" and the branches cut after R{trunk}"


def _named(driver: Version, row: KernelRow) -> str:
    """What a row says of a release: `yes`, `no`, `unknown`, or nothing where it does not name its branch."""
    branch = minor_of(driver)[0]
    build = next((build for build in row.builds if build.branch == branch), None)
    return _at_least(driver, build) if build else ""


def _at_least(driver: Version, build: KernelBuild) -> str:
    if driver < build.since:
        return "no"
    if build.patched_by and (build.upstream_since is None or driver < build.upstream_since):
        return "unknown"
    return "yes"


# --- changes within a series ----------------------------------------------------------------------


def _taken_early(model: Model, kernel: Dotted, row: KernelRow, rows: Sequence[KernelRow]) -> None:
    """Older stable kernels that took a part of a later kernel's changes, from a patch level on.

    A part: a release that builds on the later kernel knows it, and one that does not may build all the same.
    """
    for level in row.also_in:
        if minor_of(level) == minor_of(kernel) and level <= kernel:
            later = rows[rows.index(row) :]
            sure = model.where("driver", lambda v, r=later: _builds(model.universe, v, r) == "yes")  # type: ignore[misc]
            drivers = ", ".join(map(_text, row.builds))
            says = f"has from {level} on a change of kernel {row.kernel}, which is known to drivers {drivers}"
            words, near = ("kernel-driver-build", _KERNEL, says), f"kernel {row.kernel}"
            model.relate(*words, ("driver", sure), rows=(row,), is_soft=True, nearest=near)


def _patch_levels(model: Model, kernel: Dotted, row: KernelRow) -> None:
    """What a stable kernel took within its series: what built on one patch level may fail on the next."""
    for change in row.changes_in(kernel):
        verdicts = {
            driver: _knows(driver, change) for driver in model.domain("driver") if isinstance(driver, Version)
        }
        drivers = ", ".join(map(_text, change.builds))
        says = f"has what {change.since} brought ({change.change.rstrip('.')}), known to drivers {drivers}"
        possible = model.among("driver", (driver for driver, word in verdicts.items() if word != "no"))
        sure = model.among("driver", (driver for driver, word in verdicts.items() if word == "yes"))
        is_weak = "stable_changes" in row.unverified
        model.relate("kernel-driver-build", _KERNEL, says, ("driver", possible), rows=(row,), is_soft=is_weak)
        model.relate("kernel-driver-build", _KERNEL, says, ("driver", sure), rows=(row,), is_soft=True)


def _knows(driver: Version, change: StableChange) -> str:
    """Whether a release knows a change: `yes`, `no`, or `unknown` for a branch that was not looked at."""
    if driver in change.fails:
        return "no"
    build = next((build for build in change.builds if build.branch == minor_of(driver)[0]), None)
    return _at_least(driver, build) if build else "unknown"


def _text(build: KernelBuild) -> str:
    patched = f" (patched by {build.patched_by})" if build.patched_by else ""
    return f"R{build.branch} from {build.since}{patched}"
