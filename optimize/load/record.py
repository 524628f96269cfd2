"""What each request gave: times, counts and how it ended, in columns that merge by concatenation. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from enum import IntEnum
from math import isnan, nan

import msgspec

__all__ = ["COUNTS", "GAPS_MAX", "TIMES", "UNTOLD", "Request", "Samples", "Status"]

#: A time or a count that was not told: a request without a first token has no TTFT, and it is not 0.
UNTOLD = nan


class Status(IntEnum):
    """How a request ended. Only OK goes into latencies; each of the others is counted under its own name."""

    OK = 0
    #: no connection: refused, unreachable, name unknown
    UNREACHABLE = 1
    CONNECT_TIMEOUT = 2
    #: the handshake or the certificate
    TLS = 3
    #: no answer line within the time limit
    HEADER_TIMEOUT = 4
    #: the answer began, and then stood still for longer than the limit
    STALLED = 5
    #: it went on, and was longer than the limit for a whole request
    TIMEOUT = 6
    #: the peer closed before the end of the body, or before `data: [DONE]`
    CLOSED_EARLY = 7
    #: the peer reset the connection
    RESET = 8
    #: what arrived is not HTTP
    MALFORMED_HTTP = 9
    #: an event that is not JSON, or not of the form asked for
    MALFORMED_STREAM = 10
    #: an event is no UTF-8
    BAD_UTF8 = 11
    #: an event, a header block or a body above its bound
    TOO_LARGE = 12
    #: 401 or 403
    UNAUTHORISED = 13
    #: 404: no such path or no such model
    NOT_FOUND = 14
    #: 429
    RATE_LIMITED = 15
    #: another 4xx, or a 3xx: redirects are not followed
    REFUSED = 16
    #: 503
    UNAVAILABLE = 17
    #: another 5xx
    SERVER_ERROR = 18
    #: an error event inside a stream that had begun with 200
    ERROR_IN_STREAM = 19
    #: 200, and no token
    EMPTY = 20
    #: fewer tokens than asked for, where the whole length was asked for (`ignore_eos`)
    WRONG_LENGTH = 21
    #: the usage block cannot be right: more tokens than allowed, or fewer than pieces of text that arrived
    MISCOUNTED = 22
    #: given up by us: Ctrl-C, the end of the run
    CANCELLED = 23

    @property
    def word(self) -> str:
        """The name in exports: lower case."""
        return self.name.lower()


#: Seconds since the start of the run on one monotonic clock (CLOCK_MONOTONIC is the same in all processes).
TIMES = ("scheduled", "sent", "header", "first_token", "last_token", "end", "max_stall")
#: Tokens from the server's usage block (UNTOLD without one); pieces of content that arrived; the place in the
#: schedule, by which runs of one seed are paired and a mock's truth is joined.
COUNTS = ("n_in", "n_out", "n_chunks", "number")
#: 2 MB a process. Beyond it every second gap is dropped, again and again: memory does not grow with the run,
#: and P99.9 still rests on a hundred values.
GAPS_MAX = 250_000


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One row, for exports and tests. Times in seconds since the start of the run, None where untold."""

    status: str
    scheduled: float | None = None
    sent: float | None = None
    header: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    end: float | None = None
    #: the longest wait between two pieces of content, seconds
    max_stall: float | None = None
    n_in: float | None = None
    n_out: float | None = None
    n_chunks: float | None = None
    number: float | None = None


class Samples:
    """Columns of float64, one entry a request, in the order of ending.

    `scheduled` is when the arrival process wanted the request (in a closed loop: when its stream was free),
    `sent` when its first byte was handed to the socket, `header` the status line, `first_token` the first
    piece with content (a role alone is none), `last_token` the last one, `end` the end of the answer.
    `gaps` pools the waits between pieces of all OK requests, every `gap_stride`-th of them in a long run.
    `lags` is filled in a calibration alone: arrival of a piece minus the mock's own time of sending it.
    """

    __slots__ = (*TIMES, *COUNTS, "gap_stride", "gaps", "lags", "status")

    def __init__(self) -> None:
        self.scheduled = array("d")
        self.sent = array("d")
        self.header = array("d")
        self.first_token = array("d")
        self.last_token = array("d")
        self.end = array("d")
        self.max_stall = array("d")
        self.n_in = array("d")
        self.n_out = array("d")
        self.n_chunks = array("d")
        self.number = array("d")
        self.status = array("B")
        self.gaps = array("d")
        self.gap_stride = 1
        self.lags = array("d")

    def __len__(self) -> int:
        return len(self.status)

    def add(self, status: Status, values: Sequence[float]) -> None:
        """One request: `values` in the order of TIMES, then COUNTS."""
        for name, value in zip((*TIMES, *COUNTS), values, strict=True):
            getattr(self, name).append(value)
        self.status.append(status)

    def add_gaps(self, gaps: array[float]) -> None:
        """The gaps of one OK request, thinned as those that are here."""
        self.gaps.extend(gaps[:: self.gap_stride])
        while len(self.gaps) > GAPS_MAX:
            self._thin(self.gap_stride * 2)

    def _thin(self, stride: int) -> None:
        self.gaps = self.gaps[:: stride // self.gap_stride]
        self.gap_stride = stride

    def extend(self, other: Samples) -> None:
        """Concatenation: percentiles of several processes are taken over all their values, never averaged."""
        for name in (*TIMES, *COUNTS, "status", "lags"):
            getattr(self, name).extend(getattr(other, name))
        if other.gap_stride > self.gap_stride:
            self._thin(other.gap_stride)
        self.gaps.extend(other.gaps[:: self.gap_stride // other.gap_stride])

    def counts(self) -> dict[str, int]:
        """How many ended how, by name; only those that occurred, most frequent first."""
        seen = [0] * len(Status)
        for code in self.status:
            seen[code] += 1
        return {Status(n).word: seen[n] for n in sorted(range(len(seen)), key=lambda n: -seen[n]) if seen[n]}

    def rows(self) -> Iterator[Request]:
        """Each request as a row, for NDJSON."""
        names = (*TIMES, *COUNTS)
        for n, code in enumerate(self.status):
            told = {name: value for name in names if not isnan(value := getattr(self, name)[n])}
            yield Request(status=Status(code).word, **told)

    def pack(self) -> bytes:
        """The columns as MessagePack, for the pipe between processes of one run."""
        columns = {name: getattr(self, name).tobytes() for name in _COLUMNS}
        return msgspec.msgpack.encode({**columns, "gap_stride": str(self.gap_stride).encode()})

    @classmethod
    def unpack(cls, data: bytes) -> Samples:
        """What `pack` wrote, on the same machine. Raises msgspec.DecodeError, KeyError, ValueError."""
        columns = msgspec.msgpack.decode(data, type=dict[str, bytes])
        new = cls()
        for name in _COLUMNS:
            getattr(new, name).frombytes(columns[name])
        new.gap_stride = int(columns["gap_stride"])
        return new


_COLUMNS = (*TIMES, *COUNTS, "status", "gaps", "lags")
