"""Why nothing fits: a minimal set of links, and which single change would make it fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from doctor.core.solve.frame import lead
from doctor.core.solve.model import Link, Model, Value
from doctor.core.solve.network import Clause, Network, bits
from doctor.core.versions import Version

__all__ = ["Relaxed", "admissible", "minimal", "relaxed", "runs_of", "sentence", "spec_of"]


class Relaxed(NamedTuple):
    """A component whose givens were dropped, and the values that fit then."""

    component: str
    dropped: frozenset[int]
    mask: int


def minimal(
    model: Model,
    links: frozenset[int],
    background: frozenset[int] = frozenset(),
    spare: Sequence[frozenset[int]] = (),
) -> tuple[int, ...]:
    """The links that cannot hold together, none of which can be left out; `background` is taken for granted.

    `spare` are groups that a reader would rather not see: they go first, where others do.
    """
    network = model.network()
    links = links - background
    for group in spare:
        rest = links - group
        if rest != links and network.refute(rest | background) is not None:
            links = rest
    core = network.refute(links | background)
    if core is None:
        raise ValueError("these links hold together")
    # Relations are tried first: a chain that keeps what was given is the shorter one.
    order = ("relation", "have", "hold", "fact", "goal")
    kept = sorted(core - background, key=lambda link: (order.index(model.links[link].kind), link))
    for link in list(kept):
        rest = frozenset(other for other in kept if other != link)
        smaller = network.refute(rest | background)
        if smaller is not None:
            kept = [other for other in kept if other in smaller]
    return tuple(kept)


def sentence(model: Model, number: int, domains: Sequence[int] | None = None) -> str:
    """A link as a sentence; its subject with those of its versions that the domains leave in question."""
    link = model.links[number]
    if not link.subject:
        return link.says
    mask = link.subject_mask
    if domains is not None:
        mask = mask & domains[model.index(link.subject)] or mask
    return f"{_subject(model, link, mask)} {link.says}".replace(" :", ":")


def _subject(model: Model, link: Link, mask: int) -> str:
    if link.subject.partition("#")[0] == "gpu":
        return str(model.domain(link.subject)[0])
    if link.subject in ("os", "kernel"):
        return f"{link.subject} {model.domain(link.subject)[0]}"
    return f"{link.subject} {runs_of(model, link.subject, mask)}"


def _run(domain: Sequence[Value], run: list[int]) -> str:
    first, last = domain[run[0]], domain[run[-1]]
    return str(first) if first is last else f"{first} to {last}"


# --- one change -----------------------------------------------------------------------------------


def relaxed(model: Model, core: Sequence[int], against: frozenset[int]) -> list[Relaxed]:
    """For each component that the core holds fast: what it may be when it is let go, where that suffices.

    `against` are the links that have to hold.
    """
    found = []
    names: dict[str, None] = {}
    for number in core:
        if model.links[number].kind != "relation":
            names.update(dict.fromkeys(model.components_of(number)[:1]))
    network = model.network()
    for component in names:
        for dropped in _held(model, component):
            if network.refute(against - dropped) is not None:
                continue
            mask = admissible(model, component, against - dropped)
            if mask:
                found.append(Relaxed(component, dropped, mask))
                break
    return found


def _held(model: Model, component: str) -> list[frozenset[int]]:
    """The givens that hold a component: what is there, and then what the goal says of it as well."""
    also = ("cuda",) if component == lead(model.target, model.goal) else ()
    given, goal = set[int](), set[int]()
    for number, link in enumerate(model.links):
        if link.kind == "relation":
            continue
        names = model.components_of(number)
        if component in names or (link.kind == "have" and any(name in names for name in also)):
            (goal if link.kind == "goal" else given).add(number)
    return [frozenset(group) for group in (given, given | goal) if group]


def admissible(model: Model, component: str, links: frozenset[int]) -> int:
    """The values of a component with which the links hold. Ends of runs are tried, the rest follows."""
    domains = model.network().domains(links)
    if domains is None:
        return 0
    variable = model.index(component)
    mask, tried = domains[variable], dict[int, bool]()

    def fits(position: int) -> bool:
        if position not in tried:
            tried[position] = _fits(model, variable, position, links)
        return tried[position]

    kept = 0
    for position in bits(mask):
        inner = mask >> (position + 1) & 1 and position > 0 and mask >> (position - 1) & 1
        # Inside a run of values that propagation leaves, both neighbours speak for it.
        if (inner and kept >> (position - 1) & 1) or fits(position):
            kept |= 1 << position
    return kept


def _fits(model: Model, variable: int, position: int, links: frozenset[int]) -> bool:
    extra = len(model.links)
    clauses = [*(c for c in model.clauses if c.link in links), Clause(((variable, 1 << position),), extra)]
    return Network([len(values) for values in model.values], clauses).refute() is None


def runs_of(model: Model, component: str, mask: int) -> str:
    """A mask in words, where it is no plain range: its runs, some of them left out where they are many."""
    domain = model.domain(component)
    runs: list[list[int]] = []
    for position in bits(mask):
        if runs and position == runs[-1][-1] + 1:
            runs[-1].append(position)
        else:
            runs.append([position])
    texts = [_run(domain, run) for run in runs]
    return ", ".join(texts if len(texts) <= 4 else [*texts[:2], "…", *texts[-2:]])


def spec_of(model: Model, component: str, mask: int) -> str:
    """A mask as a version set: `>=580.65.06`, `<0.20.0`, `0.30.0, 0.31.0`."""
    domain = model.domain(component)
    positions = [p for p in bits(mask) if isinstance(domain[p], Version)]
    there = [p for p, value in enumerate(domain) if isinstance(value, Version)]
    if not positions:
        return ""
    first, last = positions[0], positions[-1]
    is_run = positions == [p for p in there if first <= p <= last]
    if domain[first].scheme == "name" or not is_run:  # type: ignore[union-attr]
        return "|".join(str(domain[p]) for p in positions)
    if first == last:
        return f"=={domain[first]}"
    low = f">={domain[first]}" if first != there[0] else ""
    high = f"<={domain[last]}" if last != there[-1] else ""
    return ",".join(part for part in (low, high) if part) or "*"
