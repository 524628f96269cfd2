"""`matrix pick`: the stack for a goal on this host, on a saved one, or on a machine that is only named."""

from __future__ import annotations

import argparse

from doctor.commands.ask import goal_of, matrix_of, target_of_options, unsaid
from doctor.commands.output import write_answer
from doctor.core.chain import also_of, changes_of, components_of, conflict, keeps_of, reasons
from doctor.core.goal import Goal, Policy
from doctor.core.hints import find_hints
from doctor.core.notes import advice, is_kernel_told, notes
from doctor.core.resolve import Resolution, ask, judge_model, more
from doctor.core.site import overlay_effect
from doctor.core.solve.universe import Universe
from doctor.core.stack import OtherStack, StackReport
from doctor.core.target import Target
from doctor.core.why import nearest
from doctor.errors import UsageError

__all__ = ["pick", "run"]

_EXIT = {"yes": 0, "no": 1, "unknown": 3}
_ALTERNATIVES_MAX = 20


def run(options: argparse.Namespace) -> int:
    """Pick a stack: 0 with one, 1 for a conflict, 3 where the matrix cannot tell."""
    universe = Universe(matrix_of(options))
    target, goal = target_of_options(options, universe.matrix), goal_of(options.goal)
    if not 0 <= options.alternatives <= _ALTERNATIVES_MAX:
        raise UsageError(f"`--alternatives` takes 0 to {_ALTERNATIVES_MAX}")
    report = pick(universe, target, goal, alternatives=options.alternatives)
    if options.json or options.output:
        from doctor.report.machine import to_json

        write_answer(to_json(report), options.output)
    if not options.json:
        from doctor.report.stack_text import render_stack

        write_answer(render_stack(report).encode(), None)
    return report.exit_code


def pick(universe: Universe, target: Target, goal: Goal, *, alternatives: int = 0) -> StackReport:
    """The document of a question."""
    policy: Policy = goal.policy or "repair"
    resolution = ask(universe, target, goal, mode="pick", policy=policy)
    is_yes = resolution.answer == "yes"
    return StackReport(
        matrix_edition=universe.matrix.edition.name,
        goal=goal.text,
        policy=policy,
        compatible=resolution.answer,
        exit_code=_EXIT[resolution.answer],
        target=target,
        delivery=resolution.model.delivery,
        components=components_of(resolution),
        also=also_of(resolution),
        changes=changes_of(resolution),
        keeps=keeps_of(resolution),
        because=(*reasons(resolution), *notes(resolution)) if is_yes else (),
        conflict=() if is_yes else conflict(resolution),
        hints=() if is_yes else find_hints(resolution),
        nearest="" if is_yes else nearest(resolution),
        advice=(*advice(resolution), *unsaid(target, has_kernel=is_kernel_told(resolution.model))),
        alternatives=tuple(_other(one, policy) for one in more(resolution, policy, alternatives))
        if is_yes
        else (),
        other_policy=_of_other_policy(resolution) if is_yes else None,
        overlays=universe.matrix.overlay_names,
        overlay_effect=overlay_effect(universe, resolution, target, mode="pick", policy=policy),
    )


def _other(resolution: Resolution, policy: Policy) -> OtherStack:
    return OtherStack(policy=policy, components=components_of(resolution), changes=changes_of(resolution))


def _of_other_policy(first: Resolution) -> OtherStack | None:
    """The stack of the policy that was not asked for, where it differs."""
    policy: Policy = "harden" if (first.model.goal.policy or "repair") == "repair" else "repair"
    other = judge_model(first.model, policy)
    if other.answer != "yes" or components_of(other) == components_of(first):
        return None
    return _other(other, policy)
