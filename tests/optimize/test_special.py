"""Tails of distributions, each against SciPy."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from optimize.special import (
    beta_cdf,
    beta_quantile,
    binomial_cdf,
    binomial_pmf,
    normal_quantile,
    normal_sf,
    t_quantile,
    t_sf,
)

SHAPES = st.floats(0.05, 5000)


@settings(max_examples=300, deadline=None)
@given(x=st.floats(0, 1), a=SHAPES, b=SHAPES)
def test_beta(x, a, b):
    assert beta_cdf(x, a, b) == pytest.approx(special.betainc(a, b, x), rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("n", [1, 7, 100, 1000, 50_000, 1_000_000])
@pytest.mark.parametrize("p", [0.001, 0.01, 0.3, 0.5, 0.99, 0.9999])
def test_binomial(n, p):
    spread = 4 * math.sqrt(n * p * (1 - p)) + 1
    for k in {0, 1, n // 2, n - 1, n, *(round(n * p + d) for d in (-spread, 0, spread))}:
        if 0 <= k <= n:
            # `rel`: lgamma of 1e6 is 1e7, and its last digit 1e-9
            assert binomial_cdf(k, n, p) == pytest.approx(stats.binom.cdf(k, n, p), rel=1e-8, abs=1e-13)
            assert binomial_pmf(k, n, p) == pytest.approx(stats.binom.pmf(k, n, p), rel=1e-8, abs=1e-300)


def test_binomial_at_its_ends():
    assert binomial_cdf(-1, 5, 0.3) == 0.0
    assert binomial_cdf(5, 5, 0.3) == 1.0
    assert binomial_pmf(6, 5, 0.3) == 0.0
    assert binomial_pmf(5, 5, 1.0) == 1.0
    assert binomial_pmf(0, 5, 1.0) == 0.0
    assert binomial_pmf(0, 5, 0.0) == 1.0


@pytest.mark.parametrize("q", [0.0005, 0.025, 0.3, 0.5, 0.975, 0.9999])
def test_quantiles(q):
    assert normal_quantile(q) == pytest.approx(stats.norm.ppf(q), rel=1e-9, abs=1e-12)
    assert normal_sf(normal_quantile(q)) == pytest.approx(1 - q)
    for df in (1, 2, 18, 300):
        assert t_quantile(q, df) == pytest.approx(stats.t.ppf(q, df), rel=1e-8, abs=1e-9)
        assert t_sf(1.3, df) == pytest.approx(stats.t.sf(1.3, df))
    for a, b in ((1, 20), (3.5, 8), (990, 11)):
        assert beta_quantile(q, a, b) == pytest.approx(stats.beta.ppf(q, a, b), rel=1e-9)


@pytest.mark.parametrize(("x", "a", "b"), [(0.5, 0, 1), (0.5, 1, -1), (math.nan, 1, 1)])
def test_shapes_that_are_none(x, a, b):
    with pytest.raises(ValueError, match="positive shapes"):
        beta_cdf(x, a, b)
