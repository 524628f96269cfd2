"""Why a stack is what it is, or is none: chains, hints that change one thing, what comes nearest."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from doctor.core.goal import NAMED, Goal
from doctor.core.notes import advice, notes
from doctor.core.resolve import Resolution, ask
from doctor.core.solve.costs import change_cost, costs, present
from doctor.core.solve.explain import Relaxed, admissible, relaxed, runs_of, sentence, spec_of
from doctor.core.solve.frame import ENGINES, lead
from doctor.core.solve.model import ABSENT, OTHER, Model
from doctor.core.solve.network import bits
from doctor.core.solve.universe import Universe
from doctor.core.stack import Because, Change, Hint, WhyReport
from doctor.core.target import Target
from doctor.core.versions import Version

__all__ = [
    "also_of",
    "changes_of",
    "components_of",
    "conflict",
    "find_hints",
    "keeps_of",
    "nearest",
    "reasons",
    "why",
]

_HINTS_MAX = 3
_EXIT = {"yes": 0, "no": 1, "unknown": 3}
#: What belongs to the machine, and is changed last of all.
_MACHINE = ("os", "kernel", "glibc", "secure-boot", "vgpu-host")
#: How variables begin that stand for a wish.
_WISHES = ("use=", *(f"{kind}:" for kind in NAMED))


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
        because=_given_only(resolution) if is_yes else conflict(resolution),
        hints=() if is_yes else find_hints(resolution),
        nearest="" if is_yes else nearest(resolution),
        components=components_of(resolution),
        advice=advice(resolution),
    )


# --- chains ---------------------------------------------------------------------------------------


def conflict(resolution: Resolution) -> tuple[Because, ...]:
    """The minimal chain: what was given first, then the relations that it runs into."""
    model = resolution.model
    given = frozenset(n for n, link in enumerate(model.links) if link.kind != "relation")
    in_core = given.intersection(resolution.core)
    domains = model.network().domains(in_core if resolution.answer == "no" else given)
    ordered = sorted(resolution.core, key=lambda n: (model.links[n].kind == "relation", n))
    links = (_because(model, number, domains, is_met=False) for number in ordered)
    return tuple(dict.fromkeys(links))


def _given_only(resolution: Resolution) -> tuple[Because, ...]:
    """Of a yes: what was said about the components in question, not about those that may be anything."""
    model = resolution.model
    given = {"gpu", "os", "kernel", *(f"{card}" for _kind, card, _capability in model.gpus)}
    given |= {term.component for term in (*model.goal.terms, *model.target.have)}
    given |= {"python"} if model.target.python else set()
    given |= {name for name in model.names if name.startswith(_WISHES)}
    found = []
    for number, link in enumerate(model.links):
        about = link.subject or model.components_of(number)[0]
        if about in given:
            found.append(number)
    chosen = [1 << value for value in resolution.values]
    links = tuple(_because(model, n, chosen, is_met=True) for n in found if _has_a_say(model, n, chosen))
    beside = tuple(note for note in notes(resolution) if note.component in given or note.component == "cuda")
    return tuple(dict.fromkeys((*links, *beside)))


def reasons(resolution: Resolution) -> tuple[Because, ...]:
    """For a stack: each given and each relation whose subject is in it."""
    model, values = resolution.model, resolution.values
    chosen = [1 << value for value in values]
    numbers = (n for n in range(len(model.links)) if _has_a_say(model, n, chosen))
    return tuple(dict.fromkeys(_because(model, number, chosen, is_met=True) for number in numbers))


def _has_a_say(model: Model, number: int, chosen: Sequence[int]) -> bool:
    """Whether a link binds these values: its subject is among them, and it says more than *not installed*."""
    link = model.links[number]
    if link.subject and not link.subject_mask & chosen[model.index(link.subject)]:
        return False
    return not (link.kind == "have" and link.says.endswith("is not installed"))


def _because(model: Model, number: int, domains: Sequence[int] | None, *, is_met: bool) -> Because:
    link = model.links[number]
    return Because(
        component=model.components_of(number)[-1],
        relation=link.relation,
        text=sentence(model, number, domains) + ("" if is_met else link.doubt),
        kind=link.kind,
        source=link.source,
        confidence=link.confidence,
        is_known=is_met or not link.is_soft,
    )


# --- the stack ------------------------------------------------------------------------------------


def components_of(resolution: Resolution) -> dict[str, str]:
    """One version for each component; none of a release that has no row, nor of what follows from it."""
    model = resolution.model
    if not resolution.values:
        return {}
    unknown_release = any(
        model.links[n].relation in ("nearest-known-row", "no-such-release")
        and model.universe.releases(model.links[n].subject)
        for n in resolution.core
    )
    given = {
        name
        for n, link in enumerate(model.links)
        if link.kind != "relation"
        for name in model.components_of(n)
    }
    found = {}
    for name in model.names:
        value = resolution.value(name)
        if _is_gpu(name) or name.startswith(_WISHES) or value is ABSENT or value is OTHER:
            continue
        if (unknown_release and name not in given) or (name == "cuda" and not _is_told(resolution)):
            continue
        found[name] = str(value)
    return found


def _is_told(resolution: Resolution) -> bool:
    """Whether something says what the stack's CUDA is: the question, or the release that it is built for."""
    model = resolution.model
    if any(term.component == "cuda" for term in (*model.goal.terms, *model.target.have)):
        return True
    return any(
        link.relation in ("built-with-cuda", "tensorrt-cuda-variant")
        and model.components_of(number)[-1] == "cuda"
        and link.subject_mask >> resolution.values[model.index(link.subject)] & 1
        for number, link in enumerate(model.links)
    )


def changes_of(resolution: Resolution) -> tuple[Change, ...]:
    """What of a host becomes another than it is, and what is added to it."""
    model = resolution.model
    found: list[Change] = []
    if resolution.answer != "yes":
        return ()
    for name, after in components_of(resolution).items():
        before = present(model, name)
        value = resolution.value(name)
        row = change_cost(model, name, value) if value is not None else None
        if row is not None and before:
            found.append(
                Change(
                    component=name,
                    before=before,
                    after=after,
                    minutes=row.minutes,
                    needs_reboot=row.needs_reboot,
                )
            )
    return tuple(found)


def keeps_of(resolution: Resolution) -> tuple[str, ...]:
    """What is there and stays."""
    model = resolution.model
    if not resolution.values:
        return ()
    changed = {change.component for change in changes_of(resolution)}
    there = [name for name in model.names if present(model, name) and name not in changed]
    facts = [name for name in ("os", "kernel", "glibc") if name in model and name not in there]
    return (*facts, *there)


def also_of(resolution: Resolution) -> dict[str, str]:
    """Sets that packages outside the model have to lie in: the stack's releases ask for them."""
    model = resolution.model
    found: dict[str, list[str]] = {}
    for name in components_of(resolution):
        value = resolution.value(name)
        row = next((r for r in model.universe.releases(name) if r.version == value), None)
        for other, spec in row.requires.items() if row else ():
            if other not in model:
                found.setdefault(other, []).append(spec)
    return {name: ",".join(dict.fromkeys(specs)) for name, specs in sorted(found.items())}


# --- hints ----------------------------------------------------------------------------------------


def find_hints(resolution: Resolution) -> tuple[Hint, ...]:
    """At most three changes, each of which alone would make it true; the least one first."""
    model = resolution.model
    found = [*_apart(model, resolution.core), *_instead(model, resolution.core)]
    against = frozenset(range(len(model.links)))
    single = relaxed(model, resolution.core, against)
    if not single and resolution.answer == "no":
        # More is not known: a change that takes the known obstacle away is still worth saying.
        against = model.hard()
        single = relaxed(model, resolution.core, against)
    table = costs(model, "repair")
    for one in sorted(single, key=lambda r: _rank(model, r)):
        hint = _hint(model, one, against, table)
        if hint is not None:
            found.append(hint)
    if not found and resolution.answer == "no":
        found = _together(model)
    by_text = {hint.text: hint for hint in reversed(found)}
    return tuple(reversed(by_text.values()))[:_HINTS_MAX]


def _is_gpu(name: str) -> bool:
    return name.partition("#")[0] in ("gpu", "compute-capability")


def _is_machine(name: str) -> bool:
    return name in _MACHINE or _is_gpu(name)


def _rank(model: Model, one: Relaxed) -> tuple[int, int, str]:
    is_machine = _is_machine(one.component)
    is_goal = any(term.component == one.component for term in model.goal.terms)
    has_it = bool(present(model, one.component)) or one.component == "cuda-toolkit"
    return (2 if is_machine else 1 if is_goal and not has_it else 0, not has_it, one.component)


def _hint(model: Model, one: Relaxed, against: frozenset[int], table: list[list[int]]) -> Hint | None:
    name = one.component
    if name.startswith(_WISHES):
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
    if not _is_gpu(name):
        words = {"glibc": "a newer system, or a container image with its own C library"}
        return Hint(text=words.get(name, f"another {name}"))
    number = name.removeprefix("gpu")
    kind = next(kind for kind, card, _capability in model.gpus if card == name)
    if kind.maker == "other":
        return Hint(text="an NVIDIA GPU")
    capability = f"compute-capability{number}"
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
        if link.relation == "name-in-release" and link.nearest and not link.is_soft:
            found.append(Hint(text=f"{link.nearest} in its place"))
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
        if name in ENGINES and name != "torch"
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


# --- nearest --------------------------------------------------------------------------------------


def nearest(resolution: Resolution) -> str:
    """The row that comes nearest: the version next to the asked one that fits, or what an unknown names."""
    model = resolution.model
    named = [model.links[n].nearest for n in resolution.core if model.links[n].nearest]
    if resolution.answer == "unknown":
        return "; ".join(dict.fromkeys(named))
    wanted = lead(model.target, model.goal) or next((term.component for term in model.goal.terms), "")
    if wanted not in model:
        return "; ".join(dict.fromkeys(named))
    for one in relaxed(model, resolution.core, model.hard()):
        if one.component == wanted:
            return _next_to(model, one)
    return "; ".join(dict.fromkeys(named))


def _next_to(model: Model, one: Relaxed) -> str:
    variable = model.index(one.component)
    asked = model.network().domains(one.dropped)
    fits = [p for p in bits(one.mask) if isinstance(model.domain(one.component)[p], Version)]
    if asked is None or not fits:
        return ""
    targets = bits(asked[variable])
    best = min(fits, key=lambda position: (min(abs(position - other) for other in targets), -position))
    return f"{one.component} {model.domain(one.component)[best]}"
