"""What a check is: a pure function over a case that says outcomes and declares the facts it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from doctor.core.finding import Area, Status
from doctor.core.goal import PRESENT, Goal
from doctor.core.host import Absent, Host, known
from doctor.core.matrix import Matrix

__all__ = [
    "Case",
    "Check",
    "Outcome",
    "check",
    "fact_at",
    "failed",
    "missing_need",
    "passed",
    "skipped",
    "unknown",
    "warned",
]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What a check sees: the host, the matrix, the goal. Nothing else exists for it."""

    host: Host
    matrix: Matrix
    goal: Goal = PRESENT
    others: tuple[Host, ...] = ()
    """The scopes beside it, which a goal may be about: containers and environments."""
    memo: dict[str, Any] = {}
    """Answers that many claims ask for; filled by `doctor.core.views`, the same for the same host."""

    @property
    def virtualisation(self) -> str:
        """`bare_metal`, `vm`, `container`, `wsl2`, or empty when nothing said so."""
        place = known(self.host.system.virtualisation)
        if place:
            return place.kind
        # The kernel of WSL2 says so itself, where no witness spoke of the place.
        return "wsl2" if "microsoft" in (known(self.host.kernel.release) or "").lower() else ""

    @property
    def owns_kernel(self) -> bool:
        """False inside a container and under WSL2: modules, headers and boot belong to somebody else."""
        return self.virtualisation not in ("container", "wsl2")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a check says about one subject. `found` and `why` carry the values."""

    status: Status
    subject: str = ""
    wanted: str = ""
    found: str = ""
    why: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    is_critical: bool | None = None
    """Whether an unknown here leaves the verdict open; None: as the check declares it."""


Outcomes = Iterable[Outcome]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A check with its declaration."""

    id: str
    area: Area
    title: str
    needs: tuple[str, ...]
    """Paths into Host. `a|b`: either will do. An absent one (other than *not installed*) is unknown."""
    applies: tuple[Callable[[Case], str], ...]
    """Each returns the reason why the check does not apply, or the empty string."""
    is_critical: bool
    """Whether an unknown here leaves the verdict open."""
    run: Callable[[Case], Outcomes]


def check(
    check_id: str,
    title: str,
    *,
    needs: tuple[str, ...] = (),
    applies: tuple[Callable[[Case], str], ...] = (),
    critical: bool = False,
) -> Callable[[Callable[[Case], Outcomes]], Check]:
    """Declare a check; the area is the first word of its id."""
    area: Area = check_id.split(".", 1)[0]  # type: ignore[assignment]  # a test holds it to AREAS

    def declare(run: Callable[[Case], Outcomes]) -> Check:
        return Check(
            id=check_id,
            area=area,
            title=title,
            needs=needs,
            applies=applies,
            is_critical=critical,
            run=run,
        )

    return declare


def fact_at(host: Host, path: str) -> object:
    """What lies at a dotted path of Host: a fact, or a plain value. Raises AttributeError on a bad path."""
    here: object = host
    for step in path.split("."):
        here = getattr(here, step)
    return here


def missing_need(host: Host, need: str) -> Absent | None:
    """The absence that keeps a check from running; None when it can run.

    It can when one of the alternatives is known, or when all are known not to be there.
    """
    facts = [fact_at(host, path) for path in need.split("|")]
    absences = [fact for fact in facts if isinstance(fact, Absent)]
    if len(absences) < len(facts):
        return None
    return next((absent for absent in absences if absent.reason != "not_installed"), None)


def passed(found: str = "", *, subject: str = "", wanted: str = "", why: tuple[str, ...] = ()) -> Outcome:
    """It holds. With `why` it is worth a line to the reader."""
    return Outcome(status="pass", subject=subject, wanted=wanted, found=found, why=why)


def failed(found: str, *, wanted: str, subject: str = "", why: tuple[str, ...] = ()) -> Outcome:
    """It does not hold, and the host cannot serve because of it."""
    return Outcome(status="fail", subject=subject, wanted=wanted, found=found, why=why)


def warned(found: str, *, wanted: str, subject: str = "", why: tuple[str, ...] = ()) -> Outcome:
    """It will bite some day, or costs speed; the host serves all the same."""
    return Outcome(status="warn", subject=subject, wanted=wanted, found=found, why=why)


def unknown(
    found: str,
    *,
    subject: str = "",
    wanted: str = "",
    why: tuple[str, ...] = (),
    critical: bool | None = None,
) -> Outcome:
    """The facts do not decide it; `why` says which are missing. `critical` overrides the check's own word."""
    return Outcome(
        status="unknown", subject=subject, wanted=wanted, found=found, why=why, is_critical=critical
    )


def skipped(reason: str, *, subject: str = "") -> Outcome:
    """It does not apply here."""
    return Outcome(status="skip", subject=subject, found=reason)
