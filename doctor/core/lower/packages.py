"""Package transactions: what is wanted against what is installed."""

from __future__ import annotations

import re

from doctor.core.lower.catalogue import filled, fits
from doctor.core.lower.ground import Ground
from doctor.core.rows.install import PackageSet, Part
from doctor.core.stages import PackageVersion, Transaction
from doctor.core.versions import Deb, Rpm

__all__ = ["doubts", "is_there", "names_of", "transaction", "unlocked", "wanted_of"]

#: What branch and origin add to a name: `libnvidia-decode-580-server`.
_BRANCHED = re.compile(r"(.+?)(?:-\d{3})?(?:-server)?")


def wanted_of(ground: Ground, row: PackageSet, version: str, **more: str) -> tuple[PackageVersion, ...]:
    """The packages of a set at a version of its component, in the order of the row."""
    values = {**ground.values, **_values(version), **more}
    if row.version:
        package_version = filled(row.version, values)
    elif row.released_with:
        package_version = ground.catalogue.version_of(row.released_with, version, cuda=ground.cuda)
    else:
        package_version = ""
    names = dict.fromkeys(filled(name, values) for name in row.packages)
    return tuple(PackageVersion(name=name, version=package_version) for name in names)


def _values(version: str) -> dict[str, str]:
    parts = version.split(".")
    return {"version": version, "major": parts[0], "dashed": "-".join(parts[:2])}


def doubts(ground: Ground, part: Part, version: str) -> tuple[str, ...]:
    """What the plan rests on and nobody read in a repository; the transaction's simulation settles it."""
    row = ground.catalogue.row_of(part, version, cuda=ground.cuda)
    if row is None or row.confidence != "unverified":
        return ()
    return (f"no index was read for the package version of {part} {version}: it may differ there",)


def names_of(ground: Ground, row: PackageSet, version: str) -> tuple[str, ...]:
    """Globs of the names that belong to a set besides its own."""
    values = {**ground.values, **_values(version)}
    return tuple(filled(glob, values) for glob in row.beside)


def transaction(  # noqa: PLR0913 - a set, and what is around it
    ground: Ground,
    part: Part,
    wanted: tuple[PackageVersion, ...],
    *,
    beside: tuple[str, ...] = (),
    extra: tuple[str, ...] = (),
    why: str = "",
) -> tuple[Transaction, ...]:
    """What brings these packages, and takes away what the part had under other names; none if all is so.

    `extra` may come in by dependencies, besides what the part's family allows.
    """
    family = ground.catalogue.family(part)
    removed = _outdated(ground, family.names if family else (), wanted, beside)
    stems = family.companions if family else ()
    wanted = (*wanted, *_companions(ground, wanted, removed, beside, stems))
    if all(is_there(ground, package) for package in wanted) and not removed:
        return ()
    return (
        Transaction(
            install=wanted,
            remove=removed,
            allow_downgrade=any(_is_lower(ground, package) for package in wanted),
            extra_allowed=_extra(ground, (*(family.extra_allowed if family else ()), *extra), wanted),
            why=why,
        ),
    )


def is_there(ground: Ground, package: PackageVersion) -> bool:
    """Whether a package is known to be installed as wanted."""
    versions = (ground.installed or {}).get(package.name, ())
    return bool(versions) and (not package.version or package.version.removeprefix("0:") in versions)


def unlocked(ground: Ground, transactions: tuple[Transaction, ...]) -> tuple[str, ...]:
    """Held or version-locked names that these transactions touch."""
    names = {package.name for one in transactions for package in one.install}
    names.update(name for one in transactions for name in one.remove)
    return tuple(sorted(name for name in names if any(_locks(lock, name) for lock in ground.held)))


def _locks(lock: str, name: str) -> bool:
    """Whether a hold or a line of the version lock list (`NAME-3:580.126.20-1.el9.*`) is about a package."""
    stem = re.sub(r"-(?:\d+:)?\d[^-]*-[^-]*$", "", lock)
    return fits(name, (lock, stem))


def _outdated(
    ground: Ground, family: tuple[str, ...], wanted: tuple[PackageVersion, ...], beside: tuple[str, ...]
) -> tuple[str, ...]:
    """Installed names of the family that belong to another set."""
    mine = {package.name for package in wanted}
    return tuple(
        name
        for name in ground.installed or {}
        if name not in mine and fits(name, family) and not fits(name, beside)
    )


def _companions(
    ground: Ground,
    wanted: tuple[PackageVersion, ...],
    removed: tuple[str, ...],
    beside: tuple[str, ...],
    stems: tuple[str, ...],
) -> tuple[PackageVersion, ...]:
    """Packages that move along: at the old version of the set, or under the name of the old branch."""
    installed = ground.installed or {}
    mine = {package.name for package in wanted}
    version = next((package.version for package in wanted if package.version), "")
    old = {v for name in mine for v in installed.get(name, ())} - {version}
    found = {
        name
        for name, versions in installed.items()
        if name not in mine and fits(name, beside) and old.intersection(versions)
    }
    branch = ground.values["branch"]
    for name in removed:
        match = _BRANCHED.fullmatch(name)
        stem = match.group(1) if match else name
        if stem in stems:
            names = (stem, f"{stem}-{branch}", f"{stem}-{branch}-server")
            found.update([other for other in names if other not in mine and fits(other, beside)][:1])
    return tuple(PackageVersion(name=name, version=version) for name in sorted(found))


def _is_lower(ground: Ground, package: PackageVersion) -> bool:
    order = Deb if ground.catalogue.kind == "deb" else Rpm
    before = (ground.installed or {}).get(package.name, ())
    return bool(package.version) and any(order(package.version) < order(version) for version in before)


def _extra(ground: Ground, globs: tuple[str, ...], wanted: tuple[PackageVersion, ...]) -> tuple[str, ...]:
    version = next((package.name for package in wanted if package.name.startswith("cuda-toolkit-")), "")
    values = {**ground.values, "dashed": version.removeprefix("cuda-toolkit-") or "*"}
    return tuple(filled(glob, values) if "{" in glob else glob for glob in globs)
