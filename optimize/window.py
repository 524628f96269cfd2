"""The part of a stage that is measured: from the end of warm-up to the last arrival. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from doctor.core.load import Window
from optimize.columns import Columns, in_flight_at
from optimize.steady import Trend, slope, warm_up_end

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["find_window", "is_short"]

#: Answers below which nobody can see whether a load had settled: ten batches of five.
_FEWEST = 50
_SHORT = "too few to see whether the load settled"


def find_window(c: Columns, *, given: tuple[float, float] | None = None) -> Window:
    """The window of a stage.

    It cannot begin before an answer's time after the first arrival: the server is still filling up until
    then. It begins where the TTFT has settled (E2E without one), and the time per token.
    `given` (start, end) fixes it instead.
    """
    import numpy as np

    if given is not None:
        return _checked(c, *given, "as given")
    first, end = float(c.scheduled[0]), float(c.scheduled[-1])
    usable = c.is_ok & (c.scheduled <= end)
    values = c.ttft[usable] if not bool(np.isnan(c.ttft[usable]).all()) else c.e2e[usable]
    if len(values) < _FEWEST:
        because = f"{len(values)} answers: {_SHORT}"
        return Window(start_s=first, end_s=end, is_steady=False, because=because)
    full = first + float(np.nan_to_num(np.nanquantile(c.e2e[usable], 0.9)))
    if full - first > (end - first) / 2:
        took, lasted = f"{full - first:.3g} s", f"{end - first:.3g} s"
        because = f"an answer takes {took} and the stage {lasted}: the server was never full"
        return Window(start_s=first, end_s=end, is_steady=False, because=because)
    cut = _cut(values, c.tpot[usable])
    if cut is None:
        growing = _over_saturated(c, full, end)
        because = growing or "not stationary: warm-up has no end in the first half"
        return Window(start_s=full, end_s=end, is_steady=False, because=because)
    settled = float(c.scheduled[usable][cut])
    start = max(full, settled)
    how = "the server was full" if full >= settled else "times had settled"
    return _checked(c, start, end, f"warm-up ended after {start - first:.3g} s: {how}")


def is_short(window: Window) -> bool:
    """Whether it is not steady for want of answers only: nothing says that the load was moving."""
    return not window.is_steady and window.because.endswith(_SHORT)


def _cut(*measures: NDArray[Any]) -> int | None:
    """The warm-up of the one that took longest; of a measure that half the requests lack, none."""
    import numpy as np

    cuts = [
        warm_up_end(np.nan_to_num(values, nan=float(np.nanmedian(values))))
        for values in measures
        if float(np.isnan(values).mean()) <= 0.5
    ]
    return None if None in cuts else max((cut for cut in cuts if cut is not None), default=0)


def _checked(c: Columns, start: float, end: float, because: str) -> Window:
    growing = _over_saturated(c, start, end)
    return Window(start_s=start, end_s=end, is_steady=not growing, because=growing or because)


def _over_saturated(c: Columns, start: float, end: float) -> str:
    """Why the load has no steady state: both the requests in flight and the time to answer keep rising."""
    import numpy as np

    if c.is_closed:
        return ""
    inside = (c.scheduled >= start) & (c.scheduled <= end)
    times = c.scheduled[inside]
    flying = slope(times, in_flight_at(c, times))
    waits = _waits(c, inside)
    told = ~np.isnan(waits)
    waiting = slope(times[told], waits[told]) if told.any() else None
    if flying is None or waiting is None or not (flying.is_rising and waiting.is_rising):
        return ""
    return f"over-saturated: in flight rose by {_rise(flying)}, TTFT by {_rise(waiting, 's')} over the window"


def _waits(c: Columns, inside: NDArray[Any]) -> NDArray[Any]:
    """TTFT; of requests that we gave up on, how long they had waited."""
    import numpy as np

    base = c.ttft if not bool(np.isnan(c.ttft[inside]).all()) else c.e2e
    waits: NDArray[Any] = np.where(np.isnan(base) & c.is_cancelled, c.e2e, base)[inside]
    return waits


def _rise(trend: Trend, unit: str = "") -> str:
    return f"{trend.rise:.3g} {unit}".strip()
