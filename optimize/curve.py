"""Throughput against the number of streams: which numbers to try, until the knee is enclosed. Pure.

Streams rise by half from 1 until two more steps gain less than 2 % (or answers only get slower); then points
are set around the first estimate, where one more says most. The state is a value, as in `search`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

import msgspec

from doctor.core.load import KneeReport
from optimize.columns import columns
from optimize.knee import Point, knee
from optimize.load.record import Samples
from optimize.probes import Budget, Order

__all__ = ["CurveSettings", "CurveState", "fold_curve", "measured", "next_streams", "trace"]

#: A step that gains less than this is none.
_GAIN = 0.02
_GROWTH = 1.5
#: Around the first estimate.
_CLOSER = (0.8, 0.9, 1.0, 1.12, 1.25)


class CurveSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far the curve goes, and what it may cost."""

    budget: Budget
    most_streams: int = 2048
    rounds: int = 30
    """Requests of each stream, so that starting and stopping weigh little."""
    seed: int = 0
    tokens_per_request: float = 0.0


class CurveState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The points so far, in the order of trying."""

    points: tuple[Point, ...] = ()
    closer: tuple[int, ...] = ()
    """Streams around the first estimate that were not tried yet."""
    is_enclosed: bool = False
    spent_requests: int = 0
    spent_s: float = 0.0
    spent_tokens: int = 0


def trace(
    probe: Callable[[Order], Samples],
    settings: CurveSettings,
    state: CurveState | None = None,
    progress: Callable[[CurveState, Order], bool] | None = None,
) -> CurveState:
    """Probe (closed loop) until the knee is enclosed or the budget is used up."""
    now = state or CurveState()
    while (order := next_streams(settings, now)) is not None:
        if progress is not None and not progress(now, order):
            break
        now = fold_curve(settings, now, order, probe(order))
    return now


def next_streams(settings: CurveSettings, state: CurveState) -> Order | None:
    """The next number of streams; None when the curve is done, or the budget carries no more."""
    if state.is_enclosed:
        streams = state.closer[0] if state.closer else 0
    else:
        last = round(state.points[-1].load) if state.points else 0
        streams = min(max(last + 1, round(last * _GROWTH)), settings.most_streams)
        streams = 0 if streams <= last else streams
    if not streams:
        return None
    n = settings.rounds * streams + 100
    limit_s = _limit_s(state, n, streams)
    each = max(settings.tokens_per_request, state.spent_tokens / max(1, state.spent_requests))
    fits = (
        state.spent_requests + n <= settings.budget.requests
        and state.spent_s + limit_s <= settings.budget.seconds
        and state.spent_tokens + 1.1 * n * each <= settings.budget.tokens
    )
    if not fits:
        return None
    return Order(load=float(streams), n=n, seed=settings.seed + len(state.points), limit_s=limit_s)


def _limit_s(state: CurveState, n: int, streams: int) -> float:
    """Three times what the last point makes one expect: a server that gets slower ends in time."""
    if not state.points:
        return 600.0
    last = state.points[-1]
    return 3 * n / max(last.per_s * min(1.0, streams / last.load), 1e-9) + 3 * last.e2e_s


def fold_curve(settings: CurveSettings, state: CurveState, order: Order, samples: Samples) -> CurveState:
    """The state with one more point."""
    point = measured(order, samples)
    points = (*state.points, point) if point is not None else state.points
    closer = tuple(n for n in state.closer if n != round(order.load))
    ends = [t for t in samples.end if isfinite(t)]
    now = msgspec.structs.replace(
        state,
        points=points,
        closer=closer,
        spent_requests=state.spent_requests + len(samples),
        spent_s=state.spent_s + max(ends, default=order.limit_s),
        spent_tokens=state.spent_tokens + _tokens(samples),
    )
    if now.is_enclosed or not (point is None or _is_flat(points)):
        return now
    return msgspec.structs.replace(now, is_enclosed=True, closer=_closer(settings, points))


def _tokens(samples: Samples) -> int:
    return int(sum(t for column in (samples.n_in, samples.n_out) for t in column if isfinite(t)))


def measured(order: Order, samples: Samples) -> Point | None:
    """Throughput and mean time between the first tenth and the last request sent; None without answers.

    In a closed loop the server is full from the first answer until the first stream has no more to send.
    """
    import numpy as np

    c = columns(samples, is_closed=True)
    if int(c.is_ok.sum()) < 10:
        return None
    start, end = float(np.quantile(c.scheduled, 0.1)), float(c.scheduled[-1])
    inside = c.is_ok & (c.end > start) & (c.end <= end)
    if end <= start or not inside.any():
        return None
    per_s = float(inside.sum()) / (end - start)
    return Point(load=order.load, per_s=per_s, e2e_s=float((c.end - c.scheduled)[inside].mean()))


def _is_flat(points: tuple[Point, ...]) -> bool:
    """Two steps in a row that gained nothing to speak of."""
    rates = [point.per_s for point in points]
    return len(rates) > 5 and max(rates[-2:]) < max(rates[:-2]) * (1 + _GAIN)


def _closer(settings: CurveSettings, points: tuple[Point, ...]) -> tuple[int, ...]:
    """Streams near the first estimate that were not tried."""
    found: KneeReport = knee(points)
    told = [one.load for one in found.estimates if one.load is not None]
    where = found.load if found.load is not None else (sorted(told)[len(told) // 2] if told else None)
    if where is None:
        return ()
    tried = {round(point.load) for point in points}
    wanted = {min(settings.most_streams, max(1, round(where * share))) for share in _CLOSER}
    return tuple(sorted(wanted - tried))
