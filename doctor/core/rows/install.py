"""How a component is installed: repositories, package names, package versions; by origin, system, branch."""

from __future__ import annotations

from typing import Literal

import msgspec

from doctor.core.rows.base import Row

__all__ = [
    "ForeignPackage",
    "Origin",
    "PackageFamily",
    "PackageSet",
    "PackageVersions",
    "Part",
    "RepositoryRow",
]

#: Whose packages. `airgap` has NVIDIA's names and versions under addresses of the site.
Origin = Literal["nvidia", "canonical", "airgap"]

#: What a set of packages is for.
Part = Literal[
    "tools",
    "headers",
    "compiler",
    "pinning",
    "driver",
    "kernel-modules",
    "fabric",
    "nvlink5",
    "nvsdm",
    "imex",
    "cuda-toolkit",
    "cudnn",
    "nccl",
    "tensorrt",
    "container-toolkit",
    "dcgm",
    "mpi",
]


class _Place(Row, frozen=True, kw_only=True):
    """Where a row holds."""

    origins: tuple[Origin, ...]
    systems: tuple[str, ...]
    """As in systems.yaml: `ubuntu-24.04`."""
    architectures: tuple[Literal["x86_64", "aarch64"], ...] = ("x86_64", "aarch64")


class RepositoryRow(_Place, frozen=True, kw_only=True):
    """A package repository. `{dir}` is the system's directory, `{arch}` the word for the processor.

    Every address can be replaced by one of the site (`--mirror NAME=URL`).
    """

    id: str
    name: str
    """As `--mirror` names it: `cuda`. The file on the host is `mopt-NAME`."""
    parts: tuple[Part, ...]
    """What is taken from it."""
    kind: Literal["deb", "rpm"]
    uri: str
    arch_words: dict[str, str]
    """`{arch}` by processor: servers of arm64 are `sbsa` in the CUDA repository, `arm64` elsewhere."""
    dirs: dict[str, str] = msgspec.field(default_factory=dict)
    """`{dir}` by system: `rhel9` for Rocky 9."""
    suites: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    key: str
    keyring: str
    """Where the key is put on the host."""
    fingerprint: str
    """Of the key, or its long id."""
    label: str = ""
    """Of its Release file: what a preference of apt can match. A mirror must keep it."""
    priority: int | None = None
    """What that label gets, where it is not apt's own 500."""
    conflicting_files: tuple[str, ...] = ()
    """Globs of files by which others name the same repository."""
    module_hotfixes: bool = False


class PackageSet(_Place, frozen=True, kw_only=True):
    """Packages that are installed together.

    In names and globs `{branch}` is `580`, `{version}` the component's version as it is written, `{major}`
    its first number, `{dashed}` `13-0`, `{cuda_major}` that of the stack's CUDA, `{driver_cuda_major}` that
    of the highest CUDA of the driver, `{kernel}` a kernel release, `{kernel_package}` the version of its
    packages (`5.14.0-611.el9_7`), `{kernel_flavour}` as Ubuntu's metapackages name it (`generic-hwe-24.04`),
    `{compiler}` the major of a gcc.
    """

    id: str
    part: Part
    flavour: Literal["open", "proprietary", ""] = ""
    """Of the kernel modules; empty where the set is the same for both."""
    profile: Literal["compute", "full", ""] = ""
    """`full` has the graphics libraries and X, too; empty where the set is for both."""
    versions: str = ""
    """The versions of its component (of the kernel, for `compiler`) that it is for: `>=590`. Empty: any."""
    packages: tuple[str, ...] = ()
    released_with: Part | Literal[""] = ""
    """The part whose `package_versions` give the version; empty: the newest that is offered."""
    version: str = ""
    """A version that follows from elsewhere: `{kernel_package}`."""
    beside: tuple[str, ...] = ()
    """Globs of names that belong to the set when they are installed, too: they stay."""
    stream: str = ""
    """The stream of the module `nvidia-driver` that has it: `{branch}-open`."""
    is_pinned: bool = False
    """Whether the set of the part `pinning` keeps its versions: no hold beside it."""
    pin: str = ""
    """The names that a preference file keeps at the version, where no package does: `src:*nvidia*:any`."""
    uses_dkms: bool = False
    units: tuple[str, ...] = ()
    """Services that it brings and that have to run."""


class PackageFamily(Row, frozen=True, kw_only=True):
    """Every name that the packages of a part ever had with a package manager, of whatever origin."""

    id: str
    part: Part
    kind: Literal["deb", "rpm"]
    names: tuple[str, ...] = ()
    """Globs; with `!` in front: what is none of it. An installed one that a set does not name goes: none for
    packages that others have a use for, such as compilers and headers of other kernels."""
    companions: tuple[str, ...] = ()
    """Names without a branch that no set brings by itself: where one is installed under the old branch's
    name, the new branch's comes in its place."""
    extra_allowed: tuple[str, ...] = ()
    """Globs of what dependency solving may add to a set of the part."""


class ForeignPackage(Row, frozen=True, kw_only=True):
    """Packages of a driver that is somebody else's: what is installed of them stops every change."""

    id: str
    kind: Literal["deb", "rpm"]
    names: tuple[str, ...]
    versions: tuple[str, ...] = ()
    """Globs of package versions that tell them from others of the name. Empty: the name is enough."""
    vendors: tuple[str, ...] = ()
    """Words in the vendor or maintainer that tell them from others of the name."""
    cause: str
    says: str
    way_out: str


class PackageVersions(_Place, frozen=True, kw_only=True):
    """The package version for each version of a component. `{dist}` is `.el9`.

    Revisions change inside a branch, so they are read and never built.
    """

    id: str
    part: Part
    dists: dict[str, str] = msgspec.field(default_factory=dict)
    cuda: str = ""
    """Where one version is built for several CUDAs, as a suffix: which one this is, `13.0`."""
    versions: dict[str, str]
