"""What the rows say of an environment's releases on a machine: the question that `matrix why` asks in words.

Which driver drives which GPU, which kernel it builds on, whose driver a machine runs, what a release asks
for: the solver knows all of it. Here an environment and its machine become such a question.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from doctor.core.chain import conflict, given_only
from doctor.core.fit.code import is_index_build
from doctor.core.fit.verdict import Question
from doctor.core.goal import Goal, Term
from doctor.core.hints import find_hints
from doctor.core.resolve import Resolution, judge_model, pose
from doctor.core.solve.model import Link, Model
from doctor.core.solve.network import Clause
from doctor.core.solve.universe import Universe
from doctor.core.stack import Because, Hint
from doctor.core.target import Target
from doctor.core.why import nearest

__all__ = ["Asked", "ask_rows"]

#: What of a machine an environment meets. Its compilers and toolkits are judged by what was read of them.
_MACHINE = (
    "driver",
    "kernel-modules",
    "fabric-manager",
    "imex",
    "vgpu-host",
    "secure-boot",
    "module-signature",
)
_CONTAINERS = ("container-toolkit", "libnvidia-container", "docker", "containerd", "podman", "cri-o")
#: What holds of a release whoever built it, and with whatever CUDA.
_OF_ANY_BUILD = ("-hardware", "-min-cc", "nearest-known-row")


class Asked(NamedTuple):
    """The answer of the rows, its chain, and what would change it."""

    answer: str
    links: tuple[Because, ...] = ()
    hints: tuple[Hint, ...] = ()
    nearest: str = ""


def ask_rows(question: Question, target: Target) -> Asked:
    """What the rows say of what the environment holds, beside what the machine holds."""
    universe = Universe(question.matrix)
    delivery = "container" if question.environment.kind == "image" else "venv"
    goal = Goal(text="", terms=tuple(_terms(question)))
    model = pose(universe, _machine(question, target), goal, mode="why", delivery=delivery)
    _leave_out(model, question)
    found = judge_model(model, "repair")
    if found.answer == "yes":
        links = tuple(link for link in given_only(found) if link.kind in ("relation", "note"))
        return Asked("yes", links)
    hints = find_hints(found) if found.answer == "no" else ()
    return Asked(found.answer, conflict(found), hints, _nearest(found))


def _nearest(found: Resolution) -> str:
    return nearest(found) if found.answer == "unknown" else ""


def _machine(question: Question, target: Target) -> Target:
    """The machine without what an environment does not meet, and under the environment's own Python."""
    environment, compat = question.environment, question.compat
    names = (*_MACHINE, *(_CONTAINERS if environment.kind == "image" else ()))
    if question.ground.is_jetson or target.driver_kind == "jetpack":
        target = msgspec.structs.replace(target, driver_kind="jetpack")
        names = ()  # of JetPack's own driver the floors of NVIDIA's packages say nothing
    have = [term for term in target.have if term.component in names]
    if compat is not None and question.needs_compat:
        have.append(Term(component="cuda-compat", spec=f"=={compat}"))
    python = environment.python.raw if environment.python else ""
    return msgspec.structs.replace(target, have=tuple(have), hold=(), python=python)


def _terms(question: Question) -> Iterator[Term]:
    """Releases of which rows tell; of an image the CUDA alone, for it was built by itself."""
    environment = question.environment
    if environment.kind == "image":
        cuda = environment.torch_cuda
        if cuda is not None and len(cuda.parts) > 1:
            yield Term(component="cuda", spec=f"=={cuda.parts[0]}.{cuda.parts[1]}")
        return
    for component in question.releases:
        row = question.row(component)
        if row is None:
            continue
        # What other makers built is no build of the index: of torch nothing then holds that rows tell.
        if component != "torch" or is_index_build(question, component):
            yield Term(component=component, spec=f"=={row.version}")
    variants = {f"cu{v}" for v in question.tensorrt_majors}
    if len(variants) == 1 and question.row("tensorrt") is not None:
        yield Term(component="tensorrt-variant", spec=f"=={variants.pop()}")


def _leave_out(model: Model, question: Question) -> None:
    """Takes links away that speak of other builds than those in the environment, or are judged elsewhere."""
    kept = [number for number, link in enumerate(model.links) if not _is_beside(model, question, link)]
    place = {number: new for new, number in enumerate(kept)}
    model.links[:] = [model.links[number] for number in kept]
    model.clauses[:] = [
        Clause(clause.literals, place[clause.link]) for clause in model.clauses if clause.link in place
    ]


def _is_beside(model: Model, question: Question, link: Link) -> bool:
    if link.relation.startswith("overlay-") or link.relation.endswith("-glibc"):
        return True  # said of all packages by `under_rules`, and of all libraries by the files
    if link.relation == "have:cuda-compat":
        return question.environment.kind == "image"  # nobody looked inside
    if link.kind != "relation" or not model.universe.releases(link.subject):
        return False
    if link.relation.endswith("-pin") and any(
        one.by == link.subject for one in question.environment.requires
    ):
        return True  # what is installed says itself what it asks for
    is_there = link.subject in question.releases
    return not is_there or not (
        is_index_build(question, link.subject) or link.relation.endswith(_OF_ANY_BUILD)
    )
