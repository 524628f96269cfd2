"""The stages before the driver: tools, drain, repositories, and what a module build needs."""

from __future__ import annotations

import re

from doctor.core.host import known
from doctor.core.lower.catalogue import Catalogue, filled
from doctor.core.lower.ground import Ground
from doctor.core.lower.packages import transaction, unlocked, wanted_of
from doctor.core.rows.install import PackageSet, Part, RepositoryRow
from doctor.core.stages import (
    FileEntry,
    KernelSpec,
    Key,
    PackageVersion,
    Pin,
    Repository,
    Stage,
    Stream,
    Verify,
)
from doctor.core.target import system_of
from doctor.core.versions import Dotted
from doctor.errors import UsageError

__all__ = ["NOUVEAU", "bootstrap", "driver_set", "kernel", "repositories", "repository_file"]

NOUVEAU = FileEntry(
    path="/etc/modprobe.d/mopt-nouveau.conf",
    content="# Written by mopt-doctor: nouveau takes the GPUs before the NVIDIA driver can.\n"
    "blacklist nouveau\noptions nouveau modeset=0\n",
    rebuild_initramfs=True,
)
_DEB_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


# --- bootstrap ------------------------------------------------------------------------------------


def bootstrap(ground: Ground) -> Stage:
    """Tools that later acts rest on."""
    row = ground.catalogue.find("tools")
    packages = (
        transaction(ground, "tools", wanted_of(ground, row, ""), why="tools of later stages") if row else ()
    )
    return Stage(id="bootstrap", packages=packages)


# --- repositories ---------------------------------------------------------------------------------


def repositories(ground: Ground, parts: frozenset[Part]) -> Stage:
    """Repositories of the parts in the stack; the driver's module stream, where there are streams."""
    rows = ground.catalogue.repositories_of(parts)
    _refuse_unknown(ground)
    row = driver_set(ground) if ground.driver else None
    stream = filled(row.stream, ground.values) if row and row.stream else ""
    return Stage(
        id="repositories",
        why=tuple(f"{row.name}: for {', '.join(p for p in row.parts if p in parts)}" for row in rows),
        repositories=tuple(_repository(ground, row) for row in rows),
        pins=tuple(_label_pin(row) for row in rows if row.label and row.priority is not None),
        streams=(Stream(module="nvidia-driver", stream=stream),) if stream else (),
    )


def _refuse_unknown(ground: Ground) -> None:
    """A name that no repository has here would silently change nothing."""
    names = {row.name for row in ground.matrix.edition.repositories}
    for option, given in (("--mirror", ground.choices.mirrors), ("--key", ground.choices.keys)):
        for name in given:
            if name not in names:
                known_ones = ", ".join(sorted(names))
                raise UsageError(f"`{option} {name}=…` names no repository", hints=(f"known: {known_ones}",))


def driver_set(ground: Ground) -> PackageSet:
    """The names of the driver's packages for this flavour and profile."""
    return ground.catalogue.set_of("driver", ground.driver, flavour=ground.flavour, profile=profile(ground))


def profile(ground: Ground) -> str:
    """`full` where a desktop's metapackage is installed, so that its libraries are not lost."""
    if ground.choices.profile:
        return ground.choices.profile
    metapackage = re.compile(
        r"(?:nvidia-driver(?:-\d+)?|nvidia-open(?:-\d+)?|cuda-drivers(?:-\d+)?)(?:-open)?"
    )
    return "full" if any(metapackage.fullmatch(name) for name in ground.installed or {}) else "compute"


def _repository(ground: Ground, row: RepositoryRow) -> Repository:
    values = _words(ground.catalogue, row)
    mirror = ground.choices.mirrors.get(row.name, "")
    if ground.choices.origin == "airgap" and not mirror:
        raise UsageError(
            f"origin `airgap` needs an address for the repository `{row.name}`",
            hints=(f"`--mirror {row.name}=URL`, and `--key {row.name}=file:NAME` for its key",),
        )
    return Repository(
        id=f"mopt-{row.name}",
        kind=row.kind,
        uris=(mirror or filled(row.uri, values),),
        suites=row.suites,
        components=row.components,
        architectures=(_DEB_ARCHITECTURES[ground.target.arch],) if row.kind == "deb" else (),
        description=f"{row.name} for {ground.system} (mopt-doctor)",
        key=_key(ground, row, values),
        conflicting_files=row.conflicting_files,
        module_hotfixes=row.module_hotfixes,
    )


def _words(catalogue: Catalogue, row: RepositoryRow) -> dict[str, str]:
    return {"arch": row.arch_words.get(catalogue.architecture, ""), "dir": row.dirs.get(catalogue.system, "")}


def _key(ground: Ground, row: RepositoryRow, values: dict[str, str]) -> Key:
    address, _, fingerprint = ground.choices.keys.get(row.name, "").partition("#")
    is_file = address.startswith("file:")
    return Key(
        url="" if is_file else address or filled(row.key, values),
        file=address.removeprefix("file:") if is_file else "",
        keyring=row.keyring,
        fingerprint=fingerprint or row.fingerprint,
    )


def _label_pin(row: RepositoryRow) -> Pin:
    return Pin(
        file=f"/etc/apt/preferences.d/mopt-{row.name}",
        packages="*",
        pin=f"release l={row.label}",
        priority=row.priority or 0,
    )


def repository_file(repository: Repository) -> str:
    """Where a repository stands on the host."""
    if repository.kind == "deb":
        return f"/etc/apt/sources.list.d/{repository.id}.sources"
    return f"/etc/yum.repos.d/{repository.id}.repo"


# --- kernel ---------------------------------------------------------------------------------------


def kernel(ground: Ground) -> Stage:
    """Headers of each kernel, the compiler it was built with, nouveau off."""
    row = driver_set(ground)
    headers = _headers(ground) if row.uses_dkms else ()
    compilers = _compilers(ground) if row.uses_dkms else ()
    packages = tuple(
        one
        for package in headers
        for one in transaction(ground, "headers", (package,), why=f"a module build needs {_spec(package)}")
    )
    packages += transaction(ground, "compiler", compilers, why="the compiler that built the kernel")
    builds = tuple(
        Verify(
            kind="file_exists", subject=f"/lib/modules/{release}/build", why="the module is built against it"
        )
        for release in ground.kernels
        if row.uses_dkms
    )
    return Stage(
        id="kernel",
        why=(f"modules are built for {', '.join(ground.kernels)}",)
        if row.uses_dkms and ground.kernels
        else (),
        unlock=unlocked(ground, packages),
        packages=packages,
        files=(NOUVEAU,),
        kernel=KernelSpec(
            kernels=ground.kernels,
            header_packages=tuple(_spec(package) for package in headers),
            compiler_packages=tuple(package.name for package in compilers),
        ),
        verify=builds,
    )


def _headers(ground: Ground) -> tuple[PackageVersion, ...]:
    row = ground.catalogue.find("headers")
    if row is None:
        return ()
    found = [
        package
        for release in ground.kernels
        for package in wanted_of(ground, row, "", kernel=release, kernel_package=_package_version(release))
    ]
    return tuple(dict.fromkeys(found))


def _package_version(release: str) -> str:
    """The package version of an Enterprise Linux kernel: `5.14.0-611.el9_7` of its release."""
    return re.sub(r"\.(?:x86_64|aarch64)$", "", release)


def _spec(package: PackageVersion) -> str:
    return f"{package.name}-{package.version}" if package.version else package.name


def _compilers(ground: Ground) -> tuple[PackageVersion, ...]:
    """A compiler besides the system's own, where the running kernel was built by another."""
    row = system_of(ground.matrix, ground.target.os)
    release = ground.kernels[0] if ground.kernels else ""
    built = _compiler_major(known(ground.host.kernel.compiler) or "")
    if built is None:
        fixed = ground.catalogue.find("compiler", release) if release else None
        return wanted_of(ground, fixed, release) if fixed and "{" not in "".join(fixed.packages) else ()
    if row is None or built == str(Dotted(row.gcc.raw).major):
        return ()
    rows = (r for r in ground.catalogue.sets if r.part == "compiler" and not r.versions)
    general = next(rows, None)
    return wanted_of(ground, general, release or "0", compiler=built) if general else ()


def _compiler_major(text: str) -> str | None:
    """`13` of `x86_64-linux-gnu-gcc-13 (Ubuntu 13.3.0-6ubuntu2) 13.3.0`."""
    match = re.search(r"gcc(?:-\d{1,3})? ?\([^)]{0,200}\) (\d{1,3})\.", text)
    return match.group(1) if match else None
