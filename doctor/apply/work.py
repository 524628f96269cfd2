"""The detached run itself: part by part, each told in the journal before it begins and when it has ended."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from doctor import __version__
from doctor.apply import restart
from doctor.apply.ansible import play, sweep, trust_what_runs
from doctor.apply.journal import Journal, entries_of, now
from doctor.apply.lock import Lock
from doctor.apply.observe import inventory_of, observe
from doctor.apply.order import Order, read_order, stop_asked, write_order
from doctor.apply.told import Played, Told
from doctor.config import data_dir, overlay_folders
from doctor.core.finding import CheckReport
from doctor.core.run import (
    DRY_RUN,
    REHEARSAL,
    Act,
    CheckedEntry,
    ClosedEntry,
    End,
    InterruptedEntry,
    OpenedEntry,
    RebootEntry,
    StageBegun,
    StageEnded,
    TaskEntry,
    cures,
    has_changed,
    report_of,
    statuses_of,
)
from doctor.errors import ApplyError, DoctorError

__all__ = ["work"]

#: A role's message begins with the id of its cause.
_CAUSE = re.compile(r"(?P<id>[a-z][a-z_]*\.[a-z0-9_]+): ")
#: What the role `kernel` says where it may not restart the host that it runs on.
_REBOOT_DUE = re.compile(r"A reboot is due: (?P<why>.*?)\. `kernel_reboot_allowed`", re.DOTALL)
#: What the module says of a run whose capsule was never written.
_NO_CAPSULE = "no capsule to go back to"
_TASK_STATES = {"ok", "changed", "failed", "unreachable", "skipped"}

Stop = Callable[[], bool]


class _Ended(Exception):  # noqa: N818 - no error: how an act ends early
    """The act is over: how, and what to say."""

    def __init__(self, end: End, code: int, said: str, *next_: str) -> None:
        super().__init__(said)
        self.end, self.code, self.said, self.next = end, code, said, next_


class _Rebooting(Exception):  # noqa: N818
    """The host goes down; a unit goes on afterwards."""


def work(folder: Path) -> int:
    """Carry out the order in a run's folder; the journal says how it went. The exit code is the act's."""
    order = read_order(folder)
    lock = Lock(order.host, order.run)
    try:
        sweep(folder)
        journal = Journal(folder)
        try:
            return _Act(folder, order, journal).run()
        finally:
            journal.close()
    finally:
        lock.release()


class _Act:
    """One act of a run: apply, dry run, resume or rollback."""

    def __init__(self, folder: Path, order: Order, journal: Journal) -> None:
        self.folder, self.order, self.journal = folder, order, journal
        self._stage, self._is_dry = "", False
        self._signalled = False
        earlier = list(entries_of(folder))
        self._has_changed = has_changed(earlier)
        self._before = report_of(earlier)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._signalled = True

    # --- the acts ---------------------------------------------------------------------------------

    def run(self) -> int:
        acts = {"apply": self._apply, "resume": self._apply, "dry-run": self._dry, "rollback": self._back}
        try:
            self._open(self.order.act)
            trust_what_runs()
            acts[self.order.act]()
        except _Rebooting:
            return 0
        except _Ended as end:
            return self._close(end)
        except ApplyError as error:
            return self._close(self._broken(error))
        except DoctorError as error:
            return self._close(self._stopped(error.message, *error.hints))
        except Exception as error:
            # The journal must not end open because of a bug: whoever resumes has to know.
            said = f"a bug in mopt-doctor: {type(error).__name__}: {error}"
            self._close(_Ended(self._stopped("").end, 70, said, *self._ways()))
            raise
        raise AssertionError(self.order.act)  # each act ends by saying how

    def _open(self, act: Act) -> None:
        order = self.order
        self.journal.write(
            OpenedEntry(
                at=now(),
                run=order.run,
                act=act,
                plan=order.plan.digest,
                host=order.host,
                tool=f"mopt-doctor {__version__}",
                pid=os.getpid(),
                boot_id=restart.boot_id(),
            )
        )

    def _close(self, end: _Ended) -> int:
        self.journal.write(
            ClosedEntry(at=now(), end=end.end, exit_code=end.code, said=end.said, next=end.next)
        )
        return end.code

    def _broken(self, error: ApplyError) -> _Ended:
        """Whoever raised it knows of his own step; of the run it is known here what went before."""
        if error.end == "unchanged":
            return self._stopped(error.message, *error.hints)
        return _Ended(error.end, error.exit_code, error.message, *error.hints)  # type: ignore[arg-type]

    def _dry(self) -> None:
        played = self._play("site.yml", DRY_RUN, {}, is_dry=True)
        if not played.is_good:
            raise _Ended("unchanged", 4, self._words(played), *self._explained(played))
        raise _Ended("unchanged", 0, f"a dry run; {played.changed} tasks would change something")

    def _apply(self) -> None:
        self._settle_unit()
        begun = self._part("begin", {"mopt_parts": ["begin"]})
        if begun.acting is None:
            # Not to be taken for "nothing is left to do": the run would end as done.
            raise self._stopped("the host did not say what is left to do")
        wanted = [s.id for s in self.order.plan.variables.mopt_stages if s.id in begun.acting]
        for stage in wanted:
            self._pause()
            self._part(stage, {"mopt_parts": ["stages"], "mopt_only": [stage]})
        self._pause()
        self._part("finish", {"mopt_parts": ["finish"], "mopt_drained": begun.disruptive})
        self._check("after")
        self._tell_cures()

    def _tell_cures(self) -> None:
        after = [e for e in entries_of(self.folder) if isinstance(e, CheckedEntry) and e.when == "after"]
        kept = cures(self.order.plan.promises, after[-1] if after else None)
        left = [one.finding for one in kept if one.is_cured is False]
        untold = [one.finding for one in kept if one.is_cured is None]
        if left:
            said = f"the host is as planned, but not cured of {', '.join(left)}"
            raise _Ended("done", 1, said, "mopt-doctor check")
        if untold:
            said = f"the host is as planned, and whether it is cured of {', '.join(untold)} could not be told"
            raise _Ended("done", 3, said, "mopt-doctor check -v")
        raise _Ended("done", 0, "the host is as planned", "mopt-doctor check")

    def _back(self) -> None:
        """Rehearsed first: a way back that apt or dnf would not go is not begun."""
        self._settle_unit()
        rehearsed = self._play("rollback.yml", REHEARSAL, {}, is_dry=True)
        if rehearsed.status == "canceled":
            raise self._unbegun("stopped, as asked, before anything changed")
        if not rehearsed.is_good:
            said = f"the way back cannot be gone, and nothing was changed: {self._words(rehearsed)}"
            raise self._unbegun(said, *self._explained(rehearsed))
        self._pause()
        self._part("rollback", {}, playbook="rollback.yml")
        self._check("after")
        raise _Ended("rolled_back", 0, "the host is as it was before the run", "mopt-doctor check")

    def _unbegun(self, said: str, *next_: str) -> _Ended:
        """A rollback that changed nothing leaves the host as the run before it did."""
        is_whole = self._before is not None and self._before.end in ("done", "unchanged", "rolled_back")
        if self.order.act == "rollback" and is_whole:
            return _Ended("unchanged", 4, said, *next_)
        return self._half(said, *next_)

    # --- parts ------------------------------------------------------------------------------------

    def _part(self, stage: str, more: Mapping[str, Any], *, playbook: str = "site.yml") -> Played:
        """One call of Ansible. Returns when it was good; a failure or a restart ends the act."""
        self.journal.write(StageBegun(at=now(), stage=stage))
        played = self._play(playbook, stage, more, is_dry=False)
        cause = self._cause(played)
        if played.is_good:
            self._ended(stage, "done", played)
            return played
        due = next((m for text in played.failures if (m := _REBOOT_DUE.match(text))), None)
        if due is not None:
            self._ended(stage, "reboot_due", played)
            self._reboot(stage, due["why"])
        if played.status == "canceled":
            self._ended(stage, "interrupted", played)
            # What it was killed in may have changed something, and did not live to say so.
            raise self._half("stopped, as asked; a package transaction that was under way goes on to its end")
        state = "unreachable" if played.unreachable else "failed"
        self._ended(stage, state, played, cause)
        raise self._failed(stage, played)

    def _failed(self, stage: str, played: Played) -> _Ended:
        said = f"{stage}: {self._words(played)}"
        if played.unreachable:
            return self._half(said, *self._explained(played))
        if not self._has_changed:
            return self._stopped(said, *self._explained(played))
        # An undo that failed is not undone by itself again.
        if self.order.plan.on_failure == "rollback" and self.order.act != "rollback":
            return self._give_up(said)
        return self._half(said, *self._explained(played))

    def _give_up(self, said: str) -> _Ended:
        """A failure is undone at once, as the plan says. From here on the run is a rollback."""
        self.order = replace(self.order, act="rollback")
        write_order(self.folder, self.order)
        self._open("rollback")
        try:
            self._back()
        except _Ended as end:
            if end.end == "rolled_back":
                return _Ended("rolled_back", 4, f"{said}; undone, as the plan says", *end.next)
            return _Ended("half_way", 4, f"{said}; the undo: {end.said}", *end.next)
        raise AssertionError(said)

    def _half(self, said: str, *next_: str) -> _Ended:
        return _Ended("half_way", 4, said, *self._ways(), *next_)

    def _stopped(self, said: str, *next_: str) -> _Ended:
        return self._half(said, *next_) if self._has_changed else _Ended("unchanged", 4, said, *next_)

    def _ways(self) -> tuple[str, ...]:
        return (f"mopt-doctor resume {self.order.run}", f"mopt-doctor rollback {self.order.run}")

    def _explained(self, played: Played) -> tuple[str, ...]:
        cause = self._cause(played)
        return (f"mopt-doctor explain {cause}",) if cause else ()

    def _ended(self, stage: str, state: Any, played: Played, cause: str = "") -> None:
        said = "" if played.is_good else self._words(played)
        self.journal.write(
            StageEnded(at=now(), stage=stage, state=state, changed=played.changed, cause=cause, said=said)
        )

    def _play(self, playbook: str, stage: str, more: Mapping[str, Any], *, is_dry: bool) -> Played:
        order = self.order
        self._stage, self._is_dry = stage, is_dry
        variables = msgspec.to_builtins(order.plan.variables) | {"mopt_run": order.run}
        if order.is_local:
            # A play cannot restart the host that it runs on: the run does, after it has written so.
            variables["kernel_reboot_allowed"] = False
        return play(
            Path(data_dir("playbooks")) / playbook,
            folder=self.folder,
            inventory=inventory_of(self.folder, order.inventory),
            limit=order.host,
            variables=variables | dict(more),
            variable_files=tuple(Path(one) for one in order.variable_files),
            is_dry=is_dry,
            on_task=self._heard,
            should_stop=self._must_stop,
        )

    def _heard(self, told: Told) -> None:
        if told.state == "skipped" or told.state not in _TASK_STATES:
            return
        has_changed = told.state == "changed" or told.touched
        self._has_changed = self._has_changed or (has_changed and not self._is_dry)
        self.journal.write(
            TaskEntry(
                at=now(),
                stage=self._stage,
                task=told.task,
                state=told.state,  # type: ignore[arg-type]
                took_s=told.took_s,
                said=told.said,
                touched=told.touched,
            )
        )

    @staticmethod
    def _words(played: Played) -> str:
        return "; ".join(played.failures) or played.tail or f"Ansible ended with {played.status}"

    @staticmethod
    def _cause(played: Played) -> str:
        found = (_CAUSE.search(text) for text in played.failures)
        return next((match["id"] for match in found if match), "")

    # --- stopping, restarting, judging ------------------------------------------------------------

    def _must_stop(self) -> bool:
        return self._signalled or stop_asked(self.folder) == "now"

    def _pause(self) -> None:
        """Between two parts: whether somebody asked for an end."""
        how = "a signal" if self._signalled else stop_asked(self.folder)
        if how:
            self.journal.write(InterruptedEntry(at=now(), by=how, is_now=how != "step"))
            raise self._stopped("stopped between two stages, as asked")

    def _reboot(self, stage: str, why: str) -> None:
        """The announcement is on disk before the host goes down; the unit goes on from the journal."""
        if restart.was_restarted_for(stage, entries_of(self.folder)):
            raise self._half(f"{stage}: the host was restarted for this, and a reboot is still due: {why}")
        self._pause()
        self.journal.write(RebootEntry(at=now(), stage=stage, boot_id=restart.boot_id(), why=why))
        done = restart.unit("present", self.folder, self.order, self._must_stop)
        if not done.is_good:
            raise self._half(
                f"a reboot is due and could not be set going: {self._words(done)}",
                "reboot the host by hand first",
            )
        raise _Rebooting

    def _settle_unit(self) -> None:
        """After an announced reboot its unit has done its work."""
        if self.order.is_local and restart.is_unit_left(self.order.run):
            restart.unit("absent", self.folder, self.order, self._must_stop)

    def _check(self, when: str) -> None:
        """What `check` says now. Kept whole beside the journal."""
        from doctor.core.judge import judge_scopes
        from doctor.edition.load import load_matrix
        from doctor.facts.read import read_scopes

        order = self.order
        evidence = observe(
            host=order.host,
            inventory=order.inventory,
            timeout_s=order.timeout_s,
            folder=self.folder,
            should_stop=self._must_stop,
        )
        matrix = load_matrix(overlays=overlay_folders(order.overlays, {}))
        report: CheckReport = judge_scopes(read_scopes(evidence), matrix, tool=f"mopt-doctor {__version__}")
        (self.folder / f"check-{when}.json").write_bytes(msgspec.json.encode(report))
        self.journal.write(
            CheckedEntry(
                at=now(),
                when=when,  # type: ignore[arg-type]
                verdict=report.verdict,
                statuses=statuses_of(report),
                causes=tuple(cause.id for cause in report.causes),
            )
        )
