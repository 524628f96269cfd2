"""A run (`mopt.run/1`): what its journal says, entry by entry, and what follows from it. Pure.

The journal tells the story; the host tells the truth. Nothing here says what is on the host: `resume`
collects again and asks each stage whether it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Union

import msgspec

from doctor.core.finding import CheckReport
from doctor.core.plan import Promise
from doctor.core.stages import StageId

__all__ = [
    "DRY_RUN",
    "ENDS",
    "REHEARSAL",
    "RUN_SCHEMA",
    "Act",
    "CheckedEntry",
    "ClosedEntry",
    "Cure",
    "End",
    "Entry",
    "InterruptedEntry",
    "OpenedEntry",
    "RebootEntry",
    "RunReport",
    "StageBegun",
    "StageEnded",
    "StageResult",
    "TaskEntry",
    "cures",
    "decode_entry",
    "encode_entry",
    "has_changed",
    "report_of",
    "statuses_of",
]

RUN_SCHEMA = "mopt.run/1"

Act = Literal["apply", "dry-run", "resume", "rollback"]
End = Literal["done", "unchanged", "rolled_back", "half_way", "open"]

#: What tasks are told under that changed nothing, whatever they say: Ansible's check mode.
DRY_RUN, REHEARSAL = "dry run", "rehearsal"

#: How a run ended, in the words of its last line.
ENDS: dict[End, str] = {
    "done": "done",
    "unchanged": "unchanged",
    "rolled_back": "rolled back",
    "half_way": "half-way",
    "open": "not ended",
}


class _Entry(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Base of every entry. Unknown fields are passed over: a later edition may write more."""

    at: str
    """UTC, to the millisecond."""


class OpenedEntry(_Entry, frozen=True, kw_only=True, tag="opened"):
    """The first of each act; a run that is resumed has several."""

    schema: str = RUN_SCHEMA
    run: str
    act: Act
    plan: str
    """Digest of the plan."""
    host: str
    tool: str
    pid: int
    boot_id: str = ""


class StageBegun(_Entry, frozen=True, kw_only=True, tag="stage_begun"):
    stage: str


class TaskEntry(_Entry, frozen=True, kw_only=True, tag="task"):
    """One Ansible task on the host."""

    stage: str
    task: str
    state: Literal["ok", "changed", "failed", "unreachable", "skipped"]
    took_s: float = 0.0
    said: str = ""
    """Of one that failed: its message. Results of tasks are never kept whole: they may hold secrets."""
    touched: bool = False
    """Of one that failed: it may have changed something before it did."""


class StageEnded(_Entry, frozen=True, kw_only=True, tag="stage_ended"):
    stage: str
    state: Literal["done", "failed", "unreachable", "interrupted", "reboot_due"]
    changed: int = 0
    cause: str = ""
    said: str = ""


class RebootEntry(_Entry, frozen=True, kw_only=True, tag="reboot"):
    """Written and on disk before the host goes down."""

    stage: str
    boot_id: str
    why: str


class InterruptedEntry(_Entry, frozen=True, kw_only=True, tag="interrupted"):
    """Somebody asked for an end: after the step, or now."""

    by: str
    is_now: bool = False


class CheckedEntry(_Entry, frozen=True, kw_only=True, tag="checked"):
    """What `check` said: before the first change, after the last."""

    when: Literal["before", "after"]
    verdict: str
    statuses: dict[str, str] = {}
    """`ID@SCOPE` -> status, of findings that are not `pass` or `skip`."""
    causes: tuple[str, ...] = ()


class ClosedEntry(_Entry, frozen=True, kw_only=True, tag="closed"):
    """The last of an act."""

    end: End
    exit_code: int
    said: str = ""
    next: tuple[str, ...] = ()
    """Command lines that go on from here."""


Entry = Union[  # noqa: UP007 - msgspec reads the union at run time, from 3.10 on
    OpenedEntry, StageBegun, TaskEntry, StageEnded, RebootEntry, InterruptedEntry, CheckedEntry, ClosedEntry
]

_DECODER = msgspec.json.Decoder(Entry)


def encode_entry(entry: Entry) -> bytes:
    """One line of the journal, its end included."""
    return msgspec.json.encode(entry) + b"\n"


def decode_entry(line: bytes) -> Entry | None:
    """None for a line that was cut by a crash, or that a later edition wrote."""
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


# --- what follows ---------------------------------------------------------------------------------


class StageResult(msgspec.Struct, frozen=True, kw_only=True):
    """A stage, as the last act left it."""

    stage: str
    state: str
    changed: int = 0
    cause: str = ""
    said: str = ""


class Cure(msgspec.Struct, frozen=True, kw_only=True):
    """A promise, and whether it was kept."""

    finding: str
    scope: str
    stage: StageId
    found: str = ""
    is_cured: bool | None = None
    """None while nobody has looked, and when `check` could not tell."""


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """A run as a value: `report`, screens and `--json` read it."""

    schema: str = RUN_SCHEMA
    run: str
    act: Act
    plan: str
    host: str
    end: End
    exit_code: int | None = None
    said: str = ""
    next: tuple[str, ...] = ()
    opened_at: str
    closed_at: str = ""
    pid: int = 0
    boot_id: str = ""
    stage: str = ""
    """The one that is under way, or was when the journal ends."""
    stages: tuple[StageResult, ...] = ()
    reboot: str = ""
    """Boot id before a reboot that was announced and is not yet followed by another act."""
    is_stopping: bool = False
    before: str = ""
    after: str = ""
    """Verdicts."""
    cures: tuple[Cure, ...] = ()


def report_of(entries: Iterable[Entry], promised: Sequence[Promise] = ()) -> RunReport | None:
    """The run that a journal tells of; None for one without an opening."""
    told = list(entries)
    openings = [number for number, entry in enumerate(told) if isinstance(entry, OpenedEntry)]
    if not openings:
        return None
    first, last, act = told[openings[0]], told[openings[-1]], told[openings[-1] :]
    assert isinstance(last, OpenedEntry)
    closed = next((e for e in reversed(act) if isinstance(e, ClosedEntry)), None)
    before = next((e for e in told if isinstance(e, CheckedEntry) and e.when == "before"), None)
    after = next((e for e in reversed(act) if isinstance(e, CheckedEntry) and e.when == "after"), None)
    return RunReport(
        run=last.run,
        act=last.act,
        plan=last.plan,
        host=last.host,
        end=closed.end if closed else "open",
        exit_code=closed.exit_code if closed else None,
        said=closed.said if closed else "",
        next=closed.next if closed else (),
        opened_at=first.at,
        closed_at=closed.at if closed else "",
        pid=last.pid,
        boot_id=last.boot_id,
        stage=_under_way(act),
        stages=_results(told),
        reboot=_restarting(act) if not closed else "",
        is_stopping=any(isinstance(e, InterruptedEntry) for e in act),
        before=before.verdict if before else "",
        after=after.verdict if after else "",
        cures=cures(promised, after),
    )


def has_changed(entries: Iterable[Entry]) -> bool:
    """Whether a run may have changed its host: what was cut off while it was at work counts as that."""
    is_at_work = False
    for entry in entries:
        if isinstance(entry, OpenedEntry) and is_at_work:
            return True
        if isinstance(entry, StageBegun):
            is_at_work = True
        elif isinstance(entry, TaskEntry):
            is_real = entry.stage not in (DRY_RUN, REHEARSAL)
            if is_real and (entry.state == "changed" or entry.touched):
                return True
        elif isinstance(entry, ClosedEntry):
            if entry.end in ("half_way", "rolled_back"):
                return True
            is_at_work = False
    return is_at_work


def _under_way(act: Sequence[Entry]) -> str:
    """The stage that has begun and not ended; a stage may begin more than once."""
    stage = ""
    for entry in act:
        if isinstance(entry, StageBegun):
            stage = entry.stage
        elif isinstance(entry, StageEnded) and entry.stage == stage:
            stage = ""
    return stage


def _results(told: Sequence[Entry]) -> tuple[StageResult, ...]:
    """Each stage as it ended last, in the order in which they did first."""
    ended = {e.stage: e for e in told if isinstance(e, StageEnded)}
    return tuple(
        StageResult(stage=e.stage, state=e.state, changed=e.changed, cause=e.cause, said=e.said)
        for e in ended.values()
    )


def _restarting(act: Sequence[Entry]) -> str:
    return next((e.boot_id for e in reversed(act) if isinstance(e, RebootEntry)), "")


def cures(promised: Sequence[Promise], after: CheckedEntry | None) -> tuple[Cure, ...]:
    """Each promise compared with what `check` said afterwards."""
    return tuple(
        Cure(
            finding=one.finding,
            scope=one.scope,
            stage=one.stage,
            found=one.found,
            is_cured=None if after is None else _is_cured(after.statuses.get(f"{one.finding}@{one.scope}")),
        )
        for one in promised
    )


def _is_cured(status: str | None) -> bool | None:
    """`pass` and `skip` are not kept; what `check` cannot tell is neither cured nor not."""
    return None if status == "unknown" else status is None


def statuses_of(report: CheckReport) -> dict[str, str]:
    """What a journal keeps of a verdict."""
    return {f"{f.id}@{f.scope}": f.status for f in report.findings if f.status not in ("pass", "skip")}
