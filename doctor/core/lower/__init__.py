"""From a stack and a host to staged variables (`mopt.vars/1`). Pure: the same values, the same document."""

from __future__ import annotations

import hashlib

import msgspec
from msgspec.structs import replace

from doctor.core.lower.driver import driver, fabric, fabric_parts, is_pinned
from doctor.core.lower.ground import Choices, Ground
from doctor.core.lower.libraries import cuda, dcgm, library_parts, tensorrt
from doctor.core.lower.ready import bootstrap, driver_set, kernel, repositories, repository_file
from doctor.core.lower.refusals import refusals
from doctor.core.lower.serve import container, engine, lock
from doctor.core.rows.install import Part
from doctor.core.stages import (
    CapsuleSpec,
    PlanHead,
    Stage,
    TargetHost,
    Variables,
)
from doctor.core.host import known

__all__ = ["Choices", "Ground", "digest_of", "lower"]

#: State of package managers that stages change without naming a file.
_STATE = {
    "deb": ("/etc/apt/preferences.d/nvidia-driver-pinning",),
    "rpm": ("/etc/dnf/modules.d/nvidia-driver.module", "/etc/dnf/plugins/versionlock.list"),
}


def lower(ground: Ground) -> Variables:
    """The variables of a playbook run. Raises UsageError where `packages.yaml` has no row for something.

    With a refusal there are no stages: nothing is to be done on such a host.
    """
    refused = refusals(ground)
    stages = () if refused else _stages(ground)
    target = _target(ground)
    capsule = _capsule(ground, stages)
    digest = digest_of(stages)
    return Variables(
        mopt_plan=PlanHead(
            id=digest[:12],
            goal=ground.stack.goal,
            matrix=ground.matrix.edition.name,
            digest=digest,
        ),
        mopt_target=target,
        mopt_refusals=refused,
        mopt_capsule=capsule,
        mopt_stages=stages,
    )


def digest_of(stages: tuple[Stage, ...]) -> str:
    """SHA-256 over the canonical JSON of the stages."""
    return hashlib.sha256(msgspec.json.encode(stages, order="deterministic")).hexdigest()


def _stages(ground: Ground) -> tuple[Stage, ...]:
    parts = _parts(ground)
    body: tuple[Stage, ...] = (bootstrap(ground), Stage(id="preflight"), Stage(id="drain"))
    body += (repositories(ground, parts),)
    if ground.driver:
        body += (kernel(ground), driver(ground), fabric(ground))
    body += (cuda(ground), tensorrt(ground), container(ground), dcgm(ground), engine(ground))
    body += (Stage(id="verify", verify=_standing(body)),)
    return (*body, lock(ground, body, _pinned(ground)))


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
    from doctor.core.lower.catalogue import filled

    return frozenset(filled(name, values) for row in sets if is_pinned(ground, row) for name in row.packages)


def _standing(stages: tuple[Stage, ...]) -> tuple[object, ...]:
    return ()
