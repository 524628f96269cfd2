"""A load on the built-in server, both in one loop: for tests of what is classified, not of how fast it is."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import msgspec

from optimize.load.bodies import BodySpec
from optimize.load.connection import Times
from optimize.load.ending import Expectation
from optimize.load.job import Job, Said, pack_schedule
from optimize.load.mock import Mock
from optimize.load.mock_truth import MockPlan
from optimize.load.record import Samples
from optimize.load.schedule import Lengths, Schedule, plan_closed
from optimize.load.target import Address
from optimize.load.worker import run_job

#: Long enough for a busy machine, short enough for a test.
LIMITS = Times(header_s=0.6, stall_s=0.6, total_s=2.0, connect_s=5.0)
TOKENS = 24


def closed(requests: int = 2, *, streams: int = 1, n_in: int = 5, n_out: int = TOKENS) -> Schedule:
    return plan_closed(
        concurrency=streams,
        requests=requests,
        prompt=Lengths(low=n_in, high=n_in),
        output=Lengths(low=n_out, high=n_out),
        seed=1,
    )


def job(address: Address, model: str, schedule: Schedule, **changes: object) -> Job:
    endpoint = changes.pop("endpoint", "chat")
    stream = changes.pop("stream", True)
    base = Job(
        address=address,
        run_id="test",
        user_agent="test",
        body=BodySpec(endpoint=endpoint, model=model, prompt="words", stream=bool(stream)),
        schedule=pack_schedule(schedule),
        index=0,
        of=1,
        expectation=Expectation(
            is_stream=bool(stream), is_exact=endpoint != "embeddings", is_embedding=endpoint == "embeddings"
        ),
        limits=LIMITS,
    )
    return msgspec.structs.replace(base, **changes)


class Rig:
    """One run: what was measured, what the processes would have said, and the server's own account."""

    def __init__(self, said: Said, mock: Mock) -> None:
        self.said = said
        self.samples = Samples.unpack(said.samples)
        self.truth = mock.truth
        self.connections = mock.connections


def load(
    model: str, schedule: Schedule | None = None, *, plan: MockPlan | None = None, **changes: object
) -> Rig:
    """Put the load on a server of its own and wait for its end."""

    async def scene() -> Rig:
        mock = Mock(plan or MockPlan(ttft_s=0.01, itl_s=0.002), asyncio.get_running_loop())
        unix = str(changes.pop("unix", ""))
        tls = changes.pop("tls", None)
        port = await mock.listen(unix=unix, tls=tls)
        address = Address(unix=unix) if unix else Address(host="127.0.0.1", port=port, is_tls=tls is not None)
        if "host" in changes:
            address = msgspec.structs.replace(address, host=str(changes.pop("host")))
        one = job(address, model, schedule or closed(), **changes)
        try:
            said = await run_job(one, time.perf_counter(), asyncio.Event(), lambda _said: None)
        finally:
            mock.close()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)
        return Rig(said, mock)

    return asyncio.run(scene())
