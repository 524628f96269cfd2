"""What `matrix pick` and `matrix why` have in common: the target of the options, and their documents."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from doctor.core.goal import PRESENT, Goal, Term, parse_goal, parse_term
from doctor.core.matrix import Matrix
from doctor.core.target import Target, make_target
from doctor.errors import ConfigError, UsageError

__all__ = ["goal_of", "target_of_options", "write"]


def target_of_options(options: argparse.Namespace, matrix: Matrix, named: Sequence[Term] = ()) -> Target:
    """The machine that the options name; without any, this host, or the one of `--from`."""
    names_one = bool(options.gpu or options.os or options.kernel or options.have or options.python or named)
    if options.bundle and (options.gpu or options.os or options.kernel or options.python):
        raise UsageError(
            "`--from` and options such as `--gpu` name two machines",
            hints=("`--have` and `--hold` go with `--from`",),
        )
    if options.bundle or not names_one:
        return _of_host(options, matrix)
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
        from doctor.config import check_root_ownership, load_settings
        from doctor.evidence.live import start_collecting

        settings = load_settings(timeout_s=None, no_color=True, ascii_only=False, stdout_is_terminal=False)
        check_root_ownership(settings)
        with start_collecting(budget_s=settings.timeout_s, sysroot=None) as live:
            evidence = live.evidence()
    target = target_of(matrix, read_host(evidence), hold=tuple(options.hold))
    also = {term.component: term for term in (*target.have, *(parse_term(text) for text in options.have))}
    return msgspec.structs.replace(target, have=tuple(also.values()))


def goal_of(options: argparse.Namespace, named: Sequence[Term] = ()) -> Goal:
    """The goal of `--goal`, with the terms that were given as arguments."""
    goal = parse_goal(",".join(options.goal)) if options.goal else PRESENT
    if not named:
        return goal
    terms = (*goal.terms, *named)
    text = ",".join(
        part for part in (goal.text if goal is not PRESENT else "", *(term.text for term in named)) if part
    )
    return msgspec.structs.replace(goal, text=text, terms=terms)


def write(data: bytes, path: str | None) -> None:
    """To a file, or to stdout. Raises ConfigError when the file cannot be written."""
    if not path:
        sys.stdout.write(data.decode())
        return
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise ConfigError(f"`{path}` cannot be written: {error.strerror}") from error
