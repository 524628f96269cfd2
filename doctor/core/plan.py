"""A plan (`mopt.plan/1`): what was asked, what would be done, and what to know before consent. Pure.

A plan is a promise, not a program. `apply` asks the same question again of the host as it is then, and
refuses when the digest differs; of the file that it is given it believes what was asked, nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

import msgspec

from doctor.core.finding import CheckReport, Finding
from doctor.core.host import known
from doctor.core.lower.ground import Choices, Ground
from doctor.core.lower.ready import repository_file
from doctor.core.stages import Reboot, Stage, StageId, Variables

__all__ = [
    "PLAN_SCHEMA",
    "Asked",
    "PackageChange",
    "Plan",
    "PlannedHost",
    "Promise",
    "RebootNeed",
    "Step",
    "Undo",
    "plan_digest",
    "plan_of",
    "promises",
]

PLAN_SCHEMA = "mopt.plan/1"

RebootNeed = Literal["no", "if_needed", "yes"]
Undo = Literal["exact", "decided_by_capsule"]

#: Which stage mends what a check of an area found. What no stage can mend is promised by none.
_CURED_BY: dict[str, tuple[StageId, ...]] = {
    "kernel": ("kernel", "driver"),
    "driver": ("driver",),
    "fabric": ("fabric",),
    "cuda": ("cuda", "driver"),
    "container": ("container",),
    "engine": ("engine",),
    "security": ("lock", "repositories"),
}

#: In the field of a stage, but nothing that it brings mends them: logs of the past, links and switches as
#: hardware, what an administrator has set. A promise of these would end good runs as half good.
_BEYOND_STAGES = frozenset(
    (
        "kernel.messages",
        "kernel.history",
        "driver.module_parameters",
        "driver.options_in_force",
        "fabric.imex",
        "fabric.nvlinks",
        "fabric.not_needed",
        "fabric.switches",
        "container.rootless",
        "container.selinux",
        "container.snap",
        "container.wsl_driver",
        "security.device_nodes",
        "security.pending_keys",
        "security.unverified_repositories",
    )
)

#: A minute or two for firmware and boot; servers with 8 GPUs and much memory need ten. Said as a range.
_REBOOT_S = (60, 900)
#: Unpacking, building modules for each kernel, initramfs: as long for one kernel as for a slow disk.
_DRIVER_S = (60, 600)


class _Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every value here."""


class Asked(_Value, frozen=True, kw_only=True):
    """The question: `apply` asks it again."""

    goal: tuple[str, ...]
    """As on the command line, one text a goal."""
    hold: tuple[str, ...] = ()
    have: tuple[str, ...] = ()
    choices: Choices
    on_failure: Literal["stop", "rollback"] = "stop"
    """What a run does about a stage that fails after the first change."""


class PlannedHost(_Value, frozen=True, kw_only=True):
    """Which host the plan was made for."""

    name: str = ""
    """Its name in the inventory; empty for the host that the doctor runs on."""
    inventory: str = ""
    """The inventory as it was named; empty for the host that the doctor runs on."""
    hostname: str = ""
    boot_id: str = ""


class PackageChange(_Value, frozen=True, kw_only=True):
    """A package now and then. Empty `now`: not installed; empty `then`: removed."""

    name: str
    now: str = ""
    then: str = ""


class Promise(_Value, frozen=True, kw_only=True):
    """A finding that a stage is to cure; it is compared when the run is over."""

    finding: str
    scope: str
    stage: StageId
    found: str = ""


class Step(_Value, frozen=True, kw_only=True):
    """What one stage means for the host."""

    stage: StageId
    why: tuple[str, ...] = ()
    changes: tuple[PackageChange, ...] = ()
    files: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    """Units that are stopped while its packages change."""
    reboot: RebootNeed = "no"


class Plan(_Value, frozen=True, kw_only=True):
    """The document."""

    schema: str = PLAN_SCHEMA
    id: str
    """The first twelve digits of the digest; a run of it is named by it."""
    digest: str
    """SHA-256 over the host's name, the question, the matrix, the stages, and what they change there."""
    tool: str
    made_at: str
    """UTC; not under the digest."""
    matrix: str
    matrix_digest: str
    host: PlannedHost
    asked: Asked
    verdict: str
    """Of `check` on the evidence that the plan was made from."""
    promises: tuple[Promise, ...] = ()
    steps: tuple[Step, ...] = ()
    """Stages that have something to do; none: the host is as planned."""
    reboot: RebootNeed = "no"
    downtime_s: tuple[int, int] = (0, 0)
    """From stopping the first service to starting the last, least and most; estimated, not measured."""
    undo: Undo = "exact"
    """`decided_by_capsule`: packages are replaced whose files may no longer be had; the capsule says so
    before the first change."""
    gpu_users: tuple[str, ...] = ()
    """Processes that hold the GPUs now: they must end before the driver changes, and nobody ends them."""
    variables: Variables

    @property
    def on_failure(self) -> str:
        return self.asked.on_failure

    @property
    def is_refused(self) -> bool:
        return bool(self.variables.mopt_refusals)

    @property
    def is_empty(self) -> bool:
        """Packages and repositories are as planned; files, units and locks only the host itself can tell."""
        return not self.is_refused and not self.steps


def plan_of(  # noqa: PLR0913 - one for each thing that a plan is made of
    ground: Ground,
    variables: Variables,
    report: CheckReport,
    *,
    asked: Asked,
    host: PlannedHost,
    made_at: str,
) -> Plan:
    """The plan for what lowering gave, on the host that `report` judged."""
    steps = tuple(step for stage in variables.mopt_stages if (step := _step(ground, stage)) is not None)
    edition = ground.matrix.edition
    digest = plan_digest(host, asked, variables, steps, report.matrix_digest)
    acting = frozenset(step.stage for step in steps)
    named = msgspec.structs.replace(variables.mopt_plan, id=digest[:12])
    return Plan(
        id=digest[:12],
        digest=digest,
        tool=report.tool,
        made_at=made_at,
        matrix=edition.name,
        matrix_digest=report.matrix_digest,
        host=host,
        asked=asked,
        verdict=report.verdict,
        promises=promises(report.findings, acting),
        steps=steps,
        reboot=_reboot(steps),
        downtime_s=_downtime(steps),
        undo=_undo(ground, steps),
        gpu_users=_users(ground),
        variables=msgspec.structs.replace(variables, mopt_plan=named),
    )


def plan_digest(
    host: PlannedHost, asked: Asked, variables: Variables, steps: Sequence[Step], matrix_digest: str
) -> str:
    """SHA-256 over what must be the same for a plan to be the same plan; times and boots are not.

    Which host it is for is under it, as it was named: `apply` goes there before anything is derived again.
    """
    told = (
        (host.name, host.inventory),
        asked,
        variables.mopt_target,
        variables.mopt_refusals,
        variables.mopt_stages,
        tuple(steps),
        matrix_digest,
    )
    return hashlib.sha256(msgspec.json.encode(told, order="deterministic")).hexdigest()


def promises(findings: Sequence[Finding], acting: frozenset[StageId]) -> tuple[Promise, ...]:
    """What of the host fails and lies in the field of a stage that does something."""
    found = []
    for one in findings:
        if one.status not in ("fail", "warn") or one.scope != "host" or one.id in _BEYOND_STAGES:
            continue
        stage = next((stage for stage in _CURED_BY.get(one.area, ()) if stage in acting), None)
        if stage is not None:
            found.append(Promise(finding=one.id, scope=one.scope, stage=stage, found=one.found))
    return tuple(dict.fromkeys(found))


# --- steps ----------------------------------------------------------------------------------------


def _step(ground: Ground, stage: Stage) -> Step | None:
    """None where the host already has all that the stage brings. What nobody read counts as not there."""
    changes = tuple(_changes(ground, stage))
    is_new = ground.installed is None or bool(changes)
    environments = tuple(one.path for one in stage.environments)
    if not changes and not environments and not (stage.files and is_new) and not _opens(ground, stage):
        return None
    return Step(
        stage=stage.id,
        why=stage.why,
        changes=changes,
        files=(*(entry.path for entry in stage.files), *environments),
        stops=stage.services.stop if changes else (),
        reboot=_need(stage.reboot) if changes else "no",
    )


def _opens(ground: Ground, stage: Stage) -> bool:
    """Whether the stage adds a repository that the host does not have."""
    there = known(ground.host.machine.repositories)
    files = {one.file for one in there or ()}
    return any(repository_file(one) not in files for one in stage.repositories)


def _changes(ground: Ground, stage: Stage) -> list[PackageChange]:
    found: dict[str, PackageChange] = {}
    there = ground.installed or {}
    for one in stage.packages:
        for package in one.install:
            now = ", ".join(there.get(package.name, ()))
            then = package.version.removeprefix("0:") or "newest"
            if now and package.version.removeprefix("0:") in ("", *there[package.name]):
                continue
            found[package.name] = PackageChange(name=package.name, now=now, then=then)
        for name in one.remove:
            if name in there or ground.installed is None:
                found[name] = PackageChange(name=name, now=", ".join(there.get(name, ())))
    return list(found.values())


def _need(reboot: Reboot) -> RebootNeed:
    return {"never": "no", "always": "yes"}.get(reboot.when, "if_needed")  # type: ignore[return-value]


def _reboot(steps: Sequence[Step]) -> RebootNeed:
    needs = [step.reboot for step in steps]
    return "yes" if "yes" in needs else "if_needed" if "if_needed" in needs else "no"


def _downtime(steps: Sequence[Step]) -> tuple[int, int]:
    least, most = 0, 0
    if any(step.stops or step.stage == "driver" for step in steps):
        least, most = _DRIVER_S
    need = _reboot(steps)
    if need != "no":
        least += _REBOOT_S[0] if need == "yes" else 0
        most += _REBOOT_S[1]
    return least, most


def _undo(ground: Ground, steps: Sequence[Step]) -> Undo:
    """NVIDIA's repositories keep every version; Canonical's and Rocky's keep the newest only.

    Where nobody read the packages, nothing says that none is replaced.
    """
    if ground.installed is None:
        return "decided_by_capsule"
    replaced = [change for step in steps for change in step.changes if change.now]
    return "exact" if not replaced or ground.choices.origin == "nvidia" else "decided_by_capsule"


def _users(ground: Ground) -> tuple[str, ...]:
    """As NVML or nvidia-smi lists them; empty where neither said."""
    driver = ground.host.driver
    told = known(driver.nvml) or known(driver.smi)
    found = [
        f"{one.name} (pid {one.pid})" for gpu in (told.gpus if told else ()) for one in gpu.processes or ()
    ]
    return tuple(dict.fromkeys(found))
