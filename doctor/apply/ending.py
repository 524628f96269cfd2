"""Ends a playbook run that somebody stopped: asked first, then killed, and nothing of it is left behind.

ansible-runner kills one process group. Workers of ansible-core 2.19 have sessions of their own and outlive
that, with the command that they run (tried); a SIGTERM to `ansible-playbook` they pass on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Ending"]

#: Ansible's own clean-up takes well below a second.
_GRACE_S = 5.0

_Process = tuple[int, str]
"""A pid and when it started: the number alone may be another's by now."""


class Ending:
    """The end of the playbook run whose command line names `mark`."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._since = 0.0
        self._known: set[_Process] = set()

    def ask(self) -> bool:
        """Ask it to end; True once it was asked for long enough and is to be killed."""
        self._look()
        if not self._since:
            self._since = time.monotonic()
            for pid in self._mains():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGTERM)
        return time.monotonic() - self._since > _GRACE_S

    def finish(self) -> None:
        """Kill what is left of those that were seen."""
        for pid, started in self._known:
            if _started(pid) == started:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def _mains(self) -> list[int]:
        return [pid for pid in _children().get(os.getpid(), ()) if self._mark in " ".join(_words(pid))]

    def _look(self) -> None:
        children = _children()
        self._known |= {
            (pid, _started(pid)) for main in self._mains() for pid in (main, *_below(main, children))
        }


def _below(pid: int, children: dict[int, list[int]]) -> Iterator[int]:
    """All that descend from a process, but for a package transaction: that goes on to its end."""
    for child in children.get(pid, ()):
        if not _is_transaction(_words(child)):
            yield child
            yield from _below(child, children)


def _is_transaction(words: list[str]) -> bool:
    """`python -I FOLDER/worker run FOLDER`, as the module `mopt_transaction` starts it."""
    return len(words) >= 3 and words[-2] == "run" and words[-3] == f"{words[-1]}/worker"


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        if fields := _stat(int(path.name)):
            found.setdefault(int(fields[1]), []).append(int(path.name))
    return found


def _started(pid: int) -> str:
    return (_stat(pid) or [""] * 20)[19]


def _stat(pid: int) -> list[str]:
    """What follows a process's name in its `stat`: state, parent and so on; empty for one that has gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return []


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")[:-1]
    except OSError:
        return []
