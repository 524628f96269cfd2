"""The answer of `check` as one self-contained page: verdict, causes, each finding with its evidence.

No script, no outside resource; it follows the reader's dark or light setting, and prints.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from doctor.core.finding import AREAS, Cause, CheckReport, Finding, Remedy
from doctor.report.document import document
from doctor.report.document import listed as _list
from doctor.report.document import pairs as _pairs
from doctor.report.document import prose as _prose
from doctor.report.document import text as _t

__all__ = ["to_html"]

_VERDICTS = {"ready": "Ready", "not_ready": "Not ready", "unknown": "Could not tell"}
#: A mark and a word beside the colour: nothing is told by colour alone.
_MARKS = {"pass": "✓", "warn": "!", "fail": "✗", "skip": "·", "unknown": "?"}
_ORDER = ("fail", "unknown", "warn", "pass", "skip")
_COSTS = {
    "none": "interrupts nothing",
    "drain": "GPU work has to end first",
    "restart": "a service restarts",
    "reload": "the driver is unloaded and loaded again",
    "reboot": "a reboot",
    "reinstall": "packages are replaced, and a reboot",
    "hardware": "work on the hardware",
}


def to_html(report: CheckReport) -> bytes:
    """A whole document in UTF-8. What evidence brought in is text there, never markup."""
    title = f"{_VERDICTS[report.verdict]}: {report.host.hostname or 'this host'}"
    parts = (
        *_banner(report),
        *_causes("Causes", report.causes, "fail"),
        *_causes("Advice", report.advice, "warn"),
        *_findings(report),
        *_host(report),
        *_foot(report),
    )
    return document(title, parts)


def _paint(verdict: str) -> str:
    return {"ready": "pass", "not_ready": "fail"}.get(verdict, "unknown")


def _banner(report: CheckReport) -> Iterator[str]:
    paint = _paint(report.verdict)
    words = f"{_MARKS[paint]} {_VERDICTS[report.verdict]}"
    yield f'<header class="card banner {paint}"><h1 class="{paint}">{words}</h1>'
    yield f"<p>{_prose(_headline(report))}</p>"
    yield f'<p class="faint">{_t(_machine(report))}</p>'
    if len(report.scopes) > 1:
        yield "<ul>"
        for scope in report.scopes:
            word = f'<span class="{_paint(scope.verdict)}">{_VERDICTS[scope.verdict]}</span>'
            yield f"<li>{word}: {_t(scope.scope)}</li>"
        yield "</ul>"
    if report.is_partial:
        yield "<p>Only a part of the checks ran: the verdict is about those.</p>"
    yield "</header>"


def _headline(report: CheckReport) -> str:
    named = [c for c in report.causes if c.id != "unknown"]
    if named:
        where = "" if named[0].scope == "host" else f"in {named[0].scope}: "
        more = f" (and {len(named) - 1} more)" if len(named) > 1 else ""
        return f"{where}{named[0].title}{more}"
    counts = {status: sum(f.status == status for f in report.findings) for status in _ORDER}
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "no finding"


def _machine(report: CheckReport) -> str:
    host = report.host
    names: dict[str, int] = {}
    for gpu in host.gpus:
        name = str(gpu.get("name") or gpu.get("pci_id") or "GPU")
        names[name] = names.get(name, 0) + 1
    cards = ", ".join(f"{count}x {name}" if count > 1 else name for name, count in names.items())
    words = (
        host.hostname,
        cards or "no GPU listed",
        host.os.get("pretty_name"),
        host.kernel.get("release"),
        f"driver {host.driver['version']}" if host.driver.get("version") else "no driver loaded",
        (host.virtualisation or "").replace("_", " "),
    )
    return " · ".join(str(word) for word in words if word)


def _causes(heading: str, causes: Sequence[Cause], paint: str) -> Iterator[str]:
    if not causes:
        return
    yield f"<section><h2>{heading}</h2>"
    for cause in causes:
        mark = "unknown" if cause.id == "unknown" else paint
        likely = "" if cause.is_certain or cause.id == "unknown" else "Most likely: "
        yield f'<article class="card {mark}"><h3>{likely}{_prose(cause.title)}</h3>'
        where = "" if cause.scope == "host" else f" in {cause.scope}"
        yield f'<p class="faint"><code>{_t(cause.id)}</code>{_t(where)}</p>'
        yield from _list("Because", cause.because)
        yield from _list("Possible instead", cause.tied_with)
        yield from _list("What would decide", cause.deciding_facts)
        yield from _remedy(cause.remedy)
        if cause.findings:
            yield f'<p class="faint">Explains: {_t(", ".join(cause.findings))}</p>'
        yield "</article>"
    yield "</section>"


def _remedy(remedy: Remedy | None) -> Iterator[str]:
    if remedy is None:
        return
    yield f"<p><strong>Remedy:</strong> {_prose(remedy.summary)}</p>"
    if remedy.commands:
        yield "<pre>" + "\n".join(_t(shlex.join(argv)) for argv in remedy.commands) + "</pre>"
    rows = {
        "Cost": _COSTS.get(remedy.cost, remedy.cost),
        "Needs root": "yes" if remedy.needs_root else "no",
        "Hits": remedy.blast_radius,
        "Undo": remedy.undo,
    }
    yield _pairs(rows)


def _findings(report: CheckReport) -> Iterator[str]:
    yield "<section><h2>Findings</h2>"
    wrong = [
        f
        for f in report.findings
        if f.status in ("fail", "warn") or (f.status == "unknown" and f.is_critical)
    ]
    for finding in sorted(wrong, key=lambda f: _ORDER.index(f.status)):
        yield f'<article class="card {finding.status}">{_head(finding)}{_body(finding)}</article>'
    if not wrong:
        yield "<p>Nothing fails and nothing warns.</p>"
    rest = [f for f in report.findings if f not in wrong]
    for area in (*AREAS, "internal"):
        of_area = sorted((f for f in rest if f.area == area), key=lambda f: _ORDER.index(f.status))
        if of_area:
            yield f"<details><summary>{_t(area)}: {_t(_counted(of_area))}</summary>"
            yield from (f'<div class="row">{_head(f)}{_body(f)}</div>' for f in of_area)
            yield "</details>"
    yield "</section>"


def _counted(findings: Sequence[Finding]) -> str:
    words = {"pass": "pass", "skip": "do not apply", "unknown": "not known", "warn": "warn", "fail": "fail"}
    counts = {status: sum(f.status == status for f in findings) for status in _ORDER}
    return ", ".join(f"{count} {words[status]}" for status, count in counts.items() if count)


def _head(finding: Finding) -> str:
    about = " ".join(
        word for word in (finding.subject, "" if finding.scope == "host" else finding.scope) if word
    )
    return (
        f'<div><span class="state {finding.status}">{_MARKS[finding.status]} {finding.status}</span>'
        f'<code>{_t(finding.id)}</code> {_t(finding.title)} <span class="faint">{_t(about)}</span></div>'
    )


def _body(finding: Finding) -> str:
    rows = {"Found": finding.found, "Wanted": finding.wanted, "Cause": finding.cause}
    lines = [_pairs(rows)] if any(rows.values()) else []
    lines += _list("Why", finding.why)
    if finding.evidence:
        lines.append(
            f'<p class="faint">Read from: {", ".join(f"<code>{_t(e)}</code>" for e in finding.evidence)}</p>'
        )
    return "".join(lines)


def _host(report: CheckReport) -> Iterator[str]:
    host = report.host
    yield "<section><h2>Host</h2>"
    yield _pairs(
        {
            "Name": host.hostname or "",
            "System": host.os.get("pretty_name") or "",
            "Kernel": host.kernel.get("release") or "",
            "Driver": " ".join(v for v in (host.driver.get("version"), host.driver.get("flavour")) if v),
            "User space": host.driver.get("userspace_version") or "",
            "CUDA of the driver": host.cuda_driver_version or "",
            "Runs on": (host.virtualisation or "").replace("_", " "),
            "Goal": report.goal,
        }
    )
    for gpu in host.gpus:
        words = [
            str(gpu[k]) for k in ("address", "name", "pci_id", "compute_capability", "uuid") if gpu.get(k)
        ]
        yield f'<div class="row"><code>{_t(" · ".join(words))}</code></div>'
    yield "</section>"


def _foot(report: CheckReport) -> Iterator[str]:
    root = {True: "as root", False: "not as root"}.get(report.root, "") if report.root is not None else ""
    words = (
        f"evidence of {report.taken_at}" if report.taken_at else "",
        root,
        f"matrix {report.matrix_edition}",
        report.tool,
    )
    times = ", ".join(
        f"{stage.removesuffix('_ms')} {ms:.0f} ms" for stage, ms in sorted(report.timings.items())
    )
    yield f'<footer class="faint"><p>{_t(" · ".join(w for w in (*words, times) if w))}</p></footer>'
