"""What counts prove, against the published table, SciPy and simulation."""

import numpy as np
import pytest
from scipy import stats

from optimize.verdicts import clopper_pearson, decide, mcnemar, needed_requests, wilson

#: (share in time, confidence) → requests needed with 0, 1, 2, 5 and 10 late.
NEEDED = {
    (0.99, 0.95): (299, 473, 628, 1049, 1693),
    (0.99, 0.99): (459, 662, 838, 1307, 2010),
    (0.95, 0.95): (59, 93, 124, 208, 336),
    (0.95, 0.99): (90, 130, 165, 259, 398),
    (0.90, 0.99): (44, 64, 81, 127, 197),
}


@pytest.mark.parametrize(("share", "confidence"), NEEDED)
def test_how_many_requests_a_pass_needs(share, confidence):
    found = tuple(needed_requests(late, share, confidence) for late in (0, 1, 2, 5, 10))
    assert found == NEEDED[share, confidence]
    for late, n in zip((0, 1, 2, 5, 10), found, strict=True):
        assert decide(late, n, share, confidence) == "pass"
        assert decide(late, n - 1, share, confidence) == "undecided"


def test_p999():
    assert [needed_requests(late, 0.999) for late in (0, 1, 2)] == [2995, 4742, 6294]


@pytest.mark.parametrize(
    ("late", "n", "verdict"),
    [
        (0, 0, "undecided"),
        (0, 298, "undecided"),
        (3, 100, "undecided"),
        (4, 100, "fail"),
        (100, 100, "fail"),
        (1, 1, "fail"),  # one request, and late: 1 % by chance
        (0.4, 473.9, "pass"),  # counted as one late of 473
        (0.4, 472.9, "undecided"),
    ],
)
def test_pass_fail_or_undecided(late, n, verdict):
    assert decide(late, n, 0.99) == verdict


def test_looking_often_costs_no_false_verdict():
    """At a share that is exactly at the limit, eight looks at a growing count pass falsely in at most 5 %."""
    rng = np.random.default_rng(3)
    looks = 300 * 2 ** np.arange(6)
    passed = failed = 0
    for _ in range(1500):
        late = np.cumsum(rng.uniform(size=looks[-1]) < 0.01)
        verdicts = [decide(int(late[n - 1]), int(n), 0.99, looks=len(looks)) for n in looks]
        told = next((v for v in verdicts if v != "undecided"), "")
        passed, failed = passed + (told == "pass"), failed + (told == "fail")
    assert passed / 1500 <= 0.05
    assert failed / 1500 <= 0.05


@pytest.mark.parametrize(("good", "n"), [(0, 10), (10, 10), (990, 1000), (37, 50)])
def test_shares_against_scipy(good, n):
    for ours, method in ((clopper_pearson, "exact"), (wilson, "wilson")):
        theirs = stats.binomtest(good, n).proportion_ci(0.95, method=method)
        assert ours(good, n) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


def test_a_share_of_nothing():
    assert clopper_pearson(0, 0) == wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("share", [0.9, 0.95, 0.99, 0.997])
def test_exact_limits_cover_at_least_what_they_claim(share):
    n = 1000
    good = np.arange(int(stats.binom.ppf(1e-7, n, share)), n + 1)
    weights = stats.binom.pmf(good, n, share)
    held = [bool(low <= share <= high) for low, high in (clopper_pearson(int(g), n) for g in good)]
    assert 0.95 <= float(weights @ np.array(held)) < 0.99


@pytest.mark.parametrize(("only_first", "only_second"), [(0, 0), (5, 5), (2, 9), (30, 12)])
def test_mcnemar(only_first, only_second):
    n = only_first + only_second
    theirs = stats.binomtest(only_first, n).pvalue if n else 1.0
    assert mcnemar(only_first, only_second) == pytest.approx(theirs)
