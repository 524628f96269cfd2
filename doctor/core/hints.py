"""Changes that would make it true: each alone suffices, the least one first, at most three of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from doctor.core.chain import WISHES, changes_of, components_of, is_gpu
from doctor.core.relate.named import NAME
from doctor.core.relate.standing import STANDING
from doctor.core.resolve import Resolution, ask
from doctor.core.solve.costs import costs, present
from doctor.core.solve.explain import Relaxed, admissible, relaxed, runs_of, spec_of
from doctor.core.solve.frame import SERVERS
from doctor.core.solve.model import ABSENT, Model
from doctor.core.stack import Change, Hint

__all__ = ["find_hints"]

_HINTS_MAX = 3
#: What belongs to the machine, and is changed last of all.
_MACHINE = ("os", "kernel", "glibc", "secure-boot", "vgpu-host")


def find_hints(resolution: Resolution) -> tuple[Hint, ...]:
    """At most three changes, each of which alone would make it true; the least one first."""
    model = resolution.model
    found = [*_apart(model, resolution.core), *_instead(model, resolution.core)]
    against = frozenset(range(len(model.links)))
    single = relaxed(model, resolution.core, against)
    table = costs(model, "repair")
    hints = [_hint(model, one, against, table) for one in sorted(single, key=lambda r: _rank(model, r))]
    if resolution.answer == "no" and not found and all(_is_machine(one.component) for one in single):
        hints = [*_perhaps(resolution, table), *hints]
    found += [hint for hint in hints if hint is not None]
    if not found and resolution.answer == "no":
        found = _together(model)
    by_text = {hint.text: hint for hint in reversed(found)}
    return tuple(reversed(by_text.values()))[:_HINTS_MAX]


def _perhaps(resolution: Resolution, table: list[list[int]]) -> list[Hint | None]:
    """Changes that take the known obstacle away, where more is not known: worth saying, and no promise."""
    model = resolution.model
    # What an uncertain row speaks against is no way out; that no row tells of it is no obstacle.
    told = frozenset(n for n, link in enumerate(model.links) if not link.is_soft or link.source)
    found: list[Hint | None] = []
    for against in (told, model.hard()):
        for one in sorted(relaxed(model, resolution.core, against), key=lambda r: _rank(model, r)):
            hint = None if _is_machine(one.component) else _hint(model, one, against, table)
            if hint is not None:
                text = f"{hint.text}; whether that suffices is not known"
                found.append(msgspec.structs.replace(hint, text=text, components={}))
        if found:
            break
    return found


def _is_machine(name: str) -> bool:
    return name in _MACHINE or is_gpu(name)


def _rank(model: Model, one: Relaxed) -> tuple[int, int, str]:
    is_machine = _is_machine(one.component)
    is_goal = any(term.component == one.component for term in model.goal.terms)
    has_it = bool(present(model, one.component)) or one.component == "cuda-toolkit"
    return (2 if is_machine else 1 if is_goal and not has_it else 0, not has_it, one.component)


def _hint(model: Model, one: Relaxed, against: frozenset[int], table: list[list[int]]) -> Hint | None:
    name = one.component
    if name.startswith(WISHES) or name in STANDING:
        return None
    rest = against - one.dropped
    if _is_machine(name):
        return _machine_hint(model, one, rest)
    best = model.network(rest).solve(table)
    if best is None:
        return None
    after = str(model.domain(name)[best[model.index(name)]])
    spec = spec_of(model, name, one.mask)
    before = present(model, name)
    then = Resolution("yes", model, tuple(best))
    own = Change(component=name, before=before, after=after, spec=spec)
    changes = (own, *(change for change in changes_of(then) if change.component != name))
    asked = [t.text for t in model.goal.terms if t.component == name]
    gives_up_goal = any(model.links[number].kind == "goal" for number in one.dropped)
    if gives_up_goal and spec == "*":
        return None  # to ask for nothing is no way to get it
    words = _spoken(spec)
    if "|" in spec and model.universe.scheme(name) != "name":
        words = runs_of(model, name, one.mask)
    text = _change_text(model, own, words, ",".join(asked) if gives_up_goal else "")
    return Hint(text=text, changes=changes, components=components_of(then))


def _change_text(model: Model, change: Change, words: str, given_up: str) -> str:
    """The change in words; `given_up` is what the goal said of the component, where it has to yield."""
    name = change.component
    if change.after == ABSENT:
        return f"remove {name}"
    owners = model.universe.matrix.edition.owners
    owner = next((row for row in owners if row.driver_kind == model.target.driver_kind), None)
    if owner is not None and name == "driver":
        return f"{owner.instead}: from {change.before or 'none'} to {words}"
    best = "" if change.spec == f"=={change.after}" else f"; {change.after} would be taken"
    if any(link.relation == f"hold:{name}" for link in model.links):
        return f"leave to change {name} from {change.before} to {words}{best}"
    if given_up:
        return f"{name} {words} in place of {given_up}{best}"
    if change.before and " to " in words:
        words = f"one of {words}"
    return f"{name} {f'from {change.before} to ' if change.before else ''}{words}{best}"


def _spoken(spec: str) -> str:
    if spec.startswith("=="):
        return spec[2:]
    if "," in spec:
        low, high = spec.split(",", 1)
        return f"{low[2:]} to {high.removeprefix('<=')}"
    if spec.startswith(">="):
        return f"{spec[2:]} or newer"
    if spec.startswith("<="):
        return f"{spec[2:]} or older"
    return "any version" if spec == "*" else spec.replace("|", ", ")


def _machine_hint(model: Model, one: Relaxed, rest: frozenset[int]) -> Hint | None:
    name = one.component
    if not is_gpu(name):
        asked = any(term.component == name for term in model.goal.terms)
        words = {"glibc": "a newer system, or a container image with its own C library"}
        if asked and name == "glibc":
            return Hint(text="another system")  # a release of it is asked for, older or newer
        return Hint(text=words.get(name, f"another {name}"))
    component, _mark, number = name.partition("#")
    tail = f"#{number}" if number else ""
    kind = next((kind for kind, card, _capability in model.gpus if card == f"gpu{tail}"), None)
    if kind is None:
        return None
    if kind.maker == "other":
        return Hint(text="an NVIDIA GPU")
    if component not in ("gpu", "compute-capability"):
        return Hint(text="another GPU")
    capability = f"compute-capability{tail}"
    mask = admissible(model, capability, rest)
    positions = [p for p in range(mask.bit_length()) if mask >> p & 1]
    if not positions or mask == model.full(capability):
        return Hint(text="another GPU")
    floor = model.domain(capability)[positions[0]]
    from_floor = model.where(capability, lambda version: version >= floor)
    spec = spec_of(model, capability, mask)
    but = ""
    if mask.bit_length() == from_floor.bit_length():
        spec = f">={floor}"
        gaps = model.texts(capability, from_floor & ~mask)
        but = f", but not {', '.join(gaps)}" if gaps else ""
    change = Change(component="compute-capability", before=kind.compute_capability, after="", spec=spec)
    return Hint(text=f"a GPU of compute capability {_spoken(spec)}{but}", changes=(change,))


def _instead(model: Model, core: Sequence[int]) -> list[Hint]:
    """What rows offer in place of what is not there: a flag's successor, whose driver is somebody else's."""
    found = []
    for number in core:
        link = model.links[number]
        subjects = tuple(f"{name} " for name in model.components_of(number))
        is_release = link.nearest.startswith(subjects)
        if link.relation == NAME and link.nearest and not is_release and not link.is_soft:
            found.append(Hint(text=f"{link.nearest} in its place"))
        row = next((row for row in model.universe.matrix.edition.folklore if row.id == link.relation), None)
        if row is not None and not link.is_soft:
            found += [Hint(text=text) for text in row.instead]
        if link.relation == "vendor-not-nvidia":
            found.append(Hint(text="an NVIDIA GPU"))
        owners = model.universe.matrix.edition.owners
        found += [Hint(text=row.instead) for row in owners if row.id == link.relation and not row.known]
    return found


def _apart(model: Model, core: Sequence[int]) -> list[Hint]:
    """Two engines that do not fit into one environment, each of which would fit alone."""
    given = {
        name
        for number in core
        if model.links[number].kind == "goal"
        for name in model.components_of(number)
        if name in SERVERS
    }
    if len(given) < 2:
        return []
    for name in given:
        others = given - {name}
        rest = frozenset(n for n in model.hard() if not others.intersection(_spoken_of(model, n)))
        if model.network().refute(rest) is not None:
            return []
    names = " and ".join(sorted(given))
    return [Hint(text=f"an environment of its own for each engine: {names} do not share one")]


def _spoken_of(model: Model, number: int) -> tuple[str, ...]:
    """What a link is about: the subject of a relation, the component of a given."""
    link = model.links[number]
    return (link.subject,) if link.kind == "relation" else model.components_of(number)


def _together(model: Model) -> list[Hint]:
    """Where no single change does: the cheapest set of changes."""
    if model.goal.terms or model.goal.uses:
        target = msgspec.structs.replace(model.target, hold=())
        best = ask(model.universe, target, model.goal, mode="pick", policy="repair")
        changes = changes_of(best)
        if best.answer == "yes" and changes:
            words = ", ".join(f"{c.component} to {c.after}" for c in changes)
            return [Hint(text=f"several at once: {words}", changes=changes, components=components_of(best))]
    return []
