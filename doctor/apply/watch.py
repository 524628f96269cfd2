"""Watches a run's journal. The watcher may go at any moment: the run does not depend on it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from doctor.apply.journal import follow
from doctor.apply.launch import OUTPUT
from doctor.apply.lock import owner_of
from doctor.apply.order import write_stop
from doctor.core.run import ClosedEntry, Entry, OpenedEntry, RebootEntry
from doctor.errors import ApplyError

__all__ = ["Left", "watch"]


class Left(Exception):  # noqa: N818 - no error: the run goes on
    """The watching is over, by a signal; the run is not."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


class _Signals:
    """Ctrl-C, counted: once ends after the step, twice now, three times only the watching.

    A handler only counts, and the loop acts: what it interrupts may be a write to the same stream.
    """

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder, self._say = folder, say
        self._count, self._seen, self._ends = 0, 0, 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Signals:  # noqa: PYI034 - Self is newer than 3.10
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup means it
                self._before[number] = signal.signal(number, self._on)
        return self

    def __exit__(self, *_unused: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on(self, number: int, _frame: object) -> None:
        if number == signal.SIGINT:
            self._count += 1
        else:
            self._ends = number

    def act(self) -> None:
        """What the signals since the last look ask for. Raises Left."""
        while self._seen < self._count:
            self._seen += 1
            if self._seen == 1:
                self._stop("step", "ends after this step; Ctrl-C again: now")
            elif self._seen == 2:
                self._stop("now", "ends now; a package transaction that is under way goes on to its end")
            else:
                raise Left(signal.SIGINT)
        if self._ends:
            raise Left(self._ends)

    def _stop(self, how: str, said: str) -> None:
        try:
            write_stop(self._folder, how)
        except OSError as error:
            said = f"the run cannot be asked to end: {error.strerror}"
        self._say(said)


def watch(  # noqa: PLR0913 - one for each thing that it watches, or tells
    folder: Path,
    host: str,
    opened_before: int,
    *,
    start: Callable[[], Callable[[], bool]],
    tell: Callable[[Entry], None],
    say: Callable[[str], None],
) -> ClosedEntry | RebootEntry:
    """Start an act and follow it, from the opening after `opened_before`, to its end or the host's restart.

    `start` returns what says whether the process is there; it runs under this watch, so that a signal
    ends no start half-way. Raises Left on a signal that ends the watching, ApplyError (`half_way`) when
    the run dies without an end.
    """
    with _Signals(folder, say) as signals:
        is_alive = start()
        openings, reboot, is_last = 0, None, False
        for entry in follow(folder):
            signals.act()
            if entry is None:
                if not is_alive() and not _holds(folder, host):
                    # It may have written its end since the last look, and let the lock go: one look more.
                    if is_last and reboot is not None:
                        return reboot
                    if is_last:
                        raise _died(folder, is_ours=openings > opened_before)
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


def _holds(folder: Path, host: str) -> bool:
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
            told.seek(max(0, os.fstat(told.fileno()).st_size - 2000))
            lines = told.read().decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    own = [line.removeprefix("mopt-doctor: ") for line in lines if line.startswith("mopt-doctor: ")]
    return (own or lines or [""])[-1]
