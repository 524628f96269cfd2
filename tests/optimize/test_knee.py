"""Estimates of the bend on curves without noise, with noise, and where there is none."""

import numpy as np
import pytest

from optimize.knee import Point, knee, power, two_segment, usl

GRID = (1, 2, 3, 5, 8, 12, 16, 20, 24, 28, 32, 48, 64, 96, 128)


def saturating(bend, *, noise=0.0, seed=0, grid=GRID):
    """X = min(N, bend) / 2 s: what a server of `bend` slots does."""
    rng = np.random.default_rng(seed)
    points = []
    for n in grid:
        x = min(n, bend) / 2.0 * (1 + noise * rng.normal())
        points.append(Point(load=n, per_s=x, e2e_s=n / x))
    return points


def by_usl(a, b, *, grid=GRID):
    """The Universal Scalability Law itself."""
    found = []
    for n in grid:
        x = n / (1 + a * (n - 1) + b * n * (n - 1))
        found.append(Point(load=n, per_s=x, e2e_s=n / x))
    return found


@pytest.mark.parametrize("bend", [10, 24, 50])
@pytest.mark.parametrize("seed", range(5))
def test_all_three_see_a_sharp_bend(bend, seed):
    told = knee(saturating(bend, noise=0.01, seed=seed))
    for one in told.estimates:
        assert one.load == pytest.approx(bend, rel=0.2), one.method  # USL bends softly
    assert told.load == pytest.approx(bend, rel=0.08)
    assert told.spread < 0.15
    assert told.axis == "concurrency"


def test_order_of_points_does_not_matter():
    points = saturating(24, noise=0.01)
    assert knee(points[::-1]) == knee(points)


def test_proportional_throughput_has_no_knee():
    told = knee(saturating(1000))
    assert told.load is None
    assert all(one.load is None and one.reason for one in told.estimates)
    assert "no two agree" in told.reason


def test_few_points_are_too_few():
    told = knee(saturating(10, grid=(1, 10, 20, 40)))
    assert told.load is None
    assert "4 points, needs 5" in told.reason
    assert knee([]).load is None


def test_the_law_is_found_in_its_own_curve():
    """a = 0.05, b = 0: X tends to 20 times that of one stream, and is 14 to 16 times it at 48 to 64 streams.

    One stream of the few below the bend carries 0.8 of one alone.
    """
    assert 12 < usl(by_usl(0.05, 0.0)).load < 20


@pytest.mark.parametrize(("a", "b"), [(0.05, 0.002), (0.02, 0.0), (0.1, 0.001)])
def test_power_is_greatest_where_it_is(a, b):
    fine = by_usl(a, b, grid=np.linspace(1, 128, 5000))
    where = max(fine, key=lambda point: point.per_s / point.e2e_s).load
    assert power(by_usl(a, b)).load == pytest.approx(where, rel=0.2)  # a flat top, and points 1.5 apart


def test_a_soft_bend_is_said_to_be_none_by_two_lines():
    told = two_segment(by_usl(0.02, 0.0, grid=range(1, 30)))
    assert told.load is None
    assert told.reason
