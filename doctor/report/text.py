"""The answer of `check` as text: the verdict and its root cause first, then what it rests on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from doctor.core.checks.cuda import NOT_ASKED
from doctor.core.finding import AREAS, Cause, CheckReport, Finding, HostSummary, Remedy, Status, Verdict
from doctor.core.host import Host
from doctor.errors import EXIT_CODES
from doctor.report.host_text import render_environment, render_host
from doctor.report.page import Page, Paint, counted

__all__ = ["render_check", "render_host"]

_WORDS: dict[Verdict, str] = {
    "ready": "READY",
    "not_ready": "NOT READY",
    "unknown": "COULD NOT TELL",
}
#: What the codes that a verdict can have mean here; the table in `doctor.errors` speaks for all commands.
_MEANINGS = {0: "ready", 1: "not ready", 3: "could not tell"}
_VERDICT_PAINT: dict[Verdict, Paint] = {"ready": "pass", "not_ready": "fail", "unknown": "unknown"}
_STATUS_PAINT: dict[Status, Paint] = {
    "pass": "pass",
    "fail": "fail",
    "warn": "warn",
    "unknown": "unknown",
    "skip": "faint",
}
_STATUS_ORDER: tuple[Status, ...] = ("fail", "unknown", "warn", "pass", "skip")

_COSTS = {
    "none": "nothing is interrupted",
    "drain": "GPU work has to end first",
    "restart": "a service or a container restarts",
    "reload": "the driver is unloaded and loaded again; GPU work has to end first",
    "reboot": "a reboot",
    "reinstall": "packages are replaced, and a reboot",
    "hardware": "work on the hardware",
}

#: The status word and its gap: `unknown` is the longest.
_STATUS_WIDTH = 9

#: With more subjects than this, a line names the first ones and counts the rest.
_SUBJECTS_SHOWN = 4


def render_check(  # noqa: PLR0913
    report: CheckReport,
    *,
    width: int = 80,
    colour: bool = False,
    ascii_only: bool = False,
    verbose: bool = False,
    host: Host | None = None,
    others: Sequence[Host] = (),
) -> str:
    """The report as text of at most `width` columns, but for commands, which are never broken.

    Colour adds nothing that the words do not say. `host` adds what root would have read; `others` are
    the scopes beside it, of which `verbose` names those that nothing judged.
    """
    page = Page(width=width, colour=colour, ascii_only=ascii_only)
    page.text(
        _headline(report),
        head=f"{_WORDS[report.verdict]}{_reach(report)}: ",
        paint=_VERDICT_PAINT[report.verdict],
    )
    page.text(_host_line(report))
    if len(report.scopes) > 1:
        page.text(", ".join(f"{s.scope}: {_WORDS[s.verdict].lower()}" for s in report.scopes))
    for number, cause in enumerate(report.causes):
        _cause(page, cause, report, heading="cause" if number == 0 else "also")
    _findings(page, report, verbose=verbose)
    _goal(page, report)
    for cause in report.advice:
        _cause(page, cause, report, heading="advice")
    _notes(page, report.findings, verbose=verbose)
    if verbose:
        _unjudged(page, others, report)
    _foot(page, report, host, verbose=verbose)
    return str(page)


# --- the first lines ------------------------------------------------------------------------------


def _reach(report: CheckReport) -> str:
    """Without cuInit nothing has shown that CUDA starts: the first line of a ready report says so."""
    return " as far as the evidence goes" if report.verdict == "ready" and _not_asked(report) else ""


def _not_asked(report: CheckReport) -> list[Finding]:
    """Where cuInit was not asked: foreign reports, and bundles that left it out."""
    return [f for f in report.findings if f.id == "cuda.init" and f.found == NOT_ASKED]


def _headline(report: CheckReport) -> str:
    if report.causes and report.causes[0].id != "unknown":
        first, more = report.causes[0], len(report.causes) - 1
        likely = "" if first.is_certain else "most likely: "
        title = first.title.rstrip(".")
        where = "" if first.scope == "host" else f"in {first.scope}: "
        return f"{where}{likely}{title}" + (f" (and {counted(more, 'more cause')})" if more else "")
    if report.verdict == "ready":
        warnings = sum(f.status == "warn" for f in report.findings) or len(report.advice)
        return _matches(report) + (f", {counted(warnings, 'warning')}" if warnings else "")
    wanted: Status = "fail" if report.verdict == "not_ready" else "unknown"
    open_ones = [f for f in report.findings if f.status == wanted]
    open_ones = [f for f in open_ones if f.is_critical] or open_ones
    if not open_ones:
        return "no finding says why"
    first_open = next((f for f in report.findings if f in open_ones), open_ones[0])
    more = len(open_ones) - 1
    words = first_open.found or first_open.title
    return f"{_named(first_open)}: {words}" + (f" (and {more} more)" if more else "")


def _matches(report: CheckReport) -> str:
    """What a ready verdict rests on."""
    chosen = "the chosen checks pass; the others did not run" if report.is_partial else ""
    untold = _not_asked(report)
    if not untold:
        return chosen or "the stack matches"
    scopes = [f.scope for f in untold if f.scope != "host"]
    where = f" in {', '.join(scopes)}" if scopes and len(scopes) == len(untold) else ""
    return f"cuInit was not asked{where}" + (f"; {chosen}" if chosen else "")


def _named(finding: Finding) -> str:
    """`cuda.init`, and `cuda.init [container:ID]` when it is not the host's."""
    return finding.id if finding.scope == "host" else f"{finding.id} [{finding.scope}]"


def _host_line(report: CheckReport) -> str:
    host = report.host
    parts = [
        host.hostname,
        _gpus(host),
        host.os.get("pretty_name"),
        _known("kernel", host.kernel.get("release")),
        _driver(report),
        _known("goal", report.goal),
    ]
    return ", ".join(part for part in parts if part)


def _known(label: str, value: str | None) -> str:
    return f"{label} {value}" if value else ""


def _gpus(host: HostSummary) -> str:
    """`8 x NVIDIA H200`; several models each with their count."""
    names: dict[str, int] = {}
    for gpu in host.gpus:
        name = str(gpu.get("name") or gpu.get("pci_id") or "unnamed GPU")
        names[name] = names.get(name, 0) + 1
    return " + ".join(f"{count} x {name}" for name, count in names.items())


def _driver(report: CheckReport) -> str:
    """`driver 580.95.05 (open)`; that it is not loaded is said only where a check found so."""
    host = report.host
    loaded, flavour = host.driver.get("version"), host.driver.get("flavour")
    userspace = host.driver.get("userspace_version")
    if not loaded:
        module = next((f for f in report.findings if f.id == "driver.module_loaded"), None)
        words = "driver not loaded, " if module is not None and module.status == "fail" else "driver "
        return f"{words}user space {userspace}" if userspace else ""
    aside = [flavour] if flavour else []
    if userspace and userspace != loaded:
        aside.append(f"user space {userspace}")
    return f"driver {loaded}" + (f" ({', '.join(aside)})" if aside else "")


# --- causes ---------------------------------------------------------------------------------------


def _cause(page: Page, cause: Cause, report: CheckReport, *, heading: str) -> None:
    page.gap()
    scope = "" if cause.scope == "host" else f" in {cause.scope}"
    doubt = "" if cause.is_certain or cause.id == "unknown" else " (likely, not certain)"
    page.text(f"{cause.id}{scope}{doubt}", head=f"{heading}: ", paint="strong", hang=7)
    if heading != "cause" or cause.id == "unknown":  # else the first line of the report is this title
        page.text(cause.title, indent=2, hang=0)
    page.label("because", "; ".join(cause.because))
    page.label("follows", _consequences(cause, report.findings))
    page.label("namely", ", ".join(cause.refined_by))
    page.label("fits" if cause.id == "unknown" else "tied", ", ".join(cause.tied_with))
    page.label("decides", "; ".join(cause.deciding_facts))
    if cause.remedy is not None:
        _remedy(page, cause.remedy, as_root=report.root is True)


def _consequences(cause: Cause, findings: Sequence[Finding]) -> str:
    """`gpu.nvml fails, cuda.init is not known`: what the cause explains, with its status."""
    status = {_reference(f): f.status for f in findings if f.scope == cause.scope}
    words: dict[Status, str] = {"fail": "fails", "unknown": "is not known", "warn": "warns"}
    said: dict[str, int] = {}
    for name in cause.findings:
        found = status.get(name)
        text = f"{name.split('@', 1)[0]} {words[found]}" if found in words else name.split("@", 1)[0]
        said[text] = said.get(text, 0) + 1
    return ", ".join(text if count == 1 else f"{text} ({count} times)" for text, count in said.items())


def _reference(finding: Finding) -> str:
    return f"{finding.id}@{finding.subject}" if finding.subject else finding.id


def _remedy(page: Page, remedy: Remedy, *, as_root: bool, indent: int = 2) -> None:
    page.label("do", remedy.summary, indent=indent)
    for argv in remedy.commands:
        needs_sudo = remedy.needs_root and not as_root and argv[:1] != ("sudo",)
        page.command(("sudo", *argv) if needs_sudo else argv, indent=indent + 9)
    cost = _COSTS.get(remedy.cost, remedy.cost)
    page.label("cost", f"{cost}; {remedy.blast_radius}" if remedy.blast_radius else cost, indent=indent)
    page.label("undo", remedy.undo, indent=indent)


# --- findings -------------------------------------------------------------------------------------


def _findings(page: Page, report: CheckReport, *, verbose: bool) -> None:
    """What fails, warns or is not known, by area; with `verbose`, all of it."""
    shown: tuple[Status, ...] = _STATUS_ORDER if verbose else ("fail", "unknown", "warn")
    listed = {(cause.id, cause.scope) for cause in (*report.causes, *report.advice)}
    for area in (*AREAS, "internal"):
        found = [f for f in report.findings if f.area == area and f.status in shown]
        found = [f for f in found if verbose or not _is_aside(f)]
        if not found:
            continue
        page.gap()
        page.text("", head=area, paint="strong")
        for group in _alike(sorted(found, key=lambda f: _STATUS_ORDER.index(f.status))):
            is_explained = (group[0].cause, group[0].scope) in listed
            _finding(page, group, report, is_explained=is_explained, verbose=verbose)


def _goal(page: Page, report: CheckReport) -> None:
    """The stack that the goal asks for here, and what of the host it changes; or why there is none."""
    stack = report.stack
    if stack is not None:
        page.gap()
        page.text(report.goal, head="goal: ", paint="strong", hang=6)
        page.label("stack", ", ".join(f"{name} {version}" for name, version in stack.components.items()))
        changes = (
            f"{c.component} {c.before} -> {c.after}" + (f" ({c.minutes} min)" if c.minutes else "")
            for c in stack.changes
        )
        page.label("changes", ", ".join(changes))
        page.label("stays", ", ".join(stack.keeps))
    elif report.conflict:
        page.gap()
        page.text(report.goal, head="goal: ", paint="strong", hang=6)
        for link in report.conflict:
            page.label("because", link.text)


def _is_aside(finding: Finding) -> bool:
    """An unknown that leaves the verdict alone: named in one line at the end, in full with `verbose`."""
    always = finding.is_critical or finding.area == "internal" or finding.id == "system.collection"
    return finding.status == "unknown" and not always


def _alike(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Findings that differ only in their subject stand together: eight GPUs, one line."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for f in findings:
        groups.setdefault((f.id, f.scope, f.status, f.wanted, f.found, f.why, f.cause), []).append(f)
    return list(groups.values())


def _finding(
    page: Page, group: list[Finding], report: CheckReport, *, is_explained: bool, verbose: bool
) -> None:
    finding = group[0]
    page.text(
        f"{_named(finding)}: {finding.title}{_subjects(group)}",
        head=finding.status.ljust(_STATUS_WIDTH),
        paint=_STATUS_PAINT[finding.status],
        indent=2,
        hang=_STATUS_WIDTH,
    )
    inner = 2 + _STATUS_WIDTH
    page.label("found", finding.found, indent=inner)
    page.label("wanted", finding.wanted, indent=inner)
    page.label("overlay", finding.overlay, indent=inner)
    if finding.status == "unknown" and finding.is_critical:
        page.text("without it the verdict stays open", indent=inner, hang=0)
    if is_explained:
        page.label("cause", finding.cause, indent=inner)
    if verbose or not is_explained:
        for reason in finding.why:
            page.label("because", reason, indent=inner)
        if finding.remedy is not None and finding.status not in ("pass", "skip"):
            _remedy(page, finding.remedy, as_root=report.root is True, indent=inner)
    if verbose:
        page.label("from", ", ".join(f"`{key}`" for key in finding.evidence), indent=inner)


def _subjects(group: list[Finding]) -> str:
    """` (0000:41:00.0, 0000:61:00.0, 2 more)`; empty when there are none."""
    subjects = [f.subject for f in group if f.subject]
    named = subjects[:_SUBJECTS_SHOWN]
    if len(subjects) > len(named):
        named.append(f"{len(subjects) - len(named)} more")
    return f" ({', '.join(named)})" if named else ""


def _notes(page: Page, findings: Sequence[Finding], *, verbose: bool) -> None:
    """Passes that have something to say; `verbose` has shown them with the others."""
    noted = [f for f in findings if f.status == "pass" and f.why]
    if verbose or not noted:
        return
    page.gap()
    page.text("", head="noted", paint="strong")
    for group in _alike(noted):
        said = f"{group[0].found}: " if group[0].found else ""
        page.text(f"{_named(group[0])}: {said}{group[0].why[0]}", indent=2)


def _unjudged(page: Page, others: Sequence[Host], report: CheckReport) -> None:
    """Scopes beside the host that have facts and no verdict: Python environments, for now."""
    listed = [host for host in others if host.scope not in {s.scope for s in report.scopes}]
    if not listed:
        return
    page.gap()
    page.text("", head="not judged", paint="strong")
    for host in listed:
        page.text(f"{host.scope}: {render_environment(host)}", indent=2)


# --- the last lines -------------------------------------------------------------------------------


def _foot(page: Page, report: CheckReport, host: Host | None, *, verbose: bool) -> None:
    page.gap()
    asides = list(dict.fromkeys(_named(f) for f in report.findings if _is_aside(f)))
    if asides and not verbose:
        page.text(f"not known, and not needed for the verdict: {', '.join(asides)} (`-v` says why)")
    page.text(_counts(report.findings))
    denied = host.collection.denied if host is not None else ()
    if denied:
        page.text(f"as root, {counted(len(denied), 'more item')} would be read: {_few(denied)}")
    elif report.root is False and any(f.status == "unknown" for f in report.findings):
        page.text("not collected as root; root may know more")
    taken = f", evidence of {report.taken_at}" if report.taken_at else ""
    sites = f" with overlay {', '.join(report.overlays)}" if report.overlays else ""
    page.text(f"matrix {report.matrix_edition}{sites}{taken}, {report.tool}")
    if verbose and report.timings:
        page.text("took " + ", ".join(f"{name} {ms:.0f} ms" for name, ms in report.timings.items()))
    meaning = _MEANINGS.get(report.exit_code) or EXIT_CODES.get(report.exit_code, "unknown code")
    page.text(f"exit code {report.exit_code}: {meaning}")


def _counts(findings: Sequence[Finding]) -> str:
    """`27 findings: 1 fails, 2 are not known, …`: a check of eight GPUs has eight."""
    words: dict[Status, tuple[str, str]] = {
        "fail": ("fails", "fail"),
        "unknown": ("is not known", "are not known"),
        "warn": ("warns", "warn"),
        "pass": ("passes", "pass"),
        "skip": ("does not apply", "do not apply"),
    }
    counts = {status: sum(f.status == status for f in findings) for status in _STATUS_ORDER}
    said = [f"{n} {words[status][n != 1]}" for status, n in counts.items() if n]
    return f"{counted(len(findings), 'finding')}: {', '.join(said)}" if said else "no check ran"


def _few(keys: Sequence[str]) -> str:
    named = [f"`{key}`" for key in keys[:_SUBJECTS_SHOWN]]
    rest = len(keys) - len(named)
    return ", ".join(named) + (f" and {rest} more" if rest else "")
