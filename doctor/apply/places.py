"""Where runs are kept on the doctor's side: as root below /var/lib, else below the user's state."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from doctor.errors import ApplyError, UsageError

__all__ = ["RUN_NAME", "lock_file", "run_folder", "runs_folder"]

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")


def runs_folder() -> Path:
    """Beside, not in, the folder in which the roles keep a host's capsules: that one is a host's own."""
    if os.geteuid() == 0:
        return Path("/var/lib/mopt-doctor/journals")
    state = os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()
    return Path(state) / "mopt-doctor" / "journals"


def run_folder(run: str, *, create: bool = False) -> Path:
    """The folder of a run, 0700. Raises UsageError on a name that is none or that nobody knows."""
    if not RUN_NAME.match(run):
        raise UsageError(f"`{ascii(run)[1:-1]}` is no name of a run")
    folder = runs_folder() / run
    if create:
        _make(folder)
    elif not folder.is_dir():
        raise UsageError(
            f"no run `{run}` is known here: `{folder.parent}` does not hold it",
            hints=("a run is kept by the user who started it", f"`ls {folder.parent}` lists them"),
        )
    _refuse_open(folder)
    return folder


def _make(folder: Path) -> None:
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        text = f"the run's folder `{folder}` cannot be made: {error.strerror}"
        raise ApplyError(text, end="unchanged") from None


def _refuse_open(folder: Path) -> None:
    """What another user could write is no journal to act on."""
    there = folder.lstat()
    if not stat.S_ISDIR(there.st_mode) or there.st_uid != os.geteuid() or there.st_mode & 0o022:
        raise UsageError(
            f"`{folder}` is not a folder that only you can write",
            hints=(f"`chmod 0700 {folder}` if it is yours",),
        )


def lock_file(host: str) -> Path:
    """One change at a time on a host: the lock of this one, or of one in an inventory."""
    folder = Path("/run/lock/mopt-doctor") if os.geteuid() == 0 else runs_folder().parent
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", host)[:64] or "localhost"
    return folder / f"{name}.lock"
