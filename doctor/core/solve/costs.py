"""What makes one stack better than another: levels of cost, compared one after the other."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from doctor.core.goal import Policy
from doctor.core.rows.choice import ChangeCost
from doctor.core.solve.frame import lead
from doctor.core.solve.model import ABSENT, OTHER, Model, Value
from doctor.core.solve.universe import minor_of
from doctor.core.target import system_of
from doctor.core.versions import Dotted, Version

__all__ = ["advisories_open", "change_cost", "costs", "is_ended"]

#: Bits of one level; a level's sum over all variables stays far below 2^24.
_WIDTH = 24

_Level = Callable[[Model, str, Value], int]
#: Components of whose bulletins the matrix has rows.
_WITH_BULLETINS = ("driver", "container-toolkit")


def costs(model: Model, policy: Policy) -> list[list[int]]:
    """`[variable][value]`: levels packed into one number, the first level in the highest bits."""
    if policy not in model.costs:
        model.costs[policy] = _table(model, policy)
    return model.costs[policy]


def _table(model: Model, policy: Policy) -> list[list[int]]:
    main = lead(model.target, model.goal)
    return [_row(model, name, _LEVELS[policy], is_lead=name == main) for name in model.names]


def _row(model: Model, name: str, levels: tuple[_Level, ...], *, is_lead: bool) -> list[int]:
    """What each value of a variable costs."""
    # Most variables have no part in most levels: asking each value all the same is a fifth of an answer.
    first = [(level, _HAS_PART[level](model, name)) for level in levels]
    taste = [(level, _HAS_PART[level](model, name)) for level in _TASTE]
    row, last = [], len(model.domain(name)) - 1
    for position, value in enumerate(model.domain(name)):
        total = 0
        for level, has_part in first:
            total = (total << _WIDTH) + (level(model, name, value) if has_part else 0)
        # The newest of what the stack is for, then taste, then the newest of everything else.
        total = (total << _WIDTH) + (last - position if is_lead else 0)
        for level, has_part in taste:
            total = (total << _WIDTH) + (level(model, name, value) if has_part else 0)
        row.append((total << _WIDTH) + (0 if is_lead else last - position))
    return row


# --- change ---------------------------------------------------------------------------------------


def present(model: Model, name: str) -> str:
    """The version of a component that is there; a system's own interpreter where none was named."""
    target = model.target
    if name == "python":
        system = system_of(model.universe.matrix, target.os) if target.os else None
        own = ".".join(map(str, system.python.parts[:2])) if system else ""
        return target.version(name) or target.python or own
    if name == "gcc" and not target.version("gcc"):
        system = system_of(model.universe.matrix, target.os) if target.os else None
        return str(system.gcc) if system else ""
    return target.version(name)


def change_cost(model: Model, name: str, value: Value) -> ChangeCost | None:
    """The row about changing a component from what is there to a value; None where nothing changes."""
    there = present(model, name)
    if not there or value is OTHER or str(value) == there:
        return None
    kept = model.universe.kept("changes", lambda: _by_component(model))
    rows = {row.change: row for row in kept.get(name, ())}
    if isinstance(value, Dotted) and "patch" in rows:
        same = minor_of(value)[0] == minor_of(Dotted(there))[0]
        return rows["patch" if same else "branch"]
    row = rows.get("version") or rows.get("word")
    if row is not None and name == "python" and not (model.target.version(name) or model.target.python):
        # Nothing serves under the system's own interpreter: another one beside it stops nothing.
        return msgspec.structs.replace(row, minutes=0)
    return row


def _by_component(model: Model) -> dict[str, list[ChangeCost]]:
    found: dict[str, list[ChangeCost]] = {}
    for row in model.universe.matrix.edition.changes:
        found.setdefault(row.component, []).append(row)
    return found


def _minutes(model: Model, name: str, value: Value) -> int:
    row = change_cost(model, name, value)
    return row.minutes if row else 0


# --- age and safety -------------------------------------------------------------------------------


def advisories_open(model: Model, name: str, value: Value) -> tuple[str, ...]:
    """The bulletins that a version has not answered, by number."""
    if not isinstance(value, Version) or name not in _WITH_BULLETINS:
        return ()
    classes = _classes(model)
    kept = model.universe.kept(f"open {name} {classes}", dict[str, tuple[str, ...]])
    if value.raw not in kept:
        kept[value.raw] = _unanswered(model, name, value)
    return kept[value.raw]


def _classes(model: Model) -> list[str]:
    """The classes of cards whose bulletins count; all of them where no card is named."""
    return sorted({kind.products for kind in model.target.gpus} or {"data-center", "geforce-rtx"})


def _unanswered(model: Model, name: str, value: Version) -> tuple[str, ...]:
    number = minor_of(value)[0]
    found = []
    for bulletin, fixes, newest in _bulletins(model, name):
        if name != "driver":
            is_open = value < newest
        elif number in fixes:
            is_open = value < fixes[number]
        else:
            # A branch that a bulletin leaves out got no correction, unless it began after those it names.
            is_open = number < minor_of(newest)[0]
        if is_open:
            found.append(bulletin)
    return tuple(found)


def _bulletins(model: Model, component: str) -> tuple[tuple[str, dict[int, Version], Version], ...]:
    """The bulletins that speak of this machine: number, correction by branch, the newest correction."""
    classes = _classes(model)
    return model.universe.kept(
        f"bulletins {component} {classes}",
        lambda: tuple(
            (row.bulletin, {fix.major: fix for fix in row.fixed_in}, max(row.fixed_in))
            for row in model.universe.matrix.edition.advisories
            if row.component == component and (row.products == "all" or row.products in classes)
        ),
    )


def is_ended(model: Model, name: str, value: Value) -> bool:
    """Whether a driver is of a branch without support."""
    if name != "driver" or type(value) is str:
        return False
    branch = model.universe.branches.get(minor_of(value)[0])
    return branch is None or branch.status != "supported"


def _advisories(model: Model, name: str, value: Value) -> int:
    return len(advisories_open(model, name, value))


def _ended(model: Model, name: str, value: Value) -> int:
    return int(is_ended(model, name, value))


# --- taste ----------------------------------------------------------------------------------------


def _unripe(_model: Model, _name: str, value: Value) -> int:
    """Candidates and other pre-releases."""
    return int(isinstance(value, Version) and value.scheme == "pep440" and value.key.is_prerelease)


#: Kinds of branches in the order in which they are taken; new-feature branches and others come last.
_KINDS = ("LTSB", "production")


def _branch(model: Model, name: str, value: Value) -> int:
    """Branches with corrections first, long-term ones first among them; of these the nearest or latest."""
    if name != "driver" or type(value) is str:
        return 0
    branches = model.universe.branches
    branch = branches.get(minor_of(value)[0])
    if branch is None:
        return 1 << 20
    order = sorted(branches)
    there = present(model, "driver")
    start = minor_of(Dotted(there))[0] if there else 0
    if start in branches:
        far = abs(order.index(branch.major) - order.index(start))
    else:
        far = len(order) - order.index(branch.major)
    # Of a branch with one release nobody knows yet what its first corrections will be.
    is_young = len(branch.releases) < 2
    kind = _KINDS.index(branch.kind) if branch.kind in _KINDS else len(_KINDS)
    return (is_young << 16) + (kind << 10) + far


def _source_of_python(model: Model, name: str, value: Value) -> int:
    """The interpreter that is there, then a package of the system, then one brought along."""
    if name != "python" or type(value) is str:
        return 0
    if str(value) == present(model, "python"):
        return 0
    system = system_of(model.universe.matrix, model.target.os) if model.target.os else None
    offered = {minor_of(more) for more in (system.python, *system.more_pythons)} if system else set()
    return 1 if isinstance(value, Version) and value.key.release[:2] in offered else 2


def _flavour(_model: Model, name: str, value: Value) -> int:
    """Open modules where nothing speaks against them: later branches have no others."""
    return int(name == "kernel-modules" and str(value) == "proprietary")


def _needless(model: Model, name: str, value: Value) -> int:
    """Something installed that nothing asks for."""
    return int(bool(model.absent(name)) and value is not ABSENT and not present(model, name))


_TASTE: tuple[_Level, ...] = (_branch, _source_of_python, _flavour, _needless)
_LEVELS: dict[Policy, tuple[_Level, ...]] = {
    "repair": (_unripe, _minutes, _advisories, _ended),
    "harden": (_unripe, _advisories, _ended, _minutes),
}

#: Whether a level says anything of a variable.
_HAS_PART: dict[_Level, Callable[[Model, str], bool]] = {
    _unripe: lambda model, name: model.universe.scheme(name) == "pep440",
    _minutes: lambda model, name: bool(present(model, name)),
    _advisories: lambda _model, name: name in _WITH_BULLETINS,
    _ended: lambda _model, name: name == "driver",
    _branch: lambda _model, name: name == "driver",
    _source_of_python: lambda _model, name: name == "python",
    _flavour: lambda _model, name: name == "kernel-modules",
    _needless: lambda model, name: bool(model.absent(name)) and not present(model, name),
}
