"""A server whose schedule is known: it calibrates the client, and it breaks in every way that servers do."""

from __future__ import annotations

import asyncio
import heapq
import os
import socket
import ssl
import struct
import sys
from collections import deque
from collections.abc import Iterator
from itertools import count
from time import perf_counter
from typing import cast
from urllib.parse import parse_qsl, urlsplit

import httptools
import msgspec

from optimize.load.alarm import Alarm
from optimize.load.mock_scripts import (
    FAULTS,
    Act,
    Asked,
    chunk,
    embedding_answer,
    ending,
    event,
    fault_script,
    head,
    marked_chunk,
    start,
    token,
    whole_answer,
)
from optimize.load.mock_truth import MockPlan, Truth

__all__ = ["Mock", "MockPlan", "Truth", "main"]

_BODY_BYTES_MAX = 64 * 1024 * 1024
_read_asked = msgspec.json.Decoder(Asked).decode


class _Answer:
    """A stream in progress: each step writes what is due and says when the next is, or None."""

    __slots__ = ("_connection", "_left", "_n_out", "chat", "first_s", "is_marked", "number", "received_s")

    def __init__(
        self, connection: _Connection, asked: Asked, *, chat: bool, number: int, received_s: float
    ) -> None:
        self._connection, self.chat, self.number, self.received_s = connection, chat, number, received_s
        self._n_out = self._left = max(asked.max_tokens, 1)
        self.is_marked = asked.model == "mock-marked"
        self.first_s = 0.0

    def step(self, due_s: float, mock: Mock) -> float | None:
        """Write one piece; the schedule is absolute, so that lateness does not add up."""
        now = perf_counter()
        piece = marked_chunk(now, chat=self.chat) if self.is_marked else mock.pieces[self.chat]
        if self._left == self._n_out:
            self.first_s = now
            piece = start(chat=self.chat) + piece
        self._left -= 1
        if self._left:
            self._connection.write(piece)
            return due_s + mock.plan.itl_s
        self._connection.write(piece + ending(self._n_out, chat=self.chat))
        mock.note(self.number, self.received_s, self.first_s, now)
        mock.freed(now)
        return None


class _Script:
    """A fault in progress."""

    __slots__ = ("_act", "_acts", "_connection")

    def __init__(self, connection: _Connection, acts: Iterator[Act]) -> None:
        self._connection, self._acts = connection, acts
        self._act = next(acts)

    @property
    def wait_s(self) -> float:
        return self._act.wait_s

    def step(self, due_s: float, _mock: Mock) -> float | None:
        act = self._act
        if self._connection.is_gone:
            return None
        if act.data:
            self._connection.write(act.data)
        if act.then != "go":
            self._connection.end(act.then)
            return None
        following = next(self._acts, None)
        if following is None:
            return None
        self._act = following
        return max(due_s, perf_counter() - 0.001) + following.wait_s


class _Connection(asyncio.Protocol):
    def __init__(self, mock: Mock) -> None:
        self._mock = mock
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._url = self._number = self._key = b""
        self._body = bytearray()
        self._received_s = 0.0
        self._is_whole = self._is_deaf = False

    @property
    def is_gone(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._mock.connections += 1

    def connection_lost(self, _exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._received_s = perf_counter()
        if self._is_deaf:
            self.end("close")
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.end("close")
        if self._is_whole:
            self._is_whole = False
            self._answer()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        lower = name.lower()
        if lower == b"x-request-id":
            self._number = value.rpartition(b"-")[2]
        elif lower == b"authorization":
            self._key = value

    def on_body(self, body: bytes) -> None:
        self._body += body
        if len(self._body) > _BODY_BYTES_MAX:
            self.end("close")

    def on_message_complete(self) -> None:
        self._is_whole = True

    def _answer(self) -> None:
        path = self._url.decode("latin-1")
        number = int(self._number) if self._number.isdigit() else -1
        body, key = bytes(self._body), self._key
        self._url = self._number = self._key = b""
        self._body.clear()
        self._mock.answer(self, path, body, number=number, key=key, received_s=self._received_s)

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def end(self, how: str) -> None:
        """Close, reset (RST), close at the next request, or leave it as it is."""
        if self._transport is None:
            return
        if how == "deaf":
            self._is_deaf = True
        elif how == "reset":
            peer = self._transport.get_extra_info("socket")
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()
        elif how == "close":
            self._transport.close()


class Mock:
    """The server. Times are kept in one heap with one timer, so that 500 streams do not cost 500 timers."""

    def __init__(self, plan: MockPlan, loop: asyncio.AbstractEventLoop) -> None:
        self.plan = plan
        self.truth = Truth()
        self.connections = 0
        self.pieces = {chat: chunk(event(token(chat=chat))) for chat in (False, True)}
        self._whole: dict[tuple[bool, int], bytes] = {}
        self._due: list[tuple[float, int, _Answer | _Script]] = []
        self._order = count()
        self._mixed = count()
        self._alarm = Alarm(loop, self._ring)
        self._loop = loop
        self._server: asyncio.Server | None = None
        self._is_ringing = False
        self._active = 0
        self._freed_s = 0.0
        self._waiting: deque[_Answer] = deque()

    async def listen(
        self, host: str = "127.0.0.1", port: int = 0, *, unix: str = "", tls: ssl.SSLContext | None = None
    ) -> int:
        """Accept connections; the port (0 for a unix socket)."""
        make = lambda: _Connection(self)  # noqa: E731
        if unix:
            self._server = await self._loop.create_unix_server(make, unix, backlog=4096)
            return 0
        self._server = await self._loop.create_server(make, host, port, backlog=4096, ssl=tls)
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Accept no more and ring no more."""
        self._alarm.close()
        if self._server is not None:
            self._server.close()

    def note(self, number: int, received_s: float, first_s: float, last_s: float) -> None:
        """Write down what one request got."""
        truth = self.truth
        truth.number.append(number)
        truth.received_s.append(received_s)
        truth.first_s.append(first_s)
        truth.last_s.append(last_s)

    # --- answers ----------------------------------------------------------------------------------

    def answer(  # noqa: PLR0913
        self, connection: _Connection, url: str, body: bytes, *, number: int, key: bytes, received_s: float
    ) -> None:
        """Route one request."""
        path = urlsplit(url).path
        if self.plan.key and key != b"Bearer " + self.plan.key.encode():
            words = key.removeprefix(b"Bearer ") or b"none"
            self._run(connection, _refusal(401, b"Incorrect API key provided: " + words))
        elif path.startswith("/mock/"):
            self._control(connection, url)
        elif path.endswith("/models"):
            connection.write(_json(b'{"object":"list","data":[{"id":"mock"}]}'))
        elif path.endswith("/metrics"):
            connection.write(_text(b"vllm:num_requests_running %d\n" % len(self._due)))
        elif path.endswith("/embeddings"):
            self.note(number, received_s, received_s, received_s)
            connection.write(embedding_answer())
        elif path.endswith("/completions"):
            self._complete(connection, path, body, number, received_s)
        else:
            self._run(connection, _refusal(404, b"Not Found"))

    def _complete(
        self, connection: _Connection, path: str, body: bytes, number: int, received_s: float
    ) -> None:
        chat = path.endswith("/chat/completions")
        try:
            asked = _read_asked(body)
        except msgspec.DecodeError:
            self._run(connection, _refusal(400, b"the body is not JSON"))
            return
        if asked.model.startswith("fault-"):
            self._fault(connection, asked, chat)
        elif asked.model not in ("mock", "mock-marked"):
            self._run(connection, _refusal(404, b"The model `%b` does not exist." % asked.model.encode()))
        elif not asked.stream:
            connection.write(whole_answer(asked, chat=chat))
            self.note(number, received_s, received_s, received_s)
        elif not (self.plan.ttft_s or self.plan.itl_s) and asked.model == "mock":
            connection.write(self._at_once(chat, asked.max_tokens))
            self.note(number, received_s, received_s, received_s)
        else:
            self._begin(_Answer(connection, asked, chat=chat, number=number, received_s=received_s))

    def _begin(self, answer: _Answer) -> None:
        """At once, or when one of the slots is free: then its TTFT begins to count."""
        if self.plan.slots and self._active >= self.plan.slots:
            self._waiting.append(answer)
            return
        self._active += 1
        self._later(max(answer.received_s, self._freed_s) + self.plan.ttft_s, answer)

    def freed(self, now: float) -> None:
        """A stream ended: the next one begins."""
        self._active -= 1
        self._freed_s = now
        if self._waiting:
            self._begin(self._waiting.popleft())
        self._freed_s = 0.0

    def _at_once(self, chat: bool, n_out: int) -> bytes:
        key = (chat, n_out)
        if key not in self._whole:
            self._whole[key] = start(chat=chat) + self.pieces[chat] * n_out + ending(n_out, chat=chat)
        return self._whole[key]

    def _fault(self, connection: _Connection, asked: Asked, chat: bool) -> None:
        name = asked.model.removeprefix("fault-")
        if name == "mix":
            name = list(FAULTS)[next(self._mixed) % len(FAULTS)]
        self._run(
            connection,
            fault_script(name, asked, chat=chat) if name in FAULTS else _refusal(404, b"no such fault"),
        )

    def _control(self, connection: _Connection, url: str) -> None:
        """`/mock/truth`: what was done. `/mock/plan?ttft_s=…&itl_s=…`: another schedule from now on."""
        parts = urlsplit(url)
        if parts.path == "/mock/truth":
            packed, self.truth = self.truth.packed(), Truth()
            connection.write(
                head(200, b"Content-Length: %d" % len(packed), kind=b"application/octet-stream") + packed
            )
        elif parts.path == "/mock/plan":
            wanted = {name: float(value) for name, value in parse_qsl(parts.query)}
            self.plan = msgspec.structs.replace(self.plan, **wanted)
            connection.write(_json(b"{}"))
        else:
            self._run(connection, _refusal(404, b"Not Found"))

    # --- the heap ---------------------------------------------------------------------------------

    def _run(self, connection: _Connection, acts: Iterator[Act]) -> None:
        script = _Script(connection, acts)
        self._later(perf_counter() + script.wait_s, script)

    def _later(self, due_s: float, answer: _Answer | _Script) -> None:
        heapq.heappush(self._due, (due_s, next(self._order), answer))
        if self._due[0][2] is answer and not self._is_ringing:
            self._alarm.set(due_s)

    def _ring(self) -> None:
        due = self._due
        now = perf_counter()
        self._is_ringing = True
        while due and due[0][0] <= now:
            due_s, _, answer = heapq.heappop(due)
            following = answer.step(due_s, self)
            if following is not None:
                heapq.heappush(due, (following, next(self._order), answer))
        self._is_ringing = False
        if due:
            self._alarm.set(due[0][0])


def _refusal(code: int, words: bytes) -> Iterator[Act]:
    body = b'{"error":{"message":%b}}' % msgspec.json.encode(words.decode(errors="replace"))
    length = b"Content-Length: %d" % len(body)
    yield Act(0, head(code, length, kind=b"application/json") + body, then="end")


def _json(body: bytes) -> bytes:
    return head(200, b"Content-Length: %d" % len(body), kind=b"application/json") + body


def _text(body: bytes) -> bytes:
    return head(200, b"Content-Length: %d" % len(body), kind=b"text/plain; version=0.0.4") + body


async def _serve(plan: MockPlan) -> None:
    mock = Mock(plan, asyncio.get_running_loop())
    port = await mock.listen()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, lambda: ended.set() if not os.read(0, 4096) else None)
    await ended.wait()
    mock.close()


def main(ttft_s: float = 0.05, itl_s: float = 0.02, slots: float = 0) -> int:
    """Serve on a port of the loopback, which is printed, until stdin ends, as when its starter ends."""
    import gc

    from optimize.load.worker import new_loop

    gc.freeze()
    loop = new_loop()
    loop.run_until_complete(_serve(MockPlan(ttft_s=ttft_s, itl_s=itl_s, slots=int(slots))))
    return 0
