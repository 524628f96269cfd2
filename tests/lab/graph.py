"""Fills the templates of `graph.yaml` in with the versions of `matrices/packages.yaml`: every stub package."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import yaml

from tests.lab.places import LAB, TREE
from tests.lab.systems import SYSTEM_FACTS, SystemFacts

__all__ = ["Stub", "deb_stubs", "graph", "matrix", "released"]

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Stub:
    """A package: true name, version and relations; `values` are what its template was filled in with."""

    name: str
    version: str
    architecture: str
    repository: str
    """`cuda`, `container-toolkit`, or a part of the system's own: `archive`, `baseos`, `crb`, `epel`."""
    relations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    effect: str = ""
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def branch(self) -> str:
        return self.values.get("B") or self.values.get("V", "").partition(".")[0]


@cache
def graph() -> Row:
    """The templates."""
    return yaml.load((LAB / "graph.yaml").read_text(), Loader=yaml.CSafeLoader)  # type: ignore[no-any-return]


@cache
def matrix() -> Row:
    return yaml.load((TREE / "matrices/packages.yaml").read_text(), Loader=yaml.CSafeLoader)  # type: ignore[no-any-return]


def released(part: str, system: str, origin: str = "nvidia") -> dict[str, str]:
    """Version of a component to version of its packages, as the matrix has them for this system."""
    found: dict[str, str] = {}
    for row in matrix()["package_versions"]:
        if row["part"] == part and system in row["systems"] and origin in row["origins"]:
            dist = row.get("dists", {}).get(system, "")
            for version, package in row["versions"].items():
                if part not in ("tensorrt", "nccl"):
                    found[version] = package.replace("{dist}", dist)
    return found


def fill(text: str, values: Mapping[str, str]) -> str:
    """Put values into `${NAME}`. A name without a value is a fault of the template."""
    return re.sub(r"\$\{(\w+)\}", lambda m: values[m.group(1)], text)


RELATIONS = (
    "depends",
    "recommends",
    "provides",
    "conflicts",
    "replaces",
    "breaks",
    "requires",
    "obsoletes",
    "supplements",
)


def _stub(
    row: Row, values: Mapping[str, str], repository: str, version: str, dropped: tuple[str, ...]
) -> Stub:
    relations = {
        kind: tuple(
            filled
            for word in row.get(kind, ())
            if (filled := fill(str(word), {**values, "SELF": version})).partition(" ")[0] not in dropped
        )
        for kind in RELATIONS
    }
    return Stub(
        name=fill(row["name"], values),
        version=version,
        architecture=str(row.get("arch", "amd64")),
        repository=repository,
        relations={k: v for k, v in relations.items() if v},
        files=tuple(fill(f, values) for f in row.get("files", ())),
        effect=row.get("postinst", row.get("post", "")),
        values=dict(values),
    )


def _applies(row: Row, branch: str, code: str) -> bool:
    if branch.isdigit() and "until_branch" in row and int(branch) > int(row["until_branch"]):
        return False
    return not (code and "on" in row and code not in row["on"])


def _fill_template(
    rows: list[Row], values: Mapping[str, str], repository: str, instance: Row, code: str = ""
) -> Iterator[Stub]:
    omitted, dropped = set(instance.get("omit", ())), tuple(instance.get("drop_depends_on", ()))
    for row in rows:
        if not _applies(row, values.get("B", ""), code):
            continue
        for major in row.get("for_each_CM", [None]):
            with_major = {**values, "CM": str(major)} if major else values
            for own in row.get("versions", [row.get("version", "${FV}")]):
                version = fill(str(own), with_major)
                stub = _stub(row, with_major, repository, version, dropped)
                if stub.name not in omitted:
                    yield stub


def _versions(instance: Row, extra: Mapping[str, str], wanted: Any) -> list[Row]:
    """The versions of an instance: the matrix's and, besides, the graph's own."""
    own = {str(v["V"]): {**v} for v in instance["versions"]}
    for version, package in extra.items():
        if wanted(version):
            own[version] = {"V": version, "FV": package.rpartition(":")[2]}
    return [own[v] for v in sorted(own)]


def deb_stubs(system: str) -> list[Stub]:
    """Every stub of an Ubuntu: NVIDIA's repositories and what the archive must have."""
    facts = SYSTEM_FACTS[system]
    templates = graph()["deb_templates"]
    seen: dict[tuple[str, str, str], Stub] = {}
    for instance in graph()["deb_instances"]:
        if facts.cuda_dir not in instance["os"]:
            continue
        for stub in _deb_instance(instance, templates[instance["template"]], facts):
            seen.setdefault((stub.repository, stub.name, stub.version), stub)
    for stub in archive_stubs(facts):
        seen.setdefault((stub.repository, stub.name, stub.version), stub)
    return list(seen.values())


REPOSITORIES = {"cuda_deb": "cuda", "container_toolkit_deb": "container-toolkit", "canonical": "archive"}


def _deb_instance(instance: Row, rows: list[Row], facts: SystemFacts) -> Iterator[Stub]:
    template = instance["template"]
    branch = str(instance.get("B", ""))
    versions = instance.get("versions") or [{}]
    if template.startswith("cuda_driver"):
        versions = _versions(
            instance, released("driver", facts.name), lambda v: v.partition(".")[0] == branch
        )
    elif template.startswith("cuda_fabric") and "versions" in instance:
        is_old = template.endswith("_suffixed")
        versions = _versions(
            instance,
            released("fabric", facts.name),
            lambda v: v.partition(".")[0] == branch if is_old else int(v.partition(".")[0]) >= 580,
        )
    elif template in ("container_toolkit", "dcgm"):
        part = template.replace("_", "-")
        versions = _versions(instance, released(part, facts.name), bool)
    kernel = facts.kernels[0]
    number = kernel.removesuffix("-generic")
    for own in versions:
        if facts.cuda_dir not in own.get("os", [facts.cuda_dir]):
            continue
        values = {k: str(v) for k, v in own.items() if k not in ("v", "os", "note")}
        values = {"B": branch, "K": kernel, "KPKG": f"{number}.{number.rpartition('-')[2]}", **values}
        values.setdefault("NV", f"{values.get('V', '')}-1")
        yield from _fill_template(rows, values, REPOSITORIES[instance["repo"]], instance, facts.code)


#: What the graph's packages depend on, beyond `base_stubs`, and what roles install from the archive.
ARCHIVE = {
    "gcc": ("gcc-{gcc}",), "gcc-{gcc}": (), "gcc-12": (), "make": (), "patch": (), "build-essential": ("gcc", "make"),
    "dkms": ("gcc", "make", "patch", "kmod"), "unattended-upgrades": (), "docker.io": ("containerd",), "containerd": (), "podman": (),
    "update-notifier-common": (), "libopenmpi3t64": (), "needrestart": (),
}  # fmt: skip
GCC = {"ubuntu-22.04": "11", "ubuntu-24.04": "13", "ubuntu-26.04": "15"}


def archive_stubs(facts: SystemFacts) -> Iterator[Stub]:
    """Ubuntu's own packages. Those that the userland has already (kmod, adduser) are left alone."""
    gcc = GCC[facts.name]
    names = {n.format(gcc=gcc): tuple(d.format(gcc=gcc) for d in ds) for n, ds in ARCHIVE.items()}
    for name in graph()["base_stubs"]["deb"]:
        if "${" not in name and name not in ("kmod", "adduser", "python3-debian"):
            names.setdefault(name, ())
    for name, depends in names.items():
        version = {"dkms": "3.0.11-1ubuntu13", "gcc": f"4:{gcc}.2.0-1"}.get(name, "1.0-1")
        yield Stub(
            name=name,
            version=version,
            architecture="amd64",
            repository="archive",
            relations={"depends": depends} if depends else {},
        )
    for kernel in facts.kernels:
        yield from _kernel_debs(kernel)
    newest = facts.kernels[-1]
    version = _kernel_version(newest)
    for meta, target in {
        "linux-image-generic": "linux-image-{}", "linux-headers-generic": "linux-headers-{}", "linux-generic": "linux-image-generic",
    }.items():  # fmt: skip
        extra = ("linux-headers-generic",) if meta == "linux-generic" else ()
        yield Stub(
            name=meta, version=version, architecture="amd64", repository="archive",
            relations={"depends": (target.format(newest), *extra)},
        )  # fmt: skip


def _kernel_version(kernel: str) -> str:
    number = kernel.removesuffix("-generic")
    return f"{number}.{number.rpartition('-')[2]}"


def _kernel_debs(kernel: str) -> Iterator[Stub]:
    version, values = _kernel_version(kernel), {"K": kernel}
    for kind in ("image", "headers", "modules"):
        yield Stub(
            name=f"linux-{kind}-{kernel}", version=version, architecture="amd64", repository="archive",
            relations={"depends": (f"linux-modules-{kernel}",)} if kind == "image" else {}, effect=f"kernel_{kind}", values=values,
        )  # fmt: skip
