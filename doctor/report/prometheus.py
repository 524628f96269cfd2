"""The answer of `check` as a textfile for node_exporter (Prometheus exposition format 0.0.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from doctor.core.finding import CheckReport, Finding, Status
from doctor.report.escape import escape

__all__ = ["to_prometheus"]

_STATUSES: tuple[Status, ...] = ("pass", "warn", "fail", "skip", "unknown")
_VERDICTS = ("ready", "not_ready", "unknown")


class _Family(NamedTuple):
    """A metric with its help text and its samples: labels and value."""

    name: str
    help: str
    samples: list[tuple[dict[str, str], float]]


def to_prometheus(report: CheckReport) -> bytes:
    """Gauges: `mopt_check_ready` is 1 for a scope that is ready; causes and findings are labels, 1 each.

    Only findings that fail, warn or decide by being unknown have a series of their own: a host has few.
    """
    return "".join(_written(family) for family in _families(report)).encode()


def _families(report: CheckReport) -> Iterator[_Family]:
    yield _Family(
        "mopt_check_ready",
        "1 when the scope is ready, 0 when it is not or nobody could tell.",
        [({"scope": s.scope}, float(s.verdict == "ready")) for s in report.scopes],
    )
    yield _Family(
        "mopt_check_verdict",
        "1 for the verdict of the scope.",
        [({"scope": s.scope, "verdict": v}, float(s.verdict == v)) for s in report.scopes for v in _VERDICTS],
    )
    yield _Family("mopt_check_exit_code", "Exit code of the check.", [({}, report.exit_code)])
    yield _Family("mopt_check_timestamp_seconds", "When the evidence was taken.", _timestamp(report))
    yield _Family(
        "mopt_check_duration_seconds",
        "Time of each stage.",
        [({"stage": stage.removesuffix("_ms")}, ms / 1000) for stage, ms in report.timings.items()],
    )
    yield _Family(
        "mopt_check_info",
        "Versions behind the answer.",
        [
            (
                {
                    "matrix": report.matrix_edition,
                    "tool": report.tool,
                    "goal": report.goal,
                    "driver": report.host.driver.get("version") or "",
                    "kernel": report.host.kernel.get("release") or "",
                },
                1,
            )
        ],
    )
    counts = Counter((f.scope, f.area, f.status) for f in report.findings)
    scopes = dict.fromkeys((f.scope, f.area) for f in report.findings)
    yield _Family(
        "mopt_findings",
        "How many findings of an area have a status.",
        [
            ({"scope": scope, "area": area, "status": status}, counts[scope, area, status])
            for scope, area in scopes
            for status in _STATUSES
        ],
    )
    yield _Family("mopt_finding", "1 for each finding that is not as it should be.", _wrong(report.findings))
    yield _Family("mopt_cause", "1 for each root cause, in the order of its rank.", _causes(report))
    yield _Family(
        "mopt_advice",
        "1 for each advice.",
        [(labels, 1) for labels in _once({"scope": c.scope, "id": c.id} for c in report.advice)],
    )


def _timestamp(report: CheckReport) -> list[tuple[dict[str, str], float]]:
    from datetime import datetime

    try:
        taken = datetime.fromisoformat(report.taken_at.replace("Z", "+00:00"))
    except ValueError:
        return []
    return [({}, taken.timestamp())] if taken.tzinfo else []


def _wrong(findings: tuple[Finding, ...]) -> list[tuple[dict[str, str], float]]:
    wrong = [f for f in findings if f.status in ("fail", "warn") or (f.status == "unknown" and f.is_critical)]
    rows = (
        {"scope": f.scope, "id": f.id, "subject": f.subject, "status": f.status, "cause": f.cause}
        for f in wrong
    )
    return [(labels, 1) for labels in _once(rows)]


def _causes(report: CheckReport) -> list[tuple[dict[str, str], float]]:
    rows = (
        {
            "scope": cause.scope,
            "id": cause.id,
            "rank": str(rank),
            "certain": "yes" if cause.is_certain else "no",
            "cost": cause.remedy.cost if cause.remedy else "",
        }
        for rank, cause in enumerate(report.causes, 1)
    )
    return [(labels, 1) for labels in _once(rows)]


def _once(rows: Iterator[dict[str, str]]) -> list[dict[str, str]]:
    """Two series with the same labels would make the reader refuse the whole file."""
    return list({tuple(row.items()): row for row in rows}.values())


def _written(family: _Family) -> str:
    if not family.samples:
        return ""
    head = f"# HELP {family.name} {family.help}\n# TYPE {family.name} gauge\n"
    return head + "".join(
        f"{family.name}{_labels(labels)} {_number(value)}\n" for labels, value in family.samples
    )


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_quoted(value)}"' for name, value in labels.items()) + "}"


def _quoted(value: str) -> str:
    return escape(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.6g}" if value < 1e6 else f"{value:.3f}"
