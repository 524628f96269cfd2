"""Two servers or two settings against each other: shift, ratio of percentiles, equality. Pure.

Run them in ABBA blocks, so that what drifts (heat, neighbours, caches) weighs on both alike. That a
difference does not show is no equality: `same` is said only where the interval lies inside the margin.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, sqrt
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from optimize.special import normal_quantile
from optimize.steady import correlation_time

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = Sequence[float] | NDArray[Any]

__all__ = ["Comparison", "Interval", "abba", "compare", "hodges_lehmann", "quantile_ratio"]

_RESAMPLES = 2000
#: Resamples held at once: 16 MB of float64 at 10,000 values.
_CHUNK = 200


class Interval(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value, and the limits that enclose the true one at `confidence`."""

    value: float
    low: float
    high: float
    confidence: float


class Comparison(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """B against A at one percentile; a ratio above 1 is slower."""

    p: float
    ratio: Interval
    equivalence: Interval
    """The interval of the two one-sided tests, at 1 - 2 x 5 %."""
    shift_s: Interval
    verdict: Literal["same", "faster", "slower", "undecided"]
    margin: float


def abba(blocks: int) -> tuple[Literal["A", "B"], ...]:
    """The order of `blocks` runs of each: ABBA, then BAAB, so that no steady drift stays."""
    order: list[Literal["A", "B"]] = []
    for n in range(ceil(blocks / 2)):
        order += ["A", "B", "B", "A"] if n % 2 == 0 else ["B", "A", "A", "B"]
    return tuple(order[: 2 * blocks])


def hodges_lehmann(a: Numbers, b: Numbers, confidence: float = 0.95) -> Interval:
    """How much later B is than A: the median of all differences, with the limits of the rank-sum test.

    Limits by the normal approximation of Mann and Whitney's statistic; ten values on each side are enough.
    """
    import numpy as np

    x, y = np.sort(np.asarray(a, dtype=float)), np.sort(np.asarray(b, dtype=float))
    pairs = len(x) * len(y)
    if not pairs:
        raise ValueError("both sides need values")
    reach = normal_quantile((1 + confidence) / 2) * sqrt(pairs * (len(x) + len(y) + 1) / 12)
    low = max(0, floor(pairs / 2 - reach))
    middle = [_difference(x, y, k) for k in ((pairs - 1) // 2, pairs // 2)]
    return Interval(
        value=sum(middle) / 2,
        low=_difference(x, y, low),
        high=_difference(x, y, pairs - 1 - low),
        confidence=confidence,
    )


def _difference(x: NDArray[Any], y: NDArray[Any], rank: int) -> float:
    """The difference y - x of rank `rank` from 0, without writing all of them down."""
    import numpy as np

    low, high = float(y[0] - x[-1]), float(y[-1] - x[0])
    for _ in range(80):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        # y - x <= middle: x at or above y - middle
        count = int((len(x) - np.searchsorted(x, y - middle, side="left")).sum())
        low, high = (low, middle) if count > rank else (middle, high)
    return high


def quantile_ratio(a: Numbers, b: Numbers, p: float, *, confidence: float = 0.95, seed: int = 0) -> Interval:
    """The ratio of B's percentile to A's, its interval by a moving-block bootstrap (Kuensch 1989).

    Values in the order of their schedule: blocks as long as twice the correlation time keep what neighbours
    have in common. Raises ValueError below 20 values beyond `p`: resampled percentiles of a tail are lumpy.
    """
    return _intervals(a, b, p, (confidence,), seed)[0]


def _intervals(a: Numbers, b: Numbers, p: float, confidences: tuple[float, ...], seed: int) -> list[Interval]:
    import numpy as np

    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    fewest, have = ceil(20 / min(p, 1 - p)), min(len(x), len(y))
    if have < fewest:
        raise ValueError(f"{have} values; the ratio of P{p * 100:g} needs {fewest} on each side")
    rng = np.random.default_rng(seed)
    ratios = _resampled(rng, y, p) / _resampled(rng, x, p)
    value = float(np.quantile(y, p) / np.quantile(x, p))
    found = []
    for confidence in confidences:
        low, high = np.quantile(ratios, [(1 - confidence) / 2, (1 + confidence) / 2])
        found.append(Interval(value=value, low=float(low), high=float(high), confidence=confidence))
    return found


def _resampled(rng: Any, values: NDArray[Any], p: float) -> NDArray[Any]:
    """The percentile of each resample."""
    import numpy as np

    n = len(values)
    time = correlation_time(values)
    block = min(ceil(2 * time), n // 10) if time > 1 else 1
    count = ceil(n / block)
    found = []
    for _ in range(_RESAMPLES // _CHUNK):
        starts = rng.integers(0, n - block + 1, size=(_CHUNK, count))
        picked = (starts[:, :, None] + np.arange(block)).reshape(_CHUNK, -1)[:, :n]
        found.append(np.quantile(values[picked], p, axis=1))
    return np.concatenate(found)


def compare(a: Numbers, b: Numbers, *, p: float = 0.5, margin: float = 0.05, seed: int = 0) -> Comparison:
    """B against A at the percentile `p`.

    `same` when two one-sided tests at 5 % place the ratio inside 1 ± margin; `slower` or `faster` when the
    95 % interval excludes 1 and that is not so; else `undecided`.
    """
    ratio, equivalence = _intervals(a, b, p, (0.95, 0.9), seed)
    verdict: Literal["same", "faster", "slower", "undecided"] = "undecided"
    if 1 - margin < equivalence.low and equivalence.high < 1 + margin:
        verdict = "same"
    elif ratio.low > 1:
        verdict = "slower"
    elif ratio.high < 1:
        verdict = "faster"
    return Comparison(
        p=p,
        ratio=ratio,
        equivalence=equivalence,
        shift_s=hodges_lehmann(a, b),
        verdict=verdict,
        margin=margin,
    )
