"""`summarise` on samples whose truth is known."""

import math

import msgspec
import numpy as np
import pytest

from doctor.core.load import Calibration, Estimate, Point, Slo, SloTerm, Withheld
from optimize.columns import columns, fate
from optimize.load.record import UNTOLD, Samples, Status
from optimize.probes import Order
from optimize.stats import beyond_client_error, summarise

from .simserver import Server

SLO = Slo(terms=(SloTerm(metric="ttft", limit_s=0.3), SloTerm(metric="tpot", limit_s=0.02)))


def samples(n=2000, *, rate=50.0, ttft=0.1, tpot=0.01, tokens=11, seed=0, slip=0.0):
    """Poisson arrivals at a server where nobody waits."""
    rng = np.random.default_rng(seed)
    found = Samples()
    noise = rng.gamma(20, 1 / 20, n)
    for k, at in enumerate(np.cumsum(rng.exponential(1 / rate, n))):
        first = at + ttft * noise[k]
        last = first + tpot * (tokens - 1)
        found.add(Status.OK, (at, at + slip, first, first, last, last, tpot, 100.0, tokens, tokens, k))
        found.gaps.extend([tpot] * (tokens - 1))
    return found


def told(summary, metric, p):
    one = next(m for m in summary.metrics if m.metric == metric)
    return next(q.result for q in one.quantiles if q.p == p)


def test_the_measures_are_what_they_are_defined_as():
    one = Samples()
    one.add(Status.OK, (1.0, 1.5, 2.0, 3.0, 5.0, 6.0, 0.7, 10, 5, 3, 0))
    open_loop, closed = columns(one), columns(one, is_closed=True)
    assert (open_loop.ttft[0], open_loop.ttft_send[0], open_loop.e2e[0]) == (2.0, 1.5, 5.0)
    assert (closed.ttft[0], closed.e2e[0]) == (1.5, 4.5)
    assert (open_loop.tpot[0], open_loop.stall[0], open_loop.slip[0]) == (0.5, 0.7, 0.5)
    with pytest.raises(ValueError, match="tpot"):
        open_loop.metric("itl")


def test_a_single_token_has_no_tpot():
    one = Samples()
    one.add(Status.OK, (0, 0, 0.1, 0.1, 0.1, 0.1, UNTOLD, 10, 1, 1, 0))
    assert math.isnan(columns(one).tpot[0])
    assert fate(columns(one), SLO)[0] == 1.0


def test_figures_of_a_quiet_server():
    summary = summarise(samples(), slo=SLO)
    assert summary.window.is_steady
    assert summary.judgement == "pass"
    assert summary.completed_per_s == pytest.approx(summary.offered_per_s, rel=0.01)
    assert summary.offered_per_s == pytest.approx(50, rel=0.06)
    assert summary.output_tok_per_s == pytest.approx(11 * summary.completed_per_s)
    assert summary.input_tok_per_s == pytest.approx(100 * summary.completed_per_s)
    assert summary.good_per_s == pytest.approx(summary.offered_per_s)
    assert summary.in_flight_mean == pytest.approx(50 * 0.2, rel=0.06)
    assert summary.littles_law_error < 0.02
    assert summary.tokens_per_chunk == 1.0
    ttft = told(summary, "ttft", 0.5)
    assert ttft.low_s < np.median(np.random.default_rng(1).gamma(20, 0.005, 100_000)) < ttft.high_s
    assert told(summary, "tpot", 0.99).value_s == pytest.approx(0.01)
    assert {m.metric for m in summary.metrics} == {
        "ttft",
        "ttft_send",
        "tpot",
        "itl",
        "stall",
        "e2e",
        "slip",
    }


def test_throughput_is_not_diluted_by_the_drain():
    """320 requests at 40/s of 1.3 s: completed by wall is 14 % low, as vLLM's bench reported."""
    run = samples(n=320, rate=40, ttft=0.05, tpot=0.02, tokens=64)
    wall = 320 / (max(run.end) - min(run.scheduled))
    rate = 319 / (run.scheduled[-1] - run.scheduled[0])
    assert wall < 0.9 * rate
    summary = summarise(run)
    inside = [t for t in run.end if summary.window.start_s < t <= summary.window.end_s]
    span = summary.window.end_s - summary.window.start_s
    assert summary.completed_per_s == pytest.approx(len(inside) / span)
    assert abs(summary.completed_per_s / rate - 1) < 0.06  # what 270 Poisson arrivals vary by


def test_a_p99_needs_a_thousand_requests():
    few = summarise(samples(n=600))
    assert isinstance(told(few, "ttft", 0.95), Estimate)
    assert isinstance(told(few, "ttft", 0.99), Withheld)
    assert told(few, "ttft", 0.99).needed == 1000
    assert isinstance(told(summarise(samples(n=1200)), "ttft", 0.99), Estimate)


def test_failures_are_counted_and_never_averaged_in():
    run = samples()
    refuse(run, np.random.default_rng(1).uniform(5, 35, 400))
    summary = summarise(run, slo=SLO)
    assert summary.statuses["unavailable"] == 400
    assert summary.judgement == "fail"
    assert summary.attainment.offered - summary.attainment.good == 400
    assert told(summary, "e2e", 0.5).value_s == pytest.approx(0.2, rel=0.05)


def test_one_outage_is_one_event():
    """400 failures in four seconds say little of how often that happens."""
    run = samples()
    refuse(run, 10 + 0.01 * np.arange(400))
    summary = summarise(run, slo=SLO)
    assert summary.attainment.share == pytest.approx(0.83, abs=0.01)
    assert summary.attainment.n_effective < 100
    assert summary.judgement != "pass"


def refuse(run, times):
    for at in times:
        run.add(Status.UNAVAILABLE, (at, at, at, UNTOLD, UNTOLD, at + 0.001, *[UNTOLD] * 5))


@pytest.mark.parametrize(
    ("waited", "fate_is"), [(0.1, math.nan), (0.4, 0.0)], ids=["in time so far", "late already"]
)
def test_a_request_that_we_gave_up_is_late_only_if_it_was(waited, fate_is):
    one = Samples()
    one.add(
        Status.CANCELLED, (1.0, 1.0, UNTOLD, UNTOLD, UNTOLD, 1 + waited, UNTOLD, UNTOLD, UNTOLD, UNTOLD, 0)
    )
    assert fate(columns(one), SLO)[0] == pytest.approx(fate_is, nan_ok=True)


def test_what_was_not_read_is_not_late():
    """An answer that was not streamed tells no TTFT: an SLO on it cannot be judged."""
    run = samples(n=300)
    for k in range(300):
        run.first_token[k] = UNTOLD
    summary = summarise(run, slo=SLO)
    assert summary.judgement == "undecided"
    assert summary.attainment is None
    assert "no request" in summary.reasons[0]


def test_a_late_client_is_not_the_servers_fault():
    run = samples(slip=0.05)
    summary = summarise(run, slo=SLO)
    assert summary.judgement == "invalid"
    assert "client limited" in summary.reasons[0]
    assert summarise(run, slo=SLO, is_closed=True).judgement == "pass"


def test_broken_accounting_is_told():
    """Ends that are seconds after the truth: more is in flight than rate times time."""
    run = samples()
    for k in range(0, 2000, 4):
        run.end[k] = UNTOLD
    summary = summarise(run, slo=SLO)
    assert summary.judgement == "invalid"
    assert "accounting" in summary.reasons[0]


def waves(streams, rounds, took):
    """A closed loop in step: a batch is served whole, and every stream sends again at once."""
    found = Samples()
    for n in range(rounds):
        at = n * took
        for k in range(streams):
            times = (at, at, at + took / 4, at + took / 4, at + took, at + took)
            found.add(Status.OK, (*times, took / 128, 100.0, 128.0, 128.0, n * streams + k))
    return found


@pytest.mark.parametrize("end", [1.9, 2.4, 2.79])
def test_what_is_open_at_the_edges_of_a_short_window_is_no_broken_accounting(end):
    """vLLM on an H200, 128 streams in waves of 0.8 s, 1.6 s of window: off by 42 %, and all was well."""
    summary = summarise(waves(128, 5, 0.8), window=(0.9, end), is_closed=True)
    assert summary.littles_law_error < 1e-6
    assert not summary.reasons


def test_a_burst_at_the_end_of_a_window_is_no_broken_accounting():
    """65 in flight, and 95 at the end of 5 s: the probe at 114.9/s that was called invalid."""
    run = samples(n=600, rate=115, ttft=0.3, tpot=0.002, tokens=128)
    for k in range(500, 600):
        run.end[k] += 1.0
        run.last_token[k] += 1.0
    summary = summarise(run, slo=Slo(terms=(SloTerm(metric="ttft", limit_s=2.0),)))
    assert summary.window.is_steady
    assert summary.littles_law_error < 1e-6
    assert summary.judgement != "invalid"


def test_requests_that_were_never_sent_do_not_break_the_accounting_of_a_closed_loop():
    run = waves(16, 30, 0.5)
    for n in range(28):
        at = 0.5 * n + 0.1
        run.add(Status.UNREACHABLE, (at, UNTOLD, UNTOLD, UNTOLD, UNTOLD, at + 0.2, *[UNTOLD] * 5))
    summary = summarise(run, window=(1.0, 13.0), is_closed=True)
    assert summary.littles_law_error < 1e-6


def test_a_percentile_of_too_few_independent_values_has_no_interval():
    """568 TTFTs of a closed loop were worth 9 independent ones, and the table was a row of dashes."""
    run = waves(32, 20, 0.5)
    for k in range(len(run)):
        run.first_token[k] += 0.02 * math.sin(k / 40)  # neighbours are alike
    summary = summarise(run, window=(0.0, 9.5), is_closed=True)
    for p in (0.5, 0.9, 0.95):
        found = told(summary, "ttft", p)
        assert isinstance(found, Point)
        assert found.have < found.needed
        assert "independent" in found.reason
        values = np.array(run.first_token) - np.array(run.sent)
        assert found.value_s == pytest.approx(np.quantile(values, p))
    assert isinstance(told(summary, "ttft", 0.99), Withheld)


@pytest.mark.parametrize(("n", "points"), [(19, ()), (30, (0.5,)), (49, (0.5,))])
def test_a_short_run_has_a_median_and_no_interval(n, points):
    summary = summarise(waves(1, n, 0.3), is_closed=True)
    assert not summary.window.is_steady
    one = next(m for m in summary.metrics if m.metric == "ttft")
    assert tuple(q.p for q in one.quantiles if isinstance(q.result, Point)) == points
    assert all("too few to see" in q.result.reason for q in one.quantiles)


def test_a_percentile_without_an_interval_settles_no_margin():
    """Verdicts stay as strict: what is marked `~` is not held against the client's error."""
    summary = summarise(samples(n=40), slo=SLO)
    assert isinstance(told(summary, "ttft", 0.5), Point)
    sure = msgspec.structs.replace(summary, judgement="pass")
    coarse = Calibration(n=100, ttft_error_p50_s=1e-4, ttft_error_p99_s=0.2, itl_error_p99_s=1e-4)
    ttft_only = Slo(terms=(SloTerm(metric="ttft", limit_s=0.3),))
    assert beyond_client_error(sure, ttft_only, coarse) == sure


def test_over_saturation_fails_and_prints_no_percentile():
    server = Server(slots=8, lengths="gamma")
    run = server.open(Order(load=10.0, n=3000, seed=1, limit_s=1e9))
    slo = Slo(terms=(SloTerm(metric="ttft", limit_s=1000.0),))  # every request is in time, so far
    summary = summarise(run, slo=slo)
    assert summary.attainment.share == 1.0
    assert summary.judgement == "fail"
    assert "over-saturated" in summary.window.because
    assert isinstance(told(summary, "ttft", 0.5), Withheld)


@pytest.mark.parametrize("seed", range(10))
def test_a_load_that_the_server_carries_is_steady(seed):
    server = Server(slots=8, lengths="gamma")
    summary = summarise(server.open(Order(load=6.0, n=3000, seed=seed, limit_s=1e9)))
    assert summary.window.is_steady, summary.window.because
    assert summary.littles_law_error < 0.05
    assert not summary.reasons


def test_warm_up_is_left_out():
    server = Server(slots=32, lengths="gamma", prefill_s=0.2, warm_s=30.0)
    summary = summarise(server.open(Order(load=10.0, n=3000, seed=2, limit_s=1e9)))
    assert 30 < summary.window.start_s < 80
    assert told(summary, "ttft", 0.95).value_s == pytest.approx(0.2, rel=0.01)


def test_late_requests_in_clusters_are_worth_less():
    server = Server(slots=8)
    run = server.open(Order(load=6.9, n=8000, seed=3, limit_s=1e9))
    summary = summarise(run, slo=Slo(terms=(SloTerm(metric="ttft", limit_s=2.0),), attainment=0.95))
    share = summary.attainment
    assert share.n_effective < 0.1 * share.offered
    assert share.low < 1 - server.wait_exceeds(6.9, 2.0) < share.high
    assert "clusters" in summary.reasons[0]


def test_pieces_that_arrive_together_are_marked():
    run = samples()
    run.gaps = run.gaps[:0]
    run.gaps.extend([0.03, 0.0, 0.0] * 3000)
    itl = next(m for m in summarise(run).metrics if m.metric == "itl")
    assert "67%" in itl.note


def test_nothing_scheduled():
    with pytest.raises(ValueError, match="nothing to summarise"):
        summarise(Samples())


def test_few_answers_are_summarised_without_a_verdict():
    summary = summarise(samples(n=20), slo=SLO)
    assert not summary.window.is_steady
    assert summary.judgement == "undecided"
    assert summary.offered == 20


def test_a_given_window():
    summary = summarise(samples(), window=(10.0, 20.0))
    assert (summary.window.start_s, summary.window.end_s) == (10.0, 20.0)
    assert summary.offered == pytest.approx(500, rel=0.1)


def test_no_verdict_within_three_times_the_clients_error():
    summary = summarise(samples(), slo=SLO)
    exact = Calibration(n=100, ttft_error_p50_s=1e-4, ttft_error_p99_s=1e-3, itl_error_p99_s=1e-4)
    assert beyond_client_error(summary, SLO, exact) == summary
    coarse = msgspec.structs.replace(exact, ttft_error_p99_s=0.06)
    doubted = beyond_client_error(summary, SLO, coarse)
    assert doubted.judgement == "undecided"
    assert "ttft" in doubted.reasons[-1]
    doubted = beyond_client_error(summary, SLO, msgspec.structs.replace(exact, itl_error_p99_s=0.005))
    assert "tpot" in doubted.reasons[-1]


def test_the_same_samples_give_the_same_summary():
    assert summarise(samples(), slo=SLO) == summarise(samples(), slo=SLO)
