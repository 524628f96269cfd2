"""Look-ups in the rows of `packages.yaml` for one origin, system and processor."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Literal, TypeVar

from doctor.core.matrix import Matrix
from doctor.core.rows.install import (
    Origin,
    PackageFamily,
    PackageSet,
    PackageVersions,
    Part,
    RepositoryRow,
)
from doctor.core.sets import VersionSet
from doctor.core.versions import Dotted
from doctor.errors import UsageError

__all__ = ["Catalogue", "filled", "fits"]

_Placed = TypeVar("_Placed", RepositoryRow, PackageSet, PackageVersions)


def fits(name: str, globs: tuple[str, ...]) -> bool:
    """Whether a name matches one of the globs, and none of those with `!` in front."""
    if any(glob.startswith("!") and fnmatchcase(name, glob[1:]) for glob in globs):
        return False
    return any(fnmatchcase(name, glob) for glob in globs)


def filled(text: str, values: dict[str, str]) -> str:
    """The text with its words in braces replaced. A word without a value is a fault of the rows."""

    def one(match: re.Match[str]) -> str:
        value = values.get(match.group(1), "")
        if not value:
            raise UsageError(
                f"`{text}` of packages.yaml needs `{match.group(1)}`, which the stack does not have"
            )
        return value

    return re.sub(r"\{([a-z_]{1,30})\}", one, text)


class Catalogue:
    """The rows that hold here."""

    def __init__(self, matrix: Matrix, origin: Origin, system: str, architecture: str) -> None:
        self.origin = origin
        self.system = system
        self.architecture = architecture
        edition = matrix.edition
        self.repositories = self._here(edition.repositories)
        self.sets = self._here(edition.package_sets)
        self.versions = self._here(edition.package_versions)
        self._families = edition.package_families
        self._all_versions = edition.package_versions

    def _here(self, rows: tuple[_Placed, ...]) -> tuple[_Placed, ...]:
        return tuple(
            row
            for row in rows
            if self.origin in row.origins
            and self.system in row.systems
            and self.architecture in row.architectures
        )

    @property
    def kind(self) -> Literal["deb", "rpm"]:
        return "deb" if self.system.startswith("ubuntu") else "rpm"

    @property
    def place(self) -> str:
        """For messages: `ubuntu-24.04 on x86_64, origin nvidia`."""
        return f"{self.system} on {self.architecture}, origin {self.origin}"

    def find(
        self, part: Part, version: str = "", *, flavour: str = "", profile: str = ""
    ) -> PackageSet | None:
        """The set of a part at a version of its component; None where no row has one."""
        for row in self.sets:
            if row.part != part or not _takes(row.versions, version):
                continue
            if row.flavour in ("", flavour) and row.profile in ("", profile):
                return row
        return None

    def set_of(self, part: Part, version: str, *, flavour: str = "", profile: str = "") -> PackageSet:
        """The same. Raises UsageError where no row has one."""
        row = self.find(part, version, flavour=flavour, profile=profile)
        if row is None:
            words = " ".join(word for word in (part, version, flavour) if word)
            raise UsageError(
                f"packages.yaml has no package names of {words} for {self.place}",
                hints=(*self._elsewhere(part, version), "an overlay can add rows of the site's own"),
            )
        return row

    def version_of(self, part: Part, version: str, *, cuda: str = "") -> str:
        """The package version of a component's version. Raises UsageError where no row has it."""
        row = self.row_of(part, version, cuda=cuda)
        if row is not None:
            dist = {"dist": row.dists.get(self.system, "")} if row.dists else {}
            return filled(_package(row, version), dist)
        known = ", ".join(self.versions_of(part)) or "none"
        for_cuda = f" for CUDA {cuda}" if any(row.cuda for row in self.versions if row.part == part) else ""
        raise UsageError(
            f"packages.yaml has no package version of {part} {version}{for_cuda} for {self.place}",
            hints=(
                f"known there: {known}",
                *self._elsewhere(part, version),
                f"name one of them in the goal: `{part}==VERSION`",
            ),
        )

    def row_of(self, part: Part, version: str, *, cuda: str = "") -> PackageVersions | None:
        """The row that has a component's version; None where no row has it."""
        return next((row for row in self._of_cuda(part, version, cuda) if _package(row, version)), None)

    def _elsewhere(self, part: Part, version: str) -> tuple[str, ...]:
        """Another origin that has it here."""
        return tuple(
            f"`--origin {origin}` has {part} {version} here"
            for origin in ("nvidia", "canonical")
            if any(
                row.part == part
                and origin in row.origins
                and self.system in row.systems
                and _package(row, version)
                for row in self._all_versions
            )
        )

    def versions_of(self, part: Part) -> tuple[str, ...]:
        """Every version of a part that has a package version here, oldest first."""
        found = {written for row in self.versions if row.part == part for written in row.versions}
        return tuple(sorted(found, key=lambda text: (Dotted(text).key, text)))

    def _of_cuda(self, part: Part, version: str, cuda: str) -> list[PackageVersions]:
        """Rows with the version; where it is built for several CUDAs, those of this one, or of its major."""
        rows = [row for row in self.versions if row.part == part and _package(row, version)]
        if not any(row.cuda for row in rows) or not cuda:
            return rows
        same = [row for row in rows if Dotted(row.cuda) == Dotted(cuda)]
        major = [row for row in rows if row.cuda.partition(".")[0] == cuda.partition(".")[0]]
        return same or sorted(major, key=lambda row: Dotted(row.cuda).key, reverse=True)

    def family(self, part: Part) -> PackageFamily | None:
        """Every name of a part, with this package manager."""
        return next((row for row in self._families if row.part == part and row.kind == self.kind), None)

    def repositories_of(self, parts: frozenset[Part]) -> tuple[RepositoryRow, ...]:
        """The repositories that these parts are taken from."""
        return tuple(row for row in self.repositories if parts.intersection(row.parts))


def _package(row: PackageVersions, version: str) -> str:
    """The package version of a row, however many zeros the version is written with; empty if it has none."""
    wanted = Dotted(version)
    return next((package for written, package in row.versions.items() if Dotted(written) == wanted), "")


def _takes(versions: str, version: str) -> bool:
    return not versions or (bool(version) and VersionSet(versions, "dotted").has(Dotted(version)))
