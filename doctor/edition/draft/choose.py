"""Which releases of a project want a row, and which of their files speaks for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.tags import Tag
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from doctor.core.rows.package import Release
from doctor.edition.draft.snapshot import IndexFile

__all__ = ["Build", "Found", "builds", "glibc_floor", "releases_of", "wanted"]

#: As manylinux tags were called before PEP 600 put the glibc into the name.
_OLD_TAGS = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}
_MANYLINUX = re.compile(r"(manylinux\d{0,4})(?:_(\d{1,3})_(\d{1,3}))?_(x86_64|aarch64)")

#: A wheel's name stands for the product of three lists of tags; the longest seen has 118 characters, 6 dots.
_NAME_MAX = 250
_DOTS_MAX = 24

#: Those whose METADATA the matrix quotes, first choice first.
_PREFERRED = ("cp312", "cp311")


class Build(NamedTuple):
    """A file that pip could install on Linux: a wheel with its tags, or a source archive with none."""

    file: IndexFile
    tags: frozenset[Tag] = frozenset()
    number: tuple[int, str] | tuple[()] = ()
    """The build tag: of two wheels alike in all else pip takes the later build."""

    @property
    def is_wheel(self) -> bool:
        return bool(self.tags)

    @property
    def is_pure(self) -> bool:
        return any(tag.platform == "any" for tag in self.tags)

    @property
    def is_abi3(self) -> bool:
        return any(tag.abi == "abi3" for tag in self.tags)

    @property
    def interpreters(self) -> frozenset[str]:
        """`cp312`, for parts that were compiled for it with the global lock, and outside the stable ABI.

        A wheel `cp312-none` brings such parts as data, as the bindings of TensorRT do.
        """
        bound = (tag for tag in self.tags if re.fullmatch(r"cp3\d{1,2}", tag.interpreter))
        return frozenset(tag.interpreter for tag in bound if tag.abi in (tag.interpreter, "none"))

    @property
    def machines(self) -> frozenset[str]:
        found = (_MANYLINUX.fullmatch(tag.platform) for tag in self.tags)
        return frozenset(match.group(4) for match in found if match)


class Found(NamedTuple):
    """A release as the index has it."""

    version: Version
    builds: tuple[Build, ...]

    @property
    def released(self) -> str:
        """Day of upload of the file that speaks; of the first file where that has none; else empty."""
        days = [build.file.uploaded for build in (self.speaker, *self.builds) if build]
        whole = [day for day in days if re.fullmatch(r"\d{4}-\d\d-\d\d", day)]
        return whole[0] if whole else ""

    @property
    def speaker(self) -> Build | None:
        """The file whose METADATA counts: an x86-64 wheel, for 3.12 or 3.11 if it is bound to one."""
        wheels = [build for build in self.builds if build.is_wheel]
        chosen = [build for build in wheels if "x86_64" in build.machines or build.is_pure]
        if not chosen:
            return next((build for build in self.builds if not build.is_wheel), None)
        best = min(map(_rank, chosen))
        return max((build for build in chosen if _rank(build) == best), key=lambda build: build.number)


def _rank(build: Build) -> int:
    names = [name for name in _PREFERRED if name in build.interpreters]
    if names:
        return _PREFERRED.index(names[0])
    is_free_threaded = any(tag.abi.endswith("t") for tag in build.tags)
    return 2 if build.is_abi3 else 3 if build.is_pure else 5 if is_free_threaded else 4


def glibc_floor(build: Build) -> str:
    """The least glibc that the wheel's name claims, `2.28`; empty where it claims none."""
    floors = []
    for tag in build.tags:
        match = _MANYLINUX.fullmatch(tag.platform)
        if match and match.group(2):
            floors.append(f"{int(match.group(2))}.{int(match.group(3))}")
        elif match and match.group(1) in _OLD_TAGS:
            floors.append(_OLD_TAGS[match.group(1)])
    return min(floors, key=lambda text: [int(part) for part in text.split(".")], default="")


def builds(files: Iterable[IndexFile], project: str) -> dict[Version, list[Build]]:
    """The files for Linux by version, without those withdrawn, of another project, or named strangely."""
    found: dict[Version, list[Build]] = {}
    for file in files:
        parsed = None if file.yanked else _parsed(file)
        if parsed is not None and parsed[0] == project:
            found.setdefault(parsed[1], []).append(parsed[2])
    return found


def _parsed(file: IndexFile) -> tuple[str, Version, Build] | None:
    if len(file.filename) > _NAME_MAX or file.filename.count(".") > _DOTS_MAX:
        return None
    try:
        if not file.filename.endswith(".whl"):
            return *parse_sdist_filename(file.filename), Build(file)
        name, version, number, tags = parse_wheel_filename(file.filename)
    except (InvalidSdistFilename, InvalidWheelFilename, InvalidVersion):
        return None
    build = Build(file, tags, number)
    return (name, version, build) if build.machines or build.is_pure else None


def releases_of(files: Iterable[IndexFile], project: str) -> tuple[Found, ...]:
    """The releases of a project, oldest first."""
    by_version = builds(files, project)
    return tuple(Found(version, tuple(by_version[version])) for version in sorted(by_version))


def wanted(
    found: Sequence[Found], known: Sequence[Release], *, spec: str = "", since: str, with_candidates: bool
) -> tuple[Found, ...]:
    """Releases to draft: those of `spec`, whatever is known; else those newer than the matrix.

    Newer is what follows its newest version, and a patch of an older series that came after `since`.
    """
    test = _of_spec(spec, with_candidates) if spec else _newer(known, since, with_candidates)
    return tuple(one for one in found if test(one))


def _of_spec(spec: str, with_candidates: bool) -> Callable[[Found], bool]:
    """A set that names a candidate takes candidates, as pip has it."""
    wanted = SpecifierSet(spec)
    takes = with_candidates or bool(wanted.prereleases)
    return lambda one: wanted.contains(one.version, prereleases=takes)


def _newer(known: Sequence[Release], since: str, with_candidates: bool) -> Callable[[Found], bool]:
    versions = {row.version.key for row in known}
    newest, oldest = max(versions), min(versions)

    def test(one: Found) -> bool:
        if one.version in versions or (one.version.is_prerelease and not with_candidates):
            return False
        return one.version > newest or (one.version > oldest and one.released > since)

    return test
