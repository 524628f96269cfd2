"""One change at a time on a host: a lock that the kernel lifts when its owner dies, and that names him."""

from __future__ import annotations

import fcntl
import os
import time

from doctor.apply.places import lock_file, refuse_open
from doctor.errors import ApplyError

__all__ = ["Lock", "owner_of"]


#: Whoever asks who owns it holds it for a moment, shared: that is no other run.
_TRIES_S = 1.0
_PAUSE_S = 0.02


class Lock:
    """Held while the object lives in the process; `flock` goes with the file, so no stale one is left."""

    def __init__(self, host: str, run: str) -> None:
        path = lock_file(host)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            refuse_open(path.parent)
            # No O_TRUNC: the owner's name is in it until the lock is ours.
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ApplyError(
                f"the lock `{path}` cannot be opened: {error.strerror}", end="unchanged"
            ) from None
        if not self._taken():
            owner = _owner(self._file)
            os.close(self._file)
            hint = f"`mopt-doctor resume {owner.split()[1]}` watches it" if owner else f"the lock is `{path}`"
            raise ApplyError(
                f"{owner or 'another run'} is changing this host", end="unchanged", hints=(hint,)
            )
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"run {run} (pid {os.getpid()})".encode(), 0)

    def _taken(self) -> bool:
        last = time.monotonic() + _TRIES_S
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:  # noqa: PERF203 - asked again, slowly
                if time.monotonic() > last:
                    return False
                time.sleep(_PAUSE_S)
            else:
                return True

    def release(self) -> None:
        os.ftruncate(self._file, 0)
        os.close(self._file)


def _owner(file: int) -> str:
    return os.pread(file, 200, 0).decode("utf-8", "replace").strip()


def owner_of(host: str) -> str:
    """Who holds the lock of a host now, `run ID (pid N)`; empty when it is free."""
    try:
        file = os.open(lock_file(host), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _owner(file)
    else:
        return ""
    finally:
        os.close(file)
