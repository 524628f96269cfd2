"""Why nothing is done on a host: somebody else manages it, or a person must settle something first.

Only what is known refuses; what nobody read does not, except where doing it blindly could leave a host
without a driver: modules that Secure Boot may reject.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.core.claims.setup import vendor_of
from doctor.core.host import Host, is_not_there, known
from doctor.core.lower.catalogue import fits
from doctor.core.lower.ground import Ground
from doctor.core.lower.ready import driver_set
from doctor.core.matrix import Matrix
from doctor.core.rows.install import ForeignPackage
from doctor.core.stages import Refusal

__all__ = [
    "OWNERS",
    "RUNFILE_WAY_OUT",
    "TWO_OWNERS_WAY_OUT",
    "installed_origins",
    "is_key_enrolled",
    "machine_refusals",
    "refusals",
]

#: In the subject of a machine owner key: Ubuntu's own, and that of upstream's dkms.
_KEY_WORDS = ("secure boot module signature key", "dkms module signing key")

#: Whose driver it is -> the cause.
OWNERS = {
    "dgx-os": "plan.dgx_os",
    "jetpack": "plan.jetson",
    "vgpu-guest": "vgpu.wrong_driver_type",
    "windows": "container.wsl_linux_driver_shadow",
}

TWO_OWNERS_WAY_OUT = (
    "change the driver's version in the operator's ClusterPolicy; or set `driver.enabled=false` there,"
    " drain the node, and plan again"
)
RUNFILE_WAY_OUT = (
    "take it away with its own `nvidia-uninstall --silent` while no module is loaded, then plan again"
)


def refusals(ground: Ground) -> tuple[Refusal, ...]:
    """Why nothing is done: that of the machine, else every one of what is installed, else the signature's."""
    found = machine_refusals(ground)
    if not found:
        looks = (_no_gpu, _vgpu_host, _containers, _runfile, _foreign, _origins, _kernel)
        found = tuple(one for look in looks for one in look(ground))
    return found or tuple(_signature(ground))


def machine_refusals(ground: Ground) -> tuple[Refusal, ...]:
    """What needs no stack: whose machine this is, and whether there are packages for it."""
    return next((found for look in (_owner, _place, _no_rows) if (found := tuple(look(ground)))), ())


# --- somebody else's ------------------------------------------------------------------------------


def _owner(ground: Ground) -> Iterator[Refusal]:
    """DGX OS, WSL2, vGPU guests, Jetson: the driver comes from elsewhere."""
    platform = known(ground.host.system.platform) or ""
    kind = {"dgx_os": "dgx-os", "jetson": "jetpack"}.get(platform, ground.target.driver_kind)
    row = next((row for row in ground.matrix.edition.owners if row.driver_kind == kind), None)
    if row is not None:
        yield Refusal(cause=OWNERS[row.driver_kind], text=row.fact, way_out=row.instead)


def _place(ground: Ground) -> Iterator[Refusal]:
    place = known(ground.host.system.virtualisation)
    if place is not None and place.kind == "container":
        yield Refusal(
            cause="plan.inside_container",
            text=f"this is a container ({place.name or 'kind unknown'}): kernel and modules are the host's",
            way_out="plan on the host; inside, only the image's own CUDA and engine can be changed",
        )


def _no_rows(ground: Ground) -> Iterator[Refusal]:
    if ground.system and ground.catalogue.sets:
        return
    rows = {s for row in ground.matrix.edition.package_sets for s in row.systems}
    yield Refusal(
        cause="plan.system_without_packages",
        text=f"packages.yaml has nothing for `{ground.target.os or 'a system that was not told'}`"
        f" with origin {ground.choices.origin} on {ground.target.arch}",
        way_out=f"it knows {', '.join(sorted(rows))}",
    )


def _no_gpu(ground: Ground) -> Iterator[Refusal]:
    if known(ground.host.pci) is not None and not ground.host.gpus_on_bus and ground.driver:
        yield Refusal(
            cause="system.no_nvidia_gpu",
            text="there is no NVIDIA GPU on the bus of this host",
            way_out="check slot, power and firmware settings; or plan a goal without a driver",
        )


def _vgpu_host(ground: Ground) -> Iterator[Refusal]:
    """The vGPU manager is another package of the driver, and goes with the guests' branch."""
    modules = {module.name for module in known(ground.host.kernel.modules) or ()}
    cards = {device.address for device in ground.host.gpus_on_bus}
    slices = [d for d in known(ground.host.pci) or () if d.is_gpu and d.address not in cards]
    if ground.driver and ("nvidia_vgpu_vfio" in modules or slices):
        sign = f"`{slices[0].address}` is a slice of a GPU" if slices else "`nvidia_vgpu_vfio` is loaded"
        yield Refusal(
            cause="plan.vgpu_host",
            text=f"{sign}: the driver of this host is the vGPU manager, which no repository here has",
            way_out="take the vGPU manager of the branch wanted from NVIDIA's licensing portal",
        )


def _containers(ground: Ground) -> Iterator[Refusal]:
    """A driver container, or the GPU Operator: it installs, upgrades and removes the driver itself."""
    root = known(ground.host.driver.container_root)
    kubernetes = known(ground.host.containers.kubernetes)
    has_operator = kubernetes is not None and kubernetes.has_nvidia_operator
    if root or has_operator:
        where = (
            f"a driver container keeps its driver in `{root}`"
            if root
            else "the GPU Operator manages this node"
        )
        yield Refusal(
            cause="container.driver_double_managed",
            text=f"{where}; a driver of the host beside it would fight with it for the modules",
            way_out=TWO_OWNERS_WAY_OUT,
        )


# --- other packages -------------------------------------------------------------------------------


def _runfile(ground: Ground) -> Iterator[Refusal]:
    """A library of the driver that no package owns, while the package database was read."""
    libraries = known(ground.host.driver.libraries)
    if ground.installed is None or not libraries or not ground.driver:
        return
    stray = [one.path for one in libraries if one.package == "" and not one.is_compat and one.is_default]
    if stray:
        yield Refusal(
            cause="driver.mixed_install_sources",
            text=f"no package owns `{min(stray)}`: the driver was installed by a .run file or by hand",
            way_out=RUNFILE_WAY_OUT,
        )


def _foreign(ground: Ground) -> Iterator[Refusal]:
    packages = known(ground.host.packages)
    if packages is None:
        return
    kind = "deb" if packages.manager == "dpkg" else "rpm"
    told: set[str] = set()
    for row in ground.matrix.edition.foreign_packages:
        hits = sorted(
            package.name
            for package in packages.installed
            if row.kind == kind and _is_foreign(row, package.name, package.version, package.origin)
        )
        if hits and row.says not in told:
            told.add(row.says)
            yield Refusal(cause=row.cause, text=f"`{hits[0]}` is installed: {row.says}", way_out=row.way_out)


def _is_foreign(row: ForeignPackage, name: str, version: str, vendor: str) -> bool:
    if not fits(name, row.names) or (row.versions and not fits(version, row.versions)):
        return False
    return not row.vendors or any(word in vendor.casefold() for word in row.vendors)


def _origins(ground: Ground) -> Iterator[Refusal]:
    """Driver packages of both origins, or of the other one."""
    found = {} if ground.choices.change_origin else installed_origins(ground.matrix, ground.host)
    if len(found) > 1:
        words = " and ".join(f"`{name}` is {origin}'s" for origin, name in sorted(found.items()))
        yield Refusal(
            cause="policy.mixed_repositories",
            text=f"packages of the driver come from two origins: {words}",
            way_out="decide for one: `--change-origin` with `--origin nvidia` or `--origin canonical`"
            " replaces the other's packages in one transaction",
        )
        return
    wanted = "canonical" if ground.choices.origin == "canonical" else "nvidia"
    if found and wanted not in found:
        origin, name = next(iter(found.items()))
        yield Refusal(
            cause="plan.origin_changes",
            text=f"`{name}` is {origin}'s, and the plan would take the driver from {wanted}",
            way_out=f"`--origin {origin}` keeps to it; `--change-origin` replaces each package of the driver",
        )


def installed_origins(matrix: Matrix, host: Host) -> dict[str, str]:
    """Origin -> one of its driver packages; what tells no origin is left out."""
    packages = known(host.packages)
    if packages is None:
        return {}
    kind = "deb" if packages.manager == "dpkg" else "rpm"
    families = (row for row in matrix.edition.package_families if row.part == "driver" and row.kind == kind)
    globs = next((row.names for row in families), ())
    found: dict[str, str] = {}
    for package in sorted(packages.installed, key=lambda one: one.name):
        if not fits(package.name, globs):
            continue
        vendor = vendor_of(package.origin)
        if vendor == "ubuntu.com" or re.search(r"-server(?:-open)?$", package.name):
            found.setdefault("canonical", package.name)
        elif "nvidia" in vendor:
            found.setdefault("nvidia", package.name)
    return found


def _kernel(ground: Ground) -> Iterator[Refusal]:
    """Kernels whose headers are packages of another name: 64 KiB pages, real time."""
    special = [release for release in ground.kernels if "+" in release]
    if special and ground.driver:
        yield Refusal(
            cause="plan.kernel_of_another_kind",
            text=f"the kernel {special[0]} has headers of another name, for which packages.yaml has no row",
            way_out="boot the plain kernel of the system, or add a row of the part `headers` in an overlay",
        )


# --- signatures -----------------------------------------------------------------------------------


def _signature(ground: Ground) -> Iterator[Refusal]:
    """Modules that are built here load under Secure Boot only with a key that a person enrolled."""
    host = ground.host
    if not ground.driver or known(host.kernel.secure_boot) != "enabled" or not driver_set(ground).uses_dkms:
        return
    if is_key_enrolled(host):
        return
    keys = known(host.machine.enrolled_keys)
    said = (
        "no key of dkms is enrolled"
        if keys is not None or is_not_there(host.machine.enrolled_keys)
        else ("whether a key of dkms is enrolled was not read")
    )
    ubuntu = ground.catalogue.kind == "deb"
    other = "take Canonical's signed modules (`--origin canonical`), or " if ubuntu else ""
    path = "/var/lib/shim-signed/mok/MOK.der" if ubuntu else "/var/lib/dkms/mok.pub"
    yield Refusal(
        cause="driver.module_signature_rejected",
        text=f"Secure Boot is on, the modules would be built here, and {said}: the kernel would reject them",
        way_out=f"{other}enrol the key: `mokutil --import {path}`, reboot, and confirm it at the console;"
        " then plan again",
    )


def is_key_enrolled(host: Host) -> bool:
    """A key of dkms is enrolled; or a module that was built here is loaded now."""
    keys = known(host.machine.enrolled_keys) or ()
    if any(word in key.casefold() for key in keys for word in _KEY_WORDS):
        return True
    running = known(host.kernel.release)
    kernels = known(host.kernel.installed) or ()
    signers = (
        module.signer.casefold()
        for kernel in kernels
        if kernel.release == running
        for module in known(kernel.nvidia_modules) or ()
        if module.name == "nvidia"
    )
    is_loaded = known(host.driver.kernel_version) is not None
    return is_loaded and any(word in signer for signer in signers for word in _KEY_WORDS)
