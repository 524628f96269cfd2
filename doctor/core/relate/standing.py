"""Where a driver stands, for questions about just that: the CUDA it speaks, its support, open bulletins."""

from __future__ import annotations

from doctor.core.rows.relation import Advisory
from doctor.core.solve.costs import advisories_open
from doctor.core.solve.model import Model
from doctor.core.solve.universe import minor_of
from doctor.core.versions import Version

__all__ = ["STANDING", "relate_standing"]

#: What is asked about a component and cannot be chosen by itself.
STANDING = ("driver-cuda", "driver-support", "driver-bulletins", "container-toolkit-bulletins")


def relate_standing(model: Model) -> None:
    """The relations of `driver-cuda`, `driver-support` and `…-bulletins`; nothing where none is asked."""
    if "driver" in model:
        _ceilings(model)
        _support(model)
    for component in ("driver", "container-toolkit"):
        if component in model and f"{component}-bulletins" in model:
            _bulletins(model, component)


def _ceilings(model: Model) -> None:
    """The CUDA that `nvidia-smi` prints beside each branch."""
    if "driver-cuda" not in model:
        return
    told = 0
    for branch in model.universe.branches.values():
        mine = model.mask("driver", f"=={branch.major}.*")
        ceiling = branch.cuda_version
        if ceiling is None:
            continue
        told |= mine
        same = model.where("driver-cuda", lambda version, c=ceiling: minor_of(version) == minor_of(c))  # type: ignore[misc]
        says = f"({branch.branch}) speaks CUDA up to {ceiling}"
        is_weak = "cuda_version" in branch.unverified
        met = ("driver-cuda", same)
        model.relate("driver-cuda", ("driver", mine), says, met, rows=(branch,), is_soft=is_weak)
    says = "is of a branch whose CUDA no row tells"
    model.relate("driver-cuda", ("driver", model.full("driver") & ~told), says, is_soft=True)


def _support(model: Model) -> None:
    if "driver-support" not in model:
        return
    told = 0
    for branch in model.universe.branches.values():
        mine = model.mask("driver", f"=={branch.major}.*")
        told |= mine
        when = f" ({'until' if branch.status == 'supported' else 'in'} {branch.ends})" if branch.ends else ""
        says = f"is of {branch.branch}, whose support is: {branch.status}{when}"
        met = ("driver-support", model.mask("driver-support", branch.status))
        model.relate("driver-branch-support", ("driver", mine), says, met, rows=(branch,))
    says = "is of a branch that no row tells of"
    model.relate("driver-branch-support", ("driver", model.full("driver") & ~told), says, is_soft=True)


def _bulletins(model: Model, component: str) -> None:
    """Releases that a bulletin speaks of have one open; `none` is known from a stated floor on only."""
    word = f"{component}-bulletins"
    by_number: dict[str, int] = {}
    clean = 0
    for position, value in enumerate(model.domain(component)):
        if not isinstance(value, Version):
            continue
        found = advisories_open(model, component, value)
        for number in found:
            by_number[number] = by_number.get(number, 0) | 1 << position
        if not found and _is_judged(model, component, value):
            clean |= 1 << position
    rows: dict[str, list[Advisory]] = {}
    for row in model.universe.matrix.edition.advisories:
        if row.component == component:
            rows.setdefault(row.bulletin, []).append(row)
    has_open = model.mask(word, "open")
    for number, mask in by_number.items():
        fixes = sorted({fix.raw for row in rows[number] for fix in row.fixed_in})
        says = f"has open bulletins, {number} among them, which {', '.join(fixes)} answer"
        model.relate("security-floor", (component, mask), says, (word, has_open), rows=tuple(rows[number]))
    none = (word, model.mask(word, "none"))
    floors = tuple(row for row in model.universe.branches.values()) if component == "driver" else ()
    model.relate("security-floor", (component, clean), "answers every bulletin", none, rows=floors[-1:])
    untold = model.full(component) & ~clean & ~model.absent(component)
    for mask in by_number.values():
        untold &= ~mask
    says = "has no row that tells a security floor for it"
    model.relate("security-floor", (component, untold), says, is_soft=True)


def _is_judged(model: Model, component: str, value: Version) -> bool:
    """Whether a row says from where on a release is safe: no bulletin at all is no proof."""
    if component != "driver":
        return any(row.component == component for row in model.universe.matrix.edition.advisories)
    branch = model.universe.branches.get(minor_of(value)[0])
    floor = branch.security_floor if branch else None
    return floor is not None and value >= floor
