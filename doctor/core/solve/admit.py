"""Versions that a question names and no row has: newer than the matrix, never released, or just not known."""

from __future__ import annotations

from doctor.core.rows.base import Row
from doctor.core.solve.model import Model
from doctor.core.solve.universe import Universe, minor_of
from doctor.core.versions import Version

__all__ = ["OF_DRIVER", "admit", "lists_all"]

#: Components that come with the driver, in its versions or flavours.
OF_DRIVER = ("driver", "kernel-modules", "fabric-manager", "imex")


def admit(model: Model, component: str, mask: int) -> None:
    """Say so where all that was asked for is outside the rows: newer than they, or never released."""
    universe = model.universe
    known = universe.known(component)
    asked = [value for position, value in enumerate(model.domain(component)) if mask >> position & 1]
    strange = [
        value for value in asked if isinstance(value, Version) and not _is_known(model, component, value)
    ]
    if not strange or len(strange) < len(asked) or not known:
        return
    row = universe.matrix.component(component)
    newest, value = known[-1], strange[0]
    subject = (component, mask)
    edition = universe.matrix.edition.name
    if row is not None and universe.scheme(component) != "name" and value > newest:
        says = f"is newer than this matrix ({edition}), whose newest is {newest}"
        model.relate("nearest-known-row", subject, says, is_soft=True, nearest=f"{component} {newest}")
        return
    near = min(known, key=lambda other: (abs(_place(known, value) - known.index(other)), other.raw))
    since = row.complete_since if row else ""
    is_whole = lists_all(universe, component, value)
    if row is not None and (is_whole or (since and universe.version(component, since) <= value)):
        rows: tuple[Row, ...] = (universe.branches[minor_of(value)[0]],) if is_whole else (row,)
        says = "was never released"
        model.relate("no-such-release", subject, says, rows=rows, nearest=f"{component} {near}")
    else:
        says = f"has no row in this matrix ({edition})"
        model.relate("nearest-known-row", subject, says, is_soft=True, nearest=f"{component} {near}")


def _place(known: tuple[Version, ...], value: Version) -> int:
    return sum(other < value for other in known) if value.scheme != "name" else 0


def _is_known(model: Model, component: str, value: Version) -> bool:
    """Whether rows say enough about a version: a driver needs a branch only, a kernel nothing here."""
    universe = model.universe
    if universe.releases(component):
        return any(row.version == value for row in universe.releases(component))
    if value in universe.known(component) or universe.scheme(component) == "name":
        return True
    if component in OF_DRIVER:
        # A release that is installed was released; its branch says what there is to know of it.
        return value.raw == model.target.version(component) and value.key[0] in universe.branches
    if component in ("cuda", "cuda-toolkit"):
        return any(minor_of(value) == minor_of(other) for other in universe.known(component))
    return component not in ("container-toolkit", "dcgm")


def lists_all(universe: Universe, component: str, version: Version | None) -> bool:
    """Whether a driver of this number would be in its branch's row: `535.129` is then no line, but a slip."""
    if component not in OF_DRIVER or version is None or not minor_of(version)[1]:
        return False
    branch = universe.branches.get(minor_of(version)[0])
    return branch is not None and branch.lists_all
