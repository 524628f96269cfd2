"""Where runs are kept on the doctor's side: as root below /var/lib, else below the user's state."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from doctor.errors import ApplyError, UsageError

__all__ = ["RUN_NAME", "lock_file", "refuse_open", "run_folder", "runs_folder"]

#: Root's. The roles keep capsules beside the journals, and package transactions a lock of their own.
_STATE = Path("/var/lib/mopt-doctor")
_LOCKS = Path("/run/lock/mopt-doctor")

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")


def runs_folder() -> Path:
    """Beside, not in, the folder in which the roles keep a host's capsules: that one is a host's own."""
    if os.geteuid() == 0:
        return _STATE / "journals"
    state = os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()
    return Path(state) / "mopt-doctor" / "journals"


def run_folder(run: str, *, create: bool = False) -> Path:
    """The folder of a run, 0700; with `create` a new one.

    Raises UsageError on a name that is none or that nobody knows, ApplyError where it cannot be made.
    """
    if not RUN_NAME.match(run):
        raise UsageError(
            f"`{ascii(run)[1:-1]}` is no name of a run", hints=("`mopt-doctor resume` lists them",)
        )
    folder = runs_folder() / run
    if create:
        _make(folder)
    elif not folder.is_dir():
        raise UsageError(
            f"no run `{run}` is known here: `{folder.parent}` does not hold it",
            hints=("a run is kept by the user who started it", "`mopt-doctor resume` lists them"),
        )
    refuse_open(folder)
    return folder


def _make(folder: Path) -> None:
    try:
        # What root keeps beside it may be for others to read; nobody but its owner writes.
        folder.parent.parent.mkdir(mode=0o755 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        refuse_open(folder.parent)
        # Two that apply the same plan at once must not share one.
        folder.mkdir(mode=0o700)
    except OSError as error:
        text = f"the run's folder `{folder}` cannot be made: {error.strerror}"
        raise ApplyError(text, end="unchanged") from None


def refuse_open(folder: Path) -> None:
    """What another user could write is no journal to act on, and no lock. Raises UsageError."""
    there = folder.lstat()
    if not stat.S_ISDIR(there.st_mode) or there.st_uid != os.geteuid() or there.st_mode & 0o022:
        raise UsageError(
            f"`{folder}` is not a folder that only you can write",
            hints=(f"`ls -ld {folder}` says whose it is; `chmod 0700 {folder}` if it is yours",),
        )


def lock_file(host: str) -> Path:
    """One change at a time on a host: the lock of this one, or of one in an inventory."""
    folder = _LOCKS if os.geteuid() == 0 else runs_folder().parent
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", host)[:64] or "localhost"
    return folder / f"{name}.lock"
