"""The stack for a goal, exactly: the cheapest set of versions that meets every relation, or why none does."""

from __future__ import annotations

from typing import Literal, NamedTuple

from doctor.core.goal import Delivery, Goal, Policy
from doctor.core.relate import relate
from doctor.core.solve.costs import costs
from doctor.core.solve.explain import minimal
from doctor.core.solve.frame import ENGINES, Mode, frame, lead, supposed
from doctor.core.solve.model import Model, Value
from doctor.core.solve.network import Clause, Network
from doctor.core.solve.universe import Universe
from doctor.core.target import Target

__all__ = ["Answer", "Resolution", "ask", "judge_model", "more", "pose"]

Answer = Literal["yes", "no", "unknown"]

#: A container comes last: changing the delivery costs more than any change of the host.
_FALLBACKS: tuple[Delivery, ...] = ("venv", "container")


class Resolution(NamedTuple):
    """An answer with its model: an assignment for `yes` and `unknown`, the core for `no` and `unknown`.

    The core of a `no` is minimal. That of an `unknown` is a minimal chain, and every other doubt after it.
    """

    answer: Answer
    model: Model
    values: tuple[int, ...] = ()
    core: tuple[int, ...] = ()

    def value(self, name: str) -> Value | None:
        """What a component became; None where it is not part of the answer."""
        if not self.values or name not in self.model:
            return None
        return self.model.domain(name)[self.values[self.model.index(name)]]


def pose(universe: Universe, target: Target, goal: Goal, *, mode: Mode, delivery: str) -> Model:
    """A question as a model, with every relation in it."""
    model = frame(universe, target, goal, mode=mode, delivery=delivery)
    relate(model)
    return model


def ask(universe: Universe, target: Target, goal: Goal, *, mode: Mode, policy: Policy) -> Resolution:
    """The answer to a question. In `pick` a container is tried where a virtual environment does not do."""
    wanted = (goal.delivery,) if goal.delivery else _FALLBACKS
    has_engine = any(name in ENGINES for name in supposed(target, goal))
    # A held interpreter is the one that the engine has to run under: no container's own.
    tried = wanted if mode == "pick" and has_engine and "python" not in target.hold else wanted[:1]
    found: list[Resolution] = []
    for delivery in tried:
        model = pose(universe, target, goal, mode=mode, delivery=delivery)
        found.append(judge_model(model, policy))
        if found[-1].answer == "yes":
            return found[-1]
        if not _brought_along(found[-1]):
            break
    return found[0]


def _brought_along(resolution: Resolution) -> bool:
    """Whether a container would lift what stands in the way: it brings interpreter and C library."""
    names = {name for link in resolution.core for name in resolution.model.components_of(link)}
    return bool(names & {"python", "glibc"})


def judge_model(model: Model, policy: Policy) -> Resolution:
    """`yes` with the cheapest assignment; else a minimal core, and for `unknown` what is known to hold."""
    table = costs(model, policy)
    best = model.network().solve(table)
    if best is not None:
        return Resolution("yes", model, tuple(best))
    hard = model.hard()
    partly = model.network(hard).solve(table)
    if partly is None:
        return Resolution("no", model, core=minimal(model, hard, spare=_spare(model)))
    soft = frozenset(range(len(model.links))) - hard
    doubts = minimal(model, soft, hard)
    chain = minimal(model, hard.union(doubts), spare=_spare(model))
    alone = (
        link for link in sorted(soft.difference(chain)) if model.network().refute(hard | {link}) is not None
    )
    return Resolution("unknown", model, tuple(partly), (*chain, *alone))


def _spare(model: Model) -> list[frozenset[int]]:
    """Packages that the goal does not name, and what is there of them: a chain is clearer without."""
    wanted = {term.component for term in model.goal.terms} or {lead(model.target, model.goal)}
    beside = {name for name in model.names if model.universe.releases(name) and name not in wanted}
    far, torch, near = set[int](), set[int](), list[frozenset[int]]()
    for number, link in enumerate(model.links):
        mine = beside.intersection(model.components_of(number))
        if mine and link.kind == "have":
            near.append(frozenset((number,)))
        elif mine - {"torch"}:
            far.add(number)
        elif mine:
            torch.add(number)
    return [frozenset(far), frozenset(torch), *near, *_overruled(model)]


def _overruled(model: Model) -> list[frozenset[int]]:
    """The driver that is there, where its owner takes no other: that one is there is not the reason."""
    owners = {row.id for row in model.universe.matrix.edition.owners}
    if not any(link.relation in owners and not link.is_soft for link in model.links):
        return []
    return [frozenset(n for n, link in enumerate(model.links) if link.relation == "have:driver")]


def more(first: Resolution, policy: Policy, count: int) -> list[Resolution]:
    """Other stacks, next best first: each differs from those before in what it is for, or in its branch."""
    model, found = first.model, [first]
    if count < 1:
        return []
    table = costs(model, policy)
    named = [name for name in (*supposed(model.target, model.goal), "driver") if name in model]
    extra = len(model.links)
    clauses = list(model.clauses)
    while len(found) <= count:
        last = found[-1]
        clauses.append(
            Clause(tuple((model.index(n), _others(model, n, last)) for n in dict.fromkeys(named)), extra)
        )
        best = Network([len(values) for values in model.values], clauses).solve(table)
        if best is None:
            break
        found.append(Resolution("yes", model, tuple(best)))
    return found[1:]


def _others(model: Model, name: str, last: Resolution) -> int:
    """Every value that counts as different: another branch for drivers, another version elsewhere."""
    chosen = last.values[model.index(name)]
    if name != "driver":
        return model.full(name) & ~(1 << chosen)
    branch = getattr(model.domain(name)[chosen], "major", None)
    return model.where(name, lambda version: getattr(version, "major", None) != branch)
