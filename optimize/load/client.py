"""Requests over connections that are kept alive, with what each gave written into columns."""

from __future__ import annotations

import asyncio
import ssl
from array import array
from collections.abc import Callable
from math import isnan
from time import perf_counter

import msgspec

from optimize.load.answers import Event, read_event, read_marked
from optimize.load.connection import Connection, Times
from optimize.load.ending import Expectation
from optimize.load.record import UNTOLD, Samples, Status
from optimize.load.schedule import Planned

__all__ = ["EXAMPLES_MAX", "Client", "Wire"]

#: Different words kept for each status.
EXAMPLES_MAX = 3
_SWEEP_S = 0.25
_ATTEMPTS_MAX = 3


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach the server, with names resolved: once a run, not once a connection."""

    #: address and port; or the path of a unix socket
    peer: tuple[str, int] | str
    #: the name that the certificate must have
    server_name: str = ""
    #: head of each request up to the request's number, and from there to the length
    head: tuple[bytes, bytes]
    #: what must not appear in an example
    secret: str = ""

    def raw(self, number: int, body: bytes) -> bytes:
        """A whole request."""
        before, after = self.head
        return b"%b%d%b%d\r\n\r\n%b" % (before, number, after, len(body), body)


class Client:
    """Sends what it is given at once, over an idle connection or a new one; it never queues.

    `on_end` is called after each request with its stream and whether it went well.
    """

    def __init__(  # noqa: PLR0913 - one of each
        self,
        *,
        wire: Wire,
        context: ssl.SSLContext | None,
        expectation: Expectation,
        limits: Times,
        start_s: float,
        is_marked: bool = False,
    ) -> None:
        self.samples = Samples()
        self.examples: dict[str, list[str]] = {}
        self.expectation = expectation
        self.read_event: Callable[[bytes], Event] = read_marked if is_marked else read_event
        self.lags: array[float] | None = self.samples.lags if is_marked else None
        self.on_end: Callable[[int, bool], None] = lambda _stream, _ok: None
        self.in_flight = 0
        self.retried = 0
        self.opened = 0
        self.tokens = 0.0
        self.ok = 0
        self._wire, self._context, self._limits, self._start = wire, context, limits, start_s
        self._loop = asyncio.get_running_loop()
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)

    # --- sending ----------------------------------------------------------------------------------

    def send(self, planned: Planned, body: bytes, scheduled: float, stream: int = 0) -> None:
        """Send a request now; `scheduled` is when it was due (perf_counter)."""
        self.in_flight += 1
        raw = self._wire.raw(planned.number, body)
        while self._idle:
            connection = self._idle.pop()
            if connection.transport is not None and not connection.transport.is_closing():
                connection.is_reused = True
                connection.stream, connection.attempts = stream, 1
                connection.start(planned, raw, scheduled)
                return
        self._open(planned, raw, scheduled, stream)

    def _open(self, planned: Planned, raw: bytes, scheduled: float, stream: int, attempts: int = 1) -> None:
        task = self._loop.create_task(self._connected(planned, raw, scheduled, stream, attempts))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _connected(
        self, planned: Planned, raw: bytes, scheduled: float, stream: int, attempts: int
    ) -> None:
        try:
            connection = await asyncio.wait_for(self._connect(), self._limits.connect_s)
        except asyncio.CancelledError:
            self._failed(
                planned, scheduled, stream, Status.CANCELLED, "given up before a connection was there"
            )
            return
        except (TimeoutError, asyncio.TimeoutError):  # two classes before Python 3.11
            words = f"no connection within {self._limits.connect_s:g} s"
            self._failed(planned, scheduled, stream, Status.CONNECT_TIMEOUT, words)
            return
        except ssl.SSLError as error:
            self._failed(planned, scheduled, stream, Status.TLS, _words_of_tls(error))
            return
        except OSError as error:
            if self._context is not None and not isinstance(error, ConnectionRefusedError):
                words = error.strerror or "the server closed the connection in the handshake"
                self._failed(planned, scheduled, stream, Status.TLS, words)
                return
            self._failed(planned, scheduled, stream, Status.UNREACHABLE, error.strerror or str(error))
            return
        connection.stream, connection.attempts = stream, attempts
        connection.start(planned, raw, scheduled)

    async def _connect(self) -> Connection:
        peer = self._wire.peer
        if isinstance(peer, str):
            _, connection = await self._loop.create_unix_connection(lambda: Connection(self), peer)
        else:
            _, connection = await self._loop.create_connection(
                lambda: Connection(self),
                *peer,
                ssl=self._context,
                server_hostname=self._wire.server_name if self._context is not None else None,
            )
        self.opened += 1
        self._all.add(connection)
        return connection

    # --- what connections tell --------------------------------------------------------------------

    def settled(self, connection: Connection, status: Status, why: str) -> None:
        """A request ended: write it down, keep the connection, tell whoever waits for the stream."""
        planned = connection.planned
        if planned is not None:
            self._write(planned, connection, status)
        if status is not Status.OK:
            self._example(status, why)
        connection.planned = None
        connection.raw = b""
        self.in_flight -= 1
        if connection.is_reusable and not self._is_closed:
            self._idle.append(connection)
        elif connection.transport is not None:
            connection.transport.abort()
        self.on_end(connection.stream, status is Status.OK)

    def lost_unanswered(self, connection: Connection) -> bool:
        """A server may close an idle connection while a request is on its way: send that one again."""
        planned = connection.planned
        if planned is None or connection.attempts >= _ATTEMPTS_MAX or self._is_closed:
            return False
        self.retried += 1
        self._open(planned, connection.raw, connection.scheduled, connection.stream, connection.attempts + 1)
        return True

    def gone(self, connection: Connection) -> None:
        """Closed: forget it."""
        self._all.discard(connection)

    def _write(self, planned: Planned, c: Connection, status: Status) -> None:
        start = self._start
        times = (c.scheduled - start, c.sent - start, c.header - start)
        pieces = c.pieces
        tokens = (pieces.first_s - start, pieces.last_s - start, c.end - start, pieces.max_stall_s)
        chunks = float(pieces.count) if self.expectation.is_stream else UNTOLD
        n_out = pieces.n_out
        self.samples.add(status, (*times, *tokens, pieces.n_in, n_out, chunks, planned.number))
        if status is Status.OK:
            self.ok += 1
            self.samples.add_gaps(pieces.gaps)
            self.tokens += pieces.count if isnan(n_out) else n_out

    def _failed(self, planned: Planned, scheduled: float, stream: int, status: Status, why: str) -> None:
        """A request that found no connection."""
        now = perf_counter() - self._start
        untold = (UNTOLD,) * 4
        row = (scheduled - self._start, *untold, now, UNTOLD, UNTOLD, UNTOLD, UNTOLD, planned.number)
        self.samples.add(status, row)
        self._example(status, why)
        self.in_flight -= 1
        self.on_end(stream, False)  # noqa: FBT003

    def _example(self, status: Status, why: str) -> None:
        """Keep the first few different words for each status, without the key, which servers like to echo."""
        if self._wire.secret:
            why = why.replace(self._wire.secret, "***")
        known = self.examples.setdefault(status.word, [])
        if why and len(known) < EXAMPLES_MAX and why not in known:
            known.append(why[:400])

    # --- limits and the end -----------------------------------------------------------------------

    def _sweep(self) -> None:
        """One timer for all limits: one a request would cost more than the request."""
        now = perf_counter()
        for connection in [c for c in self._all if c.is_busy]:
            status = connection.overdue(now, self._limits)
            if status is not None:
                connection.give_up(status, f"after {now - connection.sent:.1f} s")
        if not self._is_closed:
            self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)

    def cancel(self) -> None:
        """Give up what is in flight; each is counted as cancelled."""
        for task in list(self._opening):
            task.cancel()
        for connection in [c for c in self._all if c.is_busy]:
            connection.give_up(Status.CANCELLED, "given up at the end of the run")

    async def close(self) -> None:
        """Cancel, close, and wait until nothing is left."""
        self._is_closed = True
        self._sweeper.cancel()
        self.cancel()
        if self._opening:
            await asyncio.wait(self._opening, timeout=1)
        for connection in list(self._all):
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.sleep(0)


def _words_of_tls(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message}"
    return f"the TLS handshake failed: {error.reason or error}"
