"""Quantiles, their intervals, and how often those hold the truth."""

import numpy as np
import pytest
from scipy import stats

from doctor.core.load import Estimate, Withheld
from optimize.quantiles import needed, order_ranks, positions, quantile_of_sorted, quantiles, standing

#: n → the percentiles that the 95 % interval of P99 spans; None: no value bounds it.
SPANS = {
    100: (97.00, None),
    300: (97.67, None),
    500: (98.00, 100),
    1000: (98.30, 99.70),
    3000: (98.63, 99.37),
    10_000: (98.80, 99.20),
}


@pytest.mark.parametrize("n", SPANS)
def test_what_the_interval_of_p99_spans(n):
    ranks = order_ranks(n, 0.99)
    low, high = SPANS[n]
    assert round(100 * ranks.low / n, 2) == low
    assert (None if ranks.high is None else round(100 * ranks.high / n, 2)) == high


@pytest.mark.parametrize("n", [20, 57, 300, 1000])
@pytest.mark.parametrize("p", [0.5, 0.9, 0.95])
def test_whole_ranks_are_the_tightest_that_cover(n, p):
    ranks = order_ranks(n, p)
    if ranks.low is not None:
        assert stats.binom.cdf(ranks.low - 1, n, p) <= 0.025 < stats.binom.cdf(ranks.low, n, p)
    if ranks.high is not None:
        assert stats.binom.sf(ranks.high - 1, n, p) <= 0.025 < stats.binom.sf(ranks.high - 2, n, p)


@pytest.mark.parametrize("n", [20, 57, 300, 1000])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_positions_lie_inside_whole_ranks(n, p):
    ranks, between = order_ranks(n, p), positions(n, p)
    if between is None or ranks.low is None or ranks.high is None:
        return
    assert ranks.low <= between[0] < ranks.low + 1
    assert ranks.high - 1 < between[1] <= ranks.high


def test_p99_is_printed_from_a_thousand_values_on():
    assert [needed(p) for p in (0.5, 0.9, 0.95, 0.99, 0.999, 0.01)] == [20, 100, 200, 1000, 10_000, 1000]
    few, enough = np.arange(999.0), np.arange(1000.0)
    assert isinstance(standing(few, 0.99), Withheld)
    assert standing(few, 0.99).needed == 1000
    told = standing(enough, 0.99)
    assert isinstance(told, Estimate)
    assert told.low_s < told.value_s < told.high_s
    assert told.value_s == np.quantile(enough, 0.99)


def test_values_that_are_alike_count_for_less():
    values = np.arange(5000.0)
    alone, alike = standing(values, 0.95), standing(values, 0.95, n_effective=500)
    assert alike.high_s - alike.low_s == pytest.approx(3.2 * (alone.high_s - alone.low_s), rel=0.05)
    withheld = standing(values, 0.99, n_effective=500)
    assert withheld == Withheld(
        reason="500 of 5000 values are independent; P99 needs 1000", have=500, needed=1000
    )


def test_ranks_between_values():
    values = np.array([1.0, 2.0, 4.0])
    assert [quantile_of_sorted(values, r) for r in (0.2, 1, 1.5, 2.5, 3, 3.9)] == [1, 1, 1.5, 3, 4, 4]
    assert quantile_of_sorted(np.array([7.0]), 1.4) == 7.0


def test_any_order_of_values():
    told = quantiles([3.0, 1.0, 2.0] * 100, which=(0.5,))[0]
    assert told.p == 0.5
    assert (told.result.value_s, told.result.low_s, told.result.high_s) == (2, 2, 2)


# --- coverage -------------------------------------------------------------------------------------

DRAWS = {
    "exponential": (lambda rng, size: rng.exponential(size=size), stats.expon),
    "lognormal": (lambda rng, size: rng.lognormal(0, 1, size), stats.lognorm(1)),
    "uniform": (lambda rng, size: rng.uniform(size=size), stats.uniform),
}


def coverage(draw, truth, n, p, trials):
    """The share of samples whose interval holds the quantile."""
    low, high = positions(n, p)
    rng = np.random.default_rng(20)
    held = 0
    for _ in range(trials // 500):
        x = np.sort(draw(rng, (500, n)), axis=1)
        ends = []
        for rank in (low, high):
            k = int(rank)
            ends.append(x[:, k - 1] + (rank - k) * (x[:, k] - x[:, k - 1]))
        held += int(((ends[0] <= truth) & (truth <= ends[1])).sum())
    return held / trials


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize(("n", "p"), [(20, 0.5), (101, 0.5), (100, 0.9), (200, 0.95), (1000, 0.99)])
def test_intervals_cover_what_they_claim(name, n, p):
    """95 % ± 1 %: 10,000 samples fix the share to ± 0.44 %."""
    draw, law = DRAWS[name]
    assert abs(coverage(draw, law.ppf(p), n, p, 10_000) - 0.95) <= 0.01


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize(("n", "p"), [(2000, 0.99), (5000, 0.99), (10_000, 0.999)])
def test_intervals_of_large_samples_cover_what_they_claim(name, n, p):
    draw, law = DRAWS[name]
    assert abs(coverage(draw, law.ppf(p), n, p, 10_000) - 0.95) <= 0.01


@pytest.mark.parametrize(("n", "p"), [(30, 0.5), (200, 0.95), (500, 0.99)])
def test_whole_ranks_cover_at_least_that(n, p):
    """They are discrete and so cannot hit it: exactly what the binomial says, without simulation."""
    ranks = order_ranks(n, p)
    exact = stats.binom.cdf(ranks.high - 1, n, p) - stats.binom.cdf(ranks.low - 1, n, p)
    assert 0.95 <= exact < 0.99
