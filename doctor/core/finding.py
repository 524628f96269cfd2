"""Findings and verdicts: what a check says, and the shape of the whole answer (`mopt.check/1`)."""

from __future__ import annotations

from typing import Literal

import msgspec

from doctor.core.link import Because, GoalStack

__all__ = [
    "AREAS",
    "Area",
    "Cause",
    "CheckReport",
    "Finding",
    "HostSummary",
    "Remedy",
    "ScopeVerdict",
    "Status",
    "Verdict",
]

Area = Literal[
    "kernel",
    "driver",
    "gpu",
    "fabric",
    "cuda",
    "container",
    "engine",
    "system",
    "network",
    "security",
]
#: The closed set of areas, in the order they are judged.
AREAS: tuple[Area, ...] = (
    "kernel",
    "driver",
    "gpu",
    "fabric",
    "cuda",
    "container",
    "engine",
    "system",
    "network",
    "security",
)

Status = Literal["pass", "warn", "fail", "skip", "unknown"]
Verdict = Literal["ready", "not_ready", "unknown"]


class _Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every value here."""


class Remedy(_Value, frozen=True, kw_only=True):
    """What to do. A command is one argv list; nothing here is a shell string."""

    summary: str
    commands: tuple[tuple[str, ...], ...] = ()
    needs_root: bool = True
    cost: str = "none"
    undo: str = ""
    blast_radius: str = ""


class Finding(_Value, frozen=True, kw_only=True):
    """One check's answer about one subject."""

    id: str
    """`AREA.SUBJECT`, stable, never reused."""
    area: Area | Literal["internal"]
    status: Status
    title: str
    """What the check asks, as a short noun phrase: `module loaded`."""
    scope: str = "host"
    subject: str = ""
    """What it is about when there are several: a PCI address, a path; empty for the host."""
    wanted: str = ""
    found: str = ""
    why: tuple[str, ...] = ()
    """Reasons, each with the source it rests on where there is one."""
    cause: str = ""
    """The cause that explains it, set by the judge."""
    remedy: Remedy | None = None
    evidence: tuple[str, ...] = ()
    """Evidence items it was read from."""
    is_critical: bool = False
    """Whether an unknown here leaves the verdict open."""
    overlay: str = ""
    """The site overlays without which it would say something else."""


class Cause(_Value, frozen=True, kw_only=True):
    """A root cause of what fails or cannot be told, with what follows from it."""

    id: str
    title: str
    scope: str = "host"
    findings: tuple[str, ...] = ()
    """Finding ids (with `@SUBJECT` where there is one) that it explains."""
    refined_by: tuple[str, ...] = ()
    """Closer causes inside this one: `driver.reboot_pending`."""
    is_certain: bool = True
    """False when it fits but a deciding fact is missing."""
    tied_with: tuple[str, ...] = ()
    """Causes that explain the same findings as well as this one."""
    because: tuple[str, ...] = ()
    """The claims that hold, as sentences with values."""
    deciding_facts: tuple[str, ...] = ()
    """What would settle it; empty when it is certain."""
    remedy: Remedy | None = None


class ScopeVerdict(_Value, frozen=True, kw_only=True):
    """The verdict of the host, of a container or of an environment."""

    scope: str
    verdict: Verdict


class HostSummary(_Value, frozen=True, kw_only=True):
    """The few facts that every answer begins with; null is *not known*."""

    os: dict[str, str | None]
    """`id`, `version`, `pretty_name`."""
    kernel: dict[str, str | None]
    """`release`."""
    driver: dict[str, str | None]
    """`version` (loaded), `flavour`, `userspace_version`."""
    gpus: tuple[dict[str, str | int | None], ...]
    """`pci_id`, `address`, `name`, `uuid`, `compute_capability`, `memory_bytes`."""
    virtualisation: str | None
    cuda_driver_version: str | None = None
    hostname: str | None = None


class CheckReport(_Value, frozen=True, kw_only=True):
    """The answer of `mopt-doctor check` (`mopt.check/1`)."""

    schema: str = "mopt.check/1"
    tool: str
    verdict: Verdict
    """The worst of `scopes`."""
    exit_code: int
    scopes: tuple[ScopeVerdict, ...]
    host: HostSummary
    goal: str
    matrix_edition: str
    matrix_digest: str
    findings: tuple[Finding, ...]
    causes: tuple[Cause, ...]
    advice: tuple[Cause, ...]
    """Warnings: never ranked among the causes, and never the reason for a verdict."""
    taken_at: str
    root: bool | None
    is_partial: bool = False
    """Whether `--only` or `--skip` left checks out: the verdict is about those that ran."""
    timings: dict[str, float] = {}
    """Milliseconds by stage."""
    stack: GoalStack | None = None
    """What the goal asks for on this host, where something does; null for the goal `present`."""
    conflict: tuple[Because, ...] = ()
    """Why no stack meets the goal here, or what is not known of it."""
    overlays: tuple[str, ...] = ()
    """Site overlays in force; a finding that rests on them names them."""
