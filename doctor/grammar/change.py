"""The commands that plan a change of a host and carry it out."""

from __future__ import annotations

import argparse

from doctor.grammar.base import Commands, add_look, add_overlay, add_target, command, later

__all__ = ["add_apply", "add_plan", "add_resume", "add_rollback", "add_work"]


def add_plan(commands: Commands) -> None:  # type: ignore[valid-type]
    """`plan`."""
    one = command(commands, "plan", "say what would be done on a host for a goal; do nothing", "plan:run")
    add_target(one, has_json=False)
    one.add_argument(
        "--format",
        choices=("text", "json", "ansible-vars"),
        default="text",
        help="for people, the plan (mopt.plan/1), or the variables of a playbook run (mopt.vars/1) (text)",
    )
    one.add_argument("-o", dest="output", metavar="FILE", help="write the plan to FILE, for `apply`")
    one.add_argument("--host", metavar="NAME", help="plan for this host of the inventory")
    one.add_argument("-i", dest="inventory", metavar="INVENTORY", help="an Ansible inventory")
    one.add_argument(
        "--on-failure",
        choices=("stop", "rollback"),
        default="stop",
        help="when a stage fails after the first change: stop there, or go back at once (stop)",
    )
    one.add_argument(
        "--mirror-list", action="store_true", help="only the addresses and packages a closed site must bring"
    )
    one.add_argument(
        "--origin",
        choices=("nvidia", "canonical", "airgap"),
        help="whose packages (those that are there; signed ones where Secure Boot wants them; nvidia)",
    )
    one.add_argument(
        "--change-origin", action="store_true", help="replace the driver's packages of another origin"
    )
    one.add_argument(
        "--reload",
        action="store_true",
        help="load the modules again instead of a reboot, where nothing uses them",
    )
    one.add_argument(
        "--profile",
        choices=("compute", "full"),
        help="full: graphics libraries, too (as it is; else compute)",
    )
    one.add_argument(
        "--mirror", action="append", default=[], metavar="NAME=URL", help="another address of a repository"
    )
    one.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="NAME=URL",
        help="another address of its key, or file:NAME among the role's files; #FINGERPRINT behind it",
    )
    one.add_argument("--index-url", metavar="URL", help="the package index for engine environments")
    one.add_argument("--extra-index-url", metavar="URL", help="another one beside it")
    one.add_argument("--wheelhouse", metavar="DIR", help="a folder of wheels on the host instead of an index")
    one.add_argument(
        "--engine-lock",
        action="append",
        default=[],
        metavar="FILE",
        help="every package of an engine's environment at one version, with hashes",
    )


def _add_run_options(one: argparse.ArgumentParser) -> None:
    one.add_argument("--yes", action="store_true", help="do not ask")
    one.add_argument(
        "--format",
        choices=("text", "jsonl"),
        default="text",
        help="progress for people, or the journal's entries as they come (text)",
    )
    one.add_argument(
        "--no-watch", action="store_true", help="start the run and end; `mopt-doctor resume RUN` watches it"
    )
    one.add_argument(
        "-e",
        dest="variable_file",
        action="append",
        default=[],
        metavar="FILE",
        help="the site's own variables (YAML or JSON): drain hooks, proxies (repeatable)",
    )
    one.add_argument("--timeout", metavar="S", help="seconds for one collection (15)")
    add_look(one)


def add_apply(commands: Commands) -> None:  # type: ignore[valid-type]
    """`apply`."""
    one = command(commands, "apply", "carry out a plan, step by step, in a run of its own", "apply:apply")
    one.add_argument("plan", metavar="PLAN", help="what `plan -o` wrote")
    one.add_argument("--dry-run", action="store_true", help="Ansible's check mode: nothing is changed")
    add_overlay(one)
    _add_run_options(one)


def add_resume(commands: Commands) -> None:  # type: ignore[valid-type]
    """`resume`."""
    one = command(commands, "resume", "go on with a run that was interrupted, or watch it", "apply:resume")
    one.add_argument("name", nargs="?", metavar="RUN", help="its name; without it the runs are listed")
    _add_run_options(one)


def add_rollback(commands: Commands) -> None:  # type: ignore[valid-type]
    """`rollback`."""
    one = command(commands, "rollback", "bring a host back to what it was before a run", "apply:rollback")
    one.add_argument("name", metavar="RUN", help="its name")
    _add_run_options(one)


def add_work(commands: Commands) -> None:  # type: ignore[valid-type]
    """The detached run itself; `apply` and the unit after a reboot start it, and no help lists it."""
    one = commands.add_parser("work", allow_abbrev=False)  # type: ignore[attr-defined]
    one.set_defaults(run=later("apply:work"))
    one.add_argument("folder")
    one.add_argument("--resume", action="store_true")
