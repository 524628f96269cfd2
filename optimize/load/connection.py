"""One HTTP connection: sends a request, times each read before parsing it, and says how the answer ended."""

from __future__ import annotations

import asyncio
from array import array
from math import isnan
from time import perf_counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Protocol, cast

import httptools
import msgspec

from optimize.load.answers import Event, is_told, read_error, read_whole
from optimize.load.ending import Expectation, Verdict, choices_verdict, status_of_code
from optimize.load.pieces import Pieces, broken
from optimize.load.record import UNTOLD, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from optimize.load.schedule import Planned

__all__ = [
    "BODY_BYTES_MAX",
    "HEAD_BYTES_MAX",
    "Connection",
    "Owner",
    "Times",
]

#: Status line and headers; nginx allows 8 to 32 kB of them.
HEAD_BYTES_MAX = 64 * 1024
#: An answer that is not streamed: 100 embeddings of 4096 numbers are 9 MB.
BODY_BYTES_MAX = 64 * 1024 * 1024
#: What is kept of an error body.
_ERROR_BYTES_MAX = 64 * 1024


class Times(msgspec.Struct, frozen=True, gc=False):
    """Time limits in seconds: for the answer to begin, for it to stand still, for the whole request."""

    header_s: float = 300.0
    stall_s: float = 120.0
    total_s: float = 900.0
    connect_s: float = 10.0


class Owner(Protocol):
    """Who gets the connection back."""

    expectation: Expectation
    read_event: Callable[[bytes], Event]
    lags: array[float] | None

    def settled(self, connection: Connection, status: Status, why: str) -> None:
        """The request ended; `connection.is_reusable` tells whether the connection may serve again."""

    def lost_unanswered(self, connection: Connection) -> bool:
        """A connection kept alive went away before any byte came: True where the request is sent again."""

    def gone(self, connection: Connection) -> None:
        """The connection is closed."""


class Connection(asyncio.Protocol):
    """Callbacks of the socket and of the parser. What ends a request is decided after each read."""

    __slots__ = (
        "_body", "_code", "_failure", "_has_read", "_head_bytes", "_is_body_open", "_is_chunked",
        "_is_complete", "_is_stream", "_keeps_alive", "_length", "_parser", "_parts", "_retry_after", "_why",
        "attempts", "end", "header", "is_busy", "is_dirty", "is_reused", "now", "owner", "pieces", "planned",
        "raw", "scheduled", "sent", "stream", "transport",
    )  # fmt: skip

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.transport: asyncio.Transport | None = None
        self.is_busy = False
        self.is_dirty = False
        self.is_reused = False
        self.stream = 0
        self.attempts = 0
        self.planned: Planned | None = None
        self.raw = b""
        self.scheduled = 0.0
        self._parts: list[bytes] = []
        # The body goes into a list by a C function: a Python frame for each chunk would double its cost.
        calls = SimpleNamespace(
            on_message_begin=self.on_message_begin,
            on_header=self.on_header,
            on_headers_complete=self.on_headers_complete,
            on_body=self._parts.append,
            on_message_complete=self.on_message_complete,
        )
        self._parser = httptools.HttpResponseParser(calls)
        self._reset()

    def _reset(self) -> None:
        self.sent = self.now = 0.0
        self.header = self.end = UNTOLD
        self.pieces = Pieces(self.owner.read_event, self.owner.lags)
        self._parts.clear()
        self._body = bytearray()
        self._code = self._head_bytes = 0
        self._has_read = self._is_complete = self._is_body_open = False
        self._is_chunked = self._keeps_alive = self._is_stream = False
        self._length = -1
        self._failure: Status | None = None
        self._why = self._retry_after = ""

    # --- the request ------------------------------------------------------------------------------

    def start(self, planned: Planned, raw: bytes, scheduled: float) -> None:
        """Send a request: `raw` is head and body, `scheduled` when it was due (perf_counter)."""
        self._reset()
        self.planned, self.raw, self.scheduled = planned, raw, scheduled
        self.is_busy = True
        self.sent = self.now = perf_counter()
        cast("asyncio.Transport", self.transport).write(raw)

    @property
    def is_reusable(self) -> bool:
        """Whether another request may go over it."""
        open_ = self.transport is not None and not self.transport.is_closing()
        return open_ and not self.is_dirty and self._is_complete and self._keeps_alive

    def overdue(self, now: float, limits: Times) -> Status | None:
        """The limit that the request has passed, if it has."""
        if not self.is_busy:
            return None
        if now - self.sent > limits.total_s:
            return Status.TIMEOUT
        if isnan(self.header):
            return Status.HEADER_TIMEOUT if now - self.sent > limits.header_s else None
        return Status.STALLED if now - self.now > limits.stall_s else None

    def give_up(self, status: Status, why: str = "") -> None:
        """End the request from our side."""
        self._fail(status, why)
        self._settle()

    # --- the socket -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.now = perf_counter()
        if not self.is_busy:  # an answer that nobody asked for, or a 408 to an idle connection
            self.is_dirty = True
            self._close()
            return
        self._has_read = True
        if not self._is_body_open:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(Status.MALFORMED_HTTP, "the server switched protocols")
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None  # a bug of ours
        except httptools.HttpParserError as error:
            self._drain()
            self._fail(Status.MALFORMED_HTTP, str(error))
        self._drain()
        if not self._is_body_open and self._head_bytes > HEAD_BYTES_MAX:
            self._fail(Status.TOO_LARGE, f"a head of more than {HEAD_BYTES_MAX} bytes")
        if self._is_complete or self._failure is not None:
            self._settle()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self.is_busy:
            self._lost(exc)
        self.owner.gone(self)

    def _lost(self, exc: Exception | None) -> None:
        self.now = perf_counter()
        if not self._has_read and self.is_reused and self.owner.lost_unanswered(self):
            self.is_busy = False
            return
        ends_body = self._is_body_open and not self._is_chunked and self._length < 0
        if isinstance(exc, ConnectionResetError):
            self._fail(Status.RESET, "the server reset the connection")
        elif ends_body and exc is None:
            self._is_complete = True
            self.is_dirty = True
        elif exc is not None and not isinstance(exc, ConnectionError):
            self._fail(Status.CLOSED_EARLY, str(exc))
        else:
            at = "in the body" if self._is_body_open else "before the answer"
            self._fail(Status.CLOSED_EARLY, f"the server closed the connection {at}")
        self._settle()

    # --- the parser -------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._is_complete:  # bytes behind the end of the answer
            self.is_dirty = True

    def on_header(self, name: bytes, value: bytes) -> None:
        lower = name.lower()
        if lower == b"transfer-encoding":
            self._is_chunked = b"chunked" in value.lower()
        elif lower == b"content-length":
            self._length = int(value) if value.isdigit() and len(value) < 19 else -1
        elif lower == b"retry-after":
            self._retry_after = value[:40].decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._is_complete:
            return
        code = self._parser.get_status_code()
        if code >= 200:
            self.header = self.now
            self._code = code
            self._is_body_open = True
            self._is_stream = code == 200 and self.owner.expectation.is_stream

    def on_message_complete(self) -> None:
        self._drain()
        if self._code:  # 100 Continue is complete, too
            self._is_complete = True
            self._keeps_alive = self._parser.should_keep_alive()  # afterwards it is that of the next message

    def _drain(self) -> None:
        """Take the parts of the body that one read brought; what stands behind its end is dropped."""
        parts = self._parts
        if not parts:
            return
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        if self._failure is not None or self._is_complete:
            return
        if self._is_stream:
            self._object(self.pieces.feed(data, self.now))
        elif self._code != 200:
            self._body += data[: max(_ERROR_BYTES_MAX - len(self._body), 0)]
        else:
            self._body += data
            if len(self._body) > BODY_BYTES_MAX:
                self._fail(Status.TOO_LARGE, f"a body of more than {BODY_BYTES_MAX} bytes")

    # --- the end ----------------------------------------------------------------------------------

    def _fail(self, status: Status, why: str = "") -> None:
        if self._failure is None:
            self._failure, self._why = status, why

    def _settle(self) -> None:
        """Tell the owner once; a connection that is not whole any more is closed."""
        if not self.is_busy:
            return
        if self._failure is None:
            self._judge()
        self.is_busy = False
        if isnan(self.end):
            told = (self.pieces.end_s, self.pieces.last_s)
            self.end = next((time for time in told if not isnan(time)), self.now)
        status = Status.OK if self._failure is None else self._failure
        if not self._is_complete:
            self._close()
        self.owner.settled(self, status, self._why)

    def _close(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def _judge(self) -> None:
        """A whole answer: is it the one that was asked for?"""
        if self._code != 200:
            after = f" (Retry-After: {self._retry_after})" if self._retry_after else ""
            self._fail(status_of_code(self._code), f"{self._code}{after}: {read_error(bytes(self._body))}")
        elif self.owner.expectation.is_stream:
            is_exact = self.owner.expectation.is_exact
            self._object(self.pieces.verdict(asked=self._asked, is_exact=is_exact))
        else:
            self._judge_whole()

    def _judge_whole(self) -> None:
        body = bytes(self._body)
        try:
            answer = read_whole(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._object(broken(body, error))
            return
        self.pieces.usage = answer.usage
        self.end = self.now
        if is_told(answer.error):
            self._fail(Status.ERROR_IN_STREAM, read_error(body))
        elif self.owner.expectation.is_embedding:
            if not answer.data:
                self._fail(Status.EMPTY, "no embedding in the answer")
        else:
            self._object(choices_verdict(answer, asked=self._asked, is_exact=self.owner.expectation.is_exact))

    @property
    def _asked(self) -> int:
        return self.planned.n_out if self.planned is not None else 0

    def _object(self, verdict: Verdict) -> None:
        if verdict is not None:
            self._fail(*verdict)
