"""The answer of `bench` as text: the verdict or the figures first, then what they rest on, in 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.core.load import (
    Calibration,
    Estimate,
    Judgement,
    LoadReport,
    MetricSummary,
    Point,
    SearchReport,
    Slo,
    StageReport,
    Summary,
    Withheld,
)
from doctor.report.page import Page, Paint, counted

__all__ = ["render_load", "slo_words"]

_WORDS: dict[Judgement, str] = {
    "pass": "PASS",
    "fail": "FAIL",
    "undecided": "COULD NOT TELL",
    "invalid": "INVALID",
}
_PAINTS: dict[Judgement, Paint] = {"pass": "pass", "fail": "fail", "undecided": "unknown", "invalid": "fail"}
_SHOWN = (0.5, 0.9, 0.95, 0.99)
_PROBES_SHOWN = 12


def render_load(
    report: LoadReport, *, width: int = 80, colour: bool = False, ascii_only: bool = False
) -> str:
    """The report as text of at most `width` columns."""
    page = Page(width=width, colour=colour, ascii_only=ascii_only)
    _headline(page, report)
    target = report.target
    page.text(", ".join(part for part in (target.url, target.endpoint, target.model, target.server) if part))
    _plan(page, report)
    if report.search is not None:
        _search(page, report.search, report)
    for stage in _last(report.stages):
        _stage(page, stage, has_name=len(report.stages) > 1)
    _calibration(page, report.calibration)
    _notes(page, report)
    return str(page)


def _headline(page: Page, report: LoadReport) -> None:
    cut = "cut short; until then: " if report.is_cut else ""
    summary = report.stages[-1].summary if report.stages else None
    if report.slo is not None:
        words = _search_words(report.search) if report.search else _verdict_words(report.slo, summary)
        head = f"{_WORDS[report.judgement]}: "
        page.text(cut + words, head=head, paint=_PAINTS[report.judgement])
    elif summary is None or not summary.succeeded:
        page.text(f"{cut}no request succeeded", head="NO ANSWER: ", paint="fail")
    else:
        page.text(cut + _rates(summary), head="MEASURED: ", paint="strong")


def _verdict_words(slo: Slo, summary: Summary | None) -> str:
    share = summary.attainment if summary else None
    if share is None:
        return f"{slo_words(slo)}: nothing to judge it by"
    return (
        f"{_percent(share.share)} of {share.offered} requests met {slo_words(slo)}"
        f" ({share.confidence:.0%} sure: {_percent(share.low)} to {_percent(share.high)})"
    )


def _search_words(search: SearchReport) -> str:
    if search.rate_per_s is None:
        return f"no rate is proven to meet the SLO ({search.outcome}); {search.reason}".rstrip("; ")
    fails = f", {search.fails_at_per_s:.4g}/s fails" if search.fails_at_per_s else ""
    advice = f"; with headroom: {search.recommended_per_s:.4g}/s" if search.recommended_per_s else ""
    about = f", the bound is near {search.estimate_per_s:.4g}/s" if search.estimate_per_s else ""
    return f"{search.rate_per_s:.4g} requests/s meet the SLO{about}{fails}{advice}"


def slo_words(slo: Slo) -> str:
    """`ttft <= 500 ms, tpot <= 50 ms for 99 %`."""
    terms = ", ".join(f"{term.metric} <= {_ms(term.limit_s)} ms" for term in slo.terms)
    return f"{terms} for {_percent(slo.attainment)}"


def _percent(share: float) -> str:
    """Never rounded up to a whole that is not reached."""
    text = f"{share * 100:.2f}".rstrip("0").rstrip(".")
    return f"{'99.99' if text == '100' and share < 1 else text} %"


def _ms(seconds: float) -> str:
    value = seconds * 1000
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}" if abs(value) >= 100 else f"{value:.2f}"


# --- what was done --------------------------------------------------------------------------------


def _plan(page: Page, report: LoadReport) -> None:
    plan = report.plan
    loop = f"{plan.arrivals} arrivals" if plan.loop == "open" else "closed loop"
    parts = [loop, *_loads(report)]
    parts.append(f"{plan.prompt_tokens} tokens in" if plan.prompt_tokens else "")
    parts.append(f"{plan.output_tokens} out" if plan.output_tokens else "")
    parts.append("" if plan.is_streaming else "not streamed")
    parts.append(counted(plan.processes, "process", "processes") + f", seed {plan.seed}")
    page.label("load", ", ".join(part for part in parts if part))
    if plan.schedule_digest:
        page.label("schedule", plan.schedule_digest[:16])


def _loads(report: LoadReport) -> list[str]:
    if len(report.stages) != 1:
        return []
    stage = report.stages[0]
    if stage.rate_per_s is not None:
        return [f"{stage.rate_per_s:.4g}/s"]
    return [counted(stage.concurrency or 0, "stream")]


def _last(stages: Sequence[StageReport]) -> Sequence[StageReport]:
    return stages[-1:]


def _rates(summary: Summary) -> str:
    parts = [f"{summary.completed_per_s:.4g} requests/s"]
    if summary.output_tok_per_s:
        parts.append(f"{summary.output_tok_per_s:,.0f} tokens/s out")
    if summary.input_tok_per_s:
        parts.append(f"{summary.input_tok_per_s:,.0f} in")
    parts.append(f"{summary.in_flight_mean:.3g} in flight")
    return ", ".join(parts)


def _stage(page: Page, stage: StageReport, *, has_name: bool) -> None:
    summary = stage.summary
    if has_name:
        page.gap()
        page.text(f"{stage.name}: {_rates(summary)}")
    else:
        page.label("rate", _rates(summary))
    counts = ", ".join(f"{n} {word.replace('_', ' ')}" for word, n in summary.statuses.items())
    page.label("requests", f"{summary.offered} in the window: {counts}" if counts else "none in the window")
    window = summary.window
    steady = "" if window.is_steady else "not steady: "
    page.label("window", f"{window.start_s:.3g} to {window.end_s:.3g} s; {steady}{window.because}")
    if summary.tokens_per_chunk is not None and summary.tokens_per_chunk > 1.01:
        page.label("pieces", f"{summary.tokens_per_chunk:.2f} tokens each: itl is per piece, not per token")
    if summary.good_per_s is not None:
        tokens = f", {summary.good_tok_per_s:,.0f} tokens/s" if summary.good_tok_per_s else ""
        page.label("goodput", f"{summary.good_per_s:.4g} requests/s{tokens}")
    _table(page, summary.metrics)


def _table(page: Page, metrics: Sequence[MetricSummary]) -> None:
    if not metrics:
        return
    page.gap()
    head = "".join(f"{title:>8}" for title in ("mean", "p50", "p90", "p95", "p99"))
    page.line(f"  {'ms':<10}{head}{'95 % of p99':>17}{'max':>9}")
    for one in metrics:
        told = {q.p: q.result for q in one.quantiles}
        cells = [_ms(one.mean_s), *(_cell(told.get(p)) for p in _SHOWN)]
        last = told.get(0.99)
        span = f"{_ms(last.low_s)}..{_ms(last.high_s)}" if isinstance(last, Estimate) else ""
        page.line(f"  {one.metric:<10}{''.join(f'{cell:>8}' for cell in cells)}{span:>17}{_ms(one.max_s):>9}")
    page.gap()
    if any(isinstance(q.result, Point) for one in metrics for q in one.quantiles):
        page.text("~: no interval: too few of the values are independent, or to see a steady load", indent=2)
    for reason in dict.fromkeys(_withheld(metrics)):
        page.text(reason, indent=2)
    for one in metrics:
        if one.note:
            page.text(f"{one.metric}: {one.note}", indent=2)


def _cell(result: Estimate | Point | Withheld | None) -> str:
    if result is None or isinstance(result, Withheld):
        return "-"
    return f"{'~' if isinstance(result, Point) else ''}{_ms(result.value_s)}"


def _withheld(metrics: Sequence[MetricSummary]) -> list[str]:
    """One line for each reason, with the percentiles that it takes away."""
    found: dict[str, list[str]] = {}
    for one in metrics:
        for quantile in one.quantiles:
            if isinstance(quantile.result, Withheld) and one.metric in ("ttft", "e2e"):
                found.setdefault(quantile.result.reason, []).append(f"p{quantile.p * 100:g} of {one.metric}")
    return [f"-: {', '.join(names)}: {reason}" for reason, names in found.items()]


# --- search, client, notes ------------------------------------------------------------------------


def _search(page: Page, search: SearchReport, report: LoadReport) -> None:
    page.gap()
    for stage in report.stages:
        if stage.concurrency is not None:
            page.text(f"{stage.concurrency:>5} streams: {_rates(stage.summary)}", indent=2)
    if report.knee is not None:
        where = f"{report.knee.load:.3g} streams" if report.knee.load else "not found"
        page.label("bend", f"{where}; {report.knee.reason}")
    for probe in search.probes[-_PROBES_SHOWN:]:
        page.text(f"{probe.rate_per_s:>8.4g}/s {probe.judgement}: {probe.reason}", indent=2)
    spent = f"{search.spent_requests} requests, {search.spent_s:.0f} s, {search.spent_tokens:,} tokens"
    page.label("spent", spent)


def _calibration(page: Page, calibration: Calibration | None) -> None:
    if calibration is None:
        return
    at = f"{calibration.rate_per_s:.4g}/s" if calibration.rate_per_s else f"{calibration.concurrency} streams"
    parts = [f"ttft {_ms(calibration.ttft_error_p50_s)} (p99 {_ms(calibration.ttft_error_p99_s)})"]
    if calibration.itl_error_p50_s is not None and calibration.itl_error_p99_s is not None:
        itl = f"{_ms(calibration.itl_error_p50_s)} (p99 {_ms(calibration.itl_error_p99_s)})"
        parts.append(f"arrival of pieces {itl}")
    if calibration.slip_p99_s is not None:
        parts.append(f"sent late by p99 {_ms(calibration.slip_p99_s)}")
    page.label("client", f"its own error at {at}, in ms: {', '.join(parts)}; {calibration.n} requests")


def _notes(page: Page, report: LoadReport) -> None:
    for reason in report.reasons:
        page.label("note", reason)
    for word, texts in report.examples.items():
        for text in texts:
            page.label("failed", f"{word.replace('_', ' ')}: {text}")
