"""The ceiling of a load client: a protocol that scans for events, decodes each, keeps a time, no more.

Started by `loadgen.py`: host, port, streams, tokens and seconds on the command line, one line of JSON out. It
knows no HTTP, no error and no schedule; what it reaches in streams a second is what Python can reach at all.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from array import array
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from optimize.load.answers import read_event
from optimize.load.worker import new_loop

__all__ = ["main"]


class _Bare(asyncio.Protocol):
    def __init__(self, request: bytes, until: float, times: array[float]) -> None:
        self._request, self._until, self._times = request, until, times
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self.streams = 0

    def connection_made(self, transport) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        *events, self._rest = (self._rest + data).split(b"\n\n")
        for event in events:
            at = event.find(b"data: ")
            if at < 0:
                continue
            if event[at + 6 : at + 12] == b"[DONE]":
                self.streams += 1
                if now < self._until and self._transport is not None:
                    self._transport.write(self._request)
            elif read_event(event[at + 6 :]).choices:
                self._times.append(now)


async def _run(host: str, port: int, streams: int, tokens: int, seconds: float) -> dict[str, float]:
    body = b'{"model":"mock","stream":true,"max_tokens":%d,"prompt":"a"}' % tokens
    request = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    times = array("d")
    loop = asyncio.get_running_loop()
    begin, cpu = time.perf_counter(), time.process_time()
    until = begin + seconds
    made = [
        await loop.create_connection(lambda: _Bare(request, until, times), host, port) for _ in range(streams)
    ]
    await asyncio.sleep(until - time.perf_counter())
    wall = time.perf_counter() - begin
    done = sum(protocol.streams for _, protocol in made)
    return {
        "streams_per_s": done / wall,
        "chunks_per_s": len(times) / wall,
        "cpu_share": (time.process_time() - cpu) / wall,
    }


def main() -> None:
    """Run and print."""
    host, port, streams, tokens, seconds = sys.argv[1:6]
    loop = new_loop()
    print(
        json.dumps(loop.run_until_complete(_run(host, int(port), int(streams), int(tokens), float(seconds))))
    )


if __name__ == "__main__":
    main()
