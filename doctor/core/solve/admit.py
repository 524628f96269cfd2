"""Versions that a question names and no row has: newer than the matrix, never released, or just not known."""

from __future__ import annotations

from doctor.core.rows.base import Row
from doctor.core.solve.model import Model
from doctor.core.solve.universe import Universe, minor_of
from doctor.core.versions import Version

__all__ = ["OF_CUDA", "OF_DRIVER", "admit", "lists_all"]

#: Components that come with the driver, in its versions or flavours.
OF_DRIVER = ("driver", "kernel-modules", "fabric-manager", "imex")
#: Components that carry the versions of CUDA toolkits. A number that was left out has a rule: `no-12.7`.
OF_CUDA = ("cuda", "cuda-toolkit")


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
    value = strange[0]
    # A final that follows the newest final may still come, whatever candidates there are.
    finals = [version for version in known if not _is_candidate(version)]
    newest = known[-1] if _is_candidate(value) or not finals else finals[-1]
    subject = (component, mask)
    edition = universe.matrix.edition.name
    base = _build_of(known, value)
    if base is not None:
        # A maker's own index has builds of a release under labels that no list of releases names.
        says = f"is a build of {base} from an index of its own, of which no row tells"
        model.relate("nearest-known-row", subject, says, is_soft=True, nearest=f"{component} {base}")
        return
    gap = universe.matrix.rule(f"no-{value.raw}") if component in OF_CUDA else None
    if gap is not None:
        below = f"{component} {max((v for v in known if v < value), default=newest)}"
        model.relate("no-such-release", subject, "was never released", rows=(gap,), nearest=below)
        return
    if row is not None and universe.scheme(component) != "name" and value > newest:
        says = f"is newer than this matrix ({edition}), whose newest is {newest}"
        model.relate("nearest-known-row", subject, says, is_soft=True, nearest=f"{component} {newest}")
        return
    # A line of which no release has a row is asked about in vain.
    told = [version for version in known if _is_known(model, component, version)] or known
    near = min(told, key=lambda other: (abs(_place(known, value) - known.index(other)), other.raw))
    since = row.complete_since if row else ""
    is_whole = lists_all(universe, component, value)
    if row is not None and (is_whole or (since and universe.version(component, since) <= value)):
        rows: tuple[Row, ...] = (universe.branches[minor_of(value)[0]],) if is_whole else (row,)
        says = "was never released"
        model.relate("no-such-release", subject, says, rows=rows, nearest=f"{component} {near}")
    else:
        says = f"has no row in this matrix ({edition})"
        model.relate("nearest-known-row", subject, says, is_soft=True, nearest=f"{component} {near}")


def _build_of(known: tuple[Version, ...], value: Version) -> Version | None:
    """The known release that a version with a local label (`2.7.0+cu128`) is a build of."""
    if value.scheme != "pep440" or value.key.local is None:
        return None
    return next((other for other in known if other.key.public == value.key.public), None)


def _is_candidate(version: Version) -> bool:
    return version.scheme == "pep440" and bool(version.key.is_prerelease)


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
    if component in OF_CUDA:
        return any(minor_of(value) == minor_of(other) for other in universe.known(component))
    return component not in ("container-toolkit", "dcgm")


def lists_all(universe: Universe, component: str, version: Version | None) -> bool:
    """Whether a driver of this number would be in its branch's row: `535.129` is then no line, but a slip."""
    if component not in OF_DRIVER or version is None or not minor_of(version)[1]:
        return False
    branch = universe.branches.get(minor_of(version)[0])
    return branch is not None and branch.lists_all
