"""A row of a release drafted from what the index says: what it tells, and what a person still has to read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from doctor.core.edition import Edition
from doctor.core.rows.package import Component, Release
from doctor.core.versions import Dotted
from doctor.edition.draft.choose import Build, Found, builds, glibc_floor
from doctor.edition.draft.metadata import Asked, Metadata, both, read_metadata
from doctor.edition.draft.snapshot import Snapshot
from doctor.edition.package_relations import exact_pin

__all__ = ["Draft", "Known", "companions", "draft_release", "marker_python"]

_NONE = frozenset[str]()

#: Wheels named for an older glibc (manylinux1, 2010) need a newer one all the same, as torch 2.3 to 2.6 did:
#: their compilers had outgrown the tag.
_HONEST_GLIBC = Dotted("2.17")

#: What names the toolkit of a build, most exact first: the meta package, then the runtime's own wheels.
_TOOLKIT_PACKAGES = ("cuda-toolkit", "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu*")
_VARIANT = re.compile(r"(?:^|-)(cu\d{2})(?:-|$)")


class Known(NamedTuple):
    """What the matrix knows already: the component, its rows, and every other component by its package."""

    component: Component
    rows: tuple[Release, ...]
    packages: Mapping[str, str]
    """Component by normalised package name."""
    releases: Mapping[str, Mapping[str, Release]]
    """Rows by component and version."""
    toolkits: frozenset[tuple[int, ...]]

    @classmethod
    def of(cls, edition: Edition, name: str) -> Known | None:
        """None where the edition has no such component with a package and rows of releases."""
        component = next((row for row in edition.components if row.component == name and row.package), None)
        releases: dict[str, dict[str, Release]] = {}
        for row in edition.releases:
            releases.setdefault(row.component, {})[row.version.raw] = row
        if component is None or name not in releases:
            return None
        return cls(
            component=component,
            rows=tuple(releases[name].values()),
            packages={
                canonicalize_name(row.package): row.component for row in edition.components if row.package
            },
            releases=releases,
            toolkits=frozenset(row.cuda.parts[:2] for row in edition.toolkits),
        )

    @property
    def shape(self) -> Release:
        """The newest row: its fields are those that a row of this component has."""
        return self.rows[-1]


class Draft(NamedTuple):
    """A row as a person finds it: fields in their order, and what is still to be read, with the reason."""

    version: Version
    fields: dict[str, Any]
    todos: tuple[str, ...]
    after: str
    """The version that it follows in the file; empty for the first."""


def companions(known: Known) -> tuple[str, ...]:
    """Other projects that a component's rows are read from: the variants of its CUDA majors, and bindings."""
    package = known.component.package
    return tuple(
        f"{package}-{variant}{part}" for variant in known.shape.cuda_variants for part in ("", "-bindings")
    )


def marker_python(build: Build) -> str:
    """The Python whose requirements are read: that of the wheel, else 3.12, else the first it takes."""
    bound = min(build.interpreters, default="", key=lambda name: (name != "cp312", name))
    if re.fullmatch(r"cp3\d{1,2}", bound):
        return f"3.{bound[3:]}"
    try:
        wanted = SpecifierSet(build.file.requires_python)
    except InvalidSpecifier:
        return "3.12"
    choices = ["3.12", *(f"3.{minor}" for minor in range(8, 30))]
    return next((python for python in choices if wanted.contains(f"{python}.0")), "3.12")


def draft_release(known: Known, found: Found, snapshot: Snapshot, speaker: Build) -> Draft:
    """The row of a release. What cannot be read is no field, but one of `todos`."""
    row = _Row(known, found, snapshot, speaker)
    row.identify()
    row.describe_cuda()
    row.describe_builds()
    row.require()
    order = list(Release.__struct_fields__)
    fields = {name: row.fields[name] for name in order if name in row.fields}
    before = [one.version for one in known.rows if one.version.key < found.version]
    return Draft(found.version, fields, tuple(row.todos), max(before).raw if before else "")


class _Row:
    """A row while it is put together."""

    def __init__(self, known: Known, found: Found, snapshot: Snapshot, speaker: Build) -> None:
        self.known, self.found, self.snapshot, self.speaker = known, found, snapshot, speaker
        self.shape = known.shape
        self.fields: dict[str, Any] = {"version": str(found.version)}
        self.todos: list[str] = []
        self.metadata = self._metadata()
        self.asks: Mapping[str, Asked] = self.metadata.asks if self.metadata else {}

    def _metadata(self) -> Metadata | None:
        name = self.speaker.file.filename
        text = self.snapshot.metadata.get(name)
        if text is None:
            reason = self.snapshot.unread.get(name, "it was not asked for")
            self.todos.append(f"cuda, requires: METADATA of {name} was not read: {reason}")
            return None
        found = read_metadata(text, marker_python(self.speaker))
        package = canonicalize_name(self.known.component.package)
        if (found.name, found.version) != (package, str(self.found.version)):
            self.todos.append(
                f"cuda, requires: METADATA of {name} is of {found.name!a} {found.version!a}, and was not used"
            )
            return None
        self.todos += [f"requires: {problem}" for problem in found.unread]
        return found

    def identify(self) -> None:
        if self.found.released:
            self.fields["released"] = self.found.released
        else:
            self.todos.append("released: the index tells no day of upload; the row needs one")
        if not self.speaker.is_wheel:
            is_stub = self.shape.delivery == "stub"
            self.fields["delivery"] = "stub" if is_stub else "sdist"
        if self.fields.get("delivery") != "stub" and self.speaker.file.size:
            self.fields["size_bytes"] = self.speaker.file.size
        for name, where in _READ_ELSEWHERE.items():
            if getattr(self.shape, name):
                self.todos.append(f"{name}: no metadata tells it; {where}")

    # --- CUDA ---

    def describe_cuda(self) -> None:
        self._describe_variants()
        if self.shape.cuda is None or self.metadata is None:
            return
        exact = self._toolkit()
        majors = {int(variant[2:]) for variant in self._variants()} or self._major_of_torch()
        if exact:
            self.fields["cuda"] = exact
        elif len(majors) == 1:
            # The minor of vLLM's build was not that of the torch it pins in 29 of 76 releases; the major was.
            self.fields["cuda"] = str(majors.pop())
            self.todos.append("cuda: the metadata tell the major; the minor stands in the build files")
        else:
            self.todos.append("cuda: no requirement names a toolkit, or they name several")
        self._judge_toolkit()

    def _judge_toolkit(self) -> None:
        parts = tuple(int(part) for part in self.fields.get("cuda", "").split(".") if part)[:2]
        if parts and not any(known[: len(parts)] == parts for known in self.known.toolkits):
            self.todos.append(f"cuda: {self.fields['cuda']} has no row in cuda.yaml yet; it comes first")

    def _toolkit(self) -> str:
        """`13.2` of `cuda-toolkit==13.2.2`; empty where no toolkit is pinned."""
        for name, asked in self.asks.items():
            pin = exact_pin(asked.spec)
            is_toolkit = re.sub(r"-cu\d{2}$", "-cu*", name) in _TOOLKIT_PACKAGES
            if is_toolkit and re.fullmatch(r"\d{1,2}\.\d{1,2}(\.\d{1,5}){0,3}", pin):
                return ".".join(pin.split(".")[:2])
        return ""

    def _variants(self) -> set[str]:
        """The CUDA majors that requirements name: `nvidia-nccl-cu13`, `nvidia-cutlass-dsl[cu13]`."""
        found = set[str]()
        for name, asked in self.asks.items():
            words = [*asked.extras, *([name] if name.startswith(("nvidia-", "tensorrt-")) else [])]
            found |= {match.group(1) for word in words if (match := _VARIANT.search(word))}
        return found

    def _major_of_torch(self) -> set[int]:
        """That of the torch it pins: `matrix validate` refuses a build of another major."""
        pinned = self.known.releases.get("torch", {}).get(
            exact_pin(self.asks.get("torch", Asked("", _NONE)).spec)
        )
        return {pinned.cuda.major} if pinned and pinned.cuda else set()

    def _describe_variants(self) -> None:
        """For a component whose variants are projects of their own: which there are, and which is plain."""
        package = self.known.component.package
        if not self.shape.cuda_variants:
            return
        there = [v for v in self.shape.cuda_variants if self._companion(f"{package}-{v}")]
        if there:
            self.fields["cuda_variants"] = there
        else:
            self.todos.append("cuda_variants: no project of a variant has this version")
        named = {variant for variant in there if f"{package}-{variant}" in self.asks}
        if len(named) == 1:
            self.fields["unsuffixed_variant"] = named.pop()
        else:
            self.todos.append("unsuffixed_variant: the metadata name no variant, or several")

    def _companion(self, project: str) -> Sequence[Build]:
        return builds(self.snapshot.projects.get(project, ()), project).get(self.found.version, ())

    # --- builds ---

    def describe_builds(self) -> None:
        own = [build for build in self.found.builds if build.is_wheel]
        bindings = [
            build
            for variant in self.fields.get("cuda_variants", ())
            for build in self._companion(f"{self.known.component.package}-{variant}-bindings")
            if build.is_wheel
        ]
        wheels = bindings or own
        bound = {name for build in wheels if "x86_64" in build.machines for name in build.interpreters}
        if bound and not any(build.is_abi3 for build in wheels):
            minors = sorted(int(name[3:]) for name in bound if re.fullmatch(r"cp3\d{1,2}", name))
            self.fields["interpreters"] = [f"3.{minor}" for minor in minors]
        if self.shape.cpu:
            machines = {machine for build in wheels for machine in build.machines}
            if machines:
                self.fields["cpu"] = sorted(machines, reverse=True)
        self._glibc = _floor([glibc_floor(build) for build in bindings] or [glibc_floor(self.speaker)])

    # --- requirements ---

    def require(self) -> None:
        requires: dict[str, str] = {}
        python = self.metadata.requires_python if self.metadata else ""
        if python and python != "*":
            requires["python"] = python
        named = self._named()
        self._require_glibc(requires, named)
        requires.update(named)
        known = {name for row in self.known.rows for name in row.requires}
        new = [name for name in named if name not in known]
        if new:
            self.todos.append(
                f"requires: no row of {self.known.component.component} named {', '.join(new)} before"
            )
        gone = [name for name in self.shape.requires if name not in {*requires, "glibc", "tensorrt-variant"}]
        if gone and self.metadata:
            self.todos.append(
                f"requires: {', '.join(gone)}, named by {self.shape.version}, is not named here: see why"
            )
        if requires:
            self.fields["requires"] = requires

    def _named(self) -> dict[str, str]:
        """Sets by component: those that some row has named, and those whose releases the matrix knows."""
        found: dict[str, str] = {}
        before = {name for row in self.known.rows for name in row.requires}
        for package, asked in self.asks.items():
            plain, variant = _split(package)
            component = self.known.packages.get(package) or self.known.packages.get(plain)
            if component is None or component == self.known.component.component:
                continue
            if component in before or component in self.known.releases:
                # `tensorrt-cu13`, its `-libs` and `-bindings` are one component.
                found[component] = both(found.get(component, "*"), asked.spec)
            if component == "tensorrt" and variant and "tensorrt-variant" in before:
                found["tensorrt-variant"] = variant
        order = {name: place for place, name in enumerate(self.shape.requires)}
        return {name: found[name] for name in sorted(found, key=lambda name: order.get(name, len(order)))}

    def _require_glibc(self, requires: dict[str, str], named: Mapping[str, str]) -> None:
        """The larger of what the wheel's name claims and what the releases it pins ask for."""
        if "glibc" not in self.shape.requires and not self._glibc:
            return
        if not self._glibc:
            self.todos.append("glibc: the wheel is for any platform; what it needs is what its kernels need")
            return
        pinned = [self._glibc_of(name, text) for name, text in named.items()]
        floor = _floor([self._glibc, *pinned], highest=True)
        if Dotted(floor) < _HONEST_GLIBC:
            self.todos.append(f"glibc: the wheel's name claims {floor}, which its compiler has outgrown")
            return
        requires["glibc"] = f">={floor}"
        if floor != self._glibc:
            self.fields["glibc_tag"] = self._glibc

    def _glibc_of(self, name: str, text: str) -> str:
        row = self.known.releases.get(name, {}).get(exact_pin(text))
        return row.requires.get("glibc", "").removeprefix(">=") if row else ""


#: Fields that stand in no metadata, and where those who wrote the rows found them.
_READ_ELSEWHERE = {
    "compute_capability": "see the build files, as the sources of this file's rows do",
    "ptx": "see the build files",
    "engine_backend": "see the release notes",
}


def _split(package: str) -> tuple[str, str]:
    """`nvidia-cudnn` and `cu13` of `nvidia-cudnn-cu13`; `tensorrt` of `tensorrt-cu13-libs`."""
    match = re.fullmatch(r"([a-z0-9-]+?)-(cu\d{2})(?:-libs|-bindings)?", package)
    return (match.group(1), match.group(2)) if match else (package, "")


def _floor(texts: Sequence[str], *, highest: bool = False) -> str:
    """The lowest of several glibc versions, or the highest; those that are empty say nothing."""
    known = [text for text in texts if re.fullmatch(r"\d+\.\d+", text)]
    choose = max if highest else min
    return choose(known, key=Dotted, default="")
