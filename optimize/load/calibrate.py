"""The client's own error: a short run at the planned load against a server whose every write is known."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from doctor.core.load import Calibration
from optimize.load.control import ask
from optimize.load.job import Job, PackedSchedule, pack_schedule, unpack_schedule
from optimize.load.mock_truth import Truth
from optimize.load.record import Samples, Status
from optimize.load.run import RunError, python_child, run_load
from optimize.load.schedule import Lengths, Schedule, plan_closed, plan_open
from optimize.load.target import Address

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CALIBRATION_S", "MockServer", "calibrate", "errors_of", "mock_server", "planned_load"]

CALIBRATION_S = 3.0
#: Answers of a calibration are at most so long: it must see their end.
_TOKENS_MAX = 64
_ITL_S = (0.002, 0.1)
_TTFT_S = (0.005, 0.5)


class MockServer(msgspec.Struct, frozen=True, kw_only=True):
    """The built-in server in a process of its own."""

    address: Address

    def truth(self) -> Truth:
        """What it did since it was last asked. Raises RunError."""
        code, body = ask(self.address, "/mock/truth")
        if code != 200:
            raise RunError("the mock gives no account of what it did")
        return Truth.unpacked(body)


@contextmanager
def mock_server(*, ttft_s: float, itl_s: float, slots: int = 0) -> Iterator[MockServer]:
    """Start it; it ends with the block, or with this process. Raises RunError."""
    with python_child("optimize.load.mock:main", repr(ttft_s), repr(itl_s), str(slots)) as child:
        if child.stdout is None:
            raise RunError("the mock has no pipe")
        line = child.stdout.readline()
        if not line.strip().isdigit():
            raise RunError("the mock did not start")
        yield MockServer(address=Address(host="127.0.0.1", port=int(line)))


def calibrate(
    job: Job, processes: int, *, ttft_s: float, itl_s: float, rate_per_s: float = 0.0
) -> Calibration | None:
    """Error of TTFT, of the arrival of pieces, and slip, with the job's own kind of load for 3 s.

    The server's times stand in for the real one's, as the first contact showed them. `rate_per_s`, where it
    is told, is the load instead of that of the job's schedule (a search goes up to it). None where no request
    came back, as for embeddings, which carry no time of sending.
    """
    schedule = unpack_schedule(job.schedule)
    load = planned_load(schedule, rate_per_s=rate_per_s)
    ttft_s, itl_s = _within(ttft_s, _TTFT_S), _within(itl_s, _ITL_S)
    with mock_server(ttft_s=ttft_s, itl_s=itl_s) as server:
        jobs = calibration_jobs(job, load, processes, server.address, stagger_s=ttft_s)
        measured = run_load(jobs, limit_s=3 * CALIBRATION_S)
        truth = server.truth()
    ttft, lags, slips = errors_of(measured.samples, truth, is_open=load.is_open)
    if not ttft:
        return None
    return Calibration(
        rate_per_s=load.rate_per_s if load.is_open else None,
        concurrency=None if load.is_open else load.concurrency,
        n=len(ttft),
        ttft_error_p50_s=_at(ttft, 0.5),
        ttft_error_p99_s=_at(ttft, 0.99),
        itl_error_p50_s=_at(lags, 0.5) if lags else None,
        itl_error_p99_s=_at(lags, 0.99) if lags else None,
        slip_p99_s=_at(slips, 0.99) if slips and load.is_open else None,
    )


def _within(value: float, bounds: tuple[float, float]) -> float:
    return min(max(value, bounds[0]), bounds[1])


def planned_load(schedule: Schedule, *, rate_per_s: float = 0.0) -> Schedule:
    """The same kind of load for 3 s, with answers of at most 64 tokens."""
    longest = min(max(schedule.n_out[:10_000]), _TOKENS_MAX)
    output = Lengths(low=longest, high=longest)
    middle = sorted(schedule.n_in[:10_000])[min(len(schedule), 10_000) // 2]
    prompt = Lengths(low=middle, high=middle)
    if not schedule.is_open and not rate_per_s:
        streams = schedule.concurrency
        return plan_closed(
            concurrency=streams,
            requests=min(max(streams * 40, 100), 50_000),
            prompt=prompt,
            output=output,
            seed=1,
            duration_s=CALIBRATION_S,
        )
    rate = rate_per_s or _peak_rate(schedule)
    return plan_open(
        "constant" if schedule.pattern == "constant" else "poisson",
        rate_per_s=rate,
        prompt=prompt,
        output=output,
        seed=1,
        duration_s=CALIBRATION_S if rate >= 1 else 0.0,
        requests=0 if rate >= 1 else 3,
    )


def _peak_rate(schedule: Schedule) -> float:
    """The busiest tenth of the run: a ramp or a trace ends higher than its mean."""
    if schedule.pattern in ("poisson", "constant") or schedule.span_s <= 0:
        return max(schedule.rate_per_s, 0.1)
    bins = [0] * 10
    for due in schedule.due_s:
        bins[min(int(due / schedule.span_s * 10), 9)] += 1
    return max(max(bins) / (schedule.span_s / 10), 0.1)


def calibration_jobs(
    job: Job, load: Schedule, processes: int, address: Address, *, stagger_s: float
) -> list[Job]:
    """The job with the mock in the server's place; the key stays at home."""
    body = msgspec.structs.replace(
        job.body, model="mock-marked", extra={}, ignore_eos=True, include_usage=True
    )
    expectation = msgspec.structs.replace(job.expectation, is_exact=True)
    packed: PackedSchedule = pack_schedule(load)
    base = msgspec.structs.replace(
        job,
        address=address,
        ca_file="",
        key="",
        body=body,
        schedule=packed,
        expectation=expectation,
        is_marked=True,
        stagger_s=stagger_s,
        of=processes,
    )
    return [msgspec.structs.replace(base, index=index) for index in range(processes)]


def errors_of(
    samples: Samples, truth: Truth, *, is_open: bool
) -> tuple[list[float], list[float], list[float]]:
    """Sorted seconds: TTFT minus the server's own, arrival of pieces minus their sending, slip.

    The server's TTFT is from the request being there to its first write. In open loop ours is from the
    scheduled time, as the user's is; so its error holds connecting, slip, and reading late.
    """
    true = dict(zip(truth.number, zip(truth.received_s, truth.first_s, strict=True), strict=True))
    ttft: list[float] = []
    slips: list[float] = []
    for n, code in enumerate(samples.status):
        times = true.get(int(samples.number[n]))
        if code != Status.OK or times is None or samples.first_token[n] != samples.first_token[n]:
            continue
        begin = samples.scheduled[n] if is_open else samples.sent[n]
        ttft.append(samples.first_token[n] - begin - (times[1] - times[0]))
        slips.append(samples.sent[n] - samples.scheduled[n])
    return sorted(ttft), sorted(_some(samples.lags)), sorted(slips)


def _some(values: Sequence[float], most: int = 200_000) -> list[float]:
    """All, or as many drawn by a fixed seed: sorting 10 million lags takes ten seconds."""
    if len(values) <= most:
        return list(values)
    return random.Random(0).sample(list(values), most)  # noqa: S311


def _at(ordered: Sequence[float], p: float) -> float:
    """Nearest rank, upwards: with fewer than 100 values P99 is the largest."""
    return ordered[min(int(p * len(ordered)), len(ordered) - 1)]
