"""Lengths as people write them, and Little's law."""

import pytest

from doctor.core.serving import Lengths, Load
from optimize.limits import headroom, step_tokens
from optimize.load_shape import contradiction, parse_lengths


@pytest.mark.parametrize(
    ("text", "low", "mean", "high", "steady"),
    [
        ("512", 512, 512, 512, True),
        ("128-2048", 128, 1088, 2048, False),
        ("100,300", 100, 200, 300, False),
        ("95-105", 95, 100, 105, True),
        (" 1 , 3-5 ", 1, 2.5, 5, False),
    ],
)
def test_lengths(text, low, mean, high, steady):
    found = parse_lengths(text)
    assert found == Lengths(low=low, mean=mean, high=high)
    assert found.is_steady is steady


@pytest.mark.parametrize(
    "text", ["", "0", "-5", "5-", "9-3", "a", "1e3", "1,,2", "1" * 12, ",".join(["1"] * 65)]
)
def test_what_is_no_length(text):
    with pytest.raises(ValueError, match="length"):
        parse_lengths(text)


def asked(**rest) -> Load:
    return Load(prompt=parse_lengths("100"), output=parse_lengths("11"), **rest)


def test_littles_law():
    # 0.1 s to the first token and ten of 0.02 s: 0.3 s; 30 at once give 100 a second.
    both = asked(concurrency=30, rate_per_s=100)
    least = both.time_s(0.1, 0.02)
    assert least == pytest.approx(0.3)
    assert contradiction(both, least) == ""
    assert "100 a second at most" in contradiction(asked(concurrency=30, rate_per_s=101), least)
    assert contradiction(asked(rate_per_s=1e6), least) == ""
    assert contradiction(asked(concurrency=1, rate_per_s=1e6), None) == ""  # nothing is known of the time
    assert "50 a second" in contradiction(asked(concurrency=100, rate_per_s=482, think_s=2), None)


@pytest.mark.parametrize(("mean", "most"), [(0.0, 1), (1.0, 4), (100.0, 130)])
def test_headroom_is_three_deviations(mean, most):
    assert headroom(mean) == most


def test_a_step_is_cut_to_what_a_token_may_wait():
    fine = {"longest": 4096, "is_chunked": True}
    assert step_tokens(8192, **fine, seconds_per_token=1e-5, tpot_ms=None)[0] == 8192
    assert step_tokens(8192, **fine, seconds_per_token=1e-5, tpot_ms=100)[0] == 8192
    assert step_tokens(8192, **fine, seconds_per_token=1e-5, tpot_ms=25)[0] == 2048
    assert step_tokens(8192, **fine, seconds_per_token=1e-2, tpot_ms=25)[0] == 256
    assert step_tokens(2048, longest=8000, is_chunked=False, seconds_per_token=1e-2, tpot_ms=25)[0] == 8000
