"""The answer of `bench` as one self-contained page: charts in SVG, each with the table of its values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from doctor.core.load import (
    Calibration,
    Estimate,
    Judgement,
    LoadReport,
    Metric,
    MetricSummary,
    Point,
    Quantile,
    SearchReport,
    StageReport,
    Summary,
    Withheld,
)
from doctor.report.document import document, listed, pairs, prose, text
from doctor.report.load_text import slo_words
from doctor.report.load_timeline import timeline
from doctor.report.svg import Chart, Line, Spot, draw

__all__ = ["to_load_html"]

#: A mark and a word beside the colour.
_VERDICTS: dict[Judgement, tuple[str, str]] = {
    "pass": ("pass", "✓ Meets its SLO"),
    "fail": ("fail", "✗ Misses its SLO"),
    "undecided": ("unknown", "? Could not tell"),
    "invalid": ("fail", "✗ Not a valid measurement"),
}
_MARKS: dict[Judgement, str] = {"pass": "✓", "fail": "✗", "undecided": "?", "invalid": "✗"}
#: Rows of a table; a report may be of any origin.
_ROWS_MAX = 200
_CHARTED: tuple[Metric, ...] = ("ttft", "tpot", "e2e")


def to_load_html(report: LoadReport) -> bytes:
    """A whole document in UTF-8: verdict, search, latency against load, each stage, timeline."""
    parts = [*_banner(report)]
    if report.search is not None:
        parts += _search(report, report.search)
    parts += _latency(report)
    parts += _throughput(report)
    for stage in report.stages[:_ROWS_MAX]:
        parts += _stage(stage)
    parts += timeline(report.timeline)
    parts += _foot(report)
    title = f"Load on {report.target.model or report.target.url}"
    return document(title, parts, styles=("page.css", "load.css"))


def _banner(report: LoadReport) -> Iterator[str]:
    paint, words = _VERDICTS[report.judgement]
    if report.slo is None:
        paint, words = "unknown", "Measured"
    yield f'<header class="card banner {paint}"><h1 class="{paint}">{words}</h1>'
    if report.is_cut:
        yield "<p>Interrupted: what was measured until then.</p>"
    if report.slo is not None:
        yield f"<p>{text(slo_words(report.slo))}</p>"
    target = report.target
    names = (target.url, target.endpoint, target.model, target.server)
    yield f'<p class="faint">{text(" · ".join(name for name in names if name))}</p>'
    yield from listed("Notes", report.reasons)
    yield "</header>"


# --- tables ---------------------------------------------------------------------------------------


def _table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the cells of `rows` are text, the last one prose when it is long."""
    lines = [f'<div class="scroll"><table><caption>{text(caption)}</caption><thead><tr>']
    lines += [f'<th scope="col">{text(cell)}</th>' for cell in head]
    lines.append("</tr></thead><tbody>")
    for row in list(rows)[:_ROWS_MAX]:
        first, *rest = row
        cells = "".join(
            f'<td class="words">{prose(cell)}</td>' if len(cell) > 40 else f"<td>{text(cell)}</td>"
            for cell in rest
        )
        lines.append(f'<tr><th scope="row">{text(first)}</th>{cells}</tr>')
    return "".join([*lines, "</tbody></table></div>"])


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.4g}" if abs(seconds) < 10 else f"{seconds * 1000:,.0f}"


def _quantile(quantile: Quantile) -> str:
    """`52.1 (50.2 to 54.9)`, or why there is none."""
    result = quantile.result
    if isinstance(result, Point):
        return f"~{_ms(result.value_s)} (no interval: {result.have} of {result.needed} independent values)"
    if isinstance(result, Withheld):
        return f"withheld: {result.have} of {result.needed} values"
    return f"{_ms(result.value_s)} ({_ms(result.low_s)} to {_ms(result.high_s)})"


def _number(value: float | None, form: str = ".4g") -> str:
    return "not known" if value is None else format(value, form)


def _off(error: float | None) -> str:
    return "" if error is None else f"off by {error:.2%}"


# --- search ---------------------------------------------------------------------------------------


def _search(report: LoadReport, search: SearchReport) -> Iterator[str]:
    yield "<section><h2>Highest rate that meets the SLO</h2>"
    yield pairs(
        {
            "Proven": f"{search.rate_per_s:.4g} requests/s" if search.rate_per_s else "none",
            "Estimate": f"{search.estimate_per_s:.4g} requests/s" if search.estimate_per_s else "",
            "Fails at": f"{search.fails_at_per_s:.4g} requests/s" if search.fails_at_per_s else "",
            "With headroom": f"{search.recommended_per_s:.4g} requests/s" if search.recommended_per_s else "",
            "Knee": _knee(report),
            "Spent": (
                f"{search.spent_requests} requests, {search.spent_s:.0f} s, {search.spent_tokens:,} tokens"
            ),
            "Ended": f"{search.outcome}; {search.reason}" if search.reason else search.outcome,
        }
    )
    spots = tuple(
        Spot(x=probe.rate_per_s, y=100 * probe.late / probe.n)
        for probe in sorted(search.probes[:_ROWS_MAX], key=lambda probe: probe.rate_per_s)
        if probe.n
    )
    marks = (*_marked(search.rate_per_s, "proven"), *_marked(search.fails_at_per_s, "fails"))
    chart = Chart(
        title="Late requests against rate",
        x_name="requests a second",
        y_name="late, %",
        lines=(Line(name="late", spots=spots),),
        marks=marks,
    )
    yield from _figure(chart, "search")
    yield _table(
        "Probes, in the order of trying",
        ("requests/s", "verdict", "why tried", "requests", "counted", "worth", "late", "reason"),
        (
            (
                f"{probe.rate_per_s:.4g}",
                f"{_MARKS[probe.judgement]} {probe.judgement}",
                probe.purpose,
                str(probe.requests),
                str(probe.n),
                f"{probe.n_effective:.0f}",
                str(probe.late),
                probe.reason,
            )
            for probe in search.probes
        ),
    )
    yield "</section>"


def _marked(at: float | None, word: str) -> tuple[tuple[float, str], ...]:
    return () if at is None else ((at, word),)


def _knee(report: LoadReport) -> str:
    if report.knee is None:
        return ""
    each = ", ".join(f"{one.method} {_number(one.load, '.3g')}" for one in report.knee.estimates)
    where = f"{report.knee.load:.3g} streams" if report.knee.load else "none"
    return f"{where}; {report.knee.reason} ({each})"


def _figure(chart: Chart, name: str) -> Iterator[str]:
    drawn = draw(chart, name=name)
    if drawn:
        yield f"<figure><figcaption>{text(chart.title)}</figcaption>{drawn}</figure>"


# --- latency and throughput against load ----------------------------------------------------------


def _groups(report: LoadReport) -> Iterator[tuple[str, str, list[tuple[float, StageReport]]]]:
    """Stages by what their load is counted in: name of the axis, id, and stages from the lightest."""
    shown = report.stages[:_ROWS_MAX]
    rates = [(stage.rate_per_s, stage) for stage in shown if stage.rate_per_s is not None]
    streams = [(float(stage.concurrency), stage) for stage in shown if stage.concurrency is not None]
    for axis, name, group in (("requests a second", "rate", rates), ("streams", "streams", streams)):
        if group:
            yield axis, name, sorted(group, key=lambda pair: pair[0])


def _latency(report: LoadReport) -> Iterator[str]:
    yield "<section><h2>Latency against load</h2>"
    for axis, name, group in _groups(report):
        for metric in _CHARTED:
            lines = [_line(group, metric, p) for p in (0.5, 0.95, 0.99)]
            chart = Chart(
                title=f"{metric} against {axis}, with 95 % intervals where values are enough",
                x_name=axis,
                y_name="ms",
                lines=tuple(line for line in lines if line.spots),
            )
            yield from _figure(chart, f"{name}-{metric}")
        rows = (
            (f"{load:.4g}", one.metric, *(_quantile(q) for q in one.quantiles))
            for load, stage in group
            for one in stage.summary.metrics
            if one.metric in _CHARTED
        )
        yield _table(f"In ms, by {axis}", (axis, "measure", "P50", "P90", "P95", "P99"), rows)
    yield "</section>"


def _line(group: Sequence[tuple[float, StageReport]], metric: Metric, p: float) -> Line:
    spots = []
    for load, stage in group:
        told = _told(stage.summary, metric, p)
        if told is not None:
            span = (None, None) if isinstance(told, Point) else (told.low_s * 1000, told.high_s * 1000)
            spots.append(Spot(x=load, y=told.value_s * 1000, low=span[0], high=span[1]))
    return Line(name=f"P{p * 100:g}", spots=tuple(spots))


def _told(summary: Summary, metric: Metric, p: float) -> Estimate | Point | None:
    for one in summary.metrics:
        for quantile in one.quantiles if one.metric == metric else ():
            if quantile.p == p and not isinstance(quantile.result, Withheld):
                return quantile.result
    return None


def _throughput(report: LoadReport) -> Iterator[str]:
    yield "<section><h2>Throughput against load</h2>"
    for axis, name, group in _groups(report):
        spots = tuple(Spot(x=load, y=stage.summary.completed_per_s) for load, stage in group)
        at = report.knee.load if report.knee and name == "streams" else None
        chart = Chart(
            title=f"Answers a second against {axis}",
            x_name=axis,
            y_name="answers a second",
            lines=(Line(name="answers/s", spots=spots),),
            marks=_marked(at, "knee"),
        )
        yield from _figure(chart, f"{name}-throughput")
        head = (axis, "answers/s", "good/s", "tokens/s out", "in flight", "in the SLO", "steady")
        rows = ((f"{load:.4g}", *_rates(stage.summary)) for load, stage in group)
        yield _table(f"By {axis}", head, rows)
    yield "</section>"


def _rates(summary: Summary) -> Iterator[str]:
    yield f"{summary.completed_per_s:.4g}"
    yield _number(summary.good_per_s)
    yield _number(summary.output_tok_per_s, ",.0f")
    yield f"{summary.in_flight_mean:.3g}"
    share = summary.attainment
    yield "no SLO" if share is None else f"{share.share:.2%} ({share.low:.2%} to {share.high:.2%})"
    yield "yes" if summary.window.is_steady else "no"


# --- one stage ------------------------------------------------------------------------------------


def _stage(stage: StageReport) -> Iterator[str]:
    summary = stage.summary
    verdict = f"{_MARKS[summary.judgement]} {summary.judgement}" if summary.attainment else ""
    yield f"<details><summary>{text(stage.name)} {text(verdict)}</summary>"
    window = summary.window
    counts = ", ".join(f"{n} {word.replace('_', ' ')}" for word, n in summary.statuses.items())
    steady = "" if window.is_steady else "not steady: "
    yield pairs(
        {
            "Window": f"{window.start_s:.4g} to {window.end_s:.4g} s; {steady}{window.because}",
            "Requests": f"{summary.offered} in the window: {counts}",
            "Little's law": _off(summary.littles_law_error),
            "Tokens a piece": _number(summary.tokens_per_chunk, ".3g"),
        }
    )
    yield from listed("Because", summary.reasons)
    head = ("measure", "n", "worth", "mean", "P50", "P90", "P95", "P99", "max")
    yield _table("In ms, with 95 % intervals", head, (_row(one) for one in summary.metrics))
    yield from listed("About them", (f"{one.metric}: {one.note}" for one in summary.metrics if one.note))
    yield "</details>"


def _row(one: MetricSummary) -> tuple[str, ...]:
    told = (_quantile(quantile) for quantile in one.quantiles)
    return (one.metric, str(one.n), f"{one.n_effective:.0f}", _ms(one.mean_s), *told, _ms(one.max_s))


def _foot(report: LoadReport) -> Iterator[str]:
    plan, client = report.plan, report.calibration
    parts = (
        f"{plan.arrivals}, seed {plan.seed}, {plan.processes} processes",
        f"schedule {plan.schedule_digest[:16]}" if plan.schedule_digest else "",
        _client(client) if client else "client not calibrated",
        report.taken_at,
        report.tool,
    )
    yield f'<footer class="faint"><p>{text(" · ".join(part for part in parts if part))}</p></footer>'


def _client(client: Calibration) -> str:
    p50, p99 = _ms(client.ttft_error_p50_s), _ms(client.ttft_error_p99_s)
    return f"the client's own error: TTFT p50 {p50} ms, p99 {p99} ms"
