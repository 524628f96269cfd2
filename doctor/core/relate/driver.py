"""GPU, driver, kernel modules and kernel: which drives which."""

from __future__ import annotations

from doctor.core.rows.base import Row
from doctor.core.rows.driver import DriverBranch
from doctor.core.rows.hardware import Architecture
from doctor.core.rows.system import KernelBuild, KernelRow, StableChange
from doctor.core.solve.frame import lead
from doctor.core.solve.model import Model
from doctor.core.solve.universe import minor_of
from doctor.core.target import GpuKind
from doctor.core.versions import Dotted, Version

__all__ = ["relate_driver"]


def relate_driver(model: Model) -> None:
    """All relations of driver, modules and GPUs in the model."""
    for kind, card, _capability in model.gpus:
        if kind.maker == "nvidia":
            _drives(model, kind, card)
            _targets(model, kind, card)
            if kind.is_nvswitch and not kind.is_rack:
                _needs_fabric_manager(model, kind, card)
        else:
            _not_ours(model, kind, card)
    if "driver" in model:
        _flavours(model)
        _builds(model)


def _not_ours(model: Model, kind: GpuKind, card: str) -> None:
    """Another maker's card, or one without a row."""
    subject = (card, 1)
    if kind.maker == "other":
        rows = tuple(row for row in model.universe.matrix.edition.makers if row.maker == kind.maker_name)
        maker = f" but a card of {kind.maker_name}" if kind.maker_name else ""
        says = f"is no NVIDIA GPU{maker}: driver, CUDA and what is built on them do not apply"
        model.relate("vendor-not-nvidia", subject, says, rows=rows)
    else:
        near = ", ".join(kind.nearest)
        model.relate("nearest-known-row", subject, "has no row in this matrix", is_soft=True, nearest=near)


# --- branches and flavours by GPU -----------------------------------------------------------------


def _drives(model: Model, kind: GpuKind, card: str) -> None:
    matrix = model.universe.matrix
    family = matrix.architecture(kind.architecture)
    if family is None:
        says = f"is of the architecture {kind.architecture}, which has no row in this matrix"
        model.relate("nearest-known-row", (card, 1), says, is_soft=True)
    if family is None or "driver" not in model:
        return
    first, last = family.first_branch, _last_branch(model, kind, family)
    if last is not None:
        beyond = model.where("driver", lambda version: minor_of(version)[0] <= last)
        says = f"is driven by branches up to R{last} only"
        model.relate("gpu-last-driver", (card, 1), says, ("driver", beyond), rows=(family,))
    if first is not None:
        since = model.where("driver", lambda version: minor_of(version)[0] >= first)
        says = f"is driven from branch R{first} on"
        model.relate("gpu-first-driver", (card, 1), says, ("driver", since), rows=(family,))
    elif family.open_module is None:
        says = f"is of the architecture {family.architecture}, of which the matrix knows no driver branch"
        model.relate(
            "nearest-known-row",
            (card, 1),
            says,
            rows=(family,),
            is_soft=True,
            nearest=", ".join(kind.nearest) or f"architecture {family.architecture}",
        )
    product = matrix.product(kind.pci_id)
    if product is not None and product.min_driver is not None:
        floor = product.min_driver
        since = model.where("driver", lambda version: version >= floor)
        model.relate("gpu-min-driver", (card, 1), f"needs driver {floor}", ("driver", since), rows=(product,))
    _gpu_flavour(model, kind, card, family)


def _last_branch(model: Model, kind: GpuKind, family: Architecture) -> int | None:
    row = model.universe.matrix.gpu(kind.pci_id) if kind.pci_id else None
    return (row.last_branch if row else None) or family.last_branch


def _gpu_flavour(model: Model, kind: GpuKind, card: str, family: Architecture) -> None:
    matrix = model.universe.matrix
    rule = (matrix.open_module(kind.pci_id) if kind.pci_id else None) or family.open_module
    if "kernel-modules" not in model or rule not in ("required", "unsupported"):
        return
    word, relation = {
        "required": ("open", "open-required"),
        "unsupported": ("proprietary", "proprietary-required"),
    }[rule]
    sentence = matrix.rule(relation)
    rows: tuple[Row, ...] = (family,) if sentence is None else (family, sentence)
    flavour = model.mask("kernel-modules", word)
    says = f"runs with the {word} kernel modules only"
    model.relate(relation, (card, 1), says, ("kernel-modules", flavour), rows=rows)


def _flavours(model: Model) -> None:
    """Which flavours a branch has at all."""
    if "kernel-modules" not in model:
        return
    for branch in model.universe.branches.values():
        if branch.proprietary_module is False:
            _lacks(model, branch, "proprietary", "open-only-from-620")
        if branch.open_module is False:
            _lacks(model, branch, "open", "open-modules-from-515")


def _lacks(model: Model, branch: DriverBranch, word: str, relation: str) -> None:
    mine = model.mask("driver", f"=={branch.major}.*")
    other = model.full("kernel-modules") & ~model.mask("kernel-modules", word)
    says = f"({branch.branch}) has no {word} kernel modules"
    model.relate(relation, ("driver", mine), says, ("kernel-modules", other), rows=(branch,))


def _needs_fabric_manager(model: Model, kind: GpuKind, card: str) -> None:
    if "fabric-manager" not in model:
        return
    rule = model.universe.matrix.rule("fabric-manager")
    there = model.full("fabric-manager") & ~model.absent("fabric-manager")
    says = f"({kind.count} of them, joined by NVSwitch) needs the fabric manager in the driver's version"
    rows = (rule,) if rule else ()
    model.relate("fabric-manager-same-version", (card, 1), says, ("fabric-manager", there), rows=rows)


# --- CUDA targets by GPU --------------------------------------------------------------------------


def _targets(model: Model, kind: GpuKind, card: str) -> None:
    """The toolkits that can compile for a GPU."""
    family = model.universe.matrix.architecture(kind.architecture)
    if family is None:
        return
    # Where a release was built with it, the release's own list of capabilities says more.
    is_tied = bool(lead(model.target, model.goal))
    for name in ("cuda", "cuda-toolkit"):
        if name not in model or (name == "cuda" and is_tied):
            continue
        absent = model.absent(name)
        if family.first_cuda is not None:
            first = family.first_cuda
            since = model.where(name, lambda version, f=first: version >= f)  # type: ignore[misc]
            says = f"(sm_{', sm_'.join(family.sm)}) is a target of CUDA {first} and newer"
            model.relate("gpu-first-cuda", (card, 1), says, (name, since | absent), rows=(family,))
        if family.last_cuda_major is not None:
            last = family.last_cuda_major
            until = model.where(name, lambda version, m=last: minor_of(version)[0] <= m)  # type: ignore[misc]
            says = f"is a target of CUDA up to {last}.x only"
            model.relate("gpu-last-cuda", (card, 1), says, (name, until | absent), rows=(family,))


# --- kernels --------------------------------------------------------------------------------------


def _builds(model: Model) -> None:
    """The driver releases that build on the running kernel."""
    if "kernel" not in model or not isinstance(model.domain("kernel")[0], Version):
        return
    kernel = model.domain("kernel")[0]
    rows = sorted(model.universe.matrix.edition.kernels, key=lambda row: row.kernel.key)
    assert isinstance(kernel, Dotted)
    minor = minor_of(kernel)
    below = [row for row in rows if minor_of(row.kernel) <= minor]
    above = [row for row in rows if minor_of(row.kernel) >= minor]
    if not below:
        return  # older than the oldest row: builds on such kernels were never at issue
    if not above:
        near = f"kernel {below[-1].kernel}"
        says = f"is newer than this matrix knows kernels (to {below[-1].kernel})"
        model.relate("nearest-known-row", ("kernel", 1), says, is_soft=True, nearest=near)
    low, high = below[-1], (above or below[-1:])[0]
    if minor_of(low.kernel) == minor:
        _patch_levels(model, kernel, low)
    possible = sure = 0
    for position, driver in enumerate(model.domain("driver")):
        assert isinstance(driver, Dotted)
        possible |= (_builds_on(driver, low) != "no") << position
        sure |= (_builds_on(driver, high) == "yes") << position
    is_weak = "builds" in low.unverified
    says = f"is known to drivers {_since(low)}"
    model.relate(
        "kernel-driver-build", ("kernel", 1), says, ("driver", possible), rows=(low,), is_soft=is_weak
    )
    model.relate("kernel-driver-build", ("kernel", 1), says, ("driver", sure), rows=(high,), is_soft=True)


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
        given = ("kernel", 1)
        model.relate("kernel-driver-build", given, says, ("driver", possible), rows=(row,), is_soft=is_weak)
        model.relate("kernel-driver-build", given, says, ("driver", sure), rows=(row,), is_soft=True)


def _knows(driver: Version, change: StableChange) -> str:
    """Whether a release knows a change: `yes`, `no`, or `unknown` for a branch that was not looked at."""
    if driver in change.fails:
        return "no"
    build = next((build for build in change.builds if build.branch == minor_of(driver)[0]), None)
    return _at_least(driver, build) if build else "unknown"


def _builds_on(driver: Dotted, row: KernelRow) -> str:
    """Whether a release builds on a kernel: `yes`, `no` or `unknown`."""
    branch = minor_of(driver)[0]
    build = next((build for build in row.builds if build.branch == branch), None)
    if build is None:
        # A branch that began after all those named was cut from sources that knew the kernel.
        return "yes" if branch > max(other.branch for other in row.builds) else "unknown"
    return _at_least(driver, build)


def _at_least(driver: Version, build: KernelBuild) -> str:
    if driver < build.since:
        return "no"
    if build.patched_by and (build.upstream_since is None or driver < build.upstream_since):
        return "unknown"
    return "yes"


def _since(row: KernelRow) -> str:
    return ", ".join(_text(build) for build in row.builds)


def _text(build: KernelBuild) -> str:
    patched = f" (patched by {build.patched_by})" if build.patched_by else ""
    return f"R{build.branch} from {build.since}{patched}"
