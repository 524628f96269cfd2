"""The answer of `check` as one line for node health checks: LBNL NHC, Slurm, a drain reason.

NHC takes the exit status and one line of text; a scheduler shows that line as the reason for the drain.
"""

from __future__ import annotations

from doctor.core.finding import CheckReport
from doctor.report.escape import escape_line

__all__ = ["to_nhc"]

#: A drain reason longer than this is cut by the tools that show it (`sinfo -R`).
_LINE_MAX = 200
_WORDS = {"ready": "OK", "not_ready": "ERROR", "unknown": "UNKNOWN"}


def to_nhc(report: CheckReport) -> bytes:
    """`OK: …`, `ERROR: mopt-doctor: CAUSE: title` or `UNKNOWN: …`, in ASCII, at most 200 characters."""
    text = escape_line(f"{_WORDS[report.verdict]}: mopt-doctor: {_reason(report)}")
    plain = text.encode("ascii", "replace").decode()
    if len(plain) > _LINE_MAX:
        plain = plain[: _LINE_MAX - 3] + "..."
    return plain.encode() + b"\n"


def _reason(report: CheckReport) -> str:
    if report.verdict == "ready":
        driver = report.host.driver.get("version")
        return f"ready, {len(report.host.gpus)} GPU(s)" + (f", driver {driver}" if driver else "")
    named = [c for c in report.causes if c.id != "unknown"]
    if named:
        more = f" (and {len(named) - 1} more)" if len(named) > 1 else ""
        where = "" if named[0].scope == "host" else f" in {named[0].scope}"
        return f"{named[0].id}{where}: {named[0].title}{more}"
    wanted = "fail" if report.verdict == "not_ready" else "unknown"
    open_ones = [f for f in report.findings if f.status == wanted]
    return "; ".join(f"{f.id}: {f.found or f.title}" for f in open_ones[:2]) or "no finding says why"
