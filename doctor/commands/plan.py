"""`mopt-doctor plan`: what would be done on a host for a goal, stage by stage. Nothing is done."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from doctor.commands.ask import goal_of, matrix_of, named_target
from doctor.commands.matrix_pick import pick
from doctor.commands.output import write_answer
from doctor.core.goal import PRESENT, Goal, Term, parse_term
from doctor.core.host import Host, known
from doctor.core.lower import Choices, Ground, lower
from doctor.core.lower.catalogue import Catalogue
from doctor.core.lower.named import host_of
from doctor.core.lower.refusals import installed_origins, is_key_enrolled, machine_refusals
from doctor.core.matrix import Matrix
from doctor.core.rows.install import Origin
from doctor.core.sets import VersionSet
from doctor.core.solve.universe import Universe
from doctor.core.stack import StackReport
from doctor.core.target import Target, system_of
from doctor.core.target_host import target_of
from doctor.core.versions import Dotted
from doctor.errors import UsageError

__all__ = ["choose_stack", "origin_of", "run"]

#: So many other driver versions are tried where the one chosen has no package here.
_TRIES_MAX = 12


def run(options: argparse.Namespace) -> int:
    """Plan: 0 with a plan, 1 for a conflict or a refusal, 3 where the matrix cannot tell."""
    universe = Universe(matrix_of(options))
    goal = goal_of(options.goal)
    if goal == PRESENT:
        raise UsageError("`plan` needs a goal", hints=("for example `--goal driver==580.126.20`",))
    target, host = _machine(options, universe.matrix)
    origin = options.origin or origin_of(universe.matrix, target, host)
    choices = _choices(options, origin)
    stack = choose_stack(universe, target, goal, origin)
    ground = Ground(matrix=universe.matrix, stack=stack, host=host, choices=choices)
    if stack.compatible != "yes" and not machine_refusals(ground):
        return _no_stack(stack, options)
    variables = lower(ground)
    if options.format == "ansible-vars":
        from doctor.report.machine import to_json

        write_answer(to_json(variables), options.output, whole=True)
    else:
        from doctor.report.plan_text import render_plan

        write_answer(render_plan(ground, variables).encode(), options.output)
    return 1 if variables.mopt_refusals else 0


def _no_stack(stack: StackReport, options: argparse.Namespace) -> int:
    """The conflict takes the place of the plan: on stderr where a program reads the other."""
    import sys

    from doctor.report.stack_text import render_stack

    if options.format == "ansible-vars":
        sys.stderr.write(render_stack(stack))
    else:
        write_answer(render_stack(stack).encode(), options.output)
    return stack.exit_code


# --- the machine ----------------------------------------------------------------------------------


def _machine(options: argparse.Namespace, matrix: Matrix) -> tuple[Target, Host]:
    """The machine that the options name; the one of `--from`; or, where neither is named, this host."""
    named = bool(options.gpu or options.os or options.kernel or options.python or options.arch)
    if options.bundle and named:
        raise UsageError(
            "`--from` and options such as `--gpu` name two machines",
            hints=("`--have` and `--hold` go with `--from`",),
        )
    if named:
        target = named_target(options, matrix)
        return target, host_of(target)
    host = _read(options)
    target = target_of(matrix, host, hold=tuple(options.hold))
    have = {term.component: term for term in (*target.have, *(parse_term(text) for text in options.have))}
    return replace(target, have=tuple(have.values())), host


def _read(options: argparse.Namespace) -> Host:
    from doctor.facts.read import read_host

    if options.bundle:
        from doctor.evidence.open import open_evidence

        return read_host(open_evidence(options.bundle))
    from doctor.config import load_settings
    from doctor.evidence.live import start_collecting

    settings = load_settings(timeout_s=None, no_color=True, ascii_only=False, stdout_is_terminal=False)
    with start_collecting(budget_s=settings.timeout_s, sysroot=None) as live:
        return read_host(live.evidence())


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


def _choices(options: argparse.Namespace, origin: Origin) -> Choices:
    return Choices(
        origin=origin,
        profile=options.profile or "",
        mirrors=_pairs("--mirror", options.mirror),
        keys=_pairs("--key", options.key),
        change_origin=options.change_origin,
        reload=options.reload,
        index_url=options.index_url or "",
        extra_index_url=options.extra_index_url or "",
        wheelhouse=options.wheelhouse or "",
    )


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip() or not value.strip():
            raise UsageError(
                f"`{option} {text}` is not NAME=VALUE", hints=(f"for example `{option} cuda=…`",)
            )
        if found.setdefault(name.strip(), value.strip()) != value.strip():
            raise UsageError(f"`{option}` names `{name.strip()}` twice")
    return found


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
