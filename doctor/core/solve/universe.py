"""The versions that a matrix knows of each component, shared by every question that is put to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from typing import Any, TypeVar

from doctor.core.matrix import DriverBranch, Matrix, ToolkitRow
from doctor.core.rows.package import Release
from doctor.core.sets import VersionSet
from doctor.core.versions import Dotted, Pep440, Scheme, Version, parse

__all__ = ["Universe", "ascending", "minor_of"]

V = TypeVar("V")

#: Components that carry the driver's own versions.
_LIKE_DRIVER = ("driver", "fabric-manager", "imex")
#: Components that carry those of CUDA toolkits.
_LIKE_CUDA = ("cuda", "cuda-toolkit")
_GCC_MAJORS = range(8, 21)


class Universe:
    """Known versions by component, in ascending order, and sets of them as text. Pure look-ups, kept."""

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix
        self._known: dict[str, tuple[Version, ...]] = {}
        self._sets: dict[tuple[str, str], VersionSet] = {}
        self._kept: dict[str, Any] = {}

    def kept(self, key: str, make: Callable[[], V]) -> V:
        """A value that depends on the matrix alone, made once."""
        if key not in self._kept:
            self._kept[key] = make()
        found: V = self._kept[key]
        return found

    def scheme(self, component: str) -> Scheme:
        """How versions of a component are written."""
        row = self.matrix.component(component)
        return row.scheme if row else "dotted"

    def version(self, component: str, raw: str) -> Version:
        """A version of a component. Raises `ValueError` when the text is none."""
        return parse(raw, self.scheme(component))

    def set_of(self, component: str, spec: str) -> VersionSet:
        """A set of versions. Raises `ValueError` when the text is none."""
        key = (component, spec)
        if key not in self._sets:
            self._sets[key] = VersionSet(spec, self.scheme(component))
        return self._sets[key]

    def known(self, component: str) -> tuple[Version, ...]:
        """The versions (or words) that rows know, oldest first; none where no row says."""
        if component not in self._known:
            self._known[component] = self._find(component)
        return self._known[component]

    def releases(self, component: str) -> tuple[Release, ...]:
        """Package releases, oldest first."""
        return self.kept(
            f"releases {component}",
            lambda: tuple(sorted(self.matrix.releases(component), key=lambda row: row.version.key)),
        )

    @cached_property
    def branches(self) -> dict[int, DriverBranch]:
        """Driver branches by number."""
        return {row.major: row for row in self.matrix.edition.drivers}

    def floors(self) -> dict[int, ToolkitRow]:
        """For each CUDA major, a toolkit row that states its driver floor."""
        return {row.cuda.major: row for row in reversed(self.matrix.edition.toolkits)}

    def _find(self, component: str) -> tuple[Version, ...]:
        row = self.matrix.component(component)
        if row is not None and row.words:
            return tuple(parse(word, "name") for word in row.words)
        if component in _LIKE_DRIVER:
            return ascending(release for branch in self.branches.values() for release in branch.releases)
        if component in _LIKE_CUDA:
            return ascending(row.cuda for row in self.matrix.edition.toolkits)
        if component == "driver-cuda":
            spoken = (row.cuda_version for row in self.branches.values())
            return ascending(cuda for cuda in spoken if cuda is not None)
        if component == "cuda-compat":
            # A compat package is cut from the driver that came with its toolkit.
            return ascending(row.driver for row in self.matrix.edition.toolkits if row.driver is not None)
        if component == "compute-capability":
            families = self.matrix.edition.architectures
            return ascending(Dotted(text) for family in families for text in family.compute_capability)
        if component == "python":
            return self._pythons()
        if component == "gcc":
            return tuple(Dotted(str(major)) for major in _GCC_MAJORS)
        tools = [tool.version for tool in self.matrix.edition.tools if tool.component == component]
        if component == "libnvidia-container":
            tools = [
                tool.version for tool in self.matrix.edition.tools if tool.component == "container-toolkit"
            ]
        return ascending(tools) if tools else self._released(component)

    def _released(self, component: str) -> tuple[Version, ...]:
        """Releases, after the lines that came before the first of them: `8.6` of TensorRT."""
        rows = tuple(row.version for row in self.releases(component))
        lines = [row.versions for row in self.matrix.edition.hardware if row.component == component]
        sets = [self.set_of(component, line) for line in lines]
        before = [wanted for wanted in sets if not any(row in wanted for row in rows)]
        first = (bound for wanted in before for bound in wanted.bounds[:1])
        return (
            *ascending(line for line in first if rows and line < rows[0]),
            *(rows or self._bounds(component)),
        )

    def _bounds(self, component: str) -> tuple[Version, ...]:
        """Of a component without rows: the versions that relations begin at."""
        specs = [
            row.requires[component] for row in self.matrix.edition.relations if component in row.requires
        ]
        return ascending(bound for spec in specs for bound in self.set_of(component, spec).bounds)

    def _pythons(self) -> tuple[Version, ...]:
        """Every minor that a wheel was compiled for or a system brings."""
        minors = {text for row in self.matrix.edition.releases for text in row.interpreters}
        for system in self.matrix.edition.systems:
            minors.update(".".join(map(str, p.parts[:2])) for p in (system.python, *system.more_pythons))
        return ascending(Pep440(text) for text in minors)


def ascending(versions: Iterable[Version]) -> tuple[Version, ...]:
    """Versions in their order, each once."""
    return tuple(sorted(dict.fromkeys(versions), key=lambda version: version.key))


@lru_cache(maxsize=2048)
def minor_of(version: Version) -> tuple[int, int]:
    """The first two numbers of a dotted version: `(13, 0)` for `13.0.2`."""
    numbers: tuple[int, ...] = (*getattr(version, "parts", ()), 0, 0)
    return numbers[0], numbers[1]
