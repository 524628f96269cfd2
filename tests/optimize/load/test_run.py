"""Whole runs in processes of their own: joined, cut short, calibrated, bounded in memory."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import msgspec
import pytest

from optimize.load.calibrate import MockServer, calibrate, errors_of, mock_server, planned_load
from optimize.load.job import Job
from optimize.load.mock_truth import Truth
from optimize.load.record import UNTOLD, Samples, Status
from optimize.load.run import RunError, Tally, run_load
from optimize.load.schedule import Lengths, Schedule, plan_closed, plan_open
from optimize.load.target import Address
from tests.optimize.load.rig import closed, job

FOUR = Lengths(low=4, high=4)


@pytest.fixture(scope="module")
def server() -> Iterator[MockServer]:
    with mock_server(ttft_s=0.02, itl_s=0.005) as one:
        yield one


def jobs(server: MockServer, schedule: Schedule, of: int = 1, model: str = "mock") -> list[Job]:
    base = job(server.address, model, schedule)
    return [msgspec.structs.replace(base, index=index, of=of) for index in range(of)]


def poisson(rate: float, requests: int) -> Schedule:
    return plan_open("poisson", rate_per_s=rate, requests=requests, prompt=FOUR, output=FOUR, seed=1)


@pytest.mark.parametrize("of", [1, 2])
def test_processes_send_the_whole_schedule_once(server: MockServer, of: int) -> None:
    measured = run_load(jobs(server, poisson(100, 60), of))
    assert measured.samples.counts() == {"ok": 60}
    assert sorted(measured.samples.number) == list(range(60))
    assert not measured.is_cut


def test_progress_is_told_and_ends_with_everything(server: MockServer) -> None:
    tallies: list[Tally] = []
    run_load(jobs(server, poisson(30, 30)), on_progress=tallies.append)
    assert tallies[-1].ok == 30
    assert tallies[-1].in_flight == 0
    assert tallies[-1].tokens == 120


def test_ctrl_c_gives_what_was_measured(server: MockServer) -> None:
    def interrupt(_start_s: float) -> None:
        threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT)).start()

    measured = run_load(jobs(server, poisson(40, 4000)), on_start=interrupt)
    assert measured.is_cut
    counts = measured.samples.counts()
    assert counts["ok"] > 0
    assert set(counts) <= {"ok", "cancelled"}


def test_a_limit_cancels_what_is_open_and_is_no_interruption(server: MockServer) -> None:
    measured = run_load(jobs(server, closed(4, n_out=1000), model="fault-endless"), limit_s=1.0)
    assert not measured.is_cut
    assert measured.samples.counts()["cancelled"] == 1


def test_a_name_that_nobody_knows_is_said() -> None:
    one = job(Address(host="no.such.host.invalid", port=1), "mock", closed(1))
    with pytest.raises(RunError, match=r"no\.such\.host\.invalid"):
        run_load([one])


# --- calibration ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["open", "closed"])
def test_the_clients_own_error_is_measured(server: MockServer, kind: str) -> None:
    if kind == "open":
        schedule = poisson(50, 100)
    else:
        schedule = plan_closed(concurrency=8, requests=100, prompt=FOUR, output=FOUR, seed=1)
    found = calibrate(jobs(server, schedule)[0], 1, ttft_s=0.02, itl_s=0.005)
    assert found is not None
    assert found.n > 20
    # How large it is depends on the machine; that it cannot be below zero does not: the same clock is read.
    assert 0 <= found.ttft_error_p50_s <= found.ttft_error_p99_s
    assert found.itl_error_p50_s is not None
    assert found.itl_error_p99_s is not None
    assert 0 <= found.itl_error_p50_s <= found.itl_error_p99_s
    assert (found.slip_p99_s is not None) == (kind == "open")


def test_the_error_is_the_difference_to_what_the_server_did() -> None:
    samples, truth = Samples(), Truth()
    for number, extra in enumerate((0.001, 0.002, 0.004)):
        at = float(number)
        samples.add(
            Status.OK,
            (at, at + 0.0005, at, at + 0.05 + extra, at + 1, at + 1, UNTOLD, 1.0, 1.0, 1.0, float(number)),
        )
        truth.number.append(number)
        truth.received_s.append(100 + at)
        truth.first_s.append(100 + at + 0.05)
        truth.last_s.append(101 + at)
    samples.add(Status.STALLED, (3.0, 3.0, *[UNTOLD] * 8, 0.0))
    ttft, _lags, slips = errors_of(samples, truth, is_open=True)
    assert ttft == pytest.approx([0.001, 0.002, 0.004])
    assert slips == pytest.approx([0.0005] * 3)
    assert errors_of(samples, truth, is_open=False)[0] == pytest.approx([0.0005, 0.0015, 0.0035])


def test_the_planned_load_is_that_of_the_run() -> None:
    assert planned_load(poisson(80, 800)).rate_per_s == pytest.approx(80, rel=0.2)
    streams = plan_closed(concurrency=9, requests=50, prompt=FOUR, output=FOUR, seed=1)
    assert planned_load(streams).concurrency == 9
    ramp = plan_open(
        "ramp", rate_per_s=10, rate_end_per_s=100, duration_s=60, prompt=FOUR, output=FOUR, seed=1
    )
    assert planned_load(ramp).rate_per_s > 75  # of its end, not of its middle
    assert planned_load(poisson(0.2, 5)).is_open


# --- memory ---------------------------------------------------------------------------------------

_MEMORY = """
import asyncio, resource, sys, time
sys.path.insert(0, {root!r})
from optimize.load.record import Samples
from optimize.load.worker import run_job
from tests.optimize.load.rig import closed, job
import msgspec
from optimize.load.target import Address
from optimize.load.connection import Times

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def chunks(count):
    address = Address(host="127.0.0.1", port={port})
    one = job(address, "mock", closed(count // 10_000, n_out=10_000, streams=4))
    one = msgspec.structs.replace(one, limits=Times())
    said = asyncio.run(run_job(one, time.perf_counter(), asyncio.Event(), lambda _s: None))
    samples = Samples.unpack(said.samples)
    assert samples.counts() == {{"ok": count // 10_000}}, samples.counts()
    return sum(samples.n_chunks)

chunks(40_000)
before = peak()
total = chunks({count})
print(total, peak() - before)
"""


@pytest.mark.parametrize("count", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_memory_is_flat(count: int) -> None:
    """What grows is 2 MB of gaps, the copies of them that go into the pipe, and buffers of the socket."""
    import subprocess
    import sys
    from pathlib import Path

    root = str(Path(__file__).resolve().parents[3])
    with mock_server(ttft_s=0.0, itl_s=0.0) as server:
        code = _MEMORY.format(root=root, port=server.address.port, count=count)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300
        )
    assert done.returncode == 0, done.stderr
    total, grown_mib = done.stdout.split()
    assert float(total) == count
    assert float(grown_mib) < 32
