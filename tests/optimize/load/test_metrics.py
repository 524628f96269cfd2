"""Prometheus text of engines: values, labels with anything in them, and lines that are none."""

from __future__ import annotations

import pytest

from optimize.load.metrics import engine_values, parse_metrics, server_kind
from optimize.load.telemetry import client_series, rates_of
from tests.optimize.load.rig import load

LINES = {
    "bare": (b"a 1", [(b"a", 1.0)]),
    "labels": (b'a{x="1",y="2"} 2.5', [(b"a", 2.5)]),
    "a brace in a label": (b'a{x="}"} 3', [(b"a", 3.0)]),
    "a quote in a label": (b'a{x="\\"}"} 4', [(b"a", 4.0)]),
    "a backslash at the end of a label": (b'a{x="\\\\"} 5', [(b"a", 5.0)]),
    "a space in a label": (b'a{x="b c"} 6', [(b"a", 6.0)]),
    "a time stamp": (b"a 7 1764500000000", [(b"a", 7.0)]),
    "an exemplar": (b'a_bucket{le="1"} 8 # {trace="x"} 0.5', [(b"a_bucket", 8.0)]),
    "scientific": (b"a 1e+06", [(b"a", 1e6)]),
    "not a number": (b"a NaN", []),
    "infinite": (b"a +Inf", []),
    "a comment": (b"# HELP a b", []),
    "labels without end": (b'a{x="1" 9', []),
    "a label without end": (b'a{x="1} 9', []),
    "no value": (b"a", []),
    "words": (b"a b", []),
    "python's own": (b"a 1_000", []),
    "long": (b'a{x="' + b"y" * 70_000 + b'"} 1', []),
}


@pytest.mark.parametrize("name", LINES)
def test_a_line(name: str) -> None:
    text, wanted = LINES[name]
    assert list(parse_metrics(text + b"\n")) == wanted


def test_engines_of_one_server_add_up_and_their_caches_do_not() -> None:
    text = (
        b'vllm:num_requests_running{engine="0"} 3.0\nvllm:num_requests_running{engine="1"} 4.0\n'
        b'vllm:kv_cache_usage_perc{engine="0"} 0.25\nvllm:kv_cache_usage_perc{engine="1"} 0.75\nother 1\n'
    )
    assert engine_values(text) == {"running": 7.0, "kv_cache": 0.75}
    assert server_kind(text) == "vLLM"
    assert server_kind(b"python_gc_objects 1\n") == ""


def test_a_counter_is_what_it_gains_and_a_restart_is_no_loss() -> None:
    assert rates_of([(0, 10), (1, 30), (3, 34), (4, 0), (5, 5)]) == [(1, 20.0), (3, 2.0), (5, 5.0)]


def test_what_the_client_saw_over_time_adds_up() -> None:
    samples = load("mock").samples
    flying, rates = client_series(samples)
    width = flying.t_s[0]
    assert sum(value or 0 for value in rates.values) * width == pytest.approx(len(samples), abs=1)
    assert all((value or 0) >= 0 for value in flying.values)
