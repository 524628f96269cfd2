"""What a search was asked, what it tried, and what all its probes say together. Pure values."""

from __future__ import annotations

from math import ceil, exp, isfinite, log, log2, sqrt
from typing import Literal

import msgspec

from doctor.core.load import Judgement, Slo
from optimize.verdicts import decide

__all__ = [
    "Budget",
    "Evidence",
    "Fit",
    "Order",
    "Purpose",
    "Settings",
    "State",
    "Tried",
    "bracket",
    "crowding",
    "estimate",
    "evidence",
    "fit",
    "judged",
]

#: Why a rate is tried: to move the bracket, once more at its ends, or to prove what the estimate promises.
Purpose = Literal["bisect", "repeat", "proof"]


class _Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every value here."""


class Order(_Value, frozen=True, kw_only=True):
    """One probe: `load` is a rate (open loop) or a number of streams (closed loop).

    `n` requests are scheduled; what is open at `limit_s` after the start is cancelled.
    """

    load: float
    n: int
    seed: int
    limit_s: float


class Budget(_Value, frozen=True, kw_only=True):
    """What the search may cost in all. It ends before it goes beyond one of these."""

    requests: int
    seconds: float
    tokens: int


class Settings(_Value, frozen=True, kw_only=True):
    """What is searched, and how closely."""

    slo: Slo
    low_per_s: float
    """Where to begin: a rate that surely passes, as one stream's."""
    high_per_s: float
    """Where to end: above what a closed loop reached."""
    budget: Budget
    tokens_per_request: float = 0.0
    """In and out, until answers tell."""
    first_n: int = 1000
    most_n: int = 16_000
    first_s: float = 0.0
    """A first look lasts at least so long; the most requests at a rate grow with it."""
    floor_per_s: float = 0.0
    """How far the lowest rate may be lowered while none passes; 0: not below `low_per_s`."""
    ratio: float = 1.03
    """The bracket is narrow enough at this ratio of its ends."""
    confidence: float = 0.95
    seed: int = 0

    @property
    def looks(self) -> int:
        """How often one rate is looked at, at most."""
        return 1 + max(0, ceil(log2(self.most_n / self.first_n)))

    def first_at(self, rate_per_s: float) -> int:
        """Requests of a first look at a rate."""
        return max(self.first_n, ceil(self.first_s * rate_per_s))

    def most_at(self, rate_per_s: float) -> int:
        """The most requests of all looks in one go at a rate."""
        return self.most_n * self.first_at(rate_per_s) // self.first_n


class Tried(_Value, frozen=True, kw_only=True):
    """What was tried in one go at one rate: counts over all looks."""

    rate_per_s: float
    judgement: Judgement
    purpose: Purpose
    looks: int
    requests: int
    n: int
    """Of these, the ones in steady windows, which count."""
    late: int
    worth: float
    """Independent requests that `n` are worth."""
    reason: str
    is_growing: bool = False
    """Over-saturated: that is a failure, whatever the counts."""
    spoiled: int = 0
    """Looks of which nothing counts: the measurement was at fault, or the load had not settled."""
    is_last_spoiled: bool = False
    is_over: bool = False
    """No look remains, whatever the judgement."""


class State(_Value, frozen=True, kw_only=True):
    """Everything that the search knows; `tried` in the order of trying."""

    tried: tuple[Tried, ...] = ()
    spent_requests: int = 0
    spent_s: float = 0.0
    spent_tokens: int = 0
    longest_s: float = 0.0
    """The longest answer at the lowest rate, for the time limit of a probe."""
    orders: int = 0
    is_cut: bool = False


class Evidence(_Value, frozen=True, kw_only=True):
    """All that was seen at one rate."""

    rate_per_s: float
    judgement: Judgement
    requests: int
    n: int
    late: int
    worth: float

    def leans_to_pass(self, allowed: float) -> bool:
        """Whether it passed, or at least not more were late than the SLO allows."""
        if self.judgement != "undecided":
            return self.judgement == "pass"
        return self.n > 0 and self.late <= allowed * self.n


def evidence(settings: Settings, state: State) -> tuple[Evidence, ...]:
    """By rate, from the lowest: what was tried again is judged together with what was there."""
    by_rate: dict[float, list[Tried]] = {}
    for one in state.tried:
        if one.is_over:
            by_rate.setdefault(one.rate_per_s, []).append(one)
    return tuple(
        _together(settings, rate, tries, crowding(state.tried, rate))
        for rate, tries in sorted(by_rate.items())
    )


def crowding(tried: tuple[Tried, ...], rate_per_s: float) -> float:
    """How many requests are worth one at a rate: the mean over what was seen there and a tenth below.

    A run in which by luck nobody came late shows no clusters either, and would be proof of itself.
    """
    near = [one for one in tried if one.worth > 0 and 0.9 <= one.rate_per_s / rate_per_s <= 1.05]
    count = sum(one.n for one in near)
    return sum(one.n * one.n / one.worth for one in near) / count if count else 1.0


def _together(settings: Settings, rate: float, tries: list[Tried], crowded: float) -> Evidence:
    sound = [one for one in tries if one.judgement != "invalid"]
    n, late, worth = (sum(getattr(one, name) for one in sound) for name in ("n", "late", "worth"))
    worth = min(worth, n / crowded)
    verdict: Judgement = tries[-1].judgement
    if not sound:
        verdict = "invalid"
    elif not (verdict == "fail" and tries[-1].is_growing):
        looks = settings.looks + len(tries) - 1
        verdict = judged(settings, n, late, worth, looks=looks)
    return Evidence(
        rate_per_s=rate,
        judgement=verdict,
        requests=sum(one.requests for one in tries),
        n=n,
        late=late,
        worth=worth,
    )


def judged(settings: Settings, n: float, late: float, worth: float, *, looks: int) -> Judgement:
    """The binomial rule on what the requests are worth, with the share of late ones as it was counted.

    Shares of single runs must not be weighted by what each is worth: runs in which many came late together
    are worth least, and the late ones would be played down.
    """
    if n == 0:
        return "undecided"
    return decide(late / n * worth, worth, settings.slo.attainment, settings.confidence, looks=looks)


def bracket(settings: Settings, known: tuple[Evidence, ...]) -> tuple[float | None, float | None]:
    """The lowest rate that does not lean to a pass, and the highest below it that does."""
    allowed = 1 - settings.slo.attainment
    high = min((one.rate_per_s for one in known if not one.leans_to_pass(allowed)), default=None)
    low = [one.rate_per_s for one in known if one.leans_to_pass(allowed)]
    return max((rate for rate in low if high is None or rate < high), default=None), high


class Fit(_Value, frozen=True, kw_only=True):
    """The share of late requests as a logistic line in the logarithm of the rate."""

    middle: float
    intercept: float
    gain: float

    def share_at(self, rate_per_s: float) -> float:
        """The share of late requests that is expected at a rate."""
        return 1 / (
            1 + exp(-max(-40.0, min(40.0, self.intercept + self.gain * (log(rate_per_s) - self.middle))))
        )

    def rate_at(self, share: float) -> float:
        """The rate at which that share is late."""
        return exp(self.middle + (log(share / (1 - share)) - self.intercept) / self.gain)


def fit(settings: Settings, known: tuple[Evidence, ...]) -> Fit | None:
    """The line through the rates within a fifth of the bracket.

    None where there is no bracket, where it does not rise, or where it crosses what the SLO allows elsewhere.
    """
    low, high = bracket(settings, known)
    if low is None or high is None:
        return None
    rows = [
        (log(one.rate_per_s), one.late, one.n)
        for one in known
        if one.n > 0 and low / 1.2 <= one.rate_per_s <= high * 1.2
    ]
    allowed = 1 - settings.slo.attainment
    found = _logistic(rows, allowed)
    if found is None:
        return None
    line = Fit(middle=found[0], intercept=found[1], gain=found[2])
    return line if low / 1.2 <= line.rate_at(allowed) <= high * 1.2 else None


def estimate(settings: Settings, known: tuple[Evidence, ...]) -> float | None:
    """Where the share of late requests crosses what is allowed; None where there is no bracket.

    Without a line that rises through it (shares that happen to fall), the middle of a bracket that is closed.
    """
    line = fit(settings, known)
    if line is not None:
        return line.rate_at(1 - settings.slo.attainment)
    low, high = bracket(settings, known)
    closed = low is not None and high is not None and high <= low * settings.ratio
    return sqrt(low * high) if closed and low and high else None


def _logistic(rows: list[tuple[float, int, int]], allowed: float) -> tuple[float, float, float] | None:
    """Centre, intercept and gain by Newton's method; None where it does not rise or does not settle.

    A tenth of a request on each side: a rate at which nothing was late has no infinite logit.
    """
    if len({x for x, _, _ in rows}) < 2:
        return None
    middle = sum(x * n for x, _, n in rows) / sum(n for _, _, n in rows)
    a, b = log(allowed), 10.0
    for _ in range(200):
        gradient, curvature = [0.0, 0.0], [0.0, 0.0, 0.0]
        for x, late, n in rows:
            u = x - middle
            p = 1 / (1 + exp(-max(-40.0, min(40.0, a + b * u))))
            miss, weight = late + 0.1 - (n + 0.2) * p, (n + 0.2) * p * (1 - p)
            gradient = [gradient[0] + miss, gradient[1] + miss * u]
            curvature = [curvature[0] + weight, curvature[1] + weight * u, curvature[2] + weight * u * u]
        det = curvature[0] * curvature[2] - curvature[1] ** 2
        if not det > 1e-12:
            return None
        da = (curvature[2] * gradient[0] - curvature[1] * gradient[1]) / det
        db = (curvature[0] * gradient[1] - curvature[1] * gradient[0]) / det
        scale = min(1.0, 1.0 / max(abs(da), abs(db) / 20, 1e-12))
        a, b = a + scale * da, b + scale * db
        if abs(da) < 1e-9 and abs(db) < 1e-7:
            break
    return (middle, a, b) if b > 0 and isfinite(a) and isfinite(b) else None
