"""Correlation, the end of warm-up and trends, on series whose truth is known."""

import numpy as np
import pytest
from scipy import stats

from optimize.quantiles import quantile_of_sorted
from optimize.stats import describe
from optimize.steady import (
    autocorrelation,
    correlation_time,
    effective_n,
    mann_kendall,
    slope,
    warm_up_end,
)


def ar1(rng, n, r):
    """Values each of which keeps the share `r` of the one before; the mean of many is worth n (1-r)/(1+r)."""
    x = np.empty(n)
    x[0] = rng.normal()
    for k, step in enumerate(rng.normal(size=n - 1) * np.sqrt(1 - r * r)):
        x[k + 1] = r * x[k] + step
    return x


def waits(rng, n, load):
    """Waiting times of M/M/1 (Lindley's recursion), from an empty queue."""
    steps = rng.exponential(load, n) - rng.exponential(1.0, n)
    sums = np.concatenate([[0.0], np.cumsum(steps)])[:-1]
    return sums - np.minimum.accumulate(np.minimum(sums, 0.0))


@pytest.mark.parametrize("r", [0.3, 0.8, 0.95])
def test_a_geometric_decay_is_worth_what_its_first_lag_says(r):
    rng = np.random.default_rng(1)
    runs = [ar1(rng, 20_000, r) for _ in range(10)]
    assert np.mean([autocorrelation(x) for x in runs]) == pytest.approx(r, abs=0.01)
    assert np.mean([correlation_time(x) for x in runs]) == pytest.approx((1 + r) / (1 - r), rel=0.1)


def test_values_that_have_nothing_in_common_are_worth_their_number():
    rng = np.random.default_rng(2)
    worth = [effective_n(rng.exponential(size=1000)) for _ in range(100)]
    assert np.median(worth) == 1000
    assert np.mean(worth) > 940


def test_rounding_errors_are_no_signal():
    clock = np.cumsum(np.full(5000, 2.5))
    ttft = (clock + 1e-3) - clock  # equal, but for the last digits, which change with the clock
    assert correlation_time(ttft) == 1.0
    assert correlation_time([0.05] * 100) == 1.0
    assert correlation_time([1.0, 2.0]) == 1.0


def test_in_a_queue_the_first_lag_says_too_little():
    rng = np.random.default_rng(4)
    means = np.array([waits(rng, 20_000, 0.8)[2000:].mean() for _ in range(300)])
    one = waits(rng, 200_000, 0.8)[2000:]
    truth = means.var() * 18_000 / one.var()  # how many are worth one
    r = autocorrelation(one)
    assert (1 + r) / (1 - r) < 0.8 * truth
    assert correlation_time(one) == pytest.approx(truth, rel=0.35)


@pytest.mark.parametrize("p", [0.5, 0.9])
def test_intervals_cover_where_values_are_correlated(p):
    """Nominal 95 %; that the correlation is estimated, too, costs a point or two."""
    rng = np.random.default_rng(6)
    truth, held, trials = stats.norm.ppf(p), 0, 200
    for _ in range(trials):
        told = next(q for q in describe("ttft", ar1(rng, 3000, 0.7)).quantiles if q.p == p).result
        held += told.low_s <= truth <= told.high_s
    assert 0.92 <= held / trials <= 0.98


def test_without_it_they_do_not():
    rng = np.random.default_rng(6)
    held = 0
    for _ in range(200):
        x = np.sort(ar1(rng, 3000, 0.7))
        held += quantile_of_sorted(x, 1500 - 53.7) <= 0 <= quantile_of_sorted(x, 1500 + 53.7)
    assert held / 200 < 0.75


# --- warm-up --------------------------------------------------------------------------------------


def test_warm_up_ends_where_times_settle():
    rng = np.random.default_rng(7)
    x = rng.exponential(0.1, 2000) + 0.2
    x[:300] += np.linspace(2.0, 0.5, 300)
    assert 200 <= warm_up_end(x) <= 400


@pytest.mark.parametrize("seed", range(20))
def test_a_load_without_warm_up_loses_nothing(seed):
    rng = np.random.default_rng(seed)
    assert warm_up_end(rng.lognormal(0, 1, 1000)) == 0


def test_bursts_are_a_part_of_the_load():
    """Nobody waits but in two bursts: MSER-5 takes all before the second for warm-up."""
    x = np.full(2000, 0.05)
    x[300:340] = x[1200:1240] = 3.0
    assert warm_up_end(x) == 0


def test_what_never_settles_has_no_end():
    assert warm_up_end(np.linspace(5.0, 0.1, 1000) ** 3) is None
    assert warm_up_end(np.ones(49)) is None


# --- trends ---------------------------------------------------------------------------------------


def test_slope_is_that_of_least_squares_on_batches():
    rng = np.random.default_rng(8)
    t = np.arange(400.0)
    y = 3 + 0.01 * t + rng.normal(size=400)
    means = [np.array(b).mean(axis=0) for b in np.array_split(np.column_stack([t, y]), 20)]
    fit = stats.linregress(*np.array(means).T)
    trend = slope(t, y)
    assert trend.rise == pytest.approx(fit.slope * 399)
    reach = fit.stderr * stats.t.ppf(0.975, 18) * 399
    assert (trend.low, trend.high) == pytest.approx((trend.rise - reach, trend.rise + reach))
    assert trend.is_rising
    assert slope(t[:39], y[:39]) is None
    assert slope(np.ones(400), y) is None


def test_a_rise_that_does_not_matter_is_none():
    t = np.arange(4000.0)
    assert not slope(t, 100 + t * 1e-4).is_rising


@pytest.mark.parametrize("seed", range(4))
def test_mann_kendall(seed):
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(size=60) + np.arange(60) * 0.01 * seed, 1)
    concordant = stats.kendalltau(np.arange(60), x)
    n, ties = 60, np.unique(x, return_counts=True)[1]
    score = sum(np.sign(x[j] - x[i]) for i in range(n) for j in range(i + 1, n))
    variance = (n * (n - 1) * (2 * n + 5) - (ties * (ties - 1) * (2 * ties + 5)).sum()) / 18
    assert mann_kendall(x) == pytest.approx(2 * stats.norm.sf((abs(score) - 1) / np.sqrt(variance)))
    assert mann_kendall(x) == pytest.approx(concordant.pvalue, abs=0.03)  # that one has no continuity term
    assert mann_kendall([1.0, 2.0, 3.0]) == mann_kendall([1.0] * 9) == 1.0
