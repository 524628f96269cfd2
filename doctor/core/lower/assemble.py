"""The whole document: stages in their order, what undo has to keep, and the digest over it."""

from __future__ import annotations

import hashlib

import msgspec

from doctor.core.host import known
from doctor.core.lower.catalogue import filled
from doctor.core.lower.driver import driver, fabric, fabric_parts, is_pinned
from doctor.core.lower.ground import Ground
from doctor.core.lower.libraries import cuda, dcgm, library_parts, tensorrt
from doctor.core.lower.ready import bootstrap, driver_set, kernel, repositories, repository_file
from doctor.core.lower.refusals import refusals
from doctor.core.lower.serve import container, engine, lock
from doctor.core.lower.signs import signs
from doctor.core.rows.install import Part
from doctor.core.stages import CapsuleSpec, PlanHead, Stage, TargetHost, Variables

__all__ = ["digest_of", "lower"]

#: What package managers write when streams, locks and the branch lock change.
_STATE = {
    "deb": ("/etc/apt/preferences.d/nvidia-driver-pinning",),
    "rpm": ("/etc/dnf/modules.d/nvidia-driver.module", "/etc/dnf/plugins/versionlock.list"),
}
#: What must still hold when everything is done.
_LASTING = ("module_on_disk", "module_loaded", "not_loaded", "service_active")

#: What other programs have packages of, too: of these, undo keeps only what the plan names.
_COMMON = ("tools", "headers", "compiler", "mpi")


def lower(ground: Ground) -> Variables:
    """The variables of a playbook run. Raises UsageError where `packages.yaml` has no row for something.

    With a refusal there are no stages: nothing is to be done on such a host.
    """
    refused = refusals(ground)
    stages = () if refused else _stages(ground)
    digest = digest_of(stages)
    return Variables(
        mopt_plan=PlanHead(
            id=digest[:12], goal=ground.stack.goal, matrix=ground.matrix.edition.name, digest=digest
        ),
        mopt_target=_target(ground),
        mopt_refusals=refused,
        mopt_signs=signs(ground),
        mopt_capsule=_capsule(ground, stages) if stages else CapsuleSpec(),
        mopt_stages=stages,
    )


def digest_of(stages: tuple[Stage, ...]) -> str:
    """SHA-256 over the canonical JSON of the stages."""
    return hashlib.sha256(msgspec.json.encode(stages, order="deterministic")).hexdigest()


def _stages(ground: Ground) -> tuple[Stage, ...]:
    body = [
        bootstrap(ground),
        Stage(id="preflight"),
        Stage(id="drain"),
        repositories(ground, _parts(ground)),
    ]
    if ground.driver:
        body += [kernel(ground), driver(ground), fabric(ground)]
    else:
        body += [Stage(id="kernel"), Stage(id="driver"), Stage(id="fabric")]
    body += [cuda(ground), tensorrt(ground), container(ground), dcgm(ground), engine(ground)]
    lasting = tuple(check for stage in body for check in stage.verify if check.kind in _LASTING)
    body.append(Stage(id="verify", verify=tuple(dict.fromkeys(lasting))))
    return (*body, lock(ground, tuple(body), _pinned(ground)))


def _parts(ground: Ground) -> frozenset[Part]:
    """Everything that packages are taken for."""
    found: set[Part] = set(library_parts(ground))
    if ground.driver:
        found.update(("driver", "pinning", *fabric_parts(ground)))
    if ground.version("container-toolkit"):
        found.add("container-toolkit")
    return frozenset(found)


def _pinned(ground: Ground) -> frozenset[str]:
    """Names that the branch lock keeps."""
    if not ground.driver:
        return frozenset()
    sets = [driver_set(ground), *(ground.catalogue.set_of(p, ground.driver) for p in fabric_parts(ground))]
    values = {**ground.values, "version": ground.driver}
    return frozenset(filled(name, values) for row in sets if is_pinned(ground, row) for name in row.packages)


def _target(ground: Ground) -> TargetHost:
    secure = known(ground.host.kernel.secure_boot)
    return TargetHost(
        os=ground.system or ground.target.os,
        architecture=ground.target.arch,
        manager="apt" if ground.catalogue.kind == "deb" else "dnf",
        kernel=ground.kernels[0] if ground.kernels else "",
        secure_boot=None if secure is None else secure == "enabled",
        gpu_ids=tuple(sorted({kind.pci_id for kind in ground.target.gpus if kind.pci_id})),
    )


def _capsule(ground: Ground, stages: tuple[Stage, ...]) -> CapsuleSpec:
    """Every path that some stage may touch, and the packages whose files are kept."""
    files = {*_STATE[ground.catalogue.kind]}
    for stage in stages:
        files.update(entry.path for entry in stage.files)
        files.update(pin.file for pin in stage.pins)
        for one in stage.containers:
            files.update(
                path for path in (one.config, one.drop_in) if path and not path.startswith("/var/run/")
            )
        for environment in stage.environments:
            files.update((environment.path, environment.descriptor))
        for repository in stage.repositories:
            files.update((repository_file(repository), *repository.conflicting_files))
            if repository.key is not None:
                files.add(repository.key.keyring)
    kind = ground.catalogue.kind
    rows = ground.matrix.edition.package_families
    families = (row for row in rows if row.kind == kind and row.part not in _COMMON)
    names = {name for row in families for name in row.names if not name.startswith("!")}
    names.update(package.name for stage in stages for one in stage.packages for package in one.install)
    return CapsuleSpec(files=tuple(sorted(files)), package_patterns=tuple(sorted(names)))
