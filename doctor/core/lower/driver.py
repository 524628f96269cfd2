"""The driver and what runs at its version: branch lock, modules, fabric."""

from __future__ import annotations

from doctor.core.lower.ground import Ground
from doctor.core.lower.packages import doubts, names_of, transaction, unlocked, wanted_of
from doctor.core.lower.ready import driver_set
from doctor.core.rows.install import PackageSet, Part
from doctor.core.stages import (
    FileEntry,
    KernelSpec,
    PackageVersion,
    Pin,
    Reboot,
    Services,
    Stage,
    Transaction,
    Verify,
)

__all__ = ["driver", "fabric", "fabric_parts", "is_pinned"]

#: What holds the modules, in the order in which it is stopped.
_USERS = ("nvidia-dcgm", "nvidia-imex", "nvidia-fabricmanager", "nvidia-persistenced")
_UNLOAD = ("nvidia_uvm", "nvidia_peermem", "nvidia_drm", "nvidia_modeset", "nvidia")
_LOAD = ("nvidia", "nvidia_uvm")
_PREFERENCE = "/etc/apt/preferences.d/mopt-driver"


# --- driver ---------------------------------------------------------------------------------------


def driver(ground: Ground) -> Stage:
    """Branch lock first and by itself, then the whole set at one version, then the module that is loaded."""
    row = driver_set(ground)
    wanted = wanted_of(ground, row, ground.driver)
    modules = _signed_modules(ground)
    lock = _lock_set(ground)
    pins = _pins(ground, lock)
    first = _pinning(ground, lock)
    main = transaction(
        ground,
        "driver",
        (*wanted, *modules),
        beside=names_of(ground, row, ground.driver),
        extra=_with_kernels(ground) if modules else (),
        why=f"driver {ground.driver}, {ground.flavour} modules",
    )
    packages = (*first, *main)
    return Stage(
        id="driver",
        why=_why(ground, row, lock),
        pins=pins,
        unlock=unlocked(ground, packages),
        packages=packages,
        files=()
        if pins or ground.catalogue.kind == "rpm"
        else (FileEntry(path=_PREFERENCE, state="absent"),),
        services=Services(stop=_USERS, start=row.units, enable=row.units),
        kernel=KernelSpec(kernels=ground.kernels, module_version=ground.driver, load=_LOAD, unload=_UNLOAD),
        reboot=Reboot(when="if_module_differs", reload_instead=ground.choices.reload),
        verify=_verify(ground, wanted),
    )


def _signed_modules(ground: Ground) -> tuple[PackageVersion, ...]:
    """Canonical's signed modules, one package a kernel."""
    row = ground.catalogue.find("kernel-modules", ground.driver, flavour=ground.flavour)
    if row is None:
        return ()
    found = [p for k in ground.kernels for p in wanted_of(ground, row, ground.driver, kernel=k)]
    return tuple(dict.fromkeys(found))


def _with_kernels(ground: Ground) -> tuple[str, ...]:
    """What signed modules may bring: the kernel that they are for."""
    family = ground.catalogue.family("kernel-modules")
    return family.extra_allowed if family else ()


def _lock_set(ground: Ground) -> PackageSet | None:
    return ground.catalogue.find("pinning", ground.driver)


def _pins(ground: Ground, lock: PackageSet | None) -> tuple[Pin, ...]:
    """A preference file where there is no package that brings one."""
    if lock is None or not lock.pin:
        return ()
    version = f"version {ground.driver}*"
    return (Pin(file=_PREFERENCE, packages=lock.pin, pin=version, priority=1001),)


def _pinning(ground: Ground, lock: PackageSet | None) -> tuple[Transaction, ...]:
    """Apt reads preferences before it resolves, so what brings them comes in a transaction of its own.

    One of another branch, or of an origin that is no longer wanted, goes.
    """
    wanted = wanted_of(ground, lock, ground.driver) if lock and lock.packages else ()
    return transaction(
        ground, "pinning", wanted, why="the branch lock lies on disk before the driver is resolved"
    )


def is_pinned(ground: Ground, row: PackageSet) -> bool:
    """Whether the branch lock keeps a set's versions, so that it needs no hold."""
    return row.is_pinned and _lock_set(ground) is not None


def _why(ground: Ground, row: PackageSet, lock: PackageSet | None) -> tuple[str, ...]:
    found = [f"driver {ground.driver} with {ground.flavour} modules, set `{row.id}`"]
    if lock is not None:
        found.append(f"locked by `{lock.id}`")
    if row.stream:
        found.append("from the module stream of its branch")
    return (*found, *doubts(ground, "driver", ground.driver))


def _verify(ground: Ground, wanted: tuple[PackageVersion, ...]) -> tuple[Verify, ...]:
    version = ground.driver
    packages = (
        Verify(kind="package_version", subject=package.name, want=package.version)
        for package in wanted
        if package.version
    )
    modules = (
        Verify(kind="module_on_disk", subject=release, want=version, why="packages succeed without a module")
        for release in ground.kernels
    )
    return (
        *packages,
        *modules,
        Verify(kind="not_loaded", subject="nouveau"),
        Verify(
            kind="module_loaded", subject="nvidia", want=version, why="loaded and installed are one version"
        ),
    )


# --- fabric ---------------------------------------------------------------------------------------


def fabric_parts(ground: Ground) -> tuple[Part, ...]:
    """What the GPUs' fabric needs on this host: nothing, the manager, NVLink 5's parts, or IMEX."""
    fabrics = set()
    for kind in ground.target.gpus:
        product = ground.matrix.product(kind.pci_id) if kind.pci_id else None
        if kind.is_nvswitch and product is not None:
            fabrics.add(product.fabric or "nvswitch")
    found: list[Part] = []
    if ground.stack.components.get("fabric-manager") and fabrics != {"rack"}:
        found.append("fabric")
    if "nvlink5" in fabrics:
        found.append("nvlink5")
        if ground.catalogue.find("nvsdm", ground.driver):
            found.append("nvsdm")
    if ground.stack.components.get("imex") or "rack" in fabrics:
        found.append("imex")
    return tuple(found)


_UMAD = FileEntry(
    path="/etc/modules-load.d/mopt-nvlink5.conf",
    content="# Written by mopt-doctor: the fabric manager reaches NVLink 5 switches through InfiniBand.\n"
    "ib_umad\n",
)


def fabric(ground: Ground) -> Stage:
    """Fabric manager and NSCQ, NVLink 5's parts, IMEX: at the driver's version, and only where needed."""
    parts = fabric_parts(ground)
    sets = {part: ground.catalogue.set_of(part, ground.driver) for part in parts}
    packages: tuple[Transaction, ...] = ()
    verify: tuple[Verify, ...] = ()
    for part, row in sets.items():
        wanted = wanted_of(ground, row, ground.driver)
        tied = "at the driver's version" if row.released_with else "which has versions of its own"
        packages += transaction(ground, part, wanted, why=f"{part}, {tied}")
        verify += tuple(
            Verify(kind="package_version", subject=p.name, want=p.version, why="it refuses another driver")
            for p in wanted
            if p.version
        )
    packages += _needless(ground, parts)
    units = tuple(dict.fromkeys(unit for row in sets.values() for unit in row.units))
    return Stage(
        id="fabric",
        why=(
            *(f"set `{row.id}`" for row in sets.values()),
            *(doubts(ground, "fabric", ground.driver) if sets else ()),
        ),
        unlock=unlocked(ground, packages),
        packages=packages,
        files=(_UMAD,) if "nvlink5" in parts else (),
        services=Services(start=units, enable=units),
        verify=(*verify, *(Verify(kind="service_active", subject=unit) for unit in units)),
    )


def _needless(ground: Ground, parts: tuple[Part, ...]) -> tuple[Transaction, ...]:
    """A fabric manager on a host without NVSwitch fails at every boot; only where the GPUs are known."""
    if not ground.target.gpus or any(kind.maker != "nvidia" for kind in ground.target.gpus):
        return ()
    found: tuple[Transaction, ...] = ()
    for part in ("fabric", "nvlink5"):
        if part not in parts and not parts:
            found += transaction(ground, part, (), why="no NVSwitch joins these GPUs")
    return found
