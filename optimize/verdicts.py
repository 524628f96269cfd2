"""Pass, fail or undecided: what a count of late requests proves, and shares with exact intervals. Pure."""

from __future__ import annotations

from math import floor, sqrt
from typing import Literal

from optimize.special import beta_quantile, binomial_cdf, normal_quantile

__all__ = ["clopper_pearson", "decide", "mcnemar", "needed_requests", "wilson"]


def decide(
    late: float, n: float, share: float, confidence: float = 0.95, *, looks: int = 1
) -> Literal["pass", "fail", "undecided"]:
    """Whether `late` of `n` independent requests prove that the share in time is `share` or more, or less.

    The binomial rule of MLPerf's early stopping, at tolerance 0. Where the count is looked at `looks` times,
    the error is spread over them (Bonferroni), so that looking early costs no false verdict. Effective counts
    have fractions: each is rounded against the answer, n down and late up for a pass.
    """
    error = (1 - confidence) / looks
    whole = floor(n + 1e-9)
    upper = min(whole, -floor(-(late - 1e-9)))
    if whole > 0 and binomial_cdf(upper, whole, 1 - share) <= error:
        return "pass"
    lower = floor(late + 1e-9)
    if lower > 0 and 1 - binomial_cdf(lower - 1, -floor(-(n - 1e-9)), 1 - share) <= error:
        return "fail"
    return "undecided"


def needed_requests(late: int, share: float, confidence: float = 0.95) -> int:
    """The fewest requests of which `late` may be late and a pass is still proven: 299 for none at P99."""
    low, high = late, late + 1
    while binomial_cdf(late, high, 1 - share) > 1 - confidence:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if binomial_cdf(late, middle, 1 - share) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def clopper_pearson(good: float, n: float, confidence: float = 0.95) -> tuple[float, float]:
    """Exact limits of a share (Clopper and Pearson 1934): coverage is never below `confidence`."""
    if n == 0:
        return 0.0, 1.0
    tail = (1 - confidence) / 2
    low = 0.0 if good == 0 else beta_quantile(tail, good, n - good + 1)
    high = 1.0 if good == n else beta_quantile(1 - tail, good + 1, n - good)
    return low, high


def wilson(good: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Score limits of a share (Wilson 1927): they cover `confidence` on average, less for some shares."""
    if n == 0:
        return 0.0, 1.0
    z = normal_quantile((1 + confidence) / 2)
    share, scale = good / n, 1 + z * z / n
    centre = (share + z * z / (2 * n)) / scale
    reach = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / scale
    return max(0.0, centre - reach), min(1.0, centre + reach)


def mcnemar(only_first: int, only_second: int) -> float:
    """The two-sided p-value that both are right equally often, from items that just one got right.

    Exact (binomial): items that both got right, or both wrong, say nothing about the difference.
    """
    n = only_first + only_second
    return min(1.0, 2 * binomial_cdf(min(only_first, only_second), n, 0.5)) if n else 1.0
