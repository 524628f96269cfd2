"""`mopt-doctor apply`, `resume`, `rollback`: consent, then a run of its own that they only watch."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import msgspec
from msgspec.structs import replace

from doctor.apply.journal import Journal, entries_of, now
from doctor.apply.launch import launch
from doctor.apply.lock import owner_of
from doctor.apply.order import LOCALHOST, Order, read_order, write_order
from doctor.apply.places import refuse_open, run_folder, runs_folder
from doctor.commands.apply_before import derive_again, program_is_there, read_plan
from doctor.commands.derive import Derived
from doctor.config import Settings, load_settings, overlay_folders, refuse_untrusted
from doctor.core.plan import Plan
from doctor.core.run import (
    Act,
    CheckedEntry,
    Entry,
    OpenedEntry,
    RebootEntry,
    RunReport,
    StageBegun,
    encode_entry,
    has_changed,
    report_of,
    statuses_of,
)
from doctor.edition.load import load_matrix
from doctor.errors import ApplyError, UsageError
from doctor.report.plan_text import NOTHING_TO_DO
from doctor.report.run_text import RunLines, render_run, render_runs

__all__ = ["apply", "resume", "rollback", "work"]


def apply(options: argparse.Namespace) -> int:
    """Carry out a plan: derived again, consented to, started, watched."""
    given = read_plan(options.plan)
    program_is_there(given)
    settings = _settings(options)
    files = _variable_files(options)
    # A run has no working directory: what was named from here is kept as a whole path.
    overlays = tuple(str(Path(one).resolve()) for one in overlay_folders(options.overlay))
    derived, plan = derive_again(load_matrix(overlays=overlays), given, settings.timeout_s)
    if plan.is_refused:
        return _refused(derived)
    if plan.is_empty and not options.dry_run:
        sys.stdout.write(f"{NOTHING_TO_DO}\n")
        return 0
    act: Act = "dry-run" if options.dry_run else "apply"
    host = plan.host.name or LOCALHOST
    _refuse_restarting(host)
    _refuse_busy(host)
    if act == "apply":
        _consent(options, derived)
    folder = _new_folder(plan, act)
    order = Order(
        run=folder.name,
        act=act,
        plan=plan,
        host=host,
        inventory=plan.host.inventory,
        variable_files=files,
        overlays=overlays,
        timeout_s=settings.timeout_s,
    )
    return _start(options, folder, order, before=derived)


def resume(options: argparse.Namespace) -> int:
    """Go on with a run; one that is at work is watched; without a name the runs are listed."""
    if options.name is None:
        return _list_runs()
    folder = run_folder(options.name)
    order = read_order(folder)
    entries = list(entries_of(folder))
    report = report_of(entries, order.plan.promises)
    if owner_of(order.host).startswith(f"run {order.run} "):
        return _watch(options, folder, order, max(0, _openings(folder) - 1), lambda: lambda: False)
    if order.act == "dry-run":
        raise UsageError(f"run {order.run} was a dry run: there is nothing to go on with")
    act = _next_act(order, entries)
    if report is not None and act != "rollback" and report.end in ("done", "rolled_back"):
        sys.stdout.write(render_run(report))
        return report.exit_code or 0
    program_is_there(order.plan)
    settings = _settings(options)
    files = _variable_files(options) or order.variable_files
    order = replace(order, act=act, variable_files=files, timeout_s=settings.timeout_s)
    return _start(options, folder, order)


def _next_act(order: Order, entries: list[Entry]) -> Act:
    """A rollback that was cut off goes on as one; whatever else was under way goes on to the plan."""
    report = report_of(entries)
    if order.act != "rollback":
        return "resume"
    if report is None or report.act != "rollback" or report.end == "open":
        return "rollback"
    if report.end == "rolled_back":
        return "resume"  # which says that it is over
    act = entries[max(n for n, entry in enumerate(entries) if isinstance(entry, OpenedEntry)) :]
    # One that was refused when it was rehearsed has not begun: the way on is open, as before.
    return "rollback" if any(isinstance(entry, StageBegun) for entry in act) else "resume"


def rollback(options: argparse.Namespace) -> int:
    """Back to the capsule of a run, rehearsed before anything changes."""
    folder = run_folder(options.name)
    order = read_order(folder)
    if order.act == "dry-run":
        raise UsageError(f"run {order.run} was a dry run: it changed nothing")
    _refuse_busy(order.host)
    entries = list(entries_of(folder))
    report = report_of(entries, order.plan.promises)
    if report is not None and report.end == "rolled_back":
        sys.stdout.write(render_run(report))
        return 0
    if not has_changed(entries):
        sys.stdout.write(f"nothing to undo: run {order.run} changed nothing\n")
        return 0
    program_is_there(order.plan)
    settings = _settings(options)
    files = _variable_files(options) or order.variable_files
    if not options.yes:
        _ask(f"Bring {_named(order.plan)} back to what it was before run {order.run}?")
    return _start(
        options, folder, replace(order, act="rollback", variable_files=files, timeout_s=settings.timeout_s)
    )


def work(options: argparse.Namespace) -> int:
    """The detached run."""
    from doctor.apply.work import work as carry_out

    folder = Path(options.folder)
    if not folder.is_dir():
        raise UsageError(f"`{folder}` is no run's folder")
    refuse_open(folder)
    if options.resume:
        order, entries = read_order(folder), list(entries_of(folder))
        report = report_of(entries)
        if report is not None and report.end != "open":
            return 0  # somebody was quicker than the unit: the run has ended, and is not begun anew
        write_order(folder, replace(order, act=_next_act(order, entries)))
    return carry_out(folder)


# --- before anything changes ----------------------------------------------------------------------


def _refuse_busy(host: str) -> None:
    """Raises ApplyError (`unchanged`) while another run is changing the host."""
    owner = owner_of(host)
    if owner:
        name = owner.split()[1] if len(owner.split()) > 1 else ""
        raise ApplyError(
            f"{owner} is changing {host} now. Nothing was changed",
            end="unchanged",
            hints=(f"`mopt-doctor resume {name}` watches it",),
        )


def _refuse_restarting(host: str) -> None:
    """Raises ApplyError (`unchanged`) while a run waits for the restart that it has announced."""
    for folder, report in _runs():
        if report.host == host and report.end == "open" and report.reboot and not owner_of(host):
            raise ApplyError(
                f"run {report.run} waits for the restart of {host} that it announced. Nothing was changed",
                end="unchanged",
                hints=(
                    f"`mopt-doctor resume {folder.name}` goes on",
                    f"`mopt-doctor rollback {folder.name}` goes back",
                ),
            )


def _refused(derived: Derived) -> int:
    from doctor.report.plan_text import render_plan

    assert derived.variables is not None
    sys.stdout.write(render_plan(derived.ground, derived.variables, derived.plan))
    return 1


def _consent(options: argparse.Namespace, derived: Derived) -> None:
    from doctor.report.plan_text import render_plan

    assert derived.variables is not None
    assert derived.plan is not None
    if options.yes:
        return
    sys.stderr.write(render_plan(derived.ground, derived.variables, derived.plan) + "\n")
    _ask(f"Change {_named(derived.plan)} so?")


def _named(plan: Plan) -> str:
    return plan.host.name or plan.host.hostname or "this host"


def _ask(question: str) -> None:
    """Raises UsageError without a terminal, ApplyError (`unchanged`) on anything but yes."""
    if not sys.stdin.isatty():
        raise UsageError("nobody is there to ask", hints=("`--yes` says so beforehand",))
    sys.stderr.write(f"{question} [yes/no] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() != "yes":
        raise ApplyError("not consented to: only `yes` is a yes. Nothing was changed", end="unchanged")


def _variable_files(options: argparse.Namespace) -> tuple[str, ...]:
    found = []
    for name in options.variable_file:
        path = Path(name).resolve()
        if not path.is_file():
            raise UsageError(f"`-e {name}` is no file")
        refuse_untrusted(str(path), "the variables")
        found.append(str(path))
    return tuple(found)


def _settings(options: argparse.Namespace) -> Settings:
    return load_settings(
        timeout_s=options.timeout,
        no_color=options.no_color,
        ascii_only=options.ascii,
        stdout_is_terminal=sys.stderr.isatty(),
    )


# --- the run --------------------------------------------------------------------------------------


def _new_folder(plan: Plan, act: Act) -> Path:
    """The plan's name, or a fresh one where a run of that name is kept: its capsule is another's."""
    for number in range(1, 1000):
        name = plan.id if number == 1 else f"{plan.id}-{number}"
        name = f"{name}-dry" if act == "dry-run" else name
        path = runs_folder() / name
        report = report_of(entries_of(path)) if path.is_dir() else None
        if report is not None and act == "apply" and report.end in ("open", "half_way"):
            raise ApplyError(
                f"run {name} of this plan is {'under way' if report.end == 'open' else 'half-way'}",
                end="unchanged",
                hints=(f"`mopt-doctor resume {name}` goes on", f"`mopt-doctor rollback {name}` goes back"),
            )
        if not path.exists():
            return run_folder(name, create=True)
    raise ApplyError(f"a thousand runs of plan {plan.id} are kept", end="unchanged")


def _start(options: argparse.Namespace, folder: Path, order: Order, *, before: Derived | None = None) -> int:
    _refuse_busy(order.host)
    write_order(folder, order)
    opened = _openings(folder)
    if before is not None:
        _tell_before(folder, before)
    if not options.no_watch:

        def start() -> Callable[[], bool]:
            return launch(folder).is_alive

        return _watch(options, folder, order, opened, start)
    how = launch(folder).how
    sys.stdout.write(f"run {order.run} is at work ({how}); `mopt-doctor resume {order.run}` watches it\n")
    return 0


def _tell_before(folder: Path, before: Derived) -> None:
    """What `check` said on the evidence that the plan was derived from again."""
    journal = Journal(folder)
    try:
        journal.write(
            CheckedEntry(
                at=now(),
                when="before",
                verdict=before.report.verdict,
                statuses=statuses_of(before.report),
                causes=tuple(cause.id for cause in before.report.causes),
            )
        )
    finally:
        journal.close()
    (folder / "check-before.json").write_bytes(msgspec.json.encode(before.report))


def _openings(folder: Path) -> int:
    return sum(isinstance(entry, OpenedEntry) for entry in entries_of(folder))


def _watch(
    options: argparse.Namespace,
    folder: Path,
    order: Order,
    opened: int,
    start: Callable[[], Callable[[], bool]],
) -> int:
    from doctor.apply.watch import Left, watch

    lines = RunLines(order.plan)

    def tell(entry: Entry) -> None:
        if options.format == "jsonl":
            _put(sys.stdout, encode_entry(entry).decode())
        else:
            for line in lines.of(entry):
                say(line)

    def say(text: str) -> None:
        _put(sys.stderr, text + "\n")

    say(f"run {order.run} in {folder}; it goes on without this terminal")
    try:
        end = watch(folder, order.host, opened, start=start, tell=tell, say=say)
    except Left as left:
        say(f"no longer watched; `mopt-doctor resume {order.run}` watches it again")
        return left.exit_code
    if isinstance(end, RebootEntry):
        say(f"the host restarts; the run goes on by itself: `mopt-doctor resume {order.run}` watches it")
        return 0
    report = report_of(entries_of(folder), order.plan.promises)
    if options.format == "text" and report is not None:
        _put(sys.stdout, render_run(report))
    return end.exit_code


def _put(stream: TextIO, text: str) -> None:
    """A reader that has gone (`| head`, a lost terminal) changes nothing about how the run ends."""
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        # What is in the buffer would be tried again at the process's end, and fail there.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _runs() -> Iterator[tuple[Path, RunReport]]:
    """The runs that are kept here, oldest first."""
    folder = runs_folder()
    paths = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    for path in sorted(paths, key=lambda p: (p.stat().st_mtime, p.name)):
        report = report_of(entries_of(path))
        if report is not None:
            yield path, report


def _list_runs() -> int:
    sys.stdout.write(render_runs([report for _folder, report in _runs()]))
    return 0
