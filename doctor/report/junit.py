"""The answer of `check` as JUnit XML: a suite for each area of each scope, a test case for each finding.

Follows the form that CI servers read (testsuites, testsuite, testcase with failure, error or skipped).
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape as xml_escape
from xml.sax.saxutils import quoteattr

from doctor.core.finding import Cause, CheckReport, Finding
from doctor.report.escape import escape

__all__ = ["to_junit"]


def to_junit(report: CheckReport) -> bytes:
    """A failed finding is a failure, one that leaves the verdict open an error; a warning passes."""
    suites: dict[tuple[str, str], list[Finding]] = {}
    for finding in report.findings:
        suites.setdefault((finding.scope, finding.area), []).append(finding)
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    lines.append(f"<testsuites {_attributes(name='mopt-doctor', **_counts(report.findings))}>")
    for findings in suites.values():
        lines += _suite(report, findings)
    lines.append("</testsuites>")
    return ("\n".join(lines) + "\n").encode()


def _suite(report: CheckReport, findings: list[Finding]) -> Iterator[str]:
    first = findings[0]
    name = f"mopt.{first.area}" + ("" if first.scope == "host" else f" {first.scope}")
    seconds = sum(report.timings.values()) / 1000 if first is report.findings[0] else 0
    head = _attributes(
        name=name,
        **_counts(findings),
        hostname=report.host.hostname or "",
        timestamp=report.taken_at.removesuffix("Z"),
        time=f"{seconds:.3f}",
    )
    yield f"  <testsuite {head}>"
    yield "    <properties>"
    for key, value in (
        ("verdict", report.verdict),
        ("goal", report.goal),
        ("matrix", report.matrix_edition),
        *((f"cause.{n}", f"{c.id}: {c.title}") for n, c in enumerate(report.causes, 1)),
    ):
        yield f"      <property {_attributes(name=key, value=value)}/>"
    yield "    </properties>"
    causes = {cause.id: cause for cause in (*report.causes, *report.advice)}
    for finding in findings:
        yield from _case(finding, causes)
    yield "  </testsuite>"


def _case(finding: Finding, causes: dict[str, Cause]) -> Iterator[str]:
    name = f"{finding.id} {finding.subject}".rstrip()
    head = f"    <testcase {_attributes(classname=f'mopt.{finding.area}', name=name, time='0')}"
    inner = _outcome(finding, _body(finding, causes.get(finding.cause)))
    if not inner:
        yield f"{head}/>"
        return
    yield f"{head}>"
    yield f"      {inner}"
    yield "    </testcase>"


def _outcome(finding: Finding, body: str) -> str:
    message = _attributes(message=finding.found or finding.title)
    if finding.status == "fail":
        return f"<failure {message} {_attributes(type=finding.cause or finding.id)}>{_text(body)}</failure>"
    if finding.status == "unknown" and finding.is_critical:
        return f"<error {message} {_attributes(type='unknown')}>{_text(body)}</error>"
    if finding.status in ("unknown", "skip"):
        return f"<skipped {message}/>"
    return f"<system-out>{_text(body)}</system-out>" if finding.status == "warn" else ""


def _body(finding: Finding, cause: Cause | None) -> str:
    lines = [finding.title, f"found: {finding.found}", f"wanted: {finding.wanted}"]
    lines += [f"why: {reason}" for reason in finding.why]
    if cause is not None:
        lines.append(f"cause: {cause.id}: {cause.title}")
    if finding.remedy is not None:
        lines.append(f"remedy: {finding.remedy.summary} (cost: {finding.remedy.cost})")
        lines += ["  " + " ".join(argv) for argv in finding.remedy.commands]
    return "\n".join(line for line in lines if not line.endswith(": "))


def _counts(findings: tuple[Finding, ...] | list[Finding]) -> dict[str, str]:
    failed = sum(f.status == "fail" for f in findings)
    errors = sum(f.status == "unknown" and f.is_critical for f in findings)
    skipped = sum(f.status == "skip" or (f.status == "unknown" and not f.is_critical) for f in findings)
    return {
        "tests": str(len(findings)),
        "failures": str(failed),
        "errors": str(errors),
        "skipped": str(skipped),
    }


def _text(text: str) -> str:
    return xml_escape(escape(text))


def _attributes(**values: str) -> str:
    return " ".join(f"{name}={quoteattr(escape(value))}" for name, value in values.items())
