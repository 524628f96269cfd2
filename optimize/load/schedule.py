"""When requests are due and how long they are, fixed before the first one is sent. Pure: seeded, digested."""

from __future__ import annotations

import hashlib
import math
import random
from array import array
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

__all__ = [
    "REQUESTS_MAX",
    "Lengths",
    "Pattern",
    "Planned",
    "Schedule",
    "ScheduleError",
    "plan_closed",
    "plan_open",
    "plan_trace",
]

Pattern = Literal["poisson", "constant", "gamma", "ramp", "trace", "closed"]

#: 24 bytes each, and an hour at 1,000 a second is 3.6 million.
REQUESTS_MAX = 5_000_000
TOKENS_MAX = 4_000_000


class ScheduleError(ValueError):
    """What is asked for is no load: a rate of zero, too many requests, a broken trace."""


class Lengths(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tokens of a prompt or an answer: always `low`, or uniform from `low` to `high`."""

    low: int
    high: int

    def draw(self, source: random.Random) -> int:
        return self.low if self.low == self.high else source.randint(self.low, self.high)

    @property
    def mean(self) -> float:
        return (self.low + self.high) / 2

    @classmethod
    def parse(cls, text: str) -> Lengths:
        """`512`, or `128-1024`. Raises ScheduleError."""
        low, dash, high = text.partition("-")
        try:
            one = cls(low=int(low), high=int(high if dash else low))
        except ValueError:
            raise ScheduleError(f"`{text}` is no length: one is `512` or `128-1024`") from None
        if not 1 <= one.low <= one.high <= TOKENS_MAX:
            raise ScheduleError(f"`{text}`: a length is 1 to {TOKENS_MAX:,} tokens, the smaller one first")
        return one


class Planned(msgspec.Struct, frozen=True, gc=False):
    """One request of a schedule: its number, when it is due (s since the start), its lengths in tokens."""

    number: int
    due_s: float
    n_in: int
    n_out: int


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A run, whole before it starts. In a closed loop `due_s` is empty: a request follows an answer."""

    pattern: Pattern
    seed: int
    n_in: array[int]
    n_out: array[int]
    due_s: array[float] = msgspec.field(default_factory=lambda: array("d"))
    #: requests outstanding at once, in a closed loop
    concurrency: int = 0
    #: the time that the arrivals span; in a closed loop without a number of requests: when to stop
    span_s: float = 0.0

    def __len__(self) -> int:
        return len(self.n_in)

    @property
    def is_open(self) -> bool:
        return self.pattern != "closed"

    @property
    def rate_per_s(self) -> float:
        """Mean arrivals a second over the span; 0 in a closed loop."""
        return len(self) / self.span_s if self.is_open and self.span_s else 0.0

    def planned(self, number: int) -> Planned:
        due = self.due_s[number] if self.is_open else 0.0
        return Planned(number, due, self.n_in[number], self.n_out[number])

    def share(self, index: int, of: int) -> Iterator[Planned]:
        """Every `of`-th request from `index` on: what one of several processes sends."""
        return (self.planned(number) for number in range(index, len(self), of))

    @property
    def digest(self) -> str:
        """SHA-256 over all that decides what is sent when: equal digests are equal schedules."""
        head = f"{self.pattern} {self.seed} {self.concurrency} {self.span_s!r}\n".encode()
        state = hashlib.sha256(head)
        for name in ("due_s", "n_in", "n_out"):
            state.update(getattr(self, name).tobytes())
        return state.hexdigest()


# --- open loop ------------------------------------------------------------------------------------


def plan_open(  # noqa: PLR0913
    pattern: Pattern,
    *,
    rate_per_s: float,
    prompt: Lengths,
    output: Lengths,
    seed: int,
    duration_s: float = 0.0,
    requests: int = 0,
    shape: float = 1.0,
    rate_end_per_s: float = 0.0,
) -> Schedule:
    """Arrivals at a rate, for a time or a number of requests, whichever ends first.

    `poisson`: independent users. `gamma`: the same rate with gaps of shape k, burstier below 1 (the
    coefficient of variation is 1/sqrt k). `ramp`: Poisson whose rate goes to `rate_end_per_s` in a straight
    line over the duration. The mean rate of a Poisson schedule varies, as it does in life; arrivals are not
    stretched to hit it. Raises ScheduleError.
    """
    _check(rate_per_s, duration_s, requests, shape)
    source = random.Random(seed)  # noqa: S311 - a load is repeatable
    due = array("d")
    times = _ramp(source, rate_per_s, rate_end_per_s, duration_s) if pattern == "ramp" else None
    times = times or _arrivals(_gap(pattern, source, rate_per_s, shape))
    for time_s in times:
        if (duration_s and time_s >= duration_s) or (requests and len(due) >= requests):
            break
        if len(due) >= REQUESTS_MAX:
            raise ScheduleError(f"more than {REQUESTS_MAX:,} requests: lower the rate or the duration")
        due.append(time_s)
    if not due:
        raise ScheduleError(f"no request falls into {duration_s:g} s at {rate_per_s:g}/s: make it longer")
    span = duration_s if not requests or (duration_s and len(due) < requests) else due[-1]
    lengths = random.Random(seed ^ 0x6C656E)  # noqa: S311 - apart: the same lengths at each rate
    n_in, n_out = _lengths(lengths, len(due), prompt, output)
    return Schedule(pattern=pattern, seed=seed, due_s=due, n_in=n_in, n_out=n_out, span_s=span)


def _check(rate_per_s: float, duration_s: float, requests: int, shape: float) -> None:
    if not (math.isfinite(rate_per_s) and 0 < rate_per_s <= 1e6):
        raise ScheduleError(f"a rate of {rate_per_s:g} requests a second is none")
    if not (duration_s or requests):
        raise ScheduleError("neither a duration nor a number of requests")
    if not (math.isfinite(duration_s) and duration_s >= 0) or requests < 0:
        raise ScheduleError("a duration or a number of requests below zero")
    if not 0.01 <= shape <= 100:
        raise ScheduleError(f"a gamma shape of {shape:g}: it is 0.01 to 100")


def _gap(pattern: Pattern, source: random.Random, rate_per_s: float, shape: float) -> Callable[[], float]:
    if pattern == "constant":
        return lambda: 1 / rate_per_s
    if pattern == "gamma":
        return lambda: source.gammavariate(shape, 1 / (rate_per_s * shape))
    if pattern == "poisson":
        return lambda: source.expovariate(rate_per_s)
    raise ScheduleError(f"`{pattern}` has no rate")


def _arrivals(gap: Callable[[], float]) -> Iterator[float]:
    time_s = 0.0
    while True:
        time_s += gap()
        yield time_s


def _ramp(source: random.Random, start: float, end: float, duration_s: float) -> Iterator[float]:
    """Poisson arrivals of rate `start` to `end`: those of rate 1, through the inverse of the summed rate."""
    if not duration_s or not (math.isfinite(end) and end > 0):
        raise ScheduleError("a ramp has a duration and a rate to end with")
    slope = (end - start) / duration_s
    total = (start + end) / 2 * duration_s
    expected = source.expovariate(1)
    while expected < total:
        if abs(slope) * duration_s < 1e-9 * start:
            yield expected / start
        else:
            yield (math.sqrt(max(start * start + 2 * slope * expected, 0.0)) - start) / slope
        expected += source.expovariate(1)


def _lengths(
    source: random.Random, count: int, prompt: Lengths, output: Lengths
) -> tuple[array[int], array[int]]:
    pairs = [(prompt.draw(source), output.draw(source)) for _ in range(count)]
    return array("I", [pair[0] for pair in pairs]), array("I", [pair[1] for pair in pairs])


# --- closed loop ----------------------------------------------------------------------------------


def plan_closed(  # noqa: PLR0913
    *, concurrency: int, requests: int, prompt: Lengths, output: Lengths, seed: int, duration_s: float = 0.0
) -> Schedule:
    """Requests that follow each other in `concurrency` streams; at most `requests`. Raises ScheduleError."""
    if not 1 <= concurrency <= 100_000:
        raise ScheduleError(f"a concurrency of {concurrency}: it is 1 to 100,000")
    if not 1 <= requests <= REQUESTS_MAX:
        raise ScheduleError(f"{requests:,} requests: a run has 1 to {REQUESTS_MAX:,}")
    if not (math.isfinite(duration_s) and duration_s >= 0):
        raise ScheduleError("a duration below zero")
    n_in, n_out = _lengths(random.Random(seed ^ 0x6C656E), requests, prompt, output)  # noqa: S311
    return Schedule(
        pattern="closed", seed=seed, n_in=n_in, n_out=n_out, concurrency=concurrency, span_s=duration_s
    )


# --- a trace --------------------------------------------------------------------------------------


class _Line(msgspec.Struct):
    """A line of a trace. Mooncake's names, and those of Azure's and BurstGPT's columns in lower case."""

    timestamp: float | None = None
    timestamp_ms: float | None = None
    input_length: int | None = None
    output_length: int | None = None
    contexttokens: int | None = None
    generatedtokens: int | None = None


def plan_trace(data: bytes, *, seed: int = 0, duration_s: float = 0.0, requests: int = 0) -> Schedule:
    """Replay of NDJSON lines: `timestamp` (s) or `timestamp_ms`, `input_length`, `output_length`.

    The first arrival is at 0. Raises ScheduleError with the line.
    """
    rows: list[tuple[float, int, int]] = []
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        if len(rows) >= REQUESTS_MAX:
            raise ScheduleError(f"a trace of more than {REQUESTS_MAX:,} lines")
        rows.append(_row(line, number))
    if not rows:
        raise ScheduleError("the trace has no line")
    rows.sort(key=lambda row: row[0])
    first = rows[0][0]
    rows = [(time_s - first, *lengths) for time_s, *lengths in rows]  # type: ignore[misc]
    rows = [row for row in rows if not duration_s or row[0] < duration_s][: requests or None]
    return Schedule(
        pattern="trace",
        seed=seed,
        due_s=array("d", [row[0] for row in rows]),
        n_in=array("I", [row[1] for row in rows]),
        n_out=array("I", [row[2] for row in rows]),
        span_s=duration_s or rows[-1][0],
    )


def _row(line: bytes, number: int) -> tuple[float, int, int]:
    try:
        one = msgspec.json.decode(line, type=_Line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ScheduleError(f"line {number} of the trace: {error}") from None
    time_s = one.timestamp if one.timestamp_ms is None else one.timestamp_ms / 1000
    n_in = one.input_length if one.contexttokens is None else one.contexttokens
    n_out = one.output_length if one.generatedtokens is None else one.generatedtokens
    if time_s is None or n_in is None or n_out is None:
        raise ScheduleError(
            f"line {number} of the trace lacks `timestamp` (s), `input_length` or `output_length`"
        )
    if not math.isfinite(time_s) or not (1 <= n_in <= TOKENS_MAX and 1 <= n_out <= TOKENS_MAX):
        raise ScheduleError(f"line {number} of the trace: a time or a length that cannot be")
    return time_s, n_in, n_out
