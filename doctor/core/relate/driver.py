"""GPU, driver and kernel modules: which drives which."""

from __future__ import annotations

from doctor.core.rows.base import Row
from doctor.core.rows.driver import DriverBranch
from doctor.core.rows.hardware import Architecture
from doctor.core.solve.frame import lead
from doctor.core.solve.model import Model
from doctor.core.solve.universe import minor_of
from doctor.core.target import GpuKind

__all__ = ["relate_driver"]


def relate_driver(model: Model) -> None:
    """All relations of driver, modules and GPUs in the model."""
    for kind, card, _capability in model.gpus:
        if kind.maker == "nvidia":
            _drives(model, kind, card)
            _targets(model, kind, card)
            _processor(model, kind, card)
            if kind.is_nvswitch and not kind.is_rack:
                _needs_fabric_manager(model, kind, card)
        else:
            _not_ours(model, kind, card)
    if "driver" in model:
        _flavours(model)


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


def _processor(model: Model, kind: GpuKind, card: str) -> None:
    """A superchip is one package with its Arm processor: no other stands beside it."""
    if kind.is_arm64 and model.target.arch != "aarch64":
        product = model.universe.matrix.product(kind.pci_id) if kind.pci_id else None
        says = f"comes in one package with an aarch64 processor, and the machine is {model.target.arch}"
        model.relate("gpu-processor", (card, 1), says, rows=(product,) if product else ())


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
