"""What rows on repositories and packages must satisfy: one set for each case, a version for each set."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

from doctor.core.rows.install import PackageSet
from doctor.core.sets import VersionSet
from doctor.core.versions import Deb, Dotted, Rpm
from doctor.edition.relations import Tables
from doctor.edition.strict import Faults, Located, nearest

__all__ = ["judge_install"]

#: What may stand in braces, by table.
_WORDS = {
    "repositories": ("arch", "dir"),
    "package_sets": (
        *("branch", "version", "major", "dashed", "cuda_major", "driver_cuda_major"),
        *("kernel", "kernel_package", "kernel_flavour", "compiler"),
    ),
    "package_families": ("dashed", "branch"),
    "package_versions": ("dist",),
}
_BRACES = re.compile(r"\{([^{}]{0,40})\}")
_FINGERPRINT = re.compile(r"[0-9A-F]{8}|[0-9A-F]{16}|[0-9A-F]{40}")


def judge_install(tables: Tables, faults: Faults) -> None:
    """Note what does not hold in the rows of packages.yaml."""
    for table, words in _WORDS.items():
        for located in tables[table]:
            _judge_words(located, words, faults)
            _judge_systems(located, tables, faults)
    for located in tables["repositories"]:
        _judge_repository(located, faults)
    for located in tables["package_versions"]:
        _judge_versions(located, faults)
    for located in tables["package_sets"]:
        _judge_set(located, tables, faults)
    _judge_overlaps(tables, faults)


def _judge_words(located: Located[Any], words: tuple[str, ...], faults: Faults) -> None:
    for field in located.row.__struct_fields__:
        if field in ("source", "note", "says", "way_out"):
            continue
        for text in _texts(getattr(located.row, field)):
            for word in _BRACES.findall(text):
                if word not in words:
                    faults.add(
                        located.at(field), f"`{{{word}}}` stands for nothing here{nearest(word, words)}"
                    )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        yield from (text for text in value if isinstance(text, str))
    elif isinstance(value, dict):
        yield from value.values()


def _judge_systems(located: Located[Any], tables: Tables, faults: Faults) -> None:
    if "systems" in tables.incomplete:
        return
    known = {other.row.system for other in tables["systems"]}
    for name in getattr(located.row, "systems", ()):
        if name not in known:
            faults.add(located.at("systems"), f"`{name}` has no row in `systems`{nearest(name, known)}")


def _judge_repository(located: Located[Any], faults: Faults) -> None:
    row = located.row
    for field, text in (("uri", row.uri), ("key", row.key)):
        if not text.startswith("https://"):
            faults.add(located.at(field), f"`{text}` is not fetched over https")
    if "{dir}" in row.uri and (lacking := [name for name in row.systems if name not in row.dirs]):
        faults.add(located.at("dirs"), f"`{lacking[0]}` has no directory")
    if lacking := [name for name in row.architectures if name not in row.arch_words]:
        faults.add(located.at("arch_words"), f"`{lacking[0]}` has no word")
    if not row.keyring.startswith("/"):
        faults.add(located.at("keyring"), f"`{row.keyring}` is no whole path")
    if not _FINGERPRINT.fullmatch(row.fingerprint):
        faults.add(located.at("fingerprint"), f"`{row.fingerprint}` is no fingerprint in capital hex digits")
    if (row.priority is not None) != bool(row.label):
        faults.add(located.at("priority"), "a priority and the label that gets it stand together")


def _judge_versions(located: Located[Any], faults: Faults) -> None:
    row = located.row
    for version, package in row.versions.items():
        order = Deb if row.systems[0].startswith("ubuntu") else Rpm
        try:
            Dotted(version)
            order(package.replace("{dist}", ".el0"))
        except ValueError as error:
            faults.add(located.at("versions"), str(error))
        if version not in package:
            faults.add(located.at("versions"), f"`{package}` is no package of `{version}`")
    uses_dist = any("{dist}" in package for package in row.versions.values())
    if uses_dist and (lacking := [name for name in row.systems if name not in row.dists]):
        faults.add(located.at("dists"), f"`{lacking[0]}` has no `{{dist}}`")


def _judge_set(located: Located[Any], tables: Tables, faults: Faults) -> None:
    row: PackageSet = located.row
    if not row.packages and not row.pin:
        faults.add(located.at("packages"), "a set has packages, or a pin")
    if row.versions:
        try:
            VersionSet(row.versions, "dotted")
        except ValueError as error:
            faults.add(located.at("versions"), str(error))
            return
    if "package_families" not in tables.incomplete:
        families = {(other.row.part, other.row.kind) for other in tables["package_families"]}
        for kind in {"deb" if name.startswith("ubuntu") else "rpm" for name in row.systems}:
            if (row.part, kind) not in families:
                faults.add(located.at("part"), f"`{row.part}` has no row in `package_families` for {kind}")
    if row.released_with and "package_versions" not in tables.incomplete:
        _judge_released(located, tables, faults)


def _judge_released(located: Located[Any], tables: Tables, faults: Faults) -> None:
    row: PackageSet = located.row
    versions = [other.row for other in tables["package_versions"] if other.row.part == row.released_with]
    for origin, system in product(row.origins, row.systems):
        if not any(origin in v.origins and system in v.systems for v in versions):
            text = f"no version of `{row.released_with}` for {system}, origin {origin}"
            faults.add(located.at("released_with"), text)


def _judge_overlaps(tables: Tables, faults: Faults) -> None:
    """Two sets for one case: which of them is taken would be an accident of their order."""
    for one, other in combinations(tables["package_sets"], 2):
        a, b = one.row, other.row
        same = a.part == b.part and a.part != "compiler" and set(a.origins) & set(b.origins)
        meets = same and set(a.systems) & set(b.systems) and set(a.architectures) & set(b.architectures)
        if meets and _alike(a.flavour, b.flavour) and _alike(a.profile, b.profile) and _both(a, b):
            faults.add(other.at("versions"), f"`{b.id}` and `{a.id}` are both for {_both(a, b)}")


def _alike(one: str, other: str) -> bool:
    return not one or not other or one == other


def _both(one: PackageSet, other: PackageSet) -> str:
    """A version that both take, among those that their bounds name and a far one; empty if none."""
    try:
        first, second = VersionSet(one.versions or "*", "dotted"), VersionSet(other.versions or "*", "dotted")
    except ValueError:
        return ""
    probes = (*first.bounds, *second.bounds, Dotted("1"), Dotted("99999"))
    return next((version.raw for version in probes if first.has(version) and second.has(version)), "")
