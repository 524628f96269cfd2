"""Requests as columns in the order of their schedule, and the measures defined on them. Pure.

Seconds on the clock of the run; NaN is untold. Definitions:

- TTFT: scheduled to the first content. The open-loop user waits from then, not from when a late client sends.
- E2E: scheduled to the end; in a closed loop from the first byte sent, for nobody waits for the stream.
- TPOT: (last content - first content) / (tokens - 1), untold below two tokens.
- stall: the longest wait between two pieces of content of one request.
- slip: scheduled to sent, which is the client's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from doctor.core.load import Metric, Slo
from optimize.load.record import Samples, Status

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Columns", "columns", "fate", "in_flight_at", "overlap_s"]


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """NumPy arrays, one entry a request."""

    scheduled: Any
    sent: Any
    end: Any
    n_in: Any
    n_out: Any
    n_chunks: Any
    is_ok: Any
    is_cancelled: Any
    ttft: Any
    ttft_send: Any
    tpot: Any
    stall: Any
    e2e: Any
    slip: Any
    is_closed: bool

    def metric(self, name: Metric) -> NDArray[Any]:
        """The values of a measure of each request. Raises ValueError for `itl`, which no request has."""
        if name == "itl":
            raise ValueError(
                "`itl` is pooled over all requests: a limit for each is one on `tpot` or `stall`"
            )
        found: NDArray[Any] = getattr(self, name)
        return found


def columns(samples: Samples, *, is_closed: bool = False) -> Columns:
    """The columns of what was measured. Requests that were never scheduled are left out."""
    import numpy as np

    names = (
        "scheduled",
        "sent",
        "first_token",
        "last_token",
        "end",
        "max_stall",
        "n_in",
        "n_out",
        "n_chunks",
    )
    raw = {name: np.array(getattr(samples, name), dtype=float) for name in names}
    status = np.array(samples.status, dtype=np.uint8)
    order = np.argsort(raw["scheduled"], kind="stable")
    order = order[~np.isnan(raw["scheduled"][order])]
    c, status = {name: column[order] for name, column in raw.items()}, status[order]
    with np.errstate(invalid="ignore", divide="ignore"):
        steps = np.where(c["n_out"] >= 2, c["n_out"] - 1, np.nan)
        return Columns(
            scheduled=c["scheduled"],
            sent=c["sent"],
            end=c["end"],
            n_in=c["n_in"],
            n_out=c["n_out"],
            n_chunks=c["n_chunks"],
            is_ok=status == Status.OK,
            is_cancelled=status == Status.CANCELLED,
            ttft=c["first_token"] - (c["sent"] if is_closed else c["scheduled"]),
            ttft_send=c["first_token"] - c["sent"],
            tpot=(c["last_token"] - c["first_token"]) / steps,
            stall=c["max_stall"],
            e2e=c["end"] - (c["sent"] if is_closed else c["scheduled"]),
            slip=c["sent"] - c["scheduled"],
            is_closed=is_closed,
        )


def fate(c: Columns, slo: Slo) -> NDArray[Any]:
    """Of each request: 1 met every limit, 0 did not, NaN cannot be told.

    A failure of any kind is 0. One that we cancelled ourselves is 0 when it was late already, else untold.
    So is an answer without the measure that a limit is on, but for TPOT, which a single token has none of.
    """
    import numpy as np

    good = np.where(c.is_ok, 1.0, 0.0)
    good[c.is_cancelled] = np.nan
    for term in slo.terms:
        value = c.metric(term.metric)
        with np.errstate(invalid="ignore"):
            late = value > term.limit_s
            untold = np.isnan(value) & c.is_ok
        if term.metric == "tpot":
            untold &= ~(c.n_out < 2)
        if term.metric in (
            "ttft",
            "e2e",
        ):  # what was still open when we gave up waits longer than it had by then
            waited = c.e2e > term.limit_s
            late |= c.is_cancelled & waited & (np.isnan(value) if term.metric == "ttft" else True)
        good[untold & (good == 1.0)] = np.nan
        good[late] = 0.0
    return good


def in_flight_at(c: Columns, times: NDArray[Any]) -> NDArray[Any]:
    """Requests that were open just before each time, counted from their schedule to their end."""
    import numpy as np

    ends = np.sort(np.where(np.isnan(c.end), np.inf, c.end))
    begun = np.searchsorted(c.scheduled, times, side="left")
    count: NDArray[Any] = begun - np.searchsorted(ends, times, side="left")
    return count


def overlap_s(c: Columns, start_s: float, end_s: float) -> NDArray[Any]:
    """How long each request was open inside the window."""
    import numpy as np

    begin = c.end - c.e2e
    last = np.where(np.isnan(c.end), end_s, c.end)
    begin = np.where(np.isnan(begin), c.scheduled, begin)
    inside: NDArray[Any] = np.clip(np.minimum(last, end_s) - np.maximum(begin, start_s), 0.0, None)
    return inside
