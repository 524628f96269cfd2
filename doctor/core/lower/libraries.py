"""What stands on the driver: CUDA toolkits, libraries, TensorRT, DCGM."""

from __future__ import annotations

from msgspec.structs import replace

from doctor.core.lower.ground import Ground
from doctor.core.lower.packages import doubts, names_of, transaction, unlocked, wanted_of
from doctor.core.rows.install import Part
from doctor.core.stages import PackageVersion, Services, Stage, StageId, Transaction, Verify

__all__ = ["cuda", "dcgm", "library_parts", "tensorrt"]

#: Part -> the component whose version it has.
_COMPONENTS: dict[Part, str] = {
    "cuda-toolkit": "cuda-toolkit",
    "cudnn": "cudnn",
    "nccl": "nccl",
    "tensorrt": "tensorrt",
    "dcgm": "dcgm",
}
_OLD_DCGM = "datacenter-gpu-manager"


def library_parts(ground: Ground) -> tuple[Part, ...]:
    """Those of the stack."""
    return tuple(part for part, component in _COMPONENTS.items() if ground.version(component))


def cuda(ground: Ground) -> Stage:
    """The toolkit beside others, never a package that brings a driver; cuDNN and NCCL of its CUDA."""
    stage = _stage(ground, "cuda", ("cuda-toolkit", "cudnn", "nccl"))
    version = ground.version("cuda-toolkit")
    if not version:
        return stage
    place = f"/usr/local/cuda-{'.'.join(version.split('.')[:2])}"
    check = Verify(kind="file_exists", subject=f"{place}/version.json")
    return replace(stage, verify=(*stage.verify, check))


def tensorrt(ground: Ground) -> Stage:
    """Every package of TensorRT at one version, for one CUDA."""
    return _stage(ground, "tensorrt", ("tensorrt",))


def dcgm(ground: Ground) -> Stage:
    """DCGM 4; its predecessor is taken away first, since the two conflict."""
    stage = _stage(ground, "dcgm", ("dcgm",))
    if not ground.version("dcgm"):
        return stage
    row = ground.catalogue.set_of("dcgm", ground.version("dcgm"))
    purge: tuple[Transaction, ...] = ()
    packages = stage.packages
    if _OLD_DCGM in (ground.installed or {}):
        purge = (Transaction(remove=(_OLD_DCGM,), why="DCGM 4 conflicts with it"),)
        packages = tuple(_without(one, _OLD_DCGM) for one in packages)
    return replace(
        stage,
        packages=(*purge, *packages),
        services=Services(stop=row.units, start=row.units, enable=row.units),
        verify=(*stage.verify, *(Verify(kind="service_active", subject=unit) for unit in row.units)),
    )


def _stage(ground: Ground, stage: StageId, parts: tuple[Part, ...]) -> Stage:
    packages: tuple[Transaction, ...] = ()
    verify: tuple[Verify, ...] = ()
    why: tuple[str, ...] = ()
    for part in parts:
        version = ground.version(_COMPONENTS[part])
        if not version:
            continue
        wanted = _wanted(ground, part, version)
        beside = names_of(ground, ground.catalogue.set_of(part, version), version)
        packages += transaction(ground, part, wanted, beside=beside, why=f"{part} {version}")
        verify += tuple(
            Verify(kind="package_version", subject=p.name, want=p.version) for p in wanted if p.version
        )
        why += (f"{part} {version}", *doubts(ground, part, version))
    return Stage(id=stage, why=why, unlock=unlocked(ground, packages), packages=packages, verify=verify)


def _wanted(ground: Ground, part: Part, version: str) -> tuple[PackageVersion, ...]:
    row = ground.catalogue.set_of(part, version)
    wanted = wanted_of(ground, row, version)
    if part == "dcgm" and ground.driver_cuda_major == "13" and _has_old_cards(ground):
        # Up to Volta the diagnostics are built with CUDA 12 only, while the driver speaks 13.
        wanted = (*wanted, *wanted_of(ground, row, version, driver_cuda_major="12"))
    return tuple(dict.fromkeys(wanted))


def _has_old_cards(ground: Ground) -> bool:
    capabilities = (kind.compute_capability for kind in ground.target.gpus if kind.compute_capability)
    return any(tuple(map(int, text.split("."))) < (7, 5) for text in capabilities)


def _without(one: Transaction, name: str) -> Transaction:
    return replace(one, remove=tuple(other for other in one.remove if other != name))
