"""Starts a run that nobody's terminal owns: as a unit of systemd, else as a session of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from doctor.apply.ansible import controller_environment
from doctor.errors import ApplyError

__all__ = ["OUTPUT", "Launched", "launch", "unit_of"]

#: What Python itself says: empty as long as nothing goes wrong.
OUTPUT = "output.log"
_DOCTOR = (sys.executable, "-I", "-m", "doctor")
_SYSTEMD = Path("/run/systemd/system")
_ANSWER_S = 60


def unit_of(run: str) -> str:
    """The unit that a run is, where systemd keeps it."""
    return f"mopt-run-{run}.service"


class Launched:
    """A run that was started: how, and whether it is still there."""

    def __init__(self, how: str, is_alive: Callable[[], bool]) -> None:
        self.how, self.is_alive = how, is_alive


def launch(folder: Path) -> Launched:
    """Start the order that lies in `folder`: as the unit's name says, or as `pid N`.

    Raises ApplyError when it cannot be started.
    """
    argv = [*_DOCTOR, "work", str(folder)]
    run = folder.name
    # A user's own manager ends with the last session, so only root's is trusted to outlive the terminal.
    program = shutil.which("systemd-run", path="/usr/bin:/bin") if _SYSTEMD.is_dir() else None
    if program is not None and os.geteuid() == 0:
        unit = unit_of(run)
        if _is_active(unit):
            raise ApplyError(f"run {run} is at work already", end="unchanged")
        # One that was asked for and gives no answer in a minute may still begin: it is watched, not doubled.
        if _as_unit(program, argv, folder):
            return Launched(unit, lambda: _is_active(unit))
    child = _as_session(argv, folder)
    return Launched(f"pid {child.pid}", lambda: child.poll() is None)


def _as_unit(program: str, argv: list[str], folder: Path) -> bool:
    """False where systemd refused it."""
    run = folder.name
    environment = [f"--setenv={name}={value}" for name, value in controller_environment().items()]
    words = [program, f"--unit={unit_of(run)}", "--collect", "--quiet", "--service-type=exec"]
    words += [f"--description=mopt-doctor run {run}", "--property=KillMode=control-group"]
    words += [f"--property=Standard{one}=append:{folder / OUTPUT}" for one in ("Output", "Error")]
    words += [*environment, "--"]
    try:
        # A session of its own: Ctrl-C at the terminal must not hit it between asking and being answered.
        done = subprocess.run(  # noqa: S603 - argv is ours
            [*words, *argv],
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            timeout=_ANSWER_S,
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode == 0


def _is_active(unit: str) -> bool:
    """True, too, while systemd gives no answer: then nobody knows that it is not."""
    program = shutil.which("systemctl", path="/usr/bin:/bin")
    if program is None:
        return False
    try:
        done = subprocess.run(  # noqa: S603
            [program, "is-active", unit],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=_ANSWER_S,
        )
    except subprocess.TimeoutExpired:
        return True
    return done.stdout.strip() in ("active", "activating", "reloading", "deactivating")


def _as_session(argv: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """Its own session, no terminal, no inherited descriptor; what Python itself says goes to a file."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    try:
        output = os.open(folder / OUTPUT, flags, 0o600)
        with os.fdopen(output, "ab") as out:
            return subprocess.Popen(  # noqa: S603 - it outlives this process
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env=controller_environment(),
                cwd="/",
            )
    except OSError as error:
        raise ApplyError(f"the run cannot be started: {error.strerror}", end="unchanged") from None
