"""Sends one process's share of a schedule: at its times in open loop, after each answer in closed loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from time import perf_counter

from optimize.load.alarm import Alarm
from optimize.load.bodies import Bodies
from optimize.load.client import Client
from optimize.load.schedule import Planned

__all__ = ["Progress", "drive_closed", "drive_open"]

#: A stream whose request failed waits so long before its next, twice as long each time: a server that refuses
#: is not asked a thousand times a second.
_BACK_OFF_S = (0.05, 2.0)

Progress = Callable[[], None]


class _Open:
    """Arrivals at their times, whatever the server does."""

    def __init__(self, client: Client, bodies: Bodies, share: Iterator[Planned], start_s: float) -> None:
        self._client, self._bodies, self._share, self._start = client, bodies, share, start_s
        self.done = asyncio.Event()
        self._next: Planned | None = next(share, None)
        self._body = b""
        self._alarm = Alarm(asyncio.get_running_loop(), self._ring)
        client.on_end = self._ended
        self._arm()

    def _arm(self) -> None:
        """The body of the next request is made before it is due."""
        if self._next is None:
            self._ended(0, True)  # noqa: FBT003
            return
        self._body = self._bodies.body(self._next)
        self._alarm.set(self._start + self._next.due_s)

    def _ring(self) -> None:
        now = perf_counter()
        while self._next is not None and self._start + self._next.due_s <= now:
            self._client.send(self._next, self._body, self._start + self._next.due_s)
            self._next = next(self._share, None)
            if self._next is not None:
                self._body = self._bodies.body(self._next)
        self._arm()

    def _ended(self, _stream: int, _ok: bool) -> None:
        if self._next is None and self._client.in_flight == 0:
            self.done.set()

    def close(self) -> None:
        self._next = None
        self._alarm.close()


async def drive_open(
    client: Client, bodies: Bodies, share: Iterator[Planned], start_s: float, stop: asyncio.Event
) -> None:
    """Send each request when it is due and wait until all have ended, or until `stop` is set."""
    run = _Open(client, bodies, share, start_s)
    try:
        await _either(run.done, stop)
    finally:
        run.close()


class _Closed:
    """Streams that send their next request when the last one was answered."""

    def __init__(  # noqa: PLR0913
        self,
        client: Client,
        bodies: Bodies,
        share: Iterator[Planned],
        *,
        streams: int,
        start_s: float,
        span_s: float,
    ) -> None:
        self._client, self._bodies, self._share = client, bodies, share
        self._until = start_s + span_s if span_s else float("inf")
        self._failures = [0] * streams
        self._waiting = 0
        self.done = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        client.on_end = self._ended

    def begin(self, stream: int, scheduled: float) -> None:
        """The next request of a stream, which was free since `scheduled`."""
        planned = next(self._share, None) if scheduled < self._until else None
        if planned is not None:
            self._client.send(planned, self._bodies.body(planned), scheduled, stream)
        elif self._client.in_flight == 0 and not self._waiting:
            self.done.set()

    def later(self, stream: int, delay_s: float) -> None:
        """Begin after a while: staggered starts, and streams that failed."""
        self._waiting += 1
        self._loop.call_later(delay_s, self._now, stream)

    def _now(self, stream: int) -> None:
        self._waiting -= 1
        self.begin(stream, perf_counter())

    def _ended(self, stream: int, ok: bool) -> None:
        if ok:
            self._failures[stream] = 0
            # Not from inside the callback of the socket that is read right now.
            self._waiting += 1
            self._loop.call_soon(self._now, stream)
            return
        first, longest = _BACK_OFF_S
        self.later(stream, min(first * 2 ** min(self._failures[stream], 10), longest))
        self._failures[stream] += 1


async def drive_closed(  # noqa: PLR0913
    client: Client,
    bodies: Bodies,
    share: Iterator[Planned],
    stop: asyncio.Event,
    *,
    streams: int,
    start_s: float,
    span_s: float,
    stagger_s: float,
) -> None:
    """Keep `streams` requests outstanding until the share or the time is used up, or `stop` is set.

    Starts are spread over `stagger_s`, the time of one answer: together they would end together, and start
    again together, and the client's work on N starts at once would look like a TTFT.
    """
    run = _Closed(client, bodies, share, streams=streams, start_s=start_s, span_s=span_s)
    delay = max(start_s - perf_counter(), 0.0)
    for stream in range(streams):
        run.later(stream, delay + stagger_s * stream / streams)
    await _either(run.done, stop)


async def _either(done: asyncio.Event, stop: asyncio.Event) -> None:
    tasks = [asyncio.ensure_future(event.wait()) for event in (done, stop)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
