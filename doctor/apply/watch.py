"""Watches a run's journal. The watcher may go at any moment: the run does not depend on it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from doctor.apply.journal import follow
from doctor.apply.launch import OUTPUT
from doctor.apply.lock import owner_of
from doctor.apply.order import write_stop
from doctor.core.run import ClosedEntry, Entry, OpenedEntry, RebootEntry
from doctor.errors import ApplyError

__all__ = ["watch"]

#: A run that was started has taken its lock and opened its journal within a second or two.
_START_S = 30.0


class _Asked:
    """Ctrl-C, counted: once ends after the step, twice now, three times only the watching."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.count, self._folder, self._say = 0, folder, say

    def __call__(self, _number: int, _frame: object) -> None:
        self.count += 1
        if self.count == 1:
            write_stop(self._folder, "step")
            self._say("ends after this step; Ctrl-C again: now")
        elif self.count == 2:
            write_stop(self._folder, "now")
            self._say("ends now; a package transaction that is under way goes on to its end")
        else:
            raise KeyboardInterrupt


def watch(
    folder: Path, host: str, opened_before: int, *, tell: Callable[[Entry], None], say: Callable[[str], None]
) -> ClosedEntry | RebootEntry:
    """Follow the act that begins after `opened_before` openings, to its end or to the host's restart.

    Raises ApplyError (`half_way`) when the run dies without an end.
    """
    asked = _Asked(folder, say)
    before = signal.signal(signal.SIGINT, asked)
    try:
        return _follow(folder, host, opened_before, tell)
    finally:
        signal.signal(signal.SIGINT, before)


def _follow(
    folder: Path, host: str, opened_before: int, tell: Callable[[Entry], None]
) -> ClosedEntry | RebootEntry:
    openings, started, reboot, is_last = 0, time.monotonic(), None, False
    for entry in follow(folder):
        if entry is None:
            is_ours = openings > opened_before
            if not _lives(folder, host) and (is_ours or time.monotonic() - started > _START_S):
                # It may have written its end since the last look, and let the lock go: one look more.
                if is_last:
                    if reboot is not None:
                        return reboot
                    raise _died(folder, is_ours=is_ours)
                is_last = True
            continue
        openings += isinstance(entry, OpenedEntry)
        if openings <= opened_before:
            continue
        tell(entry)
        if isinstance(entry, RebootEntry):
            reboot = entry
        if isinstance(entry, ClosedEntry):
            return entry
    raise AssertionError(folder)


def _lives(folder: Path, host: str) -> bool:
    """Whether a run of this name holds the host's lock."""
    return owner_of(host).startswith(f"run {folder.name} ")


def _died(folder: Path, *, is_ours: bool) -> ApplyError:
    run, said = folder.name, _last_words(folder)
    if not is_ours:
        return ApplyError(
            f"run {run} did not begin" + (f": {said}" if said else ""),
            end="unchanged",
            hints=(f"`{folder / OUTPUT}` says why",),
        )
    return ApplyError(
        f"run {run} died without an end: {said or 'killed, or the power was lost'}",
        end="half_way",
        hints=(
            f"`mopt-doctor resume {run}` looks at the host and goes on",
            f"`mopt-doctor rollback {run}` goes back",
        ),
    )


def _last_words(folder: Path) -> str:
    try:
        with (folder / OUTPUT).open("rb") as told:
            told.seek(max(0, os.fstat(told.fileno()).st_size - 400))
            lines = told.read().decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""
