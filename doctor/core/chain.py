"""An answer as a chain and as a stack: what was given, what relations said of it, what changes on a host."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.core.goal import NAMED, SENTENCE
from doctor.core.notes import notes
from doctor.core.resolve import Resolution
from doctor.core.solve.costs import change_cost, present
from doctor.core.solve.explain import sentence
from doctor.core.solve.model import ABSENT, OTHER, Model
from doctor.core.solve.properties import GPU_PROPERTIES
from doctor.core.stack import Because, Change

__all__ = [
    "WISHES",
    "also_of",
    "changes_of",
    "components_of",
    "conflict",
    "given_only",
    "is_gpu",
    "keeps_of",
    "reasons",
]

#: How variables begin that stand for a wish.
WISHES = ("use=", *(f"{kind}:" for kind in (*NAMED, SENTENCE)))


def is_gpu(name: str) -> bool:
    """Whether a variable is a card, its capability, or another property of it."""
    name = name.partition("#")[0]
    return name in ("gpu", "compute-capability") or name in GPU_PROPERTIES


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


def given_only(resolution: Resolution) -> tuple[Because, ...]:
    """Of a yes: what was said about the components in question, not about those that may be anything."""
    model = resolution.model
    given = {"gpu", "os", "kernel", *(f"{card}" for _kind, card, _capability in model.gpus)}
    given |= {term.component for term in (*model.goal.terms, *model.target.have)}
    given |= {"python"} if model.target.python else set()
    given |= {name for name in model.names if name.startswith(WISHES)}
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
        overlay=link.overlay,
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
        if is_gpu(name) or name.startswith(WISHES) or value is ABSENT or value is OTHER:
            continue
        if (unknown_release and name not in given) or (name == "cuda" and not _is_told(resolution)):
            continue
        if name == "kernel" and not _names_kernel(model):
            continue  # the lowest one that would do is no kernel of this machine
        found[name] = str(value)
    return found


def _names_kernel(model: Model) -> bool:
    """Whether a kernel was named, or read on the host."""
    asked = (*model.goal.terms, *model.target.have)
    return bool(model.target.kernel) or any(term.component == "kernel" for term in asked)


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
    if not _names_kernel(model):
        facts = [name for name in facts if name != "kernel"]
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
