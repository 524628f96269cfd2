"""Quantiles with distribution-free intervals, and the size of sample that carries one. Pure.

A quantile is of type 7 (Hyndman and Fan 1996; NumPy's default). Its interval rests on order statistics:
the count of values below the true quantile is binomial, whatever the distribution. Whole ranks cover at
least what they claim (P50 of 30 values: 95.7 %); between two ranks the limit is interpolated so that it
covers what it claims (Hettmansperger and Sheather 1986 for the median, Nyblom 1992 for any quantile).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor
from typing import TYPE_CHECKING, Any

import msgspec

from doctor.core.load import Estimate, Point, Quantile, Withheld
from optimize.special import binomial_cdf, binomial_pmf

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Ranks",
    "needed",
    "order_ranks",
    "point",
    "positions",
    "quantile_of_sorted",
    "quantiles",
    "standing",
]

#: Values that must be expected beyond a quantile before it is printed: at n = 1000 the 95 % interval of P99
#: spans the percentiles 98.30 to 99.70; at 500 it ends in the largest value, at 300 it has no end.
_BEYOND = 10
#: Beyond it nothing is printed without an interval: a P99 rests on a few values, and those come in clusters.
_POINT_MOST = 0.95


class Ranks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ranks from 1 whose values enclose a quantile; None where no value bounds it on that side."""

    low: int | None
    high: int | None


def needed(p: float) -> int:
    """Independent values from which the quantile `p` may be printed: 1000 for P99, 200 for P95."""
    return ceil(round(_BEYOND / min(p, 1 - p), 6))


def order_ranks(n: int, p: float, confidence: float = 0.95) -> Ranks:
    """The closest whole ranks with at most half the error on each side: coverage at least `confidence`."""
    tail = (1 - confidence) / 2
    low = _last(n, lambda rank: binomial_cdf(rank - 1, n, p) <= tail)
    high = _first(n, lambda rank: 1 - binomial_cdf(rank - 1, n, p) <= tail)
    return Ranks(low=low, high=high)


def _last(n: int, holds: Any) -> int | None:
    """The largest rank for which it holds; it holds up to there."""
    low, high = 0, n
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low or None


def _first(n: int, holds: Any) -> int | None:
    """The smallest rank for which it holds; it holds from there."""
    low, high = 1, n + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low if low <= n else None


def positions(n: int, p: float, confidence: float = 0.95) -> tuple[float, float] | None:
    """Ranks between which the quantile lies with exactly `confidence`; None where the sample has no such."""
    tail = (1 - confidence) / 2
    low, high = _upper_limit(n, p, tail), _upper_limit(n, p, 1 - tail)
    return None if low is None or high is None else (low, high)


def _upper_limit(n: int, p: float, wanted: float) -> float | None:
    """The rank, with a fraction, whose value is above the quantile with probability `wanted`.

    X(r) is above it when fewer than r values are below: P(B <= r - 1). Given that B = r, the quantile lies
    between X(r) and X(r+1), at distances that are exponential to first order, with means p/r and
    (1-p)/(n-r) of the density's inverse; that gives the weight.
    """
    above = _first(n, lambda rank: binomial_cdf(rank - 1, n, p) >= wanted)
    if above is None or above < 2:
        return None
    rank = above - 1
    share = (wanted - binomial_cdf(rank - 1, n, p)) / binomial_pmf(rank, n, p)
    before, after = p / rank, (1 - p) / (n - rank)
    return rank + share * before / (share * before + (1 - share) * after)


def quantile_of_sorted(values: NDArray[Any], rank: float) -> float:
    """The value at a rank from 1 that may lie between two."""
    whole = min(max(floor(rank), 1), len(values))
    following = min(whole, len(values) - 1)
    part = min(max(rank - whole, 0.0), 1.0)
    return float(values[whole - 1] + part * (values[following] - values[whole - 1]))


def standing(
    values: NDArray[Any], p: float, *, n_effective: float | None = None, confidence: float = 0.95
) -> Estimate | Point | Withheld:
    """The quantile of values in rising order, its interval that of `n_effective` independent ones.

    Where those are fewer than `needed` there is no interval, and what `point` says.
    """
    n = len(values)
    worth = min(n, floor(n if n_effective is None else n_effective))
    wanted = needed(p)
    if worth < wanted:
        have = f"{worth} of {n} values are independent" if worth < n else f"{n} values"
        return point(values, p, reason=f"{have}; P{p * 100:g} needs {wanted}", have=worth)
    ends = positions(worth, p, confidence)
    if ends is None:  # `needed` asks for ten values beyond; the interval exists from four
        return Withheld(reason=f"no value bounds P{p * 100:g}", have=worth, needed=wanted)
    low, high = (quantile_of_sorted(values, 0.5 + (end - 0.5) * n / worth) for end in ends)
    return Estimate(
        value_s=quantile_of_sorted(values, 1 + (n - 1) * p), low_s=low, high_s=high, confidence=confidence
    )


def point(values: NDArray[Any], p: float, *, reason: str, have: int) -> Point | Withheld:
    """The quantile of values in rising order without an interval, for `reason`.

    Withheld beyond P95, and where even the plain number of values is below `needed`: that is a guess.
    """
    wanted = needed(p)
    if p > _POINT_MOST or len(values) < wanted:
        return Withheld(reason=reason, have=have, needed=wanted)
    value_s = quantile_of_sorted(values, 1 + (len(values) - 1) * p)
    return Point(value_s=value_s, reason=reason, have=have, needed=wanted)


def quantiles(
    values: Sequence[float] | NDArray[Any],
    which: Sequence[float] = (0.5, 0.9, 0.95, 0.99),
    *,
    n_effective: float | None = None,
    confidence: float = 0.95,
) -> tuple[Quantile, ...]:
    """Each quantile of the values, in any order, with its interval or the reason why it is withheld."""
    import numpy as np

    ordered = np.sort(np.asarray(values, dtype=float))
    return tuple(
        Quantile(p=p, result=standing(ordered, p, n_effective=n_effective, confidence=confidence))
        for p in which
    )
