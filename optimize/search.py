"""The highest rate that meets an SLO: from below, by bisection in its logarithm, within a hard budget. Pure.

The state is a value: what was asked and answered so far. `next_order` tells from it what to try next, `fold`
adds an answer; a search that was saved half-way and read again goes on as if nothing had happened.

Each rate is tried with more and more requests until the binomial rule decides or the most are used up; the
error is spread over the looks. A rate that neither passes nor fails moves the bracket by its share of late
requests, but is promised to nobody. At the end both ends of the bracket are tried again, for the best of
several noisy ones is a lucky one, and a rate below the fitted crossing is proven.

A look of which nothing counts (the measurement was at fault, or the load had not settled) is taken again,
longer, and then the rate is lowered: it says nothing about the server.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite, log, sqrt
from typing import Literal

import msgspec

from doctor.core.load import Judgement, Probe, SearchReport, Summary
from optimize.load.record import Samples
from optimize.probes import (
    Budget,
    Evidence,
    Order,
    Purpose,
    Settings,
    State,
    Tried,
    bracket,
    crowding,
    estimate,
    evidence,
    fit,
    judged,
)
from optimize.stats import summarise

__all__ = ["Budget", "Order", "Probing", "Settings", "State", "fold", "next_order", "report", "search"]

#: Of the proven rate, what is recommended: the rest is headroom for what was not in the load.
_HEADROOM = 0.8
#: Rates that may be tried a second time: two ends, and two more pairs when a second try moved the bracket.
_REPEATS_MAX = 6
#: Where a proof is tried: below the estimate in such steps; and how often.
_STEP = 0.98
_PROOFS_MAX = 4
#: A proof is looked at with the most requests, twice and four times as many.
_PROOF_LOOKS = 3
#: The lowest rate is divided by it while none passes.
_LOWER = 4
#: Looks at one rate that the measurement may spoil; each is twice as long as the one before.
_SPOILED_MAX = 3
#: Rates within a tenth tell how much a request is worth there.
_NEAR = 0.1

Probing = Callable[[Order], Samples]

Outcome = Literal["found", "below", "above", "budget", "inconsistent", "invalid", "cut"]


class _Wanted(msgspec.Struct, frozen=True):
    rate_per_s: float
    n: int
    purpose: Purpose


def search(
    probe: Probing,
    settings: Settings,
    state: State | None = None,
    progress: Callable[[State, Order], bool] | None = None,
) -> State:
    """Probe until the answer is found or the budget is used up. `progress` may end it by returning False."""
    now = msgspec.structs.replace(state, is_cut=False) if state else State()
    while (order := next_order(settings, now)) is not None:
        if progress is not None and not progress(now, order):
            return msgspec.structs.replace(now, is_cut=True)
        now = fold(settings, now, order, probe(order))
    return now


# --- what to try next -----------------------------------------------------------------------------


def next_order(settings: Settings, state: State) -> Order | None:
    """The next probe; None when the answer is there, or the budget does not carry another."""
    wanted = _wanted(settings, state)
    if wanted is None:
        return None
    n = _affordable(settings, state, wanted)
    if n < settings.first_at(wanted.rate_per_s):
        return None
    limit_s = _limit_s(settings, state, wanted.rate_per_s, n)
    return Order(load=wanted.rate_per_s, n=n, seed=settings.seed + state.orders, limit_s=limit_s)


def _wanted(settings: Settings, state: State) -> _Wanted | None:
    """The rate, how many requests it should get, and why."""
    if not state.tried:
        return _first(settings, settings.low_per_s)
    last = state.tried[-1]
    if not last.is_over:
        return _next_look(settings, last)
    known = evidence(settings, state)
    low, high = bracket(settings, known)
    if low is None:
        lowest = min(one.rate_per_s for one in known)
        lower = max(lowest / _LOWER, settings.floor_per_s or settings.low_per_s)
        return _first(settings, lower) if lower < lowest else None
    if high is None:
        higher = min(low * 2, settings.high_per_s)
        return _first(settings, higher) if higher > low else None
    if high > low * settings.ratio:
        return _first(settings, sqrt(low * high))
    return _repeat(settings, state, low, high) or _proof(settings, state, known)


def _first(settings: Settings, rate: float) -> _Wanted:
    return _Wanted(rate, settings.first_at(rate), "bisect")


def _next_look(settings: Settings, last: Tried) -> _Wanted:
    """As many again as there were; after a spoiled look twice its own, for it may have been short."""
    left = _most(settings, last.purpose, last.rate_per_s) - last.requests
    first = settings.first_at(last.rate_per_s)
    more = last.requests + first if last.is_last_spoiled else last.requests
    return _Wanted(last.rate_per_s, max(first, min(more, left)), last.purpose)


def _repeat(settings: Settings, state: State, low: float, high: float) -> _Wanted | None:
    """The end of the bracket that was not tried again yet; None when both were, or enough is enough."""
    again = {one.rate_per_s for one in state.tried if one.purpose == "repeat"}
    left = [rate for rate in (low, high) if rate not in again]
    if not left or len(again) >= _REPEATS_MAX:
        return None
    n = max(settings.first_at(left[0]), settings.most_at(left[0]) // 2)
    return _Wanted(left[0], n, "repeat")


def _proof(settings: Settings, state: State, known: tuple[Evidence, ...]) -> _Wanted | None:
    """The highest rate below the estimate that the most requests may prove; None when one as high is."""
    line = fit(settings, known)
    proven = max((one.rate_per_s for one in known if one.judgement == "pass"), default=0.0)
    if line is None or sum(one.purpose == "proof" for one in state.tried) >= _PROOFS_MAX:
        return None
    where = line.rate_at(1 - settings.slo.attainment)
    worth = _most(settings, "proof", where) / 2 * _worth(known, where)
    for rate in (where * _STEP**k for k in range(1, 40)):
        if rate <= proven:
            return None
        is_near = any(abs(log(rate / one.rate_per_s)) < -log(_STEP) / 2 for one in known)
        if not is_near and _may_pass(settings, line.share_at(rate), worth):
            return _Wanted(rate, settings.most_at(rate), "proof")
    return None


def _worth(known: tuple[Evidence, ...], where: float) -> float:
    """What a request was worth near a rate: the median."""
    near = sorted(one.worth / one.n for one in known if one.n and abs(log(one.rate_per_s / where)) < _NEAR)
    return near[len(near) // 2] if near else 1.0


def _most(settings: Settings, purpose: Purpose, rate: float) -> int:
    """The requests that one go at a rate may take."""
    return settings.most_at(rate) * (2 ** (_PROOF_LOOKS - 1) if purpose == "proof" else 1)


def _may_pass(settings: Settings, share: float, worth: float) -> bool:
    """Whether the expected number of late requests would be a pass."""
    return judged(settings, 1, share, worth, looks=_PROOF_LOOKS) == "pass"


def _limit_s(settings: Settings, state: State, rate: float, n: int) -> float:
    """Arrivals, and twice the longest limit or three answers for those that are still open at the end."""
    limits = [term.limit_s for term in settings.slo.terms if term.metric in ("ttft", "e2e")]
    return 1.2 * n / rate + max(3 * state.longest_s, 2 * max(limits, default=0.0), 1.0)


def _affordable(settings: Settings, state: State, wanted: _Wanted) -> int:
    """How many of the requests all three budgets still carry."""
    budget, rate = settings.budget, wanted.rate_per_s
    left_s = budget.seconds - state.spent_s - _limit_s(settings, state, rate, 0)
    each = max(settings.tokens_per_request, state.spent_tokens / max(1, state.spent_requests))
    by_tokens = int((budget.tokens - state.spent_tokens) / (1.1 * each)) if each > 0 else wanted.n
    carried = (budget.requests - state.spent_requests, int(left_s * rate / 1.2), by_tokens)
    return max(0, min(wanted.n, *carried))


# --- what an answer says --------------------------------------------------------------------------


def fold(settings: Settings, state: State, order: Order, samples: Samples) -> State:
    """The state with what a probe gave."""
    wanted = _wanted(settings, state)
    purpose: Purpose = "bisect" if wanted is None else wanted.purpose
    summary = summarise(samples, slo=settings.slo, confidence=settings.confidence)
    going_on = bool(state.tried) and not state.tried[-1].is_over
    before = state.tried[-1] if going_on else _untried(order, purpose)
    now = _decided(settings, state.tried, _counted(before, order, summary), summary)
    tokens = sum(t for column in (samples.n_in, samples.n_out) for t in column if isfinite(t))
    return msgspec.structs.replace(
        state,
        tried=(*(state.tried[:-1] if going_on else state.tried), now),
        spent_requests=state.spent_requests + len(samples),
        spent_s=state.spent_s + max((t for t in samples.end if isfinite(t)), default=order.limit_s),
        spent_tokens=state.spent_tokens + int(tokens),
        longest_s=state.longest_s if state.tried else _longest_s(samples),
        orders=state.orders + 1,
    )


def _untried(order: Order, purpose: Purpose) -> Tried:
    return Tried(
        rate_per_s=order.load,
        judgement="undecided",
        purpose=purpose,
        looks=0,
        requests=0,
        n=0,
        late=0,
        worth=0.0,
        reason="",
    )


def _counted(before: Tried, order: Order, summary: Summary) -> Tried:
    """The counts with those of one look; a look at what had not settled, or was at fault, says nothing."""
    n, late, worth = before.n, before.late, before.worth
    share = summary.attainment
    # where most requests fail there are no answers to settle, and that is the answer
    is_down = share is not None and summary.succeeded < share.offered / 2
    is_spoiled = summary.judgement == "invalid" or not (summary.window.is_steady or is_down)
    if share is not None and not is_spoiled:
        n += share.offered
        late += share.offered - share.good
        worth += share.n_effective
    return msgspec.structs.replace(
        before,
        looks=before.looks + 1,
        requests=before.requests + order.n,
        n=n,
        late=late,
        worth=worth,
        reason="; ".join(summary.reasons),
        spoiled=before.spoiled + is_spoiled,
        is_last_spoiled=is_spoiled,
    )


def _decided(settings: Settings, tried: tuple[Tried, ...], now: Tried, summary: Summary) -> Tried:
    """By the rule over all looks; a load that keeps growing fails at once, a broken look is no evidence."""
    verdict: Judgement
    is_invalid = summary.judgement == "invalid"
    if not is_invalid and summary.window.because.startswith("over-saturated"):
        return msgspec.structs.replace(now, judgement="fail", is_growing=True, is_over=True)
    looks = _PROOF_LOOKS if now.purpose == "proof" else settings.looks
    worth = min(now.worth, now.n / crowding(tried, now.rate_per_s))
    verdict = judged(settings, now.n, now.late, worth, looks=looks)
    is_over = verdict != "undecided" or now.requests >= _most(settings, now.purpose, now.rate_per_s)
    is_over = is_over or now.spoiled >= _SPOILED_MAX
    if is_over and is_invalid and now.n == 0:
        verdict = "invalid"
    return msgspec.structs.replace(now, judgement=verdict, is_over=is_over)


def _longest_s(samples: Samples) -> float:
    pairs = zip(samples.scheduled, samples.end, strict=True)
    return max((end - at for at, end in pairs if isfinite(end - at)), default=0.0)


# --- what was found -------------------------------------------------------------------------------


def report(settings: Settings, state: State) -> SearchReport:
    """The answer as it stands, finished or not."""
    known = evidence(settings, state)
    failed = [one.rate_per_s for one in known if one.judgement == "fail"]
    proven = max((one.rate_per_s for one in known if _is_proven(one, failed)), default=None)
    outcome, reason = _outcome(settings, state, known)
    return SearchReport(
        outcome=outcome,
        rate_per_s=proven,
        fails_at_per_s=min(failed, default=None),
        estimate_per_s=estimate(settings, known),
        recommended_per_s=_HEADROOM * proven if proven is not None else None,
        probes=tuple(_probe(one) for one in state.tried),
        spent_requests=state.spent_requests,
        spent_s=state.spent_s,
        spent_tokens=state.spent_tokens,
        reason=reason,
    )


def _is_proven(one: Evidence, failed: list[float]) -> bool:
    """A pass above a proven failure is none: a server that fails at less does not carry more."""
    return one.judgement == "pass" and all(one.rate_per_s < rate for rate in failed)


def _probe(one: Tried) -> Probe:
    return Probe(
        rate_per_s=one.rate_per_s,
        judgement=one.judgement,
        purpose=one.purpose,
        requests=one.requests,
        n=one.n,
        n_effective=one.worth,
        late=one.late,
        reason=one.reason,
    )


def _outcome(settings: Settings, state: State, known: tuple[Evidence, ...]) -> tuple[Outcome, str]:
    wanted = _wanted(settings, state)
    if state.is_cut or not known:
        return "cut", "interrupted: what was known until then"
    if wanted is not None:
        n = _affordable(settings, state, wanted)
        carried = f"the budget carries {n} more requests at {wanted.rate_per_s:.4g}/s"
        fewest = settings.first_at(wanted.rate_per_s)
        words = "; ".join(filter(None, (f"{carried}, {fewest} are needed", _spoiled_words(state.tried[-1]))))
        return ("budget", words) if n < fewest else ("cut", "not finished")
    low, high = bracket(settings, known)
    if low is None:
        lowest = min(state.tried, key=lambda one: one.rate_per_s)
        is_told = lowest.n > 0 or lowest.judgement == "fail"
        words = f"the lowest rate, {lowest.rate_per_s:.4g}/s: {lowest.reason}"
        return "below" if is_told else "invalid", words
    if high is None:
        return "above", f"the highest rate, {settings.high_per_s:.4g}/s, passes"
    failed = [one.rate_per_s for one in known if one.judgement == "fail"]
    above = [one.rate_per_s for one in known if one.judgement == "pass" and not _is_proven(one, failed)]
    if above:
        return "inconsistent", f"{min(failed):.4g}/s fails and {max(above):.4g}/s passes: the server changed"
    limit = next(one for one in state.tried if one.rate_per_s == high)
    return "found", _spoiled_words(limit)


def _spoiled_words(one: Tried) -> str:
    """What stood in the way at a rate of which nothing counts; it is no limit of the server."""
    if one.n or not one.spoiled or one.judgement == "fail":
        return ""
    return f"{one.rate_per_s:.4g}/s could not be measured: {one.reason}"
