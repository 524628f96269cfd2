"""What preflight looks for on the host itself: the same that refuses a plan made from a host's facts.

A plan can be made for a machine that is only named, and a host can change after it was made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from doctor.core.lower.ground import Ground
from doctor.core.lower.refusals import OWNERS, RUNFILE_WAY_OUT, TWO_OWNERS_WAY_OUT
from doctor.core.stages import Refusal, Sign

__all__ = ["signs"]

#: Whose machine it is, by a file or by the kernel's name.
_OWNED_BY: dict[str, tuple[Literal["path", "kernel", "vgpu_guest"], tuple[str, ...]]] = {
    "dgx-os": ("path", ("/etc/dgx-release",)),
    "jetpack": ("path", ("/etc/nv_tegra_release",)),
    "windows": ("kernel", ("microsoft",)),
    "vgpu-guest": ("vgpu_guest", ()),
}
#: A driver of containers, and the marks of the operator that runs it.
_OPERATOR = (
    "/run/nvidia/driver/usr/lib*/libcuda.so.*",
    "/run/nvidia/driver/usr/lib*/*/libcuda.so.*",
    "/run/nvidia/validations/*",
)
#: Where the loader looks first; the links beside them are ldconfig's, and nobody's.
_LIBRARIES = ("/usr/lib/x86_64-linux-gnu/libcuda.so.*", "/usr/lib/aarch64-linux-gnu/libcuda.so.*")
_LIBRARIES_RPM = ("/usr/lib64/libcuda.so.*",)


def signs(ground: Ground) -> tuple[Sign, ...]:
    """Every sign that holds for this system and plan."""
    return (*_owners(ground), *_managed(), *_packages(ground), *(_strays(ground) if ground.driver else ()))


def _owners(ground: Ground) -> Iterator[Sign]:
    for row in ground.matrix.edition.owners:
        kind, subjects = _OWNED_BY[row.driver_kind]
        yield Sign(
            kind=kind,
            subjects=subjects,
            refusal=Refusal(cause=OWNERS[row.driver_kind], text=row.fact, way_out=row.instead),
        )


def _managed() -> Iterator[Sign]:
    yield Sign(
        kind="path",
        subjects=_OPERATOR,
        refusal=Refusal(
            cause="container.driver_double_managed",
            text="a driver container or the GPU Operator manages the driver of this node; one of the host"
            " beside it would fight with it for the modules",
            way_out=TWO_OWNERS_WAY_OUT,
        ),
    )


def _packages(ground: Ground) -> Iterator[Sign]:
    for row in ground.matrix.edition.foreign_packages:
        if row.kind == ground.catalogue.kind:
            yield Sign(
                kind="package",
                subjects=row.names,
                versions=row.versions,
                vendors=row.vendors,
                refusal=Refusal(cause=row.cause, text=row.says, way_out=row.way_out),
            )


def _strays(ground: Ground) -> Iterator[Sign]:
    yield Sign(
        kind="unowned",
        subjects=_LIBRARIES if ground.catalogue.kind == "deb" else _LIBRARIES_RPM,
        refusal=Refusal(
            cause="driver.mixed_install_sources",
            text="no package owns it: the driver was installed by a .run file or by hand",
            way_out=RUNFILE_WAY_OUT,
        ),
    )
