"""From evidence to the answer of `check`: reads the facts, judges them, renders and writes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from time import perf_counter

import msgspec

from doctor import __version__
from doctor.commands.output import write_answer
from doctor.config import Settings, overlay_folders
from doctor.core.check import Check
from doctor.core.checks import CHECKS
from doctor.core.evidence import Evidence
from doctor.core.finding import AREAS, CheckReport
from doctor.core.goal import PRESENT, Goal
from doctor.core.host import Host
from doctor.core.judge import judge_scopes, selected
from doctor.edition.load import load_matrix
from doctor.errors import UsageError
from doctor.evidence.live import Collecting
from doctor.facts.read import read_scopes

__all__ = ["give", "list_checks"]

_TEXT_WIDTH = 80
#: For --quiet: the first line is the answer, whole.
_UNWRAPPED = 10_000


def give(
    options: argparse.Namespace,
    settings: Settings,
    live: Collecting | None,
    started: float,
    goal: Goal = PRESENT,
) -> int:
    """Judge what `live` collects, or the bundle that the options name; returns the exit code."""
    checks = _chosen(options)
    matrix = load_matrix(overlays=overlay_folders(settings.overlays))
    evidence = live.evidence() if live else _read(options.bundle)
    if options.redact:
        from doctor.evidence.redact import redact

        evidence = redact(evidence)
    collected = perf_counter()
    hosts = read_scopes(evidence)
    read = perf_counter()
    report = judge_scopes(hosts, matrix, goal, checks=checks, tool=f"mopt-doctor {__version__}")
    report = _finish(
        msgspec.structs.replace(report, is_partial=bool(options.only or options.skip)),
        strict=options.strict,
        timings={
            "collect_ms": round((collected - started) * 1000, 1),
            "read_ms": round((read - collected) * 1000, 1),
            "judge_ms": round((perf_counter() - read) * 1000, 1),
        },
    )
    answer = _render(report, hosts, options, settings)
    # Others read these files at any moment.
    write_answer(answer, options.output, whole=options.format in ("prometheus", "ansible-facts"))
    return report.exit_code


def refuse_unknown(options: argparse.Namespace) -> None:
    """Raises UsageError on an area or a check that does not exist."""
    _chosen(options)


def list_checks(options: argparse.Namespace) -> int:
    """Print the checks that the options choose; 0."""
    for one in _chosen(options):
        mark = "decides" if one.is_critical else ""
        sys.stdout.write(f"{one.id:<28} {one.title:<44} {mark}".rstrip() + "\n")
    return 0


def _read(path: str) -> Evidence:
    from doctor.evidence.open import open_evidence

    return open_evidence(path)


def _words(values: Sequence[str]) -> list[str]:
    return [word for value in values for word in value.split(",") if word]


def _chosen(options: argparse.Namespace) -> tuple[Check, ...]:
    only, skip = _words(options.only), _words(options.skip)
    names = {*AREAS, *(c.id for c in CHECKS)}
    for word in (*only, *skip):
        if word not in names:
            from difflib import get_close_matches

            near = get_close_matches(word, sorted(names), n=1)
            hints = (f"nearest: `{near[0]}`",) if near else ("`mopt-doctor check --list-checks` lists them",)
            raise UsageError(f"`{word}` is neither an area nor a check", hints=hints)
    return selected(only, skip)


def _finish(report: CheckReport, *, strict: bool, timings: dict[str, float]) -> CheckReport:
    """The report with its timings; under --strict a warning makes a ready scope not ready."""
    report = msgspec.structs.replace(report, timings=timings)
    warned = {f.scope for f in report.findings if f.status == "warn"}
    if strict and report.verdict == "ready" and warned:
        scopes = tuple(
            msgspec.structs.replace(s, verdict="not_ready") if s.scope in warned else s for s in report.scopes
        )
        return msgspec.structs.replace(report, verdict="not_ready", exit_code=1, scopes=scopes)
    return report


def _render(
    report: CheckReport, hosts: Sequence[Host], options: argparse.Namespace, settings: Settings
) -> bytes:
    form = "json" if options.json else options.format
    if form != "text":
        from doctor.report.forms import write_check

        return write_check(report, form)
    from doctor.report.text import render_check

    text = render_check(
        report,
        width=_UNWRAPPED if options.quiet else _TEXT_WIDTH,
        colour=settings.colour,
        ascii_only=settings.ascii_only,
        verbose=options.verbose,
        host=hosts[0],
        others=hosts[1:],
    )
    return (text.split("\n", 1)[0].rstrip() + "\n" if options.quiet else text).encode()
