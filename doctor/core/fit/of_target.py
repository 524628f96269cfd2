"""The ground of a machine that a question names, which need not be there."""

from __future__ import annotations

from doctor.core.fit.ground import Card, Ground, forward_compat
from doctor.core.matrix import Matrix
from doctor.core.target import Target, system_of
from doctor.core.versions import Dotted

__all__ = ["ground_of_target"]


def ground_of_target(matrix: Matrix, target: Target) -> Ground:
    """The machine that a question names."""
    system = system_of(matrix, target.os) if target.os else None
    driver = target.version("driver")
    version = Dotted(driver) if driver else None
    branch = matrix.branch(version) if version else None
    glibc, compat = target.version("glibc"), target.version("cuda-compat")
    return Ground(
        driver=version,
        driver_cuda=branch.cuda_version if branch else None,
        compat=Dotted(compat) if compat else None,
        cards=tuple(
            Card(
                name=kind.name,
                capability=Dotted(kind.compute_capability) if kind.compute_capability else None,
                takes_compat=forward_compat(matrix, kind.pci_id),
            )
            for kind in target.gpus
        ),
        has_gpu=any(kind.maker != "other" for kind in target.gpus) if target.gpus else None,
        glibc=Dotted(glibc) if glibc else system.glibc if system else None,
        glibc_source=system.source if system and not glibc else (),
        architecture=target.arch,
        os=target.os,
    )
