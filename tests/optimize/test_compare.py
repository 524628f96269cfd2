"""A against B: shifts against SciPy, intervals by simulation, and equality that has to be shown."""

import numpy as np
import pytest
from scipy import stats

from optimize.compare import abba, compare, hodges_lehmann, quantile_ratio


def test_blocks_interleave():
    assert abba(1) == ("A", "B")
    assert abba(2) == ("A", "B", "B", "A")
    assert abba(4) == ("A", "B", "B", "A", "B", "A", "A", "B")
    drift = np.arange(8.0)
    order = np.array(abba(4))
    assert drift[order == "A"].sum() == drift[order == "B"].sum()
    assert (drift[order == "A"] ** 2).sum() == (drift[order == "B"] ** 2).sum()


@pytest.mark.parametrize(("n", "m"), [(1, 1), (7, 12), (50, 70)])
def test_the_shift_is_the_median_of_all_differences(n, m):
    rng = np.random.default_rng(n)
    a, b = rng.exponential(size=n), rng.exponential(size=m) + 0.2
    told = hodges_lehmann(a, b)
    assert told.value == pytest.approx(np.median(b[:, None] - a))
    assert told.low <= told.value <= told.high


def test_limits_of_the_shift_are_those_of_the_rank_test():
    """The shift at a limit is where the test is at 5 %."""
    rng = np.random.default_rng(9)
    a, b = rng.normal(size=60), rng.normal(size=80) + 0.3
    told = hodges_lehmann(a, b)
    for limit in (told.low, told.high):
        p = stats.mannwhitneyu(b - limit, a, method="asymptotic", use_continuity=False).pvalue
        assert p == pytest.approx(0.05, abs=0.003)


def test_limits_of_the_shift_cover_it():
    rng = np.random.default_rng(10)
    held = 0
    for _ in range(800):
        told = hodges_lehmann(rng.normal(size=20), rng.normal(size=25) + 0.3)
        held += told.low <= 0.3 <= told.high
    assert abs(held / 800 - 0.95) < 0.02


def test_nothing_to_compare():
    with pytest.raises(ValueError, match="both sides"):
        hodges_lehmann([], [1.0])
    with pytest.raises(ValueError, match="P99 needs 2000"):
        quantile_ratio(np.ones(1999), np.ones(5000), 0.99)


@pytest.mark.slow
@pytest.mark.parametrize(("p", "n"), [(0.5, 400), (0.99, 2000)])
def test_limits_of_the_ratio_cover_it(p, n):
    rng = np.random.default_rng(11)
    held = 0
    for seed in range(400):
        told = quantile_ratio(rng.exponential(size=n), rng.exponential(size=n), p, seed=seed)
        held += told.low <= 1 <= told.high
    assert 0.93 <= held / 400 <= 0.985  # resampled percentiles are a little wide


@pytest.mark.parametrize(
    ("factor", "n", "verdict"),
    [
        (1.0, 4000, "same"),
        (1.02, 4000, "same"),
        (1.2, 4000, "slower"),
        (0.8, 4000, "faster"),
        (1.0, 60, "undecided"),
    ],
)
def test_verdicts(factor, n, verdict):
    rng = np.random.default_rng(12)
    a, b = rng.gamma(9, 1 / 9, n), rng.gamma(9, 1 / 9, n) * factor
    told = compare(a, b)
    assert told.verdict == verdict
    assert told.ratio.low <= told.equivalence.low <= told.equivalence.high <= told.ratio.high
    assert told.margin == 0.05


def test_no_difference_shown_is_no_equality():
    """Forty values each: nothing significant, and far from 5 %."""
    rng = np.random.default_rng(13)
    told = compare(rng.exponential(size=40), rng.exponential(size=40))
    assert told.ratio.low < 1 < told.ratio.high
    assert told.verdict == "undecided"


def test_neighbours_that_are_alike_widen_the_interval():
    rng = np.random.default_rng(14)
    steps = np.repeat(rng.exponential(size=200), 20)
    alone = rng.permutation(steps)
    wide, narrow = quantile_ratio(steps, steps, 0.5, seed=1), quantile_ratio(alone, alone, 0.5, seed=1)
    assert wide.high - wide.low > 3 * (narrow.high - narrow.low)


def test_the_same_seed_gives_the_same_interval():
    x = np.random.default_rng(15).exponential(size=500)
    assert quantile_ratio(x, x[::-1], 0.5, seed=3) == quantile_ratio(x, x[::-1], 0.5, seed=3)
