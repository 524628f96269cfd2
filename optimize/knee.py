"""Where throughput stops following load: three estimates of the bend, and whether they agree. Pure.

On concurrency all three mean the same: the number of streams from which more of them only wait. (On an open
loop's rate they do not: Kleinrock's power has its peak at half the capacity of an M/M/1 queue.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from doctor.core.load import KneeEstimate, KneeReport

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Point", "knee", "power", "two_segment", "usl"]

#: Estimates are said to agree when they are within this of each other.
_AGREES = 0.15
_POINTS_MIN = 5


class Point(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one load gave: answers a second and the mean time of one."""

    load: float
    per_s: float
    e2e_s: float


def knee(points: Sequence[Point]) -> KneeReport:
    """The three estimates, and their median where at least two agree within 15 %."""
    ordered = sorted(points, key=lambda point: point.load)
    estimates = (two_segment(ordered), usl(ordered), power(ordered))
    told = sorted(one.load for one in estimates if one.load is not None)
    agreeing = _largest_group(told)
    if len(agreeing) < 2:
        words = ", ".join(f"{one.method} {_said(one)}" for one in estimates)
        return KneeReport(
            axis="concurrency", estimates=estimates, load=None, spread=None, reason=f"no two agree: {words}"
        )
    middle = agreeing[len(agreeing) // 2] if len(agreeing) % 2 else sum(agreeing) / 2
    spread = agreeing[-1] / agreeing[0] - 1
    said = f"{len(agreeing)} of 3 estimates agree within {spread:.0%}"
    return KneeReport(axis="concurrency", estimates=estimates, load=middle, spread=spread, reason=said)


def _said(one: KneeEstimate) -> str:
    return f"sees none ({one.reason})" if one.load is None else f"{one.load:.3g}"


def _largest_group(told: list[float]) -> list[float]:
    """The most values that lie within 15 % of each other; of equal groups the closer one."""
    groups = [
        told[i:j]
        for i in range(len(told))
        for j in range(i + 1, len(told) + 1)
        if told[j - 1] <= told[i] * (1 + _AGREES)
    ]
    return max(groups, key=lambda group: (len(group), -group[-1] / group[0]), default=[])


def _columns(points: Sequence[Point]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    import numpy as np

    return (
        np.array([p.load for p in points]),
        np.array([p.per_s for p in points]),
        np.array([p.e2e_s for p in points]),
    )


def two_segment(points: Sequence[Point]) -> KneeEstimate:
    """Two lines that meet, by least squares.

    A bend is one when there are five points, the second slope is at most a quarter of the first, two lines
    halve the error of one, and the bend lies above 85 % of the peak (guidellm's conditions).
    """
    import numpy as np

    def none(reason: str) -> KneeEstimate:
        return KneeEstimate(method="two_segment", load=None, reason=reason)

    if len(points) < _POINTS_MIN:
        return none(f"{len(points)} points, needs {_POINTS_MIN}")
    x, y, _ = _columns(points)
    one = _fit(np.column_stack([np.ones_like(x), x]), y)[1]
    bends = np.exp(np.linspace(np.log(x[1]), np.log(x[-2]), 400))
    error, bend, lines = min(
        ((fit[1], float(b), fit[0]) for b in bends for fit in (_fit(_hinge(x, b), y),)),
        key=lambda found: found[0],
    )
    head, tail = float(lines[1]), float(lines[1] + lines[2])
    if head <= 0 or tail > 0.25 * head:
        return none("throughput still follows the load at the last points")
    if error > 0.5 * one:
        return none("two lines are no better than one")
    if float(lines[0] + lines[1] * bend) < 0.85 * float(y.max()):
        return none("the bend lies far below the peak")
    return KneeEstimate(method="two_segment", load=bend)


def _hinge(x: NDArray[Any], bend: float) -> NDArray[Any]:
    import numpy as np

    return np.column_stack([np.ones_like(x), x, np.maximum(x - bend, 0.0)])


def _fit(terms: NDArray[Any], y: NDArray[Any]) -> tuple[NDArray[Any], float]:
    """Least squares on relative errors: throughput is measured to a percentage."""
    import numpy as np

    weights = 1 / np.maximum(y, 1e-12)
    found = np.linalg.lstsq(terms * weights[:, None], y * weights, rcond=None)[0]
    return found, float((((terms @ found - y) * weights) ** 2).sum())


def usl(points: Sequence[Point]) -> KneeEstimate:
    """Where the two bounds of throughput meet: N* = peak throughput / that of one stream.

    A first place by the law X = g N / (1 + a (N - 1) + b N (N - 1)) (Gunther 2007), fitted as the polynomial
    in N that N/X is; with a = 0 = b there is no bound, and no knee. The law bends softly: the bounds
    themselves are read off the points well below that place, and above it.
    """
    import numpy as np

    if len(points) < _POINTS_MIN:
        return KneeEstimate(method="usl", load=None, reason=f"{len(points)} points, needs {_POINTS_MIN}")
    n, x, _ = _columns(points)
    cost = _non_negative(np.column_stack([np.ones_like(n), n - 1, n * (n - 1)]), n / x)
    start, alpha, beta = (float(value) for value in cost)
    if start <= 0 or alpha + beta <= 0:
        return KneeEstimate(method="usl", load=None, reason="throughput is in proportion to the load")
    rough = float(np.sort(x)[-3:].mean()) * start
    light, heavy = n <= max(0.4 * rough, float(n[0])), (n >= 1.2 * rough) & (n <= 4 * rough)
    if not heavy.any():
        return KneeEstimate(method="usl", load=None, reason="its bound lies beyond the last point")
    where = float(np.median(x[heavy]) / np.mean(x[light] / n[light]))
    if where >= 0.95 * float(n[-1]):
        return KneeEstimate(method="usl", load=None, reason="its bound lies beyond the last point")
    return KneeEstimate(method="usl", load=where)


def _non_negative(terms: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Least squares with no coefficient below 0: the best of the subsets, of which there are seven."""
    import numpy as np

    best, least = np.zeros(terms.shape[1]), np.inf
    for mask in range(1, 2 ** terms.shape[1]):
        which = [k for k in range(terms.shape[1]) if mask >> k & 1]
        found, error = _fit(terms[:, which], y)
        if (found >= 0).all() and error < least:
            best, least = np.zeros(terms.shape[1]), error
            best[which] = found
    return best


def power(points: Sequence[Point]) -> KneeEstimate:
    """Where throughput by time is greatest (Kleinrock 1979): below it more load costs little, above it, much.

    Between the points by a line on each side of the greatest, for the maximum of a server that saturates is
    an edge and no hill: the logarithm rises with slope 1 to it and falls with slope -1.
    """
    import numpy as np

    if len(points) < _POINTS_MIN:
        return KneeEstimate(method="power", load=None, reason=f"{len(points)} points, needs {_POINTS_MIN}")
    n, x, e2e = _columns(points)
    u, v = np.log(n), np.log(x / e2e)
    top = int(v.argmax())
    if top in (0, len(v) - 1):
        return KneeEstimate(method="power", load=None, reason="throughput by time has no peak inside")
    best = float(u[top])
    candidates = [where for before in (top, top - 1) if (where := _crossing(u, v, before)) is not None]
    inside = [(height, where) for where, height in candidates if u[top - 1] <= where <= u[top + 1]]
    if inside:
        best = max(inside)[1]
    return KneeEstimate(method="power", load=float(np.exp(best)))


def _crossing(u: NDArray[Any], v: NDArray[Any], before: int) -> tuple[float, float] | None:
    """Where the line of the points up to `before` meets that of the points after it, and how high."""
    import numpy as np

    left, right = slice(max(0, before - 2), before + 1), slice(before + 1, before + 4)
    if before < 1 or len(u[right]) < 2:
        return None
    (a, b), (c, d) = np.polyfit(u[left], v[left], 1), np.polyfit(u[right], v[right], 1)
    if a <= c:
        return None
    where = float((d - b) / (a - c))
    return where, float(a * where + b)
