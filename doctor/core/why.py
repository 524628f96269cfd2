"""`matrix why`: whether a combination holds as it stands, the proof, hints, and what comes nearest."""

from __future__ import annotations

from doctor.core.chain import components_of, conflict, given_only
from doctor.core.goal import Goal
from doctor.core.hints import find_hints
from doctor.core.notes import advice
from doctor.core.relate.named import NAME
from doctor.core.resolve import Resolution, ask
from doctor.core.site import overlay_effect
from doctor.core.solve.explain import Relaxed, relaxed
from doctor.core.solve.frame import lead
from doctor.core.solve.model import Model
from doctor.core.solve.network import bits
from doctor.core.solve.universe import Universe
from doctor.core.stack import WhyReport
from doctor.core.target import Target
from doctor.core.versions import Version

__all__ = ["nearest", "why"]

_EXIT = {"yes": 0, "no": 1, "unknown": 3}


def why(universe: Universe, target: Target, goal: Goal, *, question: str) -> WhyReport:
    """Whether a combination holds as it stands, why, and what would change the answer."""
    resolution = ask(universe, target, goal, mode="why", policy="repair")
    is_yes = resolution.answer == "yes"
    return WhyReport(
        matrix_edition=universe.matrix.edition.name,
        question=question,
        compatible=resolution.answer,
        exit_code=_EXIT[resolution.answer],
        target=target,
        because=given_only(resolution) if is_yes else conflict(resolution),
        hints=() if is_yes else find_hints(resolution),
        nearest="" if is_yes else nearest(resolution),
        components=components_of(resolution),
        advice=advice(resolution),
        overlays=universe.matrix.overlay_names,
        overlay_effect=overlay_effect(universe, resolution, target, mode="why", policy="repair"),
    )


def nearest(resolution: Resolution) -> str:
    """The row that comes nearest: the version next to the asked one that fits, or what an unknown names."""
    model = resolution.model
    named = [model.links[n].nearest for n in resolution.core if model.links[n].nearest]
    if resolution.answer == "unknown":
        return "; ".join(dict.fromkeys(named))
    wanted = lead(model.target, model.goal) or next((term.component for term in model.goal.terms), "")
    if wanted not in model:
        return "; ".join(dict.fromkeys(named))
    # First what is known to hold, then what only nothing known speaks against.
    for against in (frozenset(range(len(model.links))), model.hard()):
        for one in relaxed(model, resolution.core, against):
            if one.component == wanted and (near := _next_to(model, one)):
                return near
        if named and _is_about_a_name(resolution):
            break
    return "; ".join(dict.fromkeys(named))


def _is_about_a_name(resolution: Resolution) -> bool:
    """Whether the chain rests on a name: what stands in its place is nearer than a release nobody read."""
    links = (resolution.model.links[number] for number in resolution.core)
    return any(link.relation in (NAME, "flag-default", "flag-value") and link.nearest for link in links)


def _next_to(model: Model, one: Relaxed) -> str:
    variable = model.index(one.component)
    asked = model.network().domains(one.dropped)
    fits = [p for p in bits(one.mask) if isinstance(model.domain(one.component)[p], Version)]
    if asked is None or not fits:
        return ""
    targets = bits(asked[variable])
    best = min(fits, key=lambda position: (min(abs(position - other) for other in targets), -position))
    return f"{one.component} {model.domain(one.component)[best]}"
