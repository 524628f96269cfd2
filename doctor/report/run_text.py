"""A run as text of 80 columns: a line a step while it goes on, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from doctor.core.plan import Plan
from doctor.core.run import (
    ENDS,
    CheckedEntry,
    Entry,
    InterruptedEntry,
    OpenedEntry,
    RebootEntry,
    RunReport,
    StageBegun,
    StageEnded,
    TaskEntry,
)
from doctor.report.escape import escape_line

__all__ = ["RunLines", "render_run", "render_runs"]

_WIDTH = 80


class RunLines:
    """Entries of a journal as lines, one after the other."""

    def __init__(self, plan: Plan) -> None:
        self._why = {step.stage: "; ".join(step.why) for step in plan.steps}

    def of(self, entry: Entry) -> Iterator[str]:
        """No line for what only a program wants to know."""
        if isinstance(entry, OpenedEntry):
            yield from _para(f"{entry.act} of plan {entry.plan[:12]} on {entry.host} (pid {entry.pid})")
        elif isinstance(entry, StageBegun):
            why = self._why.get(entry.stage, "")  # type: ignore[call-overload]
            yield from _para(f"{entry.stage}" + (f": {why}" if why else ""))
        elif isinstance(entry, TaskEntry) and entry.state not in ("ok", "skipped"):
            yield from _para(f"{entry.state} {entry.task} ({entry.took_s:.1f} s)", "  ", "    ")
        elif isinstance(entry, StageEnded) and entry.state != "done":
            yield from _para(f"{entry.state.replace('_', ' ')}: {entry.said}", "  ", "    ")
        elif isinstance(entry, RebootEntry):
            yield from _para(f"restarts: {entry.why}", "  ", "    ")
        elif isinstance(entry, InterruptedEntry):
            yield from _para(f"stops, as {entry.by} asked", "  ", "    ")
        elif isinstance(entry, CheckedEntry):
            yield from _para(f"check {entry.when}: {entry.verdict.replace('_', ' ')}")


def render_run(report: RunReport) -> str:
    """What came of a run: its end, promise by promise, and how to go on."""
    end = ENDS[report.end].upper()
    said = f": {report.said}" if report.said else ""
    lines = _para(f"run {report.run} on {report.host}{said}", f"{end}  ", "  ")
    for one in report.cures:
        untold = "cannot tell" if report.after else "not looked at"
        told = {True: "cured", False: "STANDS", None: untold}[one.is_cured]
        # Padding belongs to the first indent: what is escaped loses repeated spaces.
        lines += _para(f"{one.finding} ({one.stage}): {one.found}", f"  {told:<13} ", " " * 16)
    if report.before or report.after:
        words = [f"before: {report.before.replace('_', ' ')}"] if report.before else []
        words += [f"after: {report.after.replace('_', ' ')}"] if report.after else []
        lines += _para(f"check {', '.join(words)}", "  ", "    ")
    lines += [line for text in report.next for line in _para(text, "  next: ", "        ")]
    return "\n".join(lines) + "\n"


def render_runs(reports: Sequence[RunReport]) -> str:
    """One line a run, the newest last."""
    if not reports:
        return "no run is kept here\n"
    width = max(len(report.run) for report in reports)
    rows = [
        f"{escape_line(r.run):<{width}}  {r.act:<8}  {ENDS[r.end]:<11}"
        f"  {escape_line(r.opened_at[:16].replace('T', ' '))}  {escape_line(r.host)}"
        for r in reports
    ]
    return "\n".join(row[:_WIDTH] for row in rows) + "\n"


def _para(text: str, first: str = "", rest: str = "  ") -> list[str]:
    said = escape_line(text)
    if len(first) + len(said) <= _WIDTH:
        return [first + said]
    return wrap(
        said,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
        break_long_words=False,
    )
