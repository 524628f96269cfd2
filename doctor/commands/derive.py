"""From a machine and a goal to a plan: the same for `plan`, and again for `apply`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from doctor import __version__
from doctor.apply.journal import now
from doctor.commands.matrix_pick import pick
from doctor.core.evidence import Evidence
from doctor.core.finding import CheckReport
from doctor.core.goal import Goal, Term, parse_goal, parse_term
from doctor.core.host import Host, known
from doctor.core.judge import judge_scopes
from doctor.core.lower import Choices, Ground, lower
from doctor.core.lower.catalogue import Catalogue
from doctor.core.lower.refusals import installed_origins, is_key_enrolled, machine_refusals
from doctor.core.matrix import Matrix
from doctor.core.plan import Asked, Plan, PlannedHost, plan_of
from doctor.core.rows.install import Origin
from doctor.core.sets import VersionSet
from doctor.core.solve.universe import Universe
from doctor.core.stack import StackReport
from doctor.core.stages import Variables
from doctor.core.target import Target, system_of
from doctor.core.target_host import target_of
from doctor.core.versions import Dotted
from doctor.facts.read import read_host, read_scopes

__all__ = ["Derived", "choose_stack", "derive", "ground_of", "origin_of", "target_for"]

#: So many other driver versions are tried where the one chosen has no package here.
_TRIES_MAX = 12


class Derived(msgspec.Struct, frozen=True, kw_only=True):
    """What a question about a host comes to."""

    ground: Ground
    variables: Variables | None
    """None where no stack fits: `ground.stack` says why."""
    report: CheckReport
    plan: Plan | None


def derive(matrix: Matrix, evidence: Evidence, asked: Asked, host: PlannedHost) -> Derived:
    """The plan of a host as it is now. Pure but for the time that the plan carries."""
    machine = read_host(evidence)
    report = judge_scopes(read_scopes(evidence), matrix, tool=f"mopt-doctor {__version__}")
    target = target_for(matrix, machine, asked.hold, asked.have)
    universe = Universe(matrix)
    goal = parse_goal(",".join(asked.goal))
    ground = ground_of(universe, target, machine, goal, asked.choices)
    if ground.stack.compatible != "yes" and not machine_refusals(ground):
        return Derived(ground=ground, variables=None, report=report, plan=None)
    variables = lower(ground)
    where = replace(host, hostname=known(machine.system.hostname) or "", boot_id=machine.collection.boot_id)
    plan = plan_of(ground, variables, report, asked=asked, host=where, made_at=now())
    return Derived(ground=ground, variables=variables, report=report, plan=plan)


def target_for(matrix: Matrix, host: Host, hold: Sequence[str], have: Sequence[str]) -> Target:
    """The machine of a host, with what the operator says of it besides."""
    target = target_of(matrix, host, hold=tuple(hold))
    told = {term.component: term for term in (*target.have, *(parse_term(text) for text in have))}
    return replace(target, have=tuple(told.values()))


def ground_of(universe: Universe, target: Target, host: Host, goal: Goal, choices: Choices) -> Ground:
    """What lowering stands on, its stack chosen."""
    stack = choose_stack(universe, target, goal, choices.origin)
    return Ground(matrix=universe.matrix, stack=stack, host=host, choices=choices)


def origin_of(matrix: Matrix, target: Target, host: Host) -> Origin:
    """Whose packages, where nobody said: those that are there; signed ones where others would not load."""
    there = installed_origins(matrix, host)
    if len(there) == 1:
        return "canonical" if "canonical" in there else "nvidia"
    row = system_of(matrix, target.os)
    is_ubuntu = row is not None and row.system.startswith("ubuntu")
    if is_ubuntu and known(host.kernel.secure_boot) == "enabled" and not is_key_enrolled(host):
        return "canonical"
    return "nvidia"


# --- the stack ------------------------------------------------------------------------------------


def choose_stack(universe: Universe, target: Target, goal: Goal, origin: Origin) -> StackReport:
    """The stack for the goal, of versions that have packages here wherever the goal leaves a choice."""
    first = pick(universe, target, goal)
    row = system_of(universe.matrix, target.os)
    if first.compatible != "yes" or row is None:
        return first
    catalogue = Catalogue(universe.matrix, origin, row.system, target.arch)
    for other in _attempts(catalogue, first, goal):
        stack = pick(universe, target, other)
        if stack.compatible == "yes":
            note = f"{_difference(first, stack)}: it has a package version in packages.yaml"
            return replace(stack, advice=(*stack.advice, note))
    return first


def _attempts(catalogue: Catalogue, stack: StackReport, goal: Goal) -> Iterator[Goal]:
    """The goal with an exact driver that has a package, nearest first; none where the choice has one."""
    chosen = stack.components.get("driver", "")
    known_versions = catalogue.versions_of("driver")
    if stack.components.get("fabric-manager"):
        fabric = {Dotted(text) for text in catalogue.versions_of("fabric")}
        known_versions = tuple(text for text in known_versions if Dotted(text) in fabric)
    stays = stack.target.version("driver") == chosen and not any(t.component == "driver" for t in goal.terms)
    if not chosen or stays or any(Dotted(text) == Dotted(chosen) for text in known_versions):
        return
    wanted = [VersionSet(term.spec, "dotted") for term in goal.terms if term.component == "driver"]
    fitting = [text for text in known_versions if all(s.has(Dotted(text)) for s in wanted)]
    branch = Dotted(chosen).major
    fitting.sort(key=lambda text: (Dotted(text).major != branch, *(-part for part in Dotted(text).parts)))
    for text in fitting[:_TRIES_MAX]:
        term = Term(component="driver", spec=f"=={text}")
        others = tuple(one for one in goal.terms if one.component != "driver")
        words = ",".join((*(one.text for one in (term, *others)), *_wishes(goal)))
        yield replace(goal, text=words, terms=(term, *others))


def _wishes(goal: Goal) -> list[str]:
    found = [f"use={word}" for word in goal.uses]
    found += [
        f"{head}={word}" for head, word in (("delivery", goal.delivery), ("policy", goal.policy)) if word
    ]
    return [*found, *(thing.text for thing in goal.names)]


def _difference(first: StackReport, second: StackReport) -> str:
    before, after = first.components.get("driver", ""), second.components.get("driver", "")
    return f"driver {after} instead of {before}"
