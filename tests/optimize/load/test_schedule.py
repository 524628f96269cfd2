"""Schedules: the rate and the law that were asked for, the same for the same seed, bounded."""

from __future__ import annotations

import itertools
from math import sqrt
from statistics import mean, pstdev
from typing import Any

import pytest

from optimize.load.job import pack_schedule, unpack_schedule
from optimize.load.schedule import Lengths, Schedule, ScheduleError, plan_closed, plan_open, plan_trace

ONE = Lengths(low=1, high=1)


def planned(pattern: str, **changes: Any) -> Schedule:
    asked = {"rate_per_s": 100.0, "duration_s": 100.0, "prompt": ONE, "output": ONE, "seed": 3} | changes
    return plan_open(pattern, **asked)  # type: ignore[arg-type]


def gaps(schedule: Schedule) -> list[float]:
    due = [0.0, *schedule.due_s]
    return [b - a for a, b in itertools.pairwise(due)]


#: Pattern, options, and the coefficient of variation of its gaps.
LAWS = {
    "poisson": ("poisson", {}, 1.0),
    "constant": ("constant", {}, 0.0),
    "gamma, bursty": ("gamma", {"shape": 0.25}, 2.0),
    "gamma, regular": ("gamma", {"shape": 4.0}, 0.5),
}


@pytest.mark.parametrize("name", LAWS)
def test_rate_and_variation_are_those_asked_for(name: str) -> None:
    pattern, options, variation = LAWS[name]
    schedule = planned(pattern, **options)
    found = gaps(schedule)
    # Five standard errors of the mean of n gaps.
    assert mean(found) == pytest.approx(0.01, abs=5 * 0.01 * max(variation, 1e-3) / sqrt(len(found)))
    assert pstdev(found) / mean(found) == pytest.approx(variation, abs=0.08)


def test_a_ramp_goes_from_one_rate_to_the_other() -> None:
    schedule = planned("ramp", rate_per_s=20.0, rate_end_per_s=180.0)
    halves = [sum(a <= due < a + 50 for due in schedule.due_s) for a in (0, 50)]
    assert halves[0] == pytest.approx(50 * 60, rel=0.1)
    assert halves[1] == pytest.approx(50 * 140, rel=0.1)
    assert list(schedule.due_s) == sorted(schedule.due_s)


def test_a_ramp_may_go_down_and_may_be_flat() -> None:
    down = planned("ramp", rate_per_s=180.0, rate_end_per_s=20.0)
    assert sum(due < 50 for due in down.due_s) == pytest.approx(7000, rel=0.1)
    assert len(planned("ramp", rate_per_s=100.0, rate_end_per_s=100.0)) == pytest.approx(10_000, rel=0.05)


def test_the_seed_decides_everything() -> None:
    assert planned("poisson").digest == planned("poisson").digest
    assert planned("poisson").digest != planned("poisson", seed=4).digest
    assert planned("poisson").digest != planned("poisson", output=Lengths(low=2, high=2)).digest


def test_lengths_are_the_same_at_each_rate() -> None:
    """So that runs of one seed can be compared request by request."""
    slow = planned("poisson", prompt=Lengths(low=1, high=99), requests=100)
    fast = planned("poisson", prompt=Lengths(low=1, high=99), requests=100, rate_per_s=900.0)
    assert slow.n_in == fast.n_in


@pytest.mark.parametrize("of", [1, 2, 3])
def test_shares_are_the_whole_and_nothing_twice(of: int) -> None:
    schedule = planned("poisson", requests=100)
    numbers = sorted(one.number for index in range(of) for one in schedule.share(index, of))
    assert numbers == list(range(100))


def test_the_pipe_changes_nothing() -> None:
    schedule = planned("poisson", prompt=Lengths(low=1, high=99))
    assert unpack_schedule(pack_schedule(schedule)).digest == schedule.digest


# --- traces ---------------------------------------------------------------------------------------


def test_a_trace_is_replayed_from_its_first_arrival() -> None:
    lines = (
        b'{"timestamp": 105.5, "input_length": 7, "output_length": 3, "hash_ids": [1]}\n\n'
        b'{"timestamp_ms": 104000, "input_length": 5, "output_length": 2}\n'
    )
    schedule = plan_trace(lines)
    assert list(schedule.due_s) == [0.0, 1.5]
    assert list(schedule.n_in) == [5, 7]
    assert list(schedule.n_out) == [2, 3]


BROKEN = {
    "nothing": (b"\n", "no line"),
    "no JSON": (b'{"timestamp": 1, "input_length": 1, "output_length": 1}\nx\n', "line 2"),
    "no length": (b'{"timestamp": 1, "input_length": 1}', "line 1"),
    "a negative length": (b'{"timestamp": 1, "input_length": -1, "output_length": 1}', "line 1"),
    "a giant length": (b'{"timestamp": 1, "input_length": 1, "output_length": 99999999}', "line 1"),
    "a time that is none": (b'{"timestamp": 1e999, "input_length": 1, "output_length": 1}', "line 1"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_trace_is_refused_with_its_line(name: str) -> None:
    data, words = BROKEN[name]
    with pytest.raises(ScheduleError, match=words):
        plan_trace(data)


# --- what is no load ------------------------------------------------------------------------------

NO_LOAD: dict[str, dict[str, Any]] = {
    "rate of zero": {"rate_per_s": 0.0},
    "rate that is no number": {"rate_per_s": float("nan")},
    "neither time nor number": {"duration_s": 0.0},
    "time below zero": {"duration_s": -1.0},
    "no request in the time": {"rate_per_s": 0.001, "duration_s": 0.001},
    "too many": {"rate_per_s": 1e6, "duration_s": 1e6},
    "shape of zero": {"shape": 0.0},
}


@pytest.mark.parametrize("name", [n for n in NO_LOAD if n != "too many"])
def test_what_is_no_load_is_refused(name: str) -> None:
    with pytest.raises(ScheduleError):
        planned("gamma", **NO_LOAD[name])


@pytest.mark.slow
def test_too_many_requests_are_refused_and_not_made() -> None:
    with pytest.raises(ScheduleError, match="more than"):
        planned("constant", **NO_LOAD["too many"])


@pytest.mark.parametrize("streams", [0, -1, 100_001])
def test_a_closed_loop_has_streams(streams: int) -> None:
    with pytest.raises(ScheduleError):
        plan_closed(concurrency=streams, requests=1, prompt=ONE, output=ONE, seed=0)


LENGTHS = {"512": (512, 512), "1-9": (1, 9)}


@pytest.mark.parametrize("text", LENGTHS)
def test_lengths(text: str) -> None:
    assert (Lengths.parse(text).low, Lengths.parse(text).high) == LENGTHS[text]


@pytest.mark.parametrize("text", ["", "0", "9-1", "-5", "1-", "x", "1.5", "99999999"])
def test_lengths_that_are_none(text: str) -> None:
    with pytest.raises(ScheduleError):
        Lengths.parse(text)
