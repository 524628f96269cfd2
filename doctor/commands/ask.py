"""What `matrix pick` and `matrix why` have in common: the target of the options, and their documents."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import msgspec

from doctor.core.goal import PRESENT, Goal, Term, parse_goal, parse_term
from doctor.core.matrix import Matrix
from doctor.core.target import Target, make_target
from doctor.errors import UsageError

__all__ = ["goal_of", "target_of_options", "unsaid"]

#: Held without a version of its own: no answer changes them.
_FIXED = ("os", "kernel", "glibc", "cuda-repo", "gcc")


def target_of_options(options: argparse.Namespace, matrix: Matrix, *, is_asked: bool = False) -> Target:
    """The machine that the options name; the one of `--from`; or, where neither is named, this host.

    `is_asked` says that the question stands by itself: no machine at all is a machine of any kind.
    """
    named = bool(options.gpu or options.os or options.kernel or options.python or options.arch)
    if options.bundle and named:
        raise UsageError(
            "`--from` and options such as `--gpu` name two machines",
            hints=("`--have` and `--hold` go with `--from`",),
        )
    if options.bundle or not (named or options.have or is_asked):
        target = _of_host(options, matrix)
    else:
        target = _named(options, matrix)
    for name in target.hold:
        if not (target.version(name) or (name == "python" and target.python) or name in _FIXED):
            raise UsageError(
                f"`--hold {name}` holds nothing: what is there of it was not said",
                hints=(f"`--have {name}==VERSION` says it",),
            )
    return target


def unsaid(target: Target) -> tuple[str, ...]:
    """What an answer leaves out because the machine was not described further."""
    missing = [
        (not target.gpus, "no GPU was named: nothing was judged that depends on one"),
        (not target.os, "no system was named: its C library and compilers were not judged"),
        (not target.kernel and not target.driver_kind, "no kernel was named: no driver was judged by it"),
    ]
    return tuple(text for is_missing, text in missing if is_missing)


def _named(options: argparse.Namespace, matrix: Matrix) -> Target:
    have = [parse_term(text) for text in options.have]
    return make_target(
        matrix,
        gpus=options.gpu,
        os=options.os or "",
        kernel=options.kernel or "",
        python=options.python or "",
        arch=options.arch or "",
        have=have,
        hold=options.hold,
    )


def _of_host(options: argparse.Namespace, matrix: Matrix) -> Target:
    # 40 ms of CPU: facts and collector, which a named target does not need.
    from doctor.core.target_host import target_of
    from doctor.facts.read import read_host

    if options.bundle:
        from doctor.evidence.bundle import read_bundle

        evidence = read_bundle(options.bundle)
    else:
        from doctor.config import load_settings
        from doctor.evidence.live import start_collecting

        settings = load_settings(timeout_s=None, no_color=True, ascii_only=False, stdout_is_terminal=False)
        with start_collecting(budget_s=settings.timeout_s, sysroot=None) as live:
            evidence = live.evidence()
    target = target_of(matrix, read_host(evidence), hold=tuple(options.hold))
    also = {term.component: term for term in (*target.have, *(parse_term(text) for text in options.have))}
    return msgspec.structs.replace(target, have=tuple(also.values()))


def goal_of(texts: Sequence[str], named: Sequence[Term] = ()) -> Goal:
    """The goal of these texts together, with the terms that were given as arguments of their own."""
    goal = parse_goal(",".join(texts)) if texts else PRESENT
    if not named:
        return goal
    parts = (*([] if goal is PRESENT else [goal.text]), *(term.text for term in named))
    return msgspec.structs.replace(goal, text=",".join(parts), terms=(*goal.terms, *named))
