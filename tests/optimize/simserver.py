"""A server of `slots` sequences (what its KV cache holds) with first come, first served: its truth is known.

An answer takes `prefill_s` to the first token and `tokens` steps of `step_s`; lengths are exponential
(M/M/k, for which Erlang's formula gives the wait) or fixed. Below `slots` streams nobody waits, so the
throughput of a closed loop rises in proportion up to `slots` and stays there: the knee.
"""

from __future__ import annotations

import heapq
from math import exp, lgamma, log

import msgspec
import numpy as np

from optimize.load.record import UNTOLD, Samples, Status
from optimize.probes import Order


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds and tokens of one server."""

    slots: int = 32
    prefill_s: float = 0.0
    tokens: float = 100.0
    step_s: float = 0.01
    lengths: str = "exponential"
    warm_s: float = 0.0
    """Answers that begin before this take twice as long: graphs and kernels being compiled."""
    fails: float = 0.0
    """The share of requests that get a 503."""

    @property
    def service_s(self) -> float:
        return self.prefill_s + self.tokens * self.step_s

    @property
    def capacity_per_s(self) -> float:
        return self.slots / self.service_s

    def open(self, order: Order) -> Samples:
        """Poisson arrivals at `load` a second."""
        rng = np.random.default_rng([order.seed, 1])
        at = np.cumsum(rng.exponential(1 / order.load, order.n))
        return self._run(rng, at.tolist(), order.limit_s)

    def closed(self, order: Order) -> Samples:
        """`load` streams; starts are spread over one answer."""
        rng = np.random.default_rng([order.seed, 2])
        streams = round(order.load)
        free = [(float(t), 0.0) for t in np.sort(rng.uniform(0, self.service_s, streams))]
        sizes = self._sizes(rng, order.n)
        slots = [0.0] * self.slots
        heap = [t for t, _ in free]
        heapq.heapify(heap)
        found = Samples()
        for n in range(order.n):
            at = heapq.heappop(heap)
            begin = max(at, heapq.heappop(slots))
            end = self._answer(found, n, at, begin, sizes[n], order.limit_s)
            heapq.heappush(slots, end)
            heapq.heappush(heap, end)
        return found

    def _sizes(self, rng, n):
        if self.lengths == "exponential":
            return rng.exponential(self.tokens, n).tolist()
        if self.lengths == "fixed":
            return [self.tokens] * n
        shape = 4.0  # a coefficient of variation of one half
        return rng.gamma(shape, self.tokens / shape, n).tolist()

    def _run(self, rng, arrivals, limit_s):
        sizes = self._sizes(rng, len(arrivals))
        broken = rng.uniform(size=len(arrivals)) < self.fails
        slots = [0.0] * self.slots
        found = Samples()
        for n, at in enumerate(arrivals):
            if broken[n]:
                found.add(
                    Status.UNAVAILABLE, (at, at, at, UNTOLD, UNTOLD, at, UNTOLD, *self._counts(UNTOLD, n))
                )
                continue
            begin = max(at, slots[0])
            if begin >= limit_s:  # never served: given up when the probe ends
                end = max(at, limit_s)
                found.add(
                    Status.CANCELLED, (at, at, UNTOLD, UNTOLD, UNTOLD, end, UNTOLD, *self._counts(UNTOLD, n))
                )
                continue
            heapq.heapreplace(slots, self._answer(found, n, at, begin, sizes[n], limit_s))
        return found

    def _counts(self, tokens, n):
        return (100.0, tokens, tokens, float(n))

    def _answer(self, found, n, at, begin, tokens, limit_s):  # noqa: PLR0917
        slow = 2.0 if begin < self.warm_s else 1.0
        first = begin + self.prefill_s * slow + 1e-9
        end = first + tokens * self.step_s * slow
        count = float(max(2, round(tokens)))
        if end > limit_s:
            told = first if first < limit_s else UNTOLD
            times = (at, at, told, told, UNTOLD, max(at, limit_s), UNTOLD)
            found.add(Status.CANCELLED, (*times, *self._counts(UNTOLD, n)))
        else:
            found.add(Status.OK, (at, at, first, first, end, end, self.step_s, *self._counts(count, n)))
        return end

    def wait_exceeds(self, rate: float, t: float) -> float:
        """P(wait > t) of M/M/k at this rate, by Erlang C."""
        mu = 1 / self.service_s
        if rate >= self.slots * mu:
            return 1.0
        return _erlang_c(self.slots, rate / mu) * exp(-(self.slots * mu - rate) * t)

    def slo_rate(self, limit_s: float, attainment: float) -> float:
        """The rate at which exactly `attainment` of the requests have a TTFT within the limit."""
        low, high = 1e-6, self.capacity_per_s
        for _ in range(100):
            middle = (low + high) / 2
            late = self.wait_exceeds(middle, limit_s - self.prefill_s)
            low, high = (middle, high) if late <= 1 - attainment else (low, middle)
        return low


def _erlang_c(slots: int, load: float) -> float:
    logs = [k * log(load) - lgamma(k + 1) for k in range(slots + 1)]
    most = max(logs)
    terms = [exp(x - most) for x in logs]
    last = terms[-1] * slots / (slots - load)
    return last / (sum(terms[:-1]) + last)
