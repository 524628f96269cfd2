"""Starts a run that nobody's terminal owns: as a unit of systemd, else as a session of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from doctor.apply.ansible import controller_environment
from doctor.errors import ApplyError

__all__ = ["OUTPUT", "launch", "unit_of"]

#: What Python itself says: empty as long as nothing goes wrong.
OUTPUT = "output.log"
_SYSTEMD = Path("/run/systemd/system")


def unit_of(run: str) -> str:
    """The unit that a run is, where systemd keeps it."""
    return f"mopt-run-{run}.service"


def launch(folder: Path) -> str:
    """Start the order that lies in `folder`; returns how: the unit's name, or `pid N`.

    Raises ApplyError when it cannot be started.
    """
    argv = [sys.executable, "-I", "-m", "doctor", "work", str(folder)]
    run = folder.name
    # A user's own manager ends with the last session, so only root's is trusted to outlive the terminal.
    program = shutil.which("systemd-run", path="/usr/bin:/bin") if _SYSTEMD.is_dir() else None
    if program is not None and os.geteuid() == 0:
        done = _as_unit(program, argv, folder)
        if done.returncode == 0:
            return unit_of(run)
        if _is_loaded(unit_of(run)):
            raise ApplyError(f"run {run} is at work already", end="unchanged")
    return f"pid {_as_session(argv, folder)}"


def _as_unit(program: str, argv: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    run = folder.name
    environment = [f"--setenv={name}={value}" for name, value in controller_environment().items()]
    words = [program, f"--unit={unit_of(run)}", "--collect", "--quiet", "--service-type=exec"]
    words += [f"--description=mopt-doctor run {run}", "--property=KillMode=control-group"]
    words += [f"--property=Standard{one}=append:{folder / OUTPUT}" for one in ("Output", "Error")]
    words += [*environment, "--"]
    return subprocess.run(  # noqa: S603 - argv is ours
        [*words, *argv], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=60
    )


def _is_loaded(unit: str) -> bool:
    done = subprocess.run(  # noqa: S603
        ["/usr/bin/systemctl", "is-active", "--quiet", unit],
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    return done.returncode == 0


def _as_session(argv: list[str], folder: Path) -> int:
    """Its own session, no terminal, no inherited descriptor; what Python itself says goes to a file."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    try:
        output = os.open(folder / OUTPUT, flags, 0o600)
        with os.fdopen(output, "ab") as out:
            child = subprocess.Popen(  # noqa: S603 - it outlives this process
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
    return child.pid
