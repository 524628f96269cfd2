"""Evidence to Host: every area has its parser, and no area's trouble reaches another."""

from __future__ import annotations

from doctor.core.evidence import Evidence, Item
from doctor.core.host import Collection, Host, Known, StuckItem
from doctor.facts.cuda import read_cuda
from doctor.facts.driver import read_driver
from doctor.facts.kernel import read_kernel
from doctor.facts.packages import read_packages
from doctor.facts.pci import read_pci
from doctor.facts.system import read_system

__all__ = ["read_host"]


def read_host(evidence: Evidence) -> Host:
    """All facts of the host scope. Never raises: what cannot be read is `Absent` with the reason."""
    system = read_system(evidence)
    place = system.virtualisation.value.kind if isinstance(system.virtualisation, Known) else ""
    kernel = read_kernel(evidence, in_container=place == "container")
    return Host(
        collection=_collection(evidence),
        system=system,
        kernel=kernel,
        pci=read_pci(evidence),
        driver=read_driver(evidence, is_wsl=place == "wsl2", logs=kernel.logs),
        cuda=read_cuda(evidence),
        packages=read_packages(evidence, system.units),
    )


def _collection(evidence: Evidence) -> Collection:
    meta = evidence.meta
    return Collection(
        taken_at=meta.taken_at,
        boot_id=meta.boot_id,
        root=meta.root,
        tool=meta.tool,
        sysroot=meta.sysroot,
        stuck=tuple(_stuck(item) for item in meta.items if item.status == "timeout"),
        denied=tuple(item.key for item in meta.items if item.status == "denied"),
        errors=tuple(f"{i.key}: {i.detail or 'no reason given'}" for i in meta.items if i.status == "error"),
    )


def _stuck(item: Item) -> StuckItem:
    return StuckItem(
        key=item.key,
        pid=item.pid,
        state=item.state or "",
        wchan=item.wchan or "",
        waited_s=None if item.ms is None else round(item.ms / 1000, 3),
    )
