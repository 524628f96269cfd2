"""A built-in server that wants a key, in a thread of its own, for tests of whole commands."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from optimize.load.mock import Mock
from optimize.load.mock_truth import MockPlan


@contextmanager
def keyed_server(key: str) -> Iterator[str]:
    """Its URL."""
    ready, stop = threading.Event(), asyncio.Event()
    port: list[int] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        mock = Mock(MockPlan(ttft_s=0.01, itl_s=0.002, key=key), asyncio.get_running_loop())
        port.append(await mock.listen())
        loops.append(asyncio.get_running_loop())
        ready.set()
        await stop.wait()
        mock.close()
        await asyncio.sleep(0.05)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    ready.wait(10)
    try:
        yield f"http://127.0.0.1:{port[0]}"
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join(10)
