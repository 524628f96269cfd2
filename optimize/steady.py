"""Whether a load had settled: correlation, the end of warm-up, trends that say *over-saturated*. Pure.

Every function takes values in the order in which the requests were scheduled.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING, Any

import msgspec

from optimize.special import normal_sf, t_quantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = Sequence[float] | NDArray[Any]

__all__ = [
    "Trend",
    "autocorrelation",
    "correlation_time",
    "effective_n",
    "mann_kendall",
    "slope",
    "warm_up_end",
]

#: The fewest values in one batch.
_BATCH = 5
#: The 95 % point of the normal distribution: an autocorrelation of independent values is N(0, 1/n).
_CHANCE = 1.645
#: Differences below it are those of floating point: a time has a resolution of 1 us, a share one of 1/n.
_RESOLUTION = 1e-9
#: Batches over which a trend is fitted: their means are all but independent, requests are not.
_TREND_BATCHES = 20


class Trend(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A straight line through the values: its rise over the whole span, with a t-interval."""

    rise: float
    low: float
    high: float
    mean: float

    @property
    def is_rising(self) -> bool:
        """Significantly above zero, and by more than a fifth of the mean: what shows may still not matter."""
        return self.low > 0 and self.rise > 0.2 * abs(self.mean)


def autocorrelation(values: Numbers, lag: int = 1) -> float:
    """The correlation of each value with the one `lag` later; 0 where values do not vary."""
    import numpy as np

    x = np.asarray(values, dtype=float)
    if len(x) <= lag:
        return 0.0
    x = x - x.mean()
    total = float(x @ x)
    return float(x[:-lag] @ x[lag:]) / total if total > 0 else 0.0


def correlation_time(values: Numbers) -> float:
    """How many correlated values are worth one: 1 + 2 (r1 + r2 + ...), never below 1.

    Summed until a pair of neighbours is no longer positive (Geyer 1992). For a geometric decay it is
    (1 + r1) / (1 - r1); in queues the decay is slower than that, and r1 alone says too little.
    """
    import numpy as np

    x = np.asarray(values, dtype=float)
    if len(x) < 4 or float(x.std()) <= _RESOLUTION * max(1.0, float(abs(x.mean()))):
        return 1.0  # all the same, but for rounding
    r = _autocorrelations(x - x.mean())
    if not _shows(r, len(x)):
        return 1.0
    pairs = r[0 : len(r) - 1 : 2] + r[1 : len(r) : 2]
    ends = np.flatnonzero(pairs <= 0)
    kept = pairs[: ends[0] if len(ends) else len(pairs)]
    kept = np.minimum.accumulate(kept)
    return max(1.0, 2.0 * float(kept.sum()) - 1.0)


def _shows(r: NDArray[Any], n: int) -> bool:
    """Whether values are alike by more than chance (one-sided 5 %): the first neighbour, or the first ten."""
    ten = r[1:11]
    return bool(r[1] > _CHANCE / sqrt(n) or ten.sum() > _CHANCE * sqrt(len(ten) / n))


def _autocorrelations(x: NDArray[Any]) -> NDArray[Any]:
    """At lags 0 to n/2, by the spectrum: n log n where the sum would be n squared."""
    import numpy as np

    size = 1 << (2 * len(x) - 1).bit_length()
    spectrum = np.fft.rfft(x, size)
    raw = np.fft.irfft(spectrum * np.conj(spectrum), size)[: max(2, len(x) // 2)]
    shares: NDArray[Any] = raw / raw[0]
    return shares


def effective_n(values: Numbers) -> float:
    """The number of independent values that fix the mean as well as these do."""
    return len(values) / correlation_time(values)


def warm_up_end(values: Numbers) -> int | None:
    """How many values at the start belong to warm-up; None where it has no end in the first half.

    Twenty batches (ten below 600 values), and their medians, which a burst of slow requests does not move:
    warm-up lasts until two batches in a row lie where those of the second half lie, give or take twice
    their range or 5 %. That half must not go one way itself. (MSER-5 was tried: where few requests wait at
    all, it takes every burst for a start.)
    """
    import numpy as np

    x = np.asarray(values, dtype=float)
    count = 20 if len(x) >= 600 else 10
    if len(x) < count * _BATCH:
        return None
    batches = np.array_split(x, count)
    medians = np.array([float(np.median(batch)) for batch in batches])
    later = medians[count // 2 :]
    middle = float(np.median(later))
    if np.ptp(later) > 0.2 * abs(middle) and mann_kendall(later) < 0.001:
        return None  # still rising or falling, all the way
    reach = max(2 * float(later.max() - later.min()), 0.05 * abs(middle))
    settled = np.abs(medians - middle) <= reach
    for n in range(count // 2):
        if settled[n] and settled[n + 1]:
            # half of the first settled batch may have been warm-up still
            return sum(len(batch) for batch in batches[: n + 1]) if n else 0
    return None


def slope(times: Numbers, values: Numbers, confidence: float = 0.95) -> Trend | None:
    """The trend of values over time, fitted to batch means; None below two values a batch."""
    import numpy as np

    count = _TREND_BATCHES
    if len(values) < 2 * count:
        return None
    t = np.array([part.mean() for part in np.array_split(np.asarray(times, dtype=float), count)])
    y = np.array([part.mean() for part in np.array_split(np.asarray(values, dtype=float), count)])
    centred = t - t.mean()
    spread = float(centred @ centred)
    if spread == 0.0:
        return None
    gain = float(centred @ y) / spread
    left = y - y.mean() - gain * centred
    error = sqrt(float(left @ left) / (count - 2) / spread) * t_quantile((1 + confidence) / 2, count - 2)
    span = float(times[-1] - times[0])
    return Trend(
        rise=gain * span, low=(gain - error) * span, high=(gain + error) * span, mean=float(y.mean())
    )


def mann_kendall(values: Numbers) -> float:
    """The two-sided p-value that values have no monotone trend (Mann 1945; ties counted, Kendall 1975)."""
    import numpy as np

    x = np.asarray(values, dtype=float)
    n = len(x)
    if n < 4:
        return 1.0
    score = float(sum(np.sign(x[i + 1 :] - x[i]).sum() for i in range(n - 1)))
    _, ties = np.unique(x, return_counts=True)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1.0) * (2 * ties + 5)).sum())) / 18
    if variance <= 0 or score == 0:
        return 1.0
    return 2 * normal_sf((abs(score) - 1) / sqrt(variance))
