"""A measuring process: its job comes on stdin; it keeps its share of the load up and writes what it saw."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from optimize.load.bodies import PATHS, Bodies
from optimize.load.client import Client, Wire
from optimize.load.drive import drive_closed, drive_open
from optimize.load.job import FRAME_BYTES_MAX, Job, Said, unpack_schedule
from optimize.load.target import tls_context

__all__ = ["main", "new_loop", "read_frame", "run_job", "wire_of", "write_frame"]

_PROGRESS_S = 0.5


def read_frame(descriptor: int) -> bytes:
    """One frame, or empty bytes at the end. Raises ValueError for one above FRAME_BYTES_MAX."""
    head = _exactly(descriptor, 4)
    if len(head) < 4:
        return b""
    (length,) = struct.unpack("<I", head)
    if length > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {length} bytes")
    return _exactly(descriptor, length)


def _exactly(descriptor: int, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = os.read(descriptor, min(count - len(parts), 1 << 20))
        if not part:
            break
        parts += part
    return bytes(parts)


def write_frame(descriptor: int, data: bytes) -> None:
    """The length in four bytes, then the data. Raises BrokenPipeError when nobody reads."""
    view = memoryview(struct.pack("<I", len(data)) + data)
    while view:
        view = view[os.write(descriptor, view) :]


def wire_of(job: Job) -> Wire:
    """Head of the requests and address of the server. Raises OSError when the name is not known."""
    address = job.address
    lines = [
        f"POST {address.base}{PATHS[job.body.endpoint]} HTTP/1.1",
        f"Host: {address.authority}",
        f"User-Agent: {job.user_agent}",
        "Content-Type: application/json",
        f"Accept: {'text/event-stream' if job.expectation.is_stream else 'application/json'}",
        *([f"Authorization: Bearer {job.key}"] if job.key else []),
        f"X-Request-Id: mopt-{job.run_id}-",
    ]
    head = "\r\n".join(lines).encode("ascii"), b"\r\nContent-Length: "
    if address.unix:
        return Wire(peer=address.unix, head=head, secret=job.key)
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    peer = _reachable([(str(entry[4][0]), int(entry[4][1])) for entry in found])
    return Wire(peer=peer, server_name=address.host, head=head, secret=job.key)


def _reachable(peers: list[tuple[str, int]]) -> tuple[str, int]:
    """The first address that accepts: `localhost` is often ::1 first, where engines do not listen."""
    for peer in peers[:8]:
        with suppress(OSError), socket.create_connection(peer, timeout=5):
            return peer
    return peers[0]


async def run_job(
    job: Job, start_s: float, stop: asyncio.Event, say: Callable[[Said], None], *, wire: Wire | None = None
) -> Said:
    """The load, from `start_s` (perf_counter) to its end or to `stop`; progress goes to `say`."""
    schedule = unpack_schedule(job.schedule)
    bodies = Bodies(job.body, schedule.seed)
    context: ssl.SSLContext | None = tls_context(job.ca_file) if job.address.is_tls else None
    client = Client(
        wire=wire or wire_of(job),
        context=context,
        expectation=job.expectation,
        limits=job.limits,
        start_s=start_s,
        is_marked=job.is_marked,
    )
    teller = asyncio.ensure_future(_tell(client, say))
    began, cpu = time.perf_counter(), time.process_time()
    share = schedule.share(job.index, job.of)
    if schedule.is_open:
        await drive_open(client, bodies, share, start_s, stop)
    else:
        streams = len(range(job.index, schedule.concurrency, job.of))
        span = schedule.span_s
        await drive_closed(
            client,
            bodies,
            share,
            stop,
            streams=streams,
            start_s=start_s,
            span_s=span,
            stagger_s=job.stagger_s,
        )
    teller.cancel()
    await client.close()
    return msgspec.structs.replace(
        _progress(client, "result"),
        samples=client.samples.pack(),
        loop=_loop_name(asyncio.get_running_loop()),
        examples=client.examples,
        cpu_s=time.process_time() - cpu,
        wall_s=time.perf_counter() - began,
    )


def _progress(client: Client, kind: str = "progress") -> Said:
    ended = len(client.samples)
    return Said(
        kind=kind,
        sent=ended + client.in_flight,
        ok=client.ok,
        failed=ended - client.ok,
        in_flight=client.in_flight,
        tokens=client.tokens,
        retried=client.retried,
        connections=client.opened,
    )


async def _tell(client: Client, say: Callable[[Said], None]) -> None:
    while True:
        await asyncio.sleep(_PROGRESS_S)
        say(_progress(client))


# --- as a process ---------------------------------------------------------------------------------


def main() -> int:
    """Job and start time come in as frames, answers go out as frames; SIGINT and SIGTERM cut it short."""
    out = os.dup(1)
    os.dup2(2, 1)  # a stray print must not tear a frame
    data = read_frame(0)
    if not data:
        return 1
    job = msgspec.msgpack.decode(data, type=Job)

    def say(said: Said) -> None:
        write_frame(out, msgspec.msgpack.encode(said))

    try:
        return _run(job, say)
    except BrokenPipeError:
        return 1  # the command is gone: there is nobody to measure for
    except OSError as error:
        say(Said(kind="error", words=f"{job.address.host}: {error.strerror or error}"))
        return 1


def _run(job: Job, say: Callable[[Said], None]) -> int:
    _raise_file_limit()
    loop = new_loop()
    wire = wire_of(job)
    say(Said(kind="ready", loop=_loop_name(loop)))
    start = read_frame(0)
    if not start:
        return 1
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 50)  # a full collection of the young takes 2 ms, which would be measured
    try:
        result = loop.run_until_complete(
            _guarded(loop, job, msgspec.msgpack.decode(start, type=float), say, wire)
        )
    finally:
        loop.close()
    say(result)
    return 0


async def _guarded(
    loop: asyncio.AbstractEventLoop, job: Job, start_s: float, say: Callable[[Said], None], wire: Wire
) -> Said:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return await run_job(job, start_s, stop, say, wire=wire)


def _loop_name(loop: asyncio.AbstractEventLoop) -> str:
    return type(loop).__module__.partition(".")[0]


def new_loop() -> asyncio.AbstractEventLoop:
    """Uvloop's where it is installed: half the CPU of a chunk."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _raise_file_limit() -> None:
    """Each request in flight is a descriptor."""
    import resource

    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    sys.exit(main())
