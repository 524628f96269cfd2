"""What was measured, in figures: `summarise` turns the samples of one load into a `Summary`. Pure.

Percentiles come with intervals (`quantiles`), from as many independent values as the samples are worth
(`steady`), inside a window that begins when warm-up ends and ends with the last scheduled arrival; answers
that began in it are followed to their end, and the drain after it counts in no rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from doctor.core.load import (
    Attainment,
    Calibration,
    Estimate,
    Judgement,
    Metric,
    MetricSummary,
    Quantile,
    Slo,
    Summary,
    Window,
    Withheld,
)
from optimize.columns import Columns, columns, fate, overlap_s
from optimize.load.record import Samples, Status
from optimize.quantiles import needed, point, standing
from optimize.steady import correlation_time, effective_n
from optimize.verdicts import clopper_pearson, decide
from optimize.window import find_window, is_short

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "QUANTILES",
    "beyond_client_error",
    "describe",
    "late_correlation",
    "littles_law_error",
    "summarise",
]

QUANTILES = (0.5, 0.9, 0.95, 0.99)
#: Measures of each request, in the order of a report.
_METRICS: tuple[Metric, ...] = ("ttft", "ttft_send", "tpot", "stall", "e2e", "slip")
#: Enough neighbours to see how far they are alike.
_NEIGHBOURS_MAX = 131_072
#: Values nearer to each other than this are equal: what differs is the clock's last digits.
_CLOCK_S = 1e-6
#: Of the time in flight, what may be missing from the requests' own times.
_ACCOUNTED = 0.02
#: Pieces nearer to each other than this came out of one read (a loopback read takes 20 us).
_SAME_READ_S = 50e-6


def summarise(
    samples: Samples,
    *,
    slo: Slo | None = None,
    window: tuple[float, float] | None = None,
    is_closed: bool = False,
    confidence: float = 0.95,
) -> Summary:
    """The figures of one stage. `window` (start, end) fixes it where it is known; else it is found.

    Raises ValueError for samples in which nothing was scheduled, and for an SLO on `itl`.
    """
    c = columns(samples, is_closed=is_closed)
    if len(c.scheduled) == 0:
        raise ValueError("no request was scheduled: there is nothing to summarise")
    measured = find_window(c, given=window)
    return _summary(samples, c, measured, slo, confidence)


def _summary(samples: Samples, c: Columns, window: Window, slo: Slo | None, confidence: float) -> Summary:
    inside = (c.scheduled >= window.start_s) & (c.scheduled <= window.end_s)
    span = max(window.end_s - window.start_s, 1e-9)
    ended = c.is_ok & (c.end > window.start_s) & (c.end <= window.end_s)
    attainment, verdict, reasons = _judged(c, slo, inside, window, confidence)
    good = inside & (fate(c, slo) == 1.0) if slo else inside & c.is_ok
    little = littles_law_error(c, window) if window.is_steady else None
    broken = _accounting(c, window, little)
    slips = _slips(c, slo, inside)
    if broken or slips:
        verdict = "invalid"
    return Summary(
        window=window,
        offered=int(inside.sum()),
        succeeded=int((inside & c.is_ok).sum()),
        statuses=_statuses(samples, window),
        offered_per_s=float(inside.sum()) / span,
        completed_per_s=float(ended.sum()) / span,
        output_tok_per_s=_total(c.n_out[ended], span),
        input_tok_per_s=_total(c.n_in[ended], span),
        in_flight_mean=float(overlap_s(c, window.start_s, window.end_s).sum()) / span,
        metrics=_metrics(c, samples, inside & c.is_ok, window, confidence),
        attainment=attainment,
        good_per_s=float(good.sum()) / span if slo else None,
        good_tok_per_s=_total(c.n_out[good], span) if slo else None,
        tokens_per_chunk=_tokens_per_chunk(c, inside & c.is_ok),
        littles_law_error=little,
        judgement=verdict,
        reasons=(*broken, *slips, *reasons),
    )


def _total(tokens: NDArray[Any], span: float) -> float | None:
    """Tokens a second; None where the server did not count them for every answer."""
    import numpy as np

    return None if len(tokens) == 0 or bool(np.isnan(tokens).any()) else float(tokens.sum()) / span


def _tokens_per_chunk(c: Columns, which: NDArray[Any]) -> float | None:
    pieces, tokens = float(c.n_chunks[which].sum()), float(c.n_out[which].sum())
    return tokens / pieces if pieces > 0 and tokens == tokens else None  # noqa: PLR0124 - NaN is untold


def _statuses(samples: Samples, window: Window) -> dict[str, int]:
    counts: dict[str, int] = {}
    for scheduled, code in zip(samples.scheduled, samples.status, strict=True):
        if window.start_s <= scheduled <= window.end_s:
            word = Status(code).word
            counts[word] = counts.get(word, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _metrics(
    c: Columns, samples: Samples, which: NDArray[Any], window: Window, confidence: float
) -> tuple[MetricSummary, ...]:
    import numpy as np

    found: list[MetricSummary] = []
    for name in _METRICS:
        values = c.metric(name)[which]
        values = values[~np.isnan(values)]
        if len(values):
            found.append(describe(name, values, window=window, confidence=confidence))
        if name == "tpot" and len(samples.gaps):
            gaps = np.array(samples.gaps, dtype=float)
            note = _coalesced(gaps, values)
            found.append(describe("itl", gaps, window=window, confidence=confidence, note=note))
    return tuple(found)


def _coalesced(gaps: NDArray[Any], tpot: NDArray[Any]) -> str:
    import numpy as np

    share = float((gaps < _SAME_READ_S).mean())
    if share > 0.01 and len(tpot) and float(np.median(tpot)) > 1e-3:
        return f"{share:.0%} of the pieces arrived together with the one before: gaps are not those of tokens"
    return ""


def describe(
    metric: Metric,
    values: Sequence[float] | NDArray[Any],
    *,
    window: Window | None = None,
    confidence: float = 0.95,
    note: str = "",
) -> MetricSummary:
    """One measure in the order of the schedule. Its percentiles are withheld while the load moved.

    Where answers were too few to see that, they have no interval.
    """
    import numpy as np

    x = np.asarray(values, dtype=float)
    ordered = np.sort(x)
    return MetricSummary(
        metric=metric,
        n=len(x),
        n_effective=_worth(x),
        mean_s=float(x.mean()),
        min_s=float(ordered[0]),
        max_s=float(ordered[-1]),
        quantiles=tuple(_quantile(x, ordered, p, window, confidence) for p in QUANTILES),
        note=note,
    )


def _worth(x: NDArray[Any]) -> float:
    return effective_n(x[:_NEIGHBOURS_MAX].astype(float)) * len(x) / min(len(x), _NEIGHBOURS_MAX)


def _quantile(
    x: NDArray[Any], ordered: NDArray[Any], p: float, window: Window | None, confidence: float
) -> Quantile:
    """A percentile moves with the share of values below it: how far *those* are alike is what counts.

    Beyond P95 not less than at P95: few values lie there, and samples that hide their clusters would be the
    ones that are printed (AR(1) of 0.9, n = 4000: intervals of P99 held the truth in 81 % of them).
    """
    if window is not None and not window.is_steady:
        because = window.because
        if is_short(window):
            return Quantile(p=p, result=point(ordered, p, reason=because, have=len(x)))
        return Quantile(p=p, result=Withheld(reason=because, have=len(x), needed=needed(p)))
    worth = float(len(x))
    if len(x) >= needed(p):
        worth = min(_worth(x > ordered[int(q * len(x))] + _CLOCK_S) for q in {p, min(p, 0.95)})
    return Quantile(p=p, result=standing(ordered, p, n_effective=worth, confidence=confidence))


# --- verdict --------------------------------------------------------------------------------------


def _judged(
    c: Columns, slo: Slo | None, inside: NDArray[Any], window: Window, confidence: float
) -> tuple[Attainment | None, Judgement, tuple[str, ...]]:
    import numpy as np

    if slo is None:
        return None, "undecided", ()
    fates = fate(c, slo)[inside]
    told = fates[~np.isnan(fates)]
    late, n = int((told == 0.0).sum()), len(told)
    if n == 0:
        return None, "undecided", ("no request of the window can be judged by the SLO",)
    times = late_correlation(c, told, inside, np.isnan(fates))
    low, high = clopper_pearson((n - late) / times, n / times, confidence)
    attainment = Attainment(
        good=n - late,
        offered=n,
        n_effective=n / times,
        share=(n - late) / n,
        low=low,
        high=high,
        confidence=confidence,
    )
    verdict: Judgement = decide(late / times, n / times, slo.attainment, confidence)
    words = f"{late} of {n} requests were late or failed"
    if times > 1.05:
        words += f"; they come in clusters, and are worth {n / times:.0f} independent ones"
    reasons = [words]
    if len(fates) > n:
        reasons.append(
            f"{len(fates) - n} requests were cut off, or lack what the SLO is on: they do not count"
        )
    if not window.is_steady:
        reasons.append(window.because)
        verdict = _unsettled(window)
    return attainment, verdict, tuple(reasons)


def _unsettled(window: Window) -> Judgement:
    """A load that keeps growing fails, though the first requests were in time; else nothing is proven."""
    return "fail" if window.because.startswith("over-saturated") else "undecided"


def late_correlation(c: Columns, told: NDArray[Any], inside: NDArray[Any], untold: NDArray[Any]) -> float:
    """How many requests are worth one in a count of late ones; at least 1.

    From the late ones where there are ten; else, for no late one is no proof of independence, from the
    slowest twentieth by TTFT (E2E where there is none).
    """
    import numpy as np

    if int((told == 0.0).sum()) >= 10 and int((told == 1.0).sum()) >= 10:
        return correlation_time((told == 0.0).astype(float)[:_NEIGHBOURS_MAX])
    for name in ("ttft", "e2e"):
        values: NDArray[Any] = getattr(c, name)[inside][~untold]
        values = values[~np.isnan(values)]
        if len(values) >= 40:
            slow = values > np.quantile(values, 0.95) + _CLOCK_S
            return correlation_time(slow.astype(float)[:_NEIGHBOURS_MAX])
    return 1.0


def _slips(c: Columns, slo: Slo | None, inside: NDArray[Any]) -> tuple[str, ...]:
    """In open loop the client must send when the schedule says: else it is not this load."""
    import numpy as np

    slip = c.slip[inside]
    slip = slip[~np.isnan(slip)]
    if c.is_closed or len(slip) == 0:
        return ()
    limits = [term.limit_s for term in slo.terms if term.metric == "ttft"] if slo else []
    allowed = max(1e-3, 0.02 * min(limits, default=0.0))
    worst = float(np.quantile(slip, 0.99))
    if worst <= allowed or not limits:
        return ()
    words = (
        f"client limited: 1 % of the requests were sent {worst * 1e3:.3g} ms or more after their time,"
        f" {allowed * 1e3:.3g} ms is allowed; use more processes or a quieter machine"
    )
    return (words,)


def littles_law_error(c: Columns, window: Window) -> float | None:
    """|N - X·E2E| / N in the window: in-flight by the clock against completions times their time.

    What was open at either edge is counted on both sides, request by request. A bound on it (E2E / window, by
    the root of those in flight) is none where they come in waves: 128 streams of 0.8 s in step were off by
    42 % over 1.6 s, and nothing was wrong.
    """
    import numpy as np

    inside = overlap_s(c, window.start_s, window.end_s)
    occupied = float(inside.sum())
    ended = (c.end > window.start_s) & (c.end <= window.end_s)
    if occupied <= 0 or not ended.any():
        return None
    took = np.where(np.isnan(c.e2e), c.end - c.scheduled, c.e2e)  # never sent: open since it was due
    before = np.clip(window.start_s - (c.end - took), 0.0, None)
    after = c.end > window.end_s
    accounted = float((took - before)[ended].sum()) + float(inside[after].sum())
    return abs(occupied - accounted) / occupied


def _accounting(c: Columns, window: Window, error: float | None) -> tuple[str, ...]:
    """Beyond 2 %, times are not those of the requests."""
    if error is None or error <= _ACCOUNTED:
        return ()
    mean = float(overlap_s(c, window.start_s, window.end_s).sum()) / (window.end_s - window.start_s)
    return (f"accounting broken: {mean:.3g} in flight differ by {error:.1%} from rate times time",)


def beyond_client_error(summary: Summary, slo: Slo, calibration: Calibration) -> Summary:
    """The summary without a verdict where the client's own error could have made it.

    The limit must be three times the client's P99 error away from the quantile that the SLO is on.
    """
    import msgspec

    if summary.judgement not in ("pass", "fail"):
        return summary
    errors = {"ttft": calibration.ttft_error_p99_s, "e2e": calibration.ttft_error_p99_s}
    errors |= {"tpot": calibration.itl_error_p99_s or 0.0, "stall": calibration.itl_error_p99_s or 0.0}
    for term in slo.terms:
        reach = 3 * abs(errors.get(term.metric, 0.0))
        value = _at(summary, term.metric, slo.attainment)
        if value is not None and abs(term.limit_s - value) < reach:
            reason = (
                f"the client may be wrong by {reach / 3 * 1e3:.3g} ms, and {term.metric} is"
                f" {abs(term.limit_s - value) * 1e3:.3g} ms from its limit: three times as much is needed"
            )
            return msgspec.structs.replace(summary, judgement="undecided", reasons=(*summary.reasons, reason))
    return summary


def _at(summary: Summary, metric: Metric, p: float) -> float | None:
    """The quantile that is nearest to `p`, of those that have an interval."""
    told = [
        (abs(q.p - p), q.result.value_s)
        for one in summary.metrics
        if one.metric == metric
        for q in one.quantiles
        if isinstance(q.result, Estimate)
    ]
    return min(told)[1] if told else None
