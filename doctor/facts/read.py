"""Evidence to Host, scope by scope: every area has its parser, and no area's trouble reaches another."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from doctor.core.evidence import Evidence, Item
from doctor.core.host import (
    Absent,
    Collection,
    Fact,
    Host,
    Kernel,
    Known,
    PciDevice,
    StuckItem,
    System,
    Virtualisation,
)
from doctor.facts.containers import read_containers
from doctor.facts.cuda import read_cuda
from doctor.facts.driver import read_driver
from doctor.facts.environment import environment_path, read_environment
from doctor.facts.fabric import read_fabric
from doctor.facts.kernel import read_kernel
from doctor.facts.loadedlog import gpus_by_log
from doctor.facts.machine import read_machine
from doctor.facts.network import read_network
from doctor.facts.packages import read_packages
from doctor.facts.pci import read_pci
from doctor.facts.sitepackages import read_environments
from doctor.facts.system import read_system

__all__ = ["read_host", "read_scopes"]

#: Host and containers hold environments; they are none.
_ELSEWHERE = Absent(reason="not_collected", origin="scope", detail="an environment is a scope of its own")


def read_host(evidence: Evidence) -> Host:
    """All facts of the host scope. Never raises: what cannot be read is `Absent` with the reason."""
    return _read(evidence.only("host"), "host")


def read_scopes(evidence: Evidence) -> tuple[Host, ...]:
    """The facts of every scope that has items: `host` first, each read from its own items only.

    A `collect_env` that was run on the host or in a container tells of an environment besides: that
    is a scope of its own, `venv:PATH` (`venv:PATH@container:ID`), behind the others.
    """
    views = {scope: evidence.only(scope) for scope in evidence.scopes or ("host",)}
    found = {scope: _read(view, scope) for scope, view in views.items()}
    for scope, view in views.items():
        if not scope.startswith("venv:"):
            inner = _environment(view, "" if scope == "host" else f"@{scope}")
            if inner is not None:
                # What was asked inside the environment itself knows it better.
                found.setdefault(inner.scope, inner)
            for inner in _listed(view, "" if scope == "host" else f"@{scope}"):
                found.setdefault(inner.scope, inner)
    return tuple(found.values())


def _environment(evidence: Evidence, where: str) -> Host | None:
    environment = read_environment(evidence)
    if not isinstance(environment, Known):
        return None
    scope = f"venv:{environment_path(evidence)}{where}"
    taken = Collection(taken_at=evidence.meta.taken_at, tool=evidence.meta.tool)
    return Host(scope=scope, collection=taken, environment=environment)


def _listed(evidence: Evidence, where: str) -> Iterator[Host]:
    """The environments whose directories the collector looked into."""
    taken = Collection(taken_at=evidence.meta.taken_at, tool=evidence.meta.tool, root=evidence.meta.root)
    for prefix, environment in read_environments(evidence).items():
        yield Host(scope=f"venv:{prefix}{where}", collection=taken, environment=environment)


def _read(evidence: Evidence, scope: str) -> Host:
    if scope.startswith("venv:"):
        return Host(scope=scope, collection=_collection(evidence), environment=read_environment(evidence))
    system = read_system(evidence)
    if scope.startswith("container:"):
        system = _inside(system)
    place = system.virtualisation.value.kind if isinstance(system.virtualisation, Known) else ""
    in_container = place == "container"
    kernel = read_kernel(evidence, in_container=in_container)
    packages = read_packages(evidence, system.units)
    return Host(
        scope=scope,
        collection=_collection(evidence),
        system=system,
        kernel=kernel,
        pci=_pci(evidence, kernel),
        driver=read_driver(evidence, is_wsl=place == "wsl2", logs=kernel.logs),
        cuda=read_cuda(evidence),
        packages=packages,
        machine=read_machine(evidence),
        fabric=read_fabric(evidence, packages),
        containers=read_containers(evidence, packages, system.units, in_container=in_container),
        network=read_network(evidence),
        environment=_ELSEWHERE,
    )


def _pci(evidence: Evidence, kernel: Kernel) -> Fact[tuple[PciDevice, ...]]:
    """The bus; where somebody's report shows none of its GPUs, those that the kernel's log names."""
    bus = read_pci(evidence)
    if isinstance(bus, Absent) and (bus.reason == "not_collected" or bus.origin.startswith("command:lspci")):
        return gpus_by_log(kernel.logs) or bus
    return bus


def _inside(system: System) -> System:
    """The scope says that this is a container, whether or not its files do. WSL2 stays what it is."""
    told = system.virtualisation
    if isinstance(told, Known) and told.value.kind in ("container", "wsl2"):
        return system
    vgpu = told.value.vgpu_guest if isinstance(told, Known) else None
    place = Virtualisation(kind="container", vgpu_guest=vgpu)
    return msgspec.structs.replace(system, virtualisation=Known(value=place, origin="scope"))


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
