"""`bench --search` whole, on the simulated server: what it orders, and how it ends."""

from __future__ import annotations

import msgspec
import pytest

from doctor.core.load import Slo, SloTerm, Timeline
from optimize.load import find
from optimize.load.bodies import Bodies, BodySpec
from optimize.load.connection import Times
from optimize.load.contact import Contact
from optimize.load.ending import Expectation
from optimize.load.job import Job, pack_schedule, unpack_schedule
from optimize.load.record import UNTOLD
from optimize.load.run import Measured
from optimize.load.schedule import Lengths, plan_closed
from optimize.load.session import Ask, Load, Session
from optimize.load.target import Address
from optimize.probes import Budget, Order
from tests.optimize.simserver import Server

BODY = BodySpec(endpoint="completions", model="m", prompt="ids")
LENGTHS = Lengths(low=100, high=100)
SERVER = Server(slots=16, lengths="gamma", step_s=0.005)
SLO = Slo(terms=(SloTerm(metric="ttft", limit_s=0.3),), attainment=0.95)


class Silent:
    """No engine tells anything of itself."""

    server = ""

    def __init__(self, *_: object, **__: object) -> None: ...

    def begin(self, start_s: float) -> None: ...

    def end(self) -> Timeline:
        return Timeline()


class Bench:
    """Runs `find_rate` on a server and keeps the schedules that it was given."""

    def __init__(self, monkeypatch, server=SERVER, spoil=lambda _n, samples: samples) -> None:
        self.schedules = []
        self.open_runs = 0
        self._server, self._spoil = server, spoil
        job = Job(
            address=Address(host="h", port=1),
            run_id="r",
            user_agent="u",
            body=BODY,
            schedule=pack_schedule(
                plan_closed(concurrency=1, requests=1, prompt=LENGTHS, output=LENGTHS, seed=0)
            ),
            index=0,
            of=1,
            expectation=Expectation(),
            limits=Times(),
        )
        contact = Contact(job=job, ttft_s=0.01, itl_s=server.step_s, e2e_s=server.service_s, n_out=100.0)
        monkeypatch.setattr(find, "first_contact", lambda *_: contact)
        monkeypatch.setattr(find, "Telemetry", Silent)
        monkeypatch.setattr(find, "run_load", self._run)

    def _run(self, jobs, *, limit_s, **_):
        schedule = unpack_schedule(jobs[0].schedule)
        self.schedules.append(schedule)
        if schedule.is_open:
            order = Order(load=schedule.rate_per_s, n=len(schedule), seed=schedule.seed, limit_s=limit_s)
            samples = self._spoil(self.open_runs, self._server.open(order))
            self.open_runs += 1
        else:
            n = min(len(schedule), 60 * schedule.concurrency)
            samples = self._server.closed(
                Order(load=schedule.concurrency, n=n, seed=schedule.seed, limit_s=limit_s)
            )
        wall_s = max(t for t in samples.end if t == t)  # noqa: PLR0124 - NaN is untold
        return Measured(
            samples=samples,
            examples={},
            start_s=0.0,
            wall_s=wall_s,
            cpu_share=0.1,
            retried=0,
            connections=1,
            loop="asyncio",
            is_cut=False,
        )

    def search(self, budget=Budget(requests=200_000, seconds=9000, tokens=10**9)):  # noqa: B008 - frozen
        load = Load(pattern="poisson", seed=77, prompt=LENGTHS, output=LENGTHS)
        ask = Ask(address=Address(host="h", port=1), body=BODY, load=load, processes=1, is_calibrated=False)
        return find.find_rate(ask, SLO, budget, Session(), state=None, save=lambda _: None).report


def test_no_run_of_a_search_sends_the_prompts_of_another(monkeypatch) -> None:
    """vLLM 0.26: all closed loops had one seed, and 69 % of their prompts were in the prefix cache."""
    bench = Bench(monkeypatch)
    assert bench.search().search.outcome == "found"
    assert len(bench.schedules) > 12
    firsts = {Bodies(BODY, one.seed).prompt(k, 100) for one in bench.schedules for k in range(20)}
    assert len(firsts) == 20 * len(bench.schedules)


def test_the_rate_is_found_on_a_server_that_is_known(monkeypatch) -> None:
    report = Bench(monkeypatch).search()
    assert report.exit_code == 0
    assert 0.5 * SERVER.capacity_per_s < report.search.rate_per_s < SERVER.capacity_per_s


def test_a_spoiled_first_probe_does_not_end_the_search(monkeypatch) -> None:
    """H200, 2026-12-01: ended `invalid` after 7 of 100 s."""

    def spoil(n, samples):
        for k in range(0, len(samples) if n == 0 else 0, 4):
            samples.end[k] = UNTOLD
        return samples

    report = Bench(monkeypatch, spoil=spoil).search()
    assert report.search.outcome == "found"
    assert report.exit_code == 0


@pytest.mark.parametrize("fails", [0.3, 1.0])
def test_a_server_that_never_meets_it_is_asked_down_to_one_stream(monkeypatch, fails: float) -> None:
    report = Bench(monkeypatch, msgspec.structs.replace(SERVER, fails=fails)).search()
    assert (report.search.outcome, report.judgement, report.exit_code) == ("below", "fail", 5)
    assert report.search.probes[-1].rate_per_s == pytest.approx(0.9 / SERVER.service_s)


def test_what_the_measurement_spoils_to_the_end_is_no_verdict(monkeypatch) -> None:
    def spoil(_, samples):
        for k in range(0, len(samples), 4):
            samples.end[k] = UNTOLD
        return samples

    report = Bench(monkeypatch, spoil=spoil).search()
    assert (report.search.outcome, report.judgement, report.exit_code) == ("invalid", "undecided", 3)
