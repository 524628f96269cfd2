"""What must hold before a run begins: a whole plan, a way to the host, and a host that it still fits."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import msgspec

from doctor.apply.ansible import find_playbook_program, trust_what_runs
from doctor.apply.observe import named_host, observe
from doctor.commands.derive import Derived, derive
from doctor.config import refuse_untrusted
from doctor.core.matrix import Matrix
from doctor.core.plan import PLAN_SCHEMA, Plan, plan_digest
from doctor.errors import ApplyError, UsageError

__all__ = ["derive_again", "difference", "program_is_there", "read_plan"]

#: A plan of fourteen stages with an engine's lock is below 1 MB.
_PLAN_BYTES_MAX = 16 * 1024 * 1024


def program_is_there(plan: Plan) -> None:
    """Ansible is here, and this user may change the host. Raises ConfigError, UsageError."""
    find_playbook_program()
    trust_what_runs()
    named_host(plan.host.name, plan.host.inventory)
    if plan.host.name or os.geteuid() == 0 or os.environ.get("ANSIBLE_BECOME_PASSWORD_FILE"):
        return
    sudo = shutil.which("sudo", path="/usr/bin:/bin:/usr/local/bin")
    if sudo is None:
        raise UsageError("changing this host needs root, and there is no sudo", hints=("run it as root",))
    if not _needs_no_password(sudo):
        raise UsageError(
            "changing this host needs root, and sudo asks for a password",
            hints=(
                "run it as root: `sudo mopt-doctor apply …` from a root-owned installation",
                "or name a file that holds the password: ANSIBLE_BECOME_PASSWORD_FILE",
            ),
        )


def _needs_no_password(sudo: str) -> bool:
    """`-k`: what this terminal has remembered is no help to a run that has none."""
    try:
        asked = subprocess.run(  # noqa: S603
            [sudo, "-k", "-n", "true"], capture_output=True, check=False, stdin=subprocess.DEVNULL, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


def read_plan(path: str) -> Plan:
    """The plan of a file. Of it only what was asked, and of which host, is believed.

    Raises UsageError, ConfigError; ApplyError (`unchanged`) when it was edited.
    """
    try:
        if not Path(path).is_file():
            raise UsageError(
                f"`{path}` is no file", hints=("`mopt-doctor plan --goal … -o plan.json` makes one",)
            )
        refuse_untrusted(path, "the plan")
        with Path(path).open("rb") as file:
            data = file.read(_PLAN_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read: {error.strerror}") from None
    if len(data) > _PLAN_BYTES_MAX:
        raise UsageError(f"`{path}` is no plan: more than {_PLAN_BYTES_MAX} bytes")
    try:
        plan = msgspec.json.decode(data, type=Plan)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"`{path}` is no plan (mopt.plan/1) of this version: {error}",
            hints=("`mopt-doctor plan --goal … -o plan.json` makes one",),
        ) from None
    own = plan_digest(plan.host, plan.asked, plan.variables, plan.steps, plan.matrix_digest)
    if plan.schema != PLAN_SCHEMA or own != plan.digest:
        raise ApplyError(
            f"`{path}` was edited: its digest is not that of what it says. Nothing was changed",
            end="unchanged",
            hints=("a plan is a promise; ask for another one: `mopt-doctor plan --goal … -o plan.json`",),
        )
    return plan


def derive_again(matrix: Matrix, given: Plan, timeout_s: float) -> tuple[Derived, Plan]:
    """The same question asked of the host as it is now. Raises ApplyError when the answer is another."""
    with tempfile.TemporaryDirectory(prefix="mopt-doctor-") as place:
        evidence = observe(
            host=given.host.name,
            inventory=given.host.inventory,
            timeout_s=timeout_s,
            folder=Path(place),
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
            f"the plan does not fit the host any more: {difference(given, plan)}. Nothing was changed",
            end="unchanged",
            hints=_hints(given, plan),
        )
    return derived, plan


def _hints(given: Plan, plan: Plan) -> tuple[str, ...]:
    words = ["mopt-doctor", "plan", "--goal", ",".join(given.asked.goal)]
    words += ["--host", given.host.name, "-i", given.host.inventory] if given.host.name else []
    again = f"`{shlex.join(words)} -o plan.json` makes one that does"
    if given.matrix_digest != plan.matrix_digest:
        return (again, "where the plan was made with `--overlay DIR`, give it here, too")
    return (again,)


def difference(given: Plan, plan: Plan) -> str:
    """What is not as it was, in the fewest words that are true."""
    if given.matrix_digest != plan.matrix_digest:
        return f"it was made from matrix {given.matrix} ({given.matrix_digest[:12]}), this is another one"
    if given.variables.mopt_target != plan.variables.mopt_target:
        before, here = (msgspec.to_builtins(p.variables.mopt_target) for p in (given, plan))
        return ", ".join(
            f"{name.replace('_', ' ')} was {_words(before[name])} and is {_words(here[name])}"
            for name in before
            if before[name] != here[name]
        )
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


def _words(value: object) -> str:
    """A field of the target as a person would write it."""
    if isinstance(value, list | tuple):
        return ", ".join(map(_words, value)) or "none"
    if isinstance(value, dict):
        return " ".join(f"{key} {_words(inner)}" for key, inner in value.items())
    return str(value) or "none"
