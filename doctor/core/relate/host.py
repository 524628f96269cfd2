"""The host around the driver: system, compiler, container stack, whose driver it is, plain relations."""

from __future__ import annotations

from doctor.core.goal import Term
from doctor.core.rows.choice import DriverOwner
from doctor.core.rows.relation import Relation
from doctor.core.solve.model import ABSENT, Link, Model
from doctor.core.solve.universe import minor_of
from doctor.core.target import system_of
from doctor.core.versions import Version

__all__ = ["relate_host"]


def relate_host(model: Model) -> None:
    """All relations of system, compilers and the rows of `relations`."""
    _known_system(model)
    _owner(model)
    _compilers(model)
    for relation in model.universe.matrix.edition.relations:
        _plain(model, relation)


def _known_system(model: Model) -> None:
    target, matrix = model.target, model.universe.matrix
    if "os" not in model or target.driver_kind == "jetpack":
        return
    if system_of(matrix, target.os) is None:
        owner = next((row for row in matrix.edition.owners if row.driver_kind == target.driver_kind), None)
        near = owner.nearest if owner else tuple(row.system for row in matrix.edition.systems)
        says = "has no row in this matrix"
        model.relate("os-row", ("os", 1), says, is_soft=True, nearest=f"os {', '.join(near)}")


def _owner(model: Model) -> None:
    """Machines whose driver is somebody else's."""
    rows = model.universe.matrix.edition.owners
    owner = next((row for row in rows if row.driver_kind == model.target.driver_kind), None)
    if owner is None:
        return
    wanted = [term for term in model.goal.terms if term.component in ("driver", "kernel-modules")]
    if owner.driver_kind == "vgpu-guest":
        _guest(model, owner)
    elif wanted and owner.driver_kind in ("jetpack", "windows"):
        _refuse(model, owner, wanted)
    else:
        subject = ("os", 1) if "os" in model else ("gpu", 1)
        if subject[0] in model:
            near = "; ".join(owner.nearest)
            if owner.driver_kind == "windows":
                near = f"os {model.target.os}; {near}"
            says = f": {owner.fact}"
            model.relate(owner.id, subject, says, rows=(owner,), is_soft=True, nearest=near)


def _refuse(model: Model, owner: DriverOwner, wanted: list[Term]) -> None:
    subject = ("gpu", 1) if "gpu" in model else ("os", 1)
    if subject[0] in model:
        says = f"takes no driver of the goal's kind ({wanted[0].text}): {owner.fact}"
        model.relate(owner.id, subject, says, rows=(owner,))


def _guest(model: Model, owner: DriverOwner) -> None:
    """A vGPU guest's driver belongs to the branch of its host."""
    host = model.target.version("vgpu-host")
    if "driver" not in model or "gpu" not in model:
        return
    if not host:
        says = f": {owner.fact}"
        model.relate(
            owner.id, ("gpu", 1), says, rows=(owner,), is_soft=True, nearest="; ".join(owner.nearest)
        )
        return
    branch = minor_of(model.universe.version("vgpu-host", host))[0]
    same = model.where("driver", lambda version: minor_of(version)[0] == branch)
    says = f"(R{branch}) takes guests of its own branch"
    model.relate(owner.id, ("vgpu-host", model.full("vgpu-host")), says, ("driver", same), rows=(owner,))


def _compilers(model: Model) -> None:
    """The host compilers that nvcc takes."""
    if "cuda-toolkit" not in model or "gcc" not in model:
        return
    for row in model.universe.matrix.edition.toolkits:
        newest = row.max_host_gcc_major
        if newest is None:
            continue
        mine = model.where("cuda-toolkit", lambda v, c=row.cuda: minor_of(v) == minor_of(c))  # type: ignore[misc]
        taken = model.where("gcc", lambda version, n=newest: minor_of(version)[0] <= n)  # type: ignore[misc]
        says = f"takes gcc up to {newest}"
        model.relate("toolkit-host-gcc", ("cuda-toolkit", mine), says, ("gcc", taken), rows=(row,))


def _plain(model: Model, row: Relation) -> None:
    """A row of `relations`: where every component of `when` is there at such a version, more must hold."""
    if row.delivery and row.delivery != model.delivery:
        return
    if any(name not in model for name in row.when):
        return
    (subject, spec), *rest = row.when.items()
    given = (subject, model.mask(subject, spec))
    escape = [(name, model.full(name) & ~model.mask(name, other)) for name, other in rest]
    for name, wanted in row.requires.items():
        if name in model:
            also = f" with {', '.join(f'{n} {s}' for n, s in rest if n != name)}" if rest else ""
            says = f"{also.removesuffix(' with ')} needs {name} {wanted}".strip()
            lifted = escape if name not in row.when else [e for e in escape if e[0] != name]
            allowed = model.mask(name, wanted) | model.absent(name)
            for more in _unneeded(model, row):
                model.relate(row.id, given, says, *lifted, (name, allowed), *more, rows=(row,))
    if len(row.same_version) == 2 and all(name in model for name in row.same_version):
        _same_version(model, row)


def _unneeded(model: Model, row: Relation) -> list[list[tuple[str, int]]]:
    """What else lifts a relation, one clause each: of compat libraries, a driver that needs none.

    Libraries that a driver does not need may be there or not: for each CUDA major its floor decides.
    """
    if "cuda-compat" not in row.when or "cuda" not in model or "driver" not in model:
        return [[]]
    found = []
    for major, toolkit in sorted(model.universe.kept("floors", model.universe.floors).items()):
        other = model.where("cuda", lambda v, m=major: minor_of(v)[0] != m)  # type: ignore[misc]
        enough = model.mask("driver", f">={toolkit.driver_floor}")
        found.append([("cuda", other), ("driver", enough)])
    return found


def _same_version(model: Model, row: Relation) -> None:
    one, other = row.same_version
    if ABSENT in model.domain(one):
        one, other = other, one
    trigger, spec = next(iter(row.when.items()))
    clauses = []
    for value in model.domain(one):
        if not isinstance(value, Version):
            continue
        same = model.among(other, (value,)) | model.absent(other)
        clause = [(one, model.full(one) & ~model.one(one, value)), (other, same)]
        if trigger not in (one, other):
            clause.append((trigger, model.full(trigger) & ~model.mask(trigger, spec)))
        elif trigger == one and not model.one(one, value) & model.mask(one, spec):
            continue
        clauses.append(clause)
    link = Link(
        relation=row.id,
        says=f"{other} has the version of {one}",
        source=row.source,
        confidence=row.confidence,
    )
    model.say(link, *clauses)
