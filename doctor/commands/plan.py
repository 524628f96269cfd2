"""`mopt-doctor plan`: what would be done on a host for a goal, stage by stage. Nothing is done."""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from doctor.apply.observe import named_host
from doctor.commands.ask import goal_of, matrix_of, named_target
from doctor.commands.derive import Derived, derive, ground_of, origin_of, target_for
from doctor.commands.output import write_answer
from doctor.core.evidence import Evidence
from doctor.core.goal import PRESENT, Goal
from doctor.core.lower import Choices, Ground, lower
from doctor.core.lower.named import host_of
from doctor.core.lower.pins import pins_of
from doctor.core.lower.refusals import machine_refusals
from doctor.core.matrix import Matrix
from doctor.core.plan import Asked, PlannedHost
from doctor.core.rows.install import Origin
from doctor.core.solve.universe import Universe
from doctor.core.stack import StackReport
from doctor.core.stages import Variables
from doctor.errors import UsageError
from doctor.facts.read import read_host

__all__ = ["run"]

#: `scheme://user:password@host`, and a token alone in that place.
_HAS_PASSWORD = re.compile(r"://[^/\s@]{1,500}@")
#: Characters read of a lock; one that is longer is refused for that.
_LOCK_MAX = (4 << 20) + 1


def run(options: argparse.Namespace) -> int:
    """Plan: 0 with a plan, 1 for a conflict or a refusal, 3 where the matrix cannot tell."""
    matrix = matrix_of(options)
    goal = goal_of(options.goal)
    if goal == PRESENT:
        raise UsageError("`plan` needs a goal", hints=("for example `--goal driver==580.126.20`",))
    if options.host and not options.inventory:
        raise UsageError("`--host` names a host of an inventory", hints=("`-i INVENTORY` says of which",))
    named_host(options.host or "", options.inventory or "")
    named = bool(options.gpu or options.os or options.kernel or options.python or options.arch)
    if named and (options.bundle or options.host):
        raise UsageError(
            f"`{'--from' if options.bundle else '--host'}` and options such as `--gpu` name two machines",
            hints=("`--have` and `--hold` go with `--from` and `--host`",),
        )
    return _of_named(options, matrix, goal) if named else _of_host(options, matrix, goal)


def _of_named(options: argparse.Namespace, matrix: Matrix, goal: Goal) -> int:
    """For a machine that need not be there: stages, but nothing that `apply` could take."""
    target = named_target(options, matrix)
    host = host_of(target)
    choices = _choices(options, options.origin or origin_of(matrix, target, host))
    ground = ground_of(Universe(matrix), target, host, goal, choices)
    if ground.stack.compatible != "yes" and not machine_refusals(ground):
        return _no_stack(ground.stack, options)
    if options.format == "json":
        raise UsageError(
            "a plan that `apply` takes is made for a host that was read, and this machine is only named",
            hints=("`--format ansible-vars` gives the variables of a playbook run",),
        )
    return _write(options, ground, lower(ground))


def _of_host(options: argparse.Namespace, matrix: Matrix, goal: Goal) -> int:
    evidence = _evidence(options)
    machine = read_host(evidence)
    target = target_for(matrix, machine, options.hold, options.have)
    asked = Asked(
        goal=(goal.text,),
        hold=tuple(options.hold),
        have=tuple(options.have),
        choices=_choices(options, options.origin or origin_of(matrix, target, machine)),
        on_failure=options.on_failure,
    )
    inventory = str(Path(options.inventory).resolve()) if options.inventory else ""
    where = PlannedHost(name=options.host or "", inventory=inventory)
    derived = derive(matrix, evidence, asked, where)
    if derived.variables is None or derived.plan is None:
        return _no_stack(derived.ground.stack, options)
    return _write(options, derived.ground, derived.variables, derived)


def _write(
    options: argparse.Namespace, ground: Ground, variables: Variables, derived: Derived | None = None
) -> int:
    """The plan in the form that was asked for."""
    from doctor.report.machine import to_json
    from doctor.report.plan_text import render_mirrors, render_plan

    plan = derived.plan if derived else None
    if options.format == "ansible-vars":
        write_answer(to_json(variables), options.output, whole=True)
    elif options.format == "json" and plan is not None:
        write_answer(to_json(plan), options.output, whole=True)
    elif options.mirror_list:
        write_answer(render_mirrors(variables).encode(), options.output)
    else:
        text = render_plan(ground, variables, plan)
        if plan is not None and options.output:
            write_answer(to_json(plan), options.output, whole=True)
            if plan.steps:
                text += f"\nThe plan is in {options.output}: `mopt-doctor apply {options.output}` does it.\n"
        write_answer(text.encode(), None if plan is not None else options.output)
    return 1 if variables.mopt_refusals else 0


def _no_stack(stack: StackReport, options: argparse.Namespace) -> int:
    """The conflict takes the place of the plan: on stderr where a program reads the other."""
    import sys

    from doctor.report.stack_text import render_stack

    if options.format == "text":
        write_answer(render_stack(stack).encode(), None)
    else:
        sys.stderr.write(render_stack(stack))
    return stack.exit_code


def _evidence(options: argparse.Namespace) -> Evidence:
    """Of a bundle, of a host of the inventory, or of this host."""
    if options.bundle:
        from doctor.evidence.open import open_evidence

        return open_evidence(options.bundle)
    from doctor.apply.observe import observe
    from doctor.config import load_settings

    settings = load_settings(timeout_s=None, no_color=True, ascii_only=False, stdout_is_terminal=False)
    with tempfile.TemporaryDirectory(prefix="mopt-doctor-") as place:
        return observe(
            host=options.host or "",
            inventory=options.inventory or "",
            timeout_s=settings.timeout_s,
            folder=Path(place),
        )


def _choices(options: argparse.Namespace, origin: Origin) -> Choices:
    for text in (*options.mirror, *options.key, options.index_url or "", options.extra_index_url or ""):
        if _HAS_PASSWORD.search(text):
            raise UsageError(
                "an address with a password in it would be kept in the plan, and in each run of it",
                hints=("on the host: /etc/apt/auth.conf.d, dnf's `username=` and `password=`, pip's netrc",),
            )
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
        engine_locks={path: pins_of(_text(path), path) for path in options.engine_lock},
    )


def _text(path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8") as file:
            return file.read(_LOCK_MAX)
    except (OSError, UnicodeDecodeError) as fault:
        raise UsageError(f"`{path}` cannot be read: {fault}") from fault


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
