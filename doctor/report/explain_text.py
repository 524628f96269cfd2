"""The answer of `explain` as text: the cause, the lines that speak for it, what would decide, what to do."""

from __future__ import annotations

from doctor.core.explain import Confidence, ExplainReport, Named
from doctor.core.finding import Remedy
from doctor.report.page import Page, Paint, counted

__all__ = ["render_explain"]

_PAINT: dict[Confidence, Paint] = {"strong": "fail", "likely": "warn", "possible": "unknown"}
_WORDS: dict[Confidence, str] = {"strong": "", "likely": "most likely: ", "possible": "possibly: "}
_WHAT_TO_SEND = (
    "the first error, not the last: the lines before `see above`, a traceback's first exception",
    "the kernel's side: `journalctl -k -b 0 | grep -iE 'nvrm|nvidia|xid'`",
    "`mopt-doctor collect --redact -o host.tar.gz`, and `mopt-doctor explain TEXT --from host.tar.gz`",
)
#: Behind the first cause, this many are told with their lines; the rest by title.
_TOLD = 3
_LINES = 4


def render_explain(
    report: ExplainReport,
    *,
    width: int = 80,
    colour: bool = False,
    ascii_only: bool = False,
    verbose: bool = False,
) -> str:
    """The report as text of at most `width` columns, but for commands and matched lines of the log."""
    page = Page(width=width, colour=colour, ascii_only=ascii_only)
    if not report.causes:
        _nothing(page, report)
    for number, named in enumerate(report.causes):
        if number < _TOLD or verbose:
            _cause(page, named, is_first=number == 0, verbose=verbose)
        else:
            page.text(f"{_WORDS[named.confidence]}{named.title} ({named.id})", head="or: ", indent=0)
    _ruled_out(page, report)
    if verbose and report.facts:
        page.gap()
        page.text("", head="said in the text", paint="strong")
        for fact in report.facts:
            page.text(f"{fact.name.replace('_', ' ')}: {fact.value}", indent=2)
    _foot(page, report)
    return str(page)


def _nothing(page: Page, report: ExplainReport) -> None:
    page.text("no cause is known for this text", head="NOT RECOGNISED: ", paint="unknown")
    if report.ruled_out:
        page.text("what it speaks for is excluded by facts of the host, see below")
    page.gap()
    page.text("", head="send instead", paint="strong")
    for hint in _WHAT_TO_SEND:
        page.text(hint, indent=2)


def _cause(page: Page, named: Named, *, is_first: bool, verbose: bool) -> None:
    page.gap()
    title = f"{_WORDS[named.confidence]}{named.title}"
    if named.is_harmless:
        page.text(named.title, head="harmless: " if is_first else "also harmless: ", paint="pass")
    elif is_first:
        page.text(title, head="cause: ", paint=_PAINT[named.confidence])
    else:
        page.text(title, head="or: ", paint=_PAINT[named.confidence])
    page.label("id", f"{named.id} ({named.confidence})")
    lines = {matched.line: matched for matched in reversed(named.matched)}.values()
    for matched in list(reversed(lines))[: None if verbose else _LINES]:
        more = f" ({counted(matched.count, 'line')})" if matched.count > 1 else ""
        page.label("line", f"{matched.line}: {matched.text}{more}")
        page.label("", matched.note)
    page.label("because", "; ".join(named.because))
    if not named.is_harmless:
        page.label("decided", f"by {'; '.join(named.deciding_facts)}" if named.deciding_facts else "")
        if named.remedy is not None and (is_first or verbose):
            _remedy(page, named.remedy)


def _remedy(page: Page, remedy: Remedy) -> None:
    page.label("do", remedy.summary)
    for argv in remedy.commands:
        page.command(argv, indent=11)
    page.label("cost", "; ".join(part for part in (remedy.cost, remedy.blast_radius) if part))
    page.label("undo", remedy.undo)


def _ruled_out(page: Page, report: ExplainReport) -> None:
    if not report.ruled_out:
        return
    page.gap()
    page.text("", head=f"ruled out on {report.host or 'the host'}", paint="strong")
    for one in report.ruled_out:
        page.text(f"{one.id}: {'; '.join(one.because) or one.title}", indent=2)


def _foot(page: Page, report: ExplainReport) -> None:
    page.gap()
    where = f" of `{report.source}`" if report.source and report.source != "-" else ""
    page.text(f"{counted(report.lines, 'line')}{where} read, matrix {report.matrix_edition}, {report.tool}")
    if report.decided_by == "text" and any(n.confidence != "strong" for n in report.causes):
        page.text("`--host` or `--from BUNDLE` lets the facts of the host decide")
    meaning = "a cause is named" if report.exit_code == 0 else "could not tell"
    page.text(f"exit code {report.exit_code}: {meaning}")
