"""The judge: runs every check on a case, turns missing facts into `unknown`, and gives the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from doctor.core.causes import name_causes
from doctor.core.check import Case, Check, Outcome, failed, missing_need
from doctor.core.checks import CHECKS
from doctor.core.finding import (
    Cause,
    CheckReport,
    Finding,
    HostSummary,
    ScopeVerdict,
    Verdict,
)
from doctor.core.goal import PRESENT, Goal
from doctor.core.host import Absent, Host, known
from doctor.core.matrix import Matrix
from doctor.core.views import report

__all__ = ["EXIT_OF", "checks_for", "judge", "judge_scopes", "run_checks", "selected", "summarise"]

EXIT_OF: dict[Verdict, int] = {"ready": 0, "not_ready": 1, "unknown": 3}

#: From the worst to the best: the whole answer is the first that some scope has.
_WORST_FIRST: tuple[Verdict, ...] = ("not_ready", "unknown", "ready")

_REASON_WORDS = {
    "denied": "needs root",
    "timeout": "did not answer in time",
    "not_collected": "was not collected",
    "unreadable": "could not be read",
    "failed": "could not be asked",
}


def judge(  # noqa: PLR0913 - a case has these parts
    host: Host,
    matrix: Matrix,
    goal: Goal = PRESENT,
    *,
    checks: Sequence[Check] = CHECKS,
    tool: str = "",
    others: Sequence[Host] = (),
) -> CheckReport:
    """The whole answer about one scope for one goal. Pure: the same host gives the same answer.

    `others` are the scopes beside it: a goal is met where an engine lies, and that is there.
    """
    case = Case(host=host, matrix=matrix, goal=goal, others=tuple(others))
    findings = run_checks(case, [one for one in checks if _concerns(one, host)])
    causes, advice = (_in_scope(found, host.scope) for found in name_causes(case, findings))
    verdict = _verdict(findings)
    return CheckReport(
        tool=tool,
        verdict=verdict,
        exit_code=EXIT_OF[verdict],
        scopes=(ScopeVerdict(scope=host.scope, verdict=verdict),),
        host=summarise(case),
        goal=goal.text,
        matrix_edition=matrix.edition.name,
        matrix_digest=matrix.edition.digest,
        findings=_with_causes(findings, (*causes, *advice)),
        causes=causes,
        advice=advice,
        taken_at=host.collection.taken_at,
        root=host.collection.root,
        stack=getattr(case.memo.get("goal"), "stack", None),
        conflict=getattr(case.memo.get("goal"), "conflict", ()),
        overlays=matrix.overlay_names,
    )


def judge_scopes(
    hosts: Sequence[Host],
    matrix: Matrix,
    goal: Goal = PRESENT,
    *,
    checks: Sequence[Check] = CHECKS,
    tool: str = "",
) -> CheckReport:
    """The answers about host, containers and environments side by side; the worst is the whole one's.

    The first scope that checks exist for speaks for the machine (`host`, `taken_at`, `root`). Each other
    one is in `scopes` only when some check had something to judge there. Causes of the worst scopes
    stand first. Where there is nothing to judge, the verdict is unknown. Raises ValueError without a host.
    A finding that would be another without the site's overlays names them.
    """
    if not hosts:
        raise ValueError("there is no host to judge")
    found = _judge_scopes(hosts, matrix, goal, checks=checks, tool=tool)
    if not matrix.overlays:
        return found
    plain = _judge_scopes(hosts, matrix.without_overlays(), goal, checks=checks, tool=tool)
    names = ", ".join(matrix.overlay_names)
    same = {_bare(f) for f in plain.findings}
    findings = (f if _bare(f) in same else msgspec.structs.replace(f, overlay=names) for f in found.findings)
    return msgspec.structs.replace(found, findings=tuple(findings))


def _bare(finding: Finding) -> Finding:
    """What a finding says by itself: its cause depends on the others beside it."""
    return msgspec.structs.replace(finding, cause="", remedy=None)


def _judge_scopes(
    hosts: Sequence[Host], matrix: Matrix, goal: Goal, *, checks: Sequence[Check], tool: str
) -> CheckReport:
    judgeable = [host for host in hosts if checks_for(host.scope, CHECKS)]
    if not judgeable:
        empty = judge(hosts[0], matrix, goal, checks=(), tool=tool)
        return msgspec.structs.replace(empty, verdict="unknown", exit_code=EXIT_OF["unknown"], scopes=())
    first, *others = [
        judge(
            host,
            matrix,
            goal,
            checks=checks_for(host.scope, checks),
            tool=tool,
            others=[other for other in hosts if other is not host],
        )
        for host in judgeable
    ]
    judged = [first, *(one for one in others if any(f.status != "skip" for f in one.findings))]
    if len(judged) == 1:
        return first
    ranked = sorted(judged, key=lambda one: _WORST_FIRST.index(one.verdict))
    return msgspec.structs.replace(
        first,
        verdict=ranked[0].verdict,
        exit_code=ranked[0].exit_code,
        scopes=tuple(scope for one in judged for scope in one.scopes),
        findings=tuple(finding for one in judged for finding in one.findings),
        causes=tuple(cause for one in ranked for cause in one.causes),
        advice=tuple(cause for one in judged for cause in one.advice),
    )


def checks_for(scope: str, checks: Sequence[Check]) -> tuple[Check, ...]:
    """The checks that say something about a scope of this kind.

    A check that needs the fact `environment` is about environments alone; host and containers have the
    others. Of a kind that this version does not know nothing is judged.
    """
    if scope == "host" or scope.startswith("container:"):
        return tuple(c for c in checks if "environment" not in c.needs)
    return tuple(c for c in checks if "environment" in c.needs and scope.startswith("venv:"))


def _concerns(one: Check, host: Host) -> bool:
    """Whether a check is about a scope like this: environments have checks of their own."""
    is_environment = host.scope.startswith("venv:") or not isinstance(host.environment, Absent)
    return "environment" not in one.needs or is_environment


def selected(only: Sequence[str], skip: Sequence[str]) -> tuple[Check, ...]:
    """The checks whose area or id is in `only` (all when empty) and not in `skip`."""
    return tuple(
        c for c in CHECKS if (not only or {c.area, c.id} & set(only)) and not {c.area, c.id} & set(skip)
    )


def run_checks(case: Case, checks: Sequence[Check]) -> tuple[Finding, ...]:
    """All findings, in the order of the checks. A check that crashes becomes a finding of its own."""
    findings: list[Finding] = []
    # Checks ask the same few questions of whether they apply: each is answered once (a third of the time)
    reasons: dict[Callable[[Case], str], str] = {}
    for one in checks:
        try:
            findings.extend([_finding(one, outcome, case) for outcome in _outcomes(one, case, reasons)])
        except Exception as error:  # noqa: BLE001, PERF203 - the one border where a check's bug is told
            findings.append(_crashed(one, error, case))
    return tuple(findings)


def _outcomes(one: Check, case: Case, reasons: dict[Callable[[Case], str], str]) -> Iterator[Outcome]:
    for applies in one.applies:
        if applies not in reasons:
            reasons[applies] = applies(case)
        if reasons[applies]:
            yield Outcome(status="skip", found=reasons[applies])
            return
    absences = [(need, absent) for need in one.needs if (absent := missing_need(case.host, need))]
    if absences:
        yield Outcome(
            status="unknown",
            found=_short_absence(*absences[0]),
            why=tuple(_absence_words(need, absent) for need, absent in absences),
        )
        return
    yield from list(one.run(case)) or [Outcome(status="skip", found="nothing here to judge")]


def _short_absence(need: str, absent: Absent) -> str:
    what = absent.origin or need.split("|", 1)[0]
    return f"`{what}` {_REASON_WORDS.get(absent.reason, absent.reason)}"


def _absence_words(need: str, absent: Absent) -> str:
    words = _short_absence(need, absent)
    return f"{words}: {absent.detail}" if absent.detail else words


def _finding(one: Check, outcome: Outcome, case: Case) -> Finding:
    return Finding(
        id=one.id,
        area=one.area,
        status=outcome.status,
        title=one.title,
        scope=case.host.scope,
        subject=outcome.subject,
        wanted=outcome.wanted,
        found=outcome.found,
        why=outcome.why,
        evidence=outcome.evidence or _origins(one, case),
        is_critical=one.is_critical if outcome.is_critical is None else outcome.is_critical,
    )


def _origins(one: Check, case: Case) -> tuple[str, ...]:
    """The evidence items behind the facts a check declared."""
    origins = []
    for need in one.needs:
        for path in need.split("|"):
            fact: object = case.host
            for step in path.split("."):
                fact = getattr(fact, step, None)
            origins.append(getattr(fact, "origin", ""))
    return tuple(dict.fromkeys(o for o in origins if o))


def _crashed(one: Check, error: Exception, case: Case) -> Finding:
    outcome = failed(
        f"`{one.id}` raised {type(error).__name__}: {error}",
        wanted="every check ends with an answer",
        subject=one.id,
        why=("this is a bug in mopt-doctor: the check's answer is missing, the others stand",),
    )
    finding = _finding(one, outcome, case)
    return msgspec.structs.replace(
        finding, id="internal.check_crashed", area="internal", status="unknown", evidence=()
    )


def _verdict(findings: Sequence[Finding]) -> Verdict:
    if any(f.status == "fail" for f in findings):
        return "not_ready"
    if any(f.status == "unknown" and f.is_critical for f in findings):
        return "unknown"
    return "ready"


def _in_scope(causes: Sequence[Cause], scope: str) -> tuple[Cause, ...]:
    return tuple(c if c.scope == scope else msgspec.structs.replace(c, scope=scope) for c in causes)


def _with_causes(findings: Sequence[Finding], causes: Sequence[Cause]) -> tuple[Finding, ...]:
    """Findings with the cause that explains them, and its remedy where they have none."""
    by_key = {key: cause for cause in causes for key in cause.findings}
    linked = []
    for finding in findings:
        key = f"{finding.id}@{finding.subject}" if finding.subject else finding.id
        cause = by_key.get(key)
        linked.append(
            msgspec.structs.replace(finding, cause=cause.id, remedy=finding.remedy or cause.remedy)
            if cause
            else finding
        )
    return tuple(linked)


def summarise(case: Case) -> HostSummary:
    """The facts that every answer begins with."""
    host = case.host
    system, answered = known(host.system.os), report(case)
    driver, user = known(host.driver.kernel_version), known(host.driver.userspace_version)
    flavour, place = known(host.driver.flavour), known(host.system.virtualisation)
    cuda = answered.cuda_driver_version if answered else None
    return HostSummary(
        os={
            "id": system.id if system else None,
            "version": system.version if system else None,
            "pretty_name": system.pretty_name if system else None,
        },
        kernel={"release": known(host.kernel.release)},
        driver={
            "version": driver.raw if driver else None,
            "flavour": flavour,
            "userspace_version": user.raw if user else None,
        },
        gpus=tuple(_gpu_rows(case)),
        virtualisation=place.kind if place else None,
        cuda_driver_version=cuda.raw if cuda else None,
        hostname=known(host.system.hostname),
    )


def _gpu_rows(case: Case) -> Iterator[dict[str, str | int | None]]:
    """One row a GPU: the bus's view joined with the driver's, by PCI address."""
    answered = report(case)
    bus = {d.address: d for d in case.host.gpus_on_bus}
    # Some reports name GPUs without addresses: on a bus that was read they cannot be placed.
    gpus = [g for g in answered.gpus if g.pci_address or not bus] if answered else []
    told = {g.pci_address or f"index {g.index}": g for g in gpus}
    for address in sorted({*told, *bus}):
        gpu, device = told.get(address), bus.get(address)
        row = case.matrix.gpu(device.device_id) if device else None
        yield {
            "pci_id": device.device_id if device else None,
            "address": gpu.pci_address if gpu else address,
            "name": (gpu.name if gpu else None) or (row.name if row else None),
            "uuid": gpu.uuid if gpu else None,
            "compute_capability": (gpu.compute_capability if gpu else None)
            or (row.compute_capability if row else None),
            "memory_bytes": gpu.memory_bytes if gpu else None,
        }
