"""Exact search: domains as bit masks, clauses over them, propagation, branch and bound.

A clause holds when one of its variables has a value inside that clause's mask for it. Relations, goal items
and host facts all have this form, so one propagation serves them, and a refutation is a set of clauses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["Clause", "Network", "bits"]

#: Backstop of the search; the worst question of the real matrix needs about a thousand nodes.
_NODES_MAX = 200_000


class Clause(NamedTuple):
    """Literals `(variable, mask)`; `link` says what it comes from."""

    literals: tuple[tuple[int, int], ...]
    link: int


class SearchLimitError(RuntimeError):
    """The search took more nodes than any real question does: a bug, never an answer."""


class _Failure(NamedTuple):
    """Why a part of the tree holds nothing: clauses, and the values whose absence they rest on."""

    core: set[int]
    needed: dict[int, int]


def bits(mask: int) -> list[int]:
    """The positions of the set bits, lowest first."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


class Network:
    """Variables with so many values each, and the clauses between them."""

    def __init__(self, sizes: Sequence[int], clauses: Sequence[Clause]) -> None:
        self._full = [(1 << size) - 1 for size in sizes]
        self._clauses = clauses
        self._watch: list[list[int]] = [[] for _ in sizes]
        for index, clause in enumerate(clauses):
            for variable, _mask in clause.literals:
                self._watch[variable].append(index)

    def domains(self, links: Iterable[int] | None = None) -> list[int] | None:
        """What propagation alone leaves of each domain; None when it leaves nothing of one."""
        domains, trail = list(self._full), list[tuple[int, int, int]]()
        chosen = self._chosen(links)
        failed = self._propagate(domains, chosen, trail, None if links is None else set(chosen))
        return None if failed is not None else domains

    def refute(self, links: frozenset[int] | None = None) -> set[int] | None:
        """The links of a refutation, not yet minimal; None when an assignment exists."""
        found = _Search(self, links, costs=None)
        failure = found.run()
        if found.best is not None or failure is None:
            return None
        return {self._clauses[index].link for index in failure.core}

    def solve(self, costs: Sequence[Sequence[int]] | None = None) -> list[int] | None:
        """The cheapest assignment as value numbers, `costs[variable][value]` added up; None without any."""
        found = _Search(self, None, costs)
        found.run()
        return found.best

    # --- used by the search -----------------------------------------------------------------------

    def _chosen(self, links: Iterable[int] | None) -> list[int]:
        if links is None:
            return list(range(len(self._clauses)))
        wanted = set(links)
        return [index for index, clause in enumerate(self._clauses) if clause.link in wanted]

    def _propagate(
        self,
        domains: list[int],
        queue: list[int],
        trail: list[tuple[int, int, int]],
        allowed: set[int] | None = None,
    ) -> int | None:
        """Narrow the domains until nothing moves. The number of the clause that fails, else None."""
        clauses, watch = self._clauses, self._watch
        # First come, first served: the givens, which were said first, are what a proof then rests on.
        for index in queue:
            if allowed is not None and index not in allowed:
                continue
            unit, keep = -1, 0
            for variable, mask in clauses[index].literals:
                inside = domains[variable] & mask
                if inside:
                    if unit >= 0 or inside == domains[variable]:
                        break
                    unit, keep = variable, inside
            else:
                if unit < 0:
                    return index
                trail.append((unit, domains[unit] & ~keep, index))
                domains[unit] = keep
                queue.extend(watch[unit])  # the loop goes on over what is added
        return None

    def _explain(self, failed: int, trail: list[tuple[int, int, int]], start: int) -> _Failure:
        """Walk the trail back to `start`: which clauses took the values that the failed one needed."""
        core, needed = {failed}, dict[int, int]()
        for variable, mask in self._clauses[failed].literals:
            needed[variable] = needed.get(variable, 0) | mask
        self._walk(core, needed, trail, start)
        return _Failure(core, needed)

    def _walk(
        self, core: set[int], needed: dict[int, int], trail: list[tuple[int, int, int]], start: int
    ) -> None:
        for variable, removed, index in reversed(trail[start:]):
            if index >= 0 and removed & needed.get(variable, 0):
                core.add(index)
                for other, mask in self._clauses[index].literals:
                    if other != variable:
                        needed[other] = needed.get(other, 0) | mask


class _Search:
    """One depth-first search: without costs the first assignment ends it, with costs the cheapest."""

    def __init__(
        self, network: Network, links: frozenset[int] | None, costs: Sequence[Sequence[int]] | None
    ) -> None:
        self._net = network
        chosen = network._chosen(links)  # noqa: SLF001 - the two classes are one algorithm
        self._allowed = None if links is None else set(chosen)
        self._start = chosen
        self._costs = costs
        self._order = _value_order(network._full, costs)  # noqa: SLF001
        self._trail: list[tuple[int, int, int]] = []
        self._nodes = 0
        self._bound: int | None = None
        self.best: list[int] | None = None

    def run(self) -> _Failure | None:
        """Search all; the failure when nothing was found."""
        domains = list(self._net._full)  # noqa: SLF001
        return self._descend(domains, self._start, 0)

    def _descend(self, domains: list[int], queue: list[int], start: int) -> _Failure | None:
        self._nodes += 1
        if self._nodes > _NODES_MAX:
            raise SearchLimitError(f"more than {_NODES_MAX} nodes")
        failed = self._net._propagate(domains, queue, self._trail, self._allowed)  # noqa: SLF001
        if failed is not None:
            return self._net._explain(failed, self._trail, start)  # noqa: SLF001
        variable = self._open_variable(domains)
        if variable < 0:
            self._keep(domains)
            return None
        return self._branch(domains, variable, start)

    def _branch(self, domains: list[int], variable: int, start: int) -> _Failure | None:
        here = len(self._trail)
        core, needed, complete = set[int](), dict[int, int](), True
        for value in self._order[variable]:
            bit = 1 << value
            if not domains[variable] & bit:
                continue
            child = list(domains)
            child[variable] = bit
            if self._bound is not None and self._costs is not None and self._least(child) >= self._bound:
                complete = False
                continue
            self._trail.append((variable, domains[variable] & ~bit, -1))
            failure = self._descend(child, list(self._net._watch[variable]), here)  # noqa: SLF001
            del self._trail[here:]
            if failure is None:
                complete = False
                if self._costs is None:
                    return None
                continue
            core |= failure.core
            for other, mask in failure.needed.items():
                needed[other] = needed.get(other, 0) | mask
        if not complete:
            return None
        full = self._net._full[variable]  # noqa: SLF001
        needed[variable] = needed.get(variable, 0) | (full & ~domains[variable])
        self._net._walk(core, needed, self._trail, start)  # noqa: SLF001
        return _Failure(core, needed)

    def _open_variable(self, domains: list[int]) -> int:
        """The variable with the fewest values left, two at least; -1 when all are decided."""
        best, fewest = -1, 0
        for variable, domain in enumerate(domains):
            if domain & (domain - 1):
                count = domain.bit_count()
                if best < 0 or count < fewest:
                    best, fewest = variable, count
        return best

    def _least(self, domains: list[int]) -> int:
        """No assignment inside these domains costs less."""
        costs = self._costs or ()
        total = 0
        for variable, domain in enumerate(domains):
            row = costs[variable]
            total += next(row[value] for value in self._order[variable] if domain >> value & 1)
        return total

    def _keep(self, domains: list[int]) -> None:
        values = [domain.bit_length() - 1 for domain in domains]
        cost = sum(self._costs[v][x] for v, x in enumerate(values)) if self._costs is not None else 0
        if self._bound is None or cost < self._bound:
            self._bound, self.best = cost, values


def _value_order(full: Sequence[int], costs: Sequence[Sequence[int]] | None) -> list[list[int]]:
    """The values of each variable, cheapest first; the highest number first where costs tie."""
    order = []
    for variable, mask in enumerate(full):
        values = list(range(mask.bit_length() - 1, -1, -1))
        if costs is not None:
            values.sort(key=costs[variable].__getitem__)
        order.append(values)
    return order
