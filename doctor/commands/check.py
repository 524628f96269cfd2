"""`mopt-doctor check`: starts the collector, then loads what will judge while it works."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter

from doctor.config import Settings, load_settings, refuse_engine_mix
from doctor.core.goal import PRESENT, Goal
from doctor.errors import UsageError

TYPE_CHECKING = False  # the import of typing is not free
if TYPE_CHECKING:
    from doctor.evidence.live import Collecting

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Judge this host or a bundle; the exit code is the verdict's."""
    if options.bundle is not None and options.sysroot is not None:
        raise UsageError("`--from` and `--sysroot` name two hosts", hints=("give one of them",))
    for option, value in (("--from", options.bundle), ("--sysroot", options.sysroot)):
        if value == "":
            # `--from "$UNSET"` in a script must not judge the host that the script runs on.
            raise UsageError(f"`{option}` is given, and names nothing")
    if options.bundle and options.env:
        raise UsageError(
            "`--env` looks into an environment of this host, and `--from` names another one",
            hints=("`mopt-doctor matrix why --env PATH --from FILE` judges one for the other",),
        )
    if options.list_checks:
        from doctor.commands import verdict

        return verdict.list_checks(options)
    goal = _refuse_early(options)
    settings = _settings(options)
    refuse_engine_mix()
    started = perf_counter()
    with _collecting(options, settings) as live:
        # 60 ms of CPU (CPython 3.11): matrix, checks and facts are loaded while the collector works.
        from doctor.commands import verdict

        return verdict.give(options, settings, live, started, goal)


def _refuse_early(options: argparse.Namespace) -> Goal:
    """What is wrong with the command line is said before anything is started."""
    if options.sysroot and not os.path.isdir(options.sysroot):  # noqa: PTH112 - pathlib costs 4 ms here
        raise UsageError(f"the sysroot `{options.sysroot}` is not a directory")
    if options.only or options.skip:
        from doctor.commands import verdict

        verdict.refuse_unknown(options)
    if not options.goal:
        return PRESENT
    # 60 ms: the grammar of goals and the resolver, which no goal `present` needs.
    from doctor.commands.ask import checked_goal

    return checked_goal(options)


def _collecting(options: argparse.Namespace, settings: Settings) -> AbstractContextManager[Collecting | None]:
    if options.bundle:
        return nullcontext()
    from doctor.evidence.live import start_collecting, whole_paths

    return start_collecting(
        budget_s=settings.timeout_s,
        sysroot=options.sysroot,
        environments=whole_paths(options.env, options.sysroot),
    )


def _settings(options: argparse.Namespace) -> Settings:
    return load_settings(
        timeout_s=options.timeout,
        no_color=options.no_color,
        overlays=options.overlay,
        ascii_only=options.ascii or not _speaks_unicode(),
        stdout_is_terminal=sys.stdout.isatty() and not options.output,
    )


def _speaks_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") in ("utf8", "utf16", "utf32")
