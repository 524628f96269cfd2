"""`mopt-doctor apply`, `resume`, `rollback`: consent, then a run of its own that they only watch."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import msgspec
from msgspec.structs import replace

from doctor.apply.ansible import find_playbook_program
from doctor.apply.journal import Journal, entries_of, now
from doctor.apply.launch import launch
from doctor.apply.lock import owner_of
from doctor.apply.observe import observe
from doctor.apply.order import LOCALHOST, Order, read_order, write_order
from doctor.apply.places import run_folder, runs_folder
from doctor.commands.ask import matrix_of
from doctor.commands.derive import Derived, derive
from doctor.config import Settings, load_settings, refuse_untrusted
from doctor.core.plan import Plan, plan_digest
from doctor.core.run import (
    Act,
    CheckedEntry,
    ClosedEntry,
    Entry,
    OpenedEntry,
    RebootEntry,
    encode_entry,
    report_of,
    statuses_of,
)
from doctor.errors import ApplyError, UsageError
from doctor.report.run_text import RunLines, render_run, render_runs

__all__ = ["apply", "resume", "rollback", "work"]

#: A plan of fourteen stages with an engine's lock is below 1 MB.
_PLAN_BYTES_MAX = 16 * 1024 * 1024


def apply(options: argparse.Namespace) -> int:
    """Carry out a plan: derived again, consented to, started, watched."""
    given = _plan(options.plan)
    program_is_there(given)
    settings = _settings(options)
    derived = _again(options, given, settings)
    plan = derived.plan
    assert plan is not None
    if plan.is_refused:
        return _refused(derived)
    if plan.is_empty and not options.dry_run:
        sys.stdout.write(f"nothing to do: the host is as {plan.asked.goal[0]} asks\n")
        return 0
    act: Act = "dry-run" if options.dry_run else "apply"
    if act == "apply":
        _consent(options, derived)
    folder = _new_folder(plan, act)
    order = Order(
        run=folder.name,
        act=act,
        plan=plan,
        host=plan.host.name or LOCALHOST,
        inventory=plan.host.inventory,
        variable_files=_variable_files(options),
        timeout_s=settings.timeout_s,
    )
    return _start(options, folder, order, before=derived)


def resume(options: argparse.Namespace) -> int:
    """Go on with a run; one that is at work is watched; without a name the runs are listed."""
    if options.name is None:
        return _list_runs()
    folder = run_folder(options.name)
    order = read_order(folder)
    report = report_of(entries_of(folder), order.plan.promises)
    if owner_of(order.host).startswith(f"run {order.run} "):
        return _watch(options, folder, order, max(0, _openings(folder) - 1))
    if order.act == "dry-run":
        raise UsageError(f"run {order.run} was a dry run: there is nothing to go on with")
    if report is not None and report.end in ("done", "rolled_back"):
        sys.stdout.write(render_run(report))
        return report.exit_code or 0
    # A rollback that was cut off goes on as one; whatever else was under way goes on to the plan.
    act: Act = "rollback" if order.act == "rollback" else "resume"
    program_is_there(order.plan)
    settings = _settings(options)
    files = _variable_files(options) or order.variable_files
    order = replace(order, act=act, variable_files=files, timeout_s=settings.timeout_s)
    return _start(options, folder, order)


def rollback(options: argparse.Namespace) -> int:
    """Back to the capsule of a run, rehearsed before anything changes."""
    folder = run_folder(options.name)
    order = read_order(folder)
    if order.act == "dry-run":
        raise UsageError(f"run {order.run} was a dry run: it changed nothing")
    program_is_there(order.plan)
    settings = _settings(options)
    if not options.yes:
        _ask(f"Bring {_named(order.plan)} back to what it was before run {order.run}?")
    files = _variable_files(options) or order.variable_files
    return _start(
        options, folder, replace(order, act="rollback", variable_files=files, timeout_s=settings.timeout_s)
    )


def work(options: argparse.Namespace) -> int:
    """The detached run."""
    from doctor.apply.work import work as carry_out

    folder = Path(options.folder)
    folder = run_folder(folder.name) if folder.parent == runs_folder() else folder
    if options.resume:
        order = read_order(folder)
        write_order(folder, replace(order, act="rollback" if order.act == "rollback" else "resume"))
    return carry_out(folder)


# --- before anything changes ----------------------------------------------------------------------


def program_is_there(plan: Plan) -> None:
    """Ansible is here, and this user may change the host. Raises ConfigError, UsageError."""
    find_playbook_program()
    if plan.host.name or os.geteuid() == 0 or os.environ.get("ANSIBLE_BECOME_PASSWORD_FILE"):
        return
    import shutil
    import subprocess

    sudo = shutil.which("sudo", path="/usr/bin:/bin:/usr/local/bin")
    if sudo is None:
        raise UsageError("changing this host needs root, and there is no sudo", hints=("run it as root",))
    asked = subprocess.run(  # noqa: S603
        [sudo, "-n", "true"], capture_output=True, check=False, stdin=subprocess.DEVNULL, timeout=20
    )
    if asked.returncode != 0:
        raise UsageError(
            "changing this host needs root, and sudo asks for a password",
            hints=(
                "run it as root: `sudo mopt-doctor apply …` from a root-owned installation",
                "or name a file that holds the password: ANSIBLE_BECOME_PASSWORD_FILE",
            ),
        )


def _plan(path: str) -> Plan:
    """The plan of a file. Of it only what was asked is believed. Raises UsageError."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(_PLAN_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read: {error.strerror}") from None
    refuse_untrusted(path, "the plan")
    if len(data) > _PLAN_BYTES_MAX:
        raise UsageError(f"`{path}` is no plan: more than {_PLAN_BYTES_MAX} bytes")
    try:
        plan = msgspec.json.decode(data, type=Plan)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"`{path}` is no plan (mopt.plan/1) of this version: {error}",
            hints=("`mopt-doctor plan --goal … -o plan.json` makes one",),
        ) from None
    own = plan_digest(plan.asked, plan.variables, plan.steps, plan.matrix_digest)
    if plan.schema != "mopt.plan/1" or own != plan.digest:
        raise ApplyError(
            f"`{path}` was edited: its digest is not that of what it says. Nothing was changed",
            end="unchanged",
            hints=("a plan is a promise; ask for another one: `mopt-doctor plan --goal … -o plan.json`",),
        )
    return plan


def _again(options: argparse.Namespace, given: Plan, settings: Settings) -> Derived:
    """The same question asked of the host as it is now. Raises ApplyError when the answer is another."""
    matrix = matrix_of(options)
    folder = _scratch()
    evidence = observe(
        host=given.host.name, inventory=given.host.inventory, timeout_s=settings.timeout_s, folder=folder
    )
    derived = derive(matrix, evidence, given.asked, given.host)
    plan = derived.plan
    if plan is None:
        raise ApplyError(
            f"no stack fits {given.asked.goal[0]} on the host as it is now. Nothing was changed",
            end="unchanged",
            hints=("`mopt-doctor plan` says why",),
        )
    if plan.digest != given.digest:
        raise ApplyError(
            f"the plan does not fit the host any more: {_difference(given, plan)}. Nothing was changed",
            end="unchanged",
            hints=(f"`mopt-doctor plan --goal '{given.asked.goal[0]}' -o plan.json` makes one that does",),
        )
    return derived


def _difference(given: Plan, plan: Plan) -> str:
    """What is not as it was, in the fewest words that are true."""
    if given.matrix_digest != plan.matrix_digest:
        return f"it was made from matrix {given.matrix} ({given.matrix_digest[:12]}), this is another one"
    if given.variables.mopt_target != plan.variables.mopt_target:
        before, here = (msgspec.to_builtins(p.variables.mopt_target) for p in (given, plan))
        return ", ".join(f"{k} was {before[k]} and is {here[k]}" for k in before if before[k] != here[k])
    if given.variables.mopt_refusals != plan.variables.mopt_refusals:
        named = plan.variables.mopt_refusals or given.variables.mopt_refusals
        return f"it {'is now' if plan.is_refused else 'was'} refused: {named[0].text}"
    changes = [{c.name: c for step in p.steps for c in step.changes} for p in (given, plan)]
    differing = sorted(
        name for name in {*changes[0], *changes[1]} if changes[0].get(name) != changes[1].get(name)
    )
    if differing:
        return (
            f"packages changed since: {', '.join(differing[:5])}{' and more' if len(differing) > 5 else ''}"
        )
    return "what its stages do is another thing now"


def _scratch() -> Path:
    """Where a collection's files lie for a moment."""
    import tempfile

    return Path(tempfile.mkdtemp(prefix="mopt-doctor-"))


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
        raise ApplyError("not consented to; nothing was changed", end="unchanged")


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
    """The plan's name, or a fresh one where a run of that name has ended: its capsule is another's."""
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
        if report is None:
            return run_folder(name, create=True)
    raise ApplyError(f"a thousand runs of plan {plan.id} are kept", end="unchanged")


def _start(options: argparse.Namespace, folder: Path, order: Order, *, before: Derived | None = None) -> int:
    owner = owner_of(order.host)
    if owner:
        name = owner.split()[1] if len(owner.split()) > 1 else ""
        raise ApplyError(
            f"{owner} is changing {order.host} now",
            end="unchanged",
            hints=(f"`mopt-doctor resume {name}` watches it",),
        )
    write_order(folder, order)
    opened = _openings(folder)
    if before is not None:
        journal = Journal(folder)
        journal.write(
            CheckedEntry(
                at=now(),
                when="before",
                verdict=before.report.verdict,
                statuses=statuses_of(before.report),
                causes=tuple(cause.id for cause in before.report.causes),
            )
        )
        journal.close()
        (folder / "check-before.json").write_bytes(msgspec.json.encode(before.report))
    how = launch(folder)
    if options.no_watch:
        sys.stdout.write(f"run {order.run} is at work ({how}); `mopt-doctor resume {order.run}` watches it\n")
        return 0
    return _watch(options, folder, order, opened)


def _openings(folder: Path) -> int:
    return sum(isinstance(entry, OpenedEntry) for entry in entries_of(folder))


def _watch(options: argparse.Namespace, folder: Path, order: Order, opened: int) -> int:
    from doctor.apply.watch import watch

    lines = RunLines(order.plan)

    def tell(entry: Entry) -> None:
        if options.format == "jsonl":
            sys.stdout.buffer.write(encode_entry(entry))
            sys.stdout.buffer.flush()
        else:
            for line in lines.of(entry):
                say(line)

    def say(text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    say(f"run {order.run} in {folder}; it goes on without this terminal")
    try:
        end = watch(folder, order.host, opened, tell=tell, say=say)
    except KeyboardInterrupt:
        say(f"no longer watched; `mopt-doctor resume {order.run}` watches it again")
        return 130
    if isinstance(end, RebootEntry):
        say(f"the host restarts; the run goes on by itself: `mopt-doctor resume {order.run}` watches it")
        return 0
    report = report_of(entries_of(folder), order.plan.promises)
    assert report is not None
    if options.format == "text":
        sys.stdout.write(render_run(report))
    assert isinstance(end, ClosedEntry)
    return end.exit_code


def _list_runs() -> int:
    found = []
    folder = runs_folder()
    for path in sorted(folder.iterdir(), key=lambda p: p.stat().st_mtime) if folder.is_dir() else ():
        report = report_of(entries_of(path))
        if report is not None:
            found.append(report)
    sys.stdout.write(render_runs(found))
    return 0
