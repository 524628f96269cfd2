"""Runs: what follows from a journal, whole or cut off anywhere, and whether promises were kept."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.core.plan import Promise
from doctor.core.run import (
    DRY_RUN,
    ENDS,
    REHEARSAL,
    CheckedEntry,
    ClosedEntry,
    Entry,
    InterruptedEntry,
    OpenedEntry,
    RebootEntry,
    StageBegun,
    StageEnded,
    TaskEntry,
    cures,
    decode_entry,
    encode_entry,
    has_changed,
    report_of,
    statuses_of,
)
from doctor.report.run_text import render_run, render_runs
from tests.core.plans import BROKEN, OLDER, derived

AT = "2026-11-30T12:00:00.000Z"


def opened(act: str = "apply", pid: int = 7, boot: str = "boot-1") -> OpenedEntry:
    return OpenedEntry(
        at=AT, run="r1", act=act, plan="d" * 64, host="localhost", tool="mopt-doctor", pid=pid, boot_id=boot  # type: ignore[arg-type]
    )  # fmt: skip


def begun(stage: str) -> StageBegun:
    return StageBegun(at=AT, stage=stage)


def task(stage: str, state: str = "changed", **more: object) -> TaskEntry:
    return TaskEntry(at=AT, stage=stage, task=f"act of {stage}", state=state, **more)  # type: ignore[arg-type]


def ended(stage: str, state: str = "done", **more: object) -> StageEnded:
    return StageEnded(at=AT, stage=stage, state=state, **more)  # type: ignore[arg-type]


def checked(when: str, **statuses: str) -> CheckedEntry:
    return CheckedEntry(
        at=AT, when=when, verdict="not_ready" if statuses else "ready",  # type: ignore[arg-type]
        statuses={f"{name.replace('__', '.')}@host": status for name, status in statuses.items()},
    )  # fmt: skip


def closed(end: str, code: int, said: str = "so it is", *next_: str) -> ClosedEntry:
    return ClosedEntry(at=AT, end=end, exit_code=code, said=said, next=next_)  # type: ignore[arg-type]


WAYS = ("mopt-doctor resume r1", "mopt-doctor rollback r1")
BEFORE = checked("before", driver__nvml="fail", cuda__init="fail")
PROMISED = (
    Promise(finding="driver.nvml", scope="host", stage="driver", found="none"),
    Promise(finding="cuda.init", scope="host", stage="driver", found="999"),
)

JOURNALS: dict[str, tuple[Entry, ...]] = {
    "done": (
        BEFORE, opened(), begun("begin"), task("begin", "ok"), ended("begin"), begun("driver"),
        task("driver"),
        ended("driver", changed=1), begun("finish"), ended("finish"), checked("after"), closed("done", 0),
    ),
    "failed before any change": (
        BEFORE, opened(), begun("begin"), task("begin", "failed", said="no"), ended("begin", "failed"),
        closed("unchanged", 4),
    ),
    "failed, then resumed over a restart": (
        BEFORE, opened(), begun("begin"), ended("begin"), begun("driver"), task("driver"),
        task("driver", "failed", said="prov.x: no"), ended("driver", "failed", cause="prov.x", said="no"),
        closed("half_way", 4, "no", *WAYS),
        opened("resume", 8), begun("begin"), ended("begin"), begun("driver"), task("driver"),
        ended("driver", "reboot_due"), RebootEntry(at=AT, stage="driver", boot_id="boot-1", why="modules"),
        opened("resume", 9, "boot-2"), begun("begin"), ended("begin"), begun("finish"), ended("finish"),
        checked("after", cuda__init="unknown"), closed("done", 3),
    ),
    "stopped and rolled back": (
        BEFORE, opened(), begun("begin"), ended("begin"), begun("driver"), task("driver"),
        InterruptedEntry(at=AT, by="now", is_now=True), ended("driver", "interrupted"),
        closed("half_way", 4, "stopped", *WAYS),
        opened("rollback", 8), task(REHEARSAL), begun("rollback"), task("rollback"), ended("rollback"),
        checked("after", driver__nvml="fail"), closed("rolled_back", 0),
    ),
    "undone at once": (
        BEFORE, opened(), begun("driver"), task("driver"), task("driver", "failed"),
        ended("driver", "failed"),
        opened("rollback"), begun("rollback"), task("rollback"), ended("rollback"), closed("rolled_back", 4),
    ),
    "a dry run": (opened("dry-run"), task(DRY_RUN), closed("unchanged", 0, "1 task would change something")),
}  # fmt: skip


@pytest.mark.parametrize("name", JOURNALS)
def test_every_beginning_of_a_journal_is_a_run(name: str) -> None:
    """A crash may end it after any entry, and inside one."""
    whole = JOURNALS[name]
    for length in range(len(whole) + 1):
        report = report_of(whole[:length], PROMISED)
        if not any(isinstance(e, OpenedEntry) for e in whole[:length]):
            assert report is None
            continue
        assert report is not None
        is_closed = isinstance(whole[length - 1], ClosedEntry)
        assert (report.end == "open") != is_closed
        assert (report.exit_code is None) != is_closed
        assert bool(report.closed_at) == is_closed
        assert report.opened_at == AT
        assert render_run(report)
        assert ENDS[report.end] in render_runs([report])
        assert len(report.cures) == len(PROMISED)


def test_a_stage_is_under_way_until_it_ends_and_when_it_begins_again() -> None:
    entries = JOURNALS["failed, then resumed over a restart"]
    under_way = [
        report.stage for n in range(2, len(entries)) if (report := report_of(entries[:n])) is not None
    ]
    assert under_way[:7] == ["", "begin", "", "driver", "driver", "driver", ""]
    twice = report_of((opened(), begun("driver"), ended("driver"), begun("driver")))
    assert twice is not None
    assert twice.stage == "driver"


def test_a_restart_is_pending_until_another_act_begins() -> None:
    entries = JOURNALS["failed, then resumed over a restart"]
    at = next(n for n, e in enumerate(entries) if isinstance(e, RebootEntry))
    assert report_of(entries[:at]).reboot == ""  # type: ignore[union-attr]
    assert report_of(entries[: at + 1]).reboot == "boot-1"  # type: ignore[union-attr]
    assert report_of(entries[: at + 2]).reboot == ""  # type: ignore[union-attr]


def test_the_last_act_speaks_for_the_run_and_the_first_for_its_beginning() -> None:
    report = report_of(JOURNALS["stopped and rolled back"], PROMISED)
    assert report is not None
    assert (report.act, report.end, report.exit_code, report.pid) == ("rollback", "rolled_back", 0, 8)
    assert (report.before, report.after) == ("not_ready", "not_ready")
    assert [one.stage for one in report.stages] == ["begin", "driver", "rollback"]
    assert not report.is_stopping, "that was asked of another act"


def test_two_openings_that_are_equal_are_two() -> None:
    report = report_of((opened(), closed("half_way", 4), opened()))
    assert report is not None
    assert report.end == "open"


CHANGED: dict[str, tuple[Sequence[Entry], bool]] = {
    "nothing": ((), False),
    "begun and closed unchanged": (JOURNALS["failed before any change"], False),
    "a dry run that tells of changes": (JOURNALS["a dry run"], False),
    "a rehearsal that tells of changes": ((opened("rollback"), task(REHEARSAL)), False),
    "a task that changed": ((opened(), begun("driver"), task("driver")), True),
    "a transaction that failed half-way": (
        (opened(), begun("driver"), task("driver", "failed", touched=True), ended("driver", "failed")),
        True,
    ),
    "killed in a stage": ((opened(), begun("driver")), True),
    "killed in a stage, then resumed in vain": (
        (opened(), begun("driver"), opened("resume"), begun("begin"), closed("unchanged", 4)),
        True,
    ),
    "killed before a stage": ((opened(), opened("resume")), False),
    "closed half-way": ((opened(), closed("half_way", 4)), True),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
def test_whether_a_run_may_have_changed_its_host(name: str) -> None:
    entries, is_so = CHANGED[name]
    assert has_changed(entries) is is_so


# --- promises -------------------------------------------------------------------------------------


def test_promises_are_compared_with_what_check_says_afterwards() -> None:
    assert [one.is_cured for one in cures(PROMISED, None)] == [None, None]
    after = checked("after", cuda__init="fail", kernel__dkms="warn")
    assert [one.is_cured for one in cures(PROMISED, after)] == [True, False]
    assert [one.is_cured for one in cures(PROMISED, checked("after", cuda__init="warn"))] == [True, False]


def test_what_check_cannot_tell_is_neither_cured_nor_not() -> None:
    after = checked("after", cuda__init="unknown")
    assert [one.is_cured for one in cures(PROMISED, after)] == [True, None]
    report = report_of((opened(), after, closed("done", 3)), PROMISED)
    assert report is not None
    assert "cannot tell   cuda.init" in render_run(report)


def test_a_finding_of_another_scope_is_no_promise_broken() -> None:
    after = CheckedEntry(
        at=AT, when="after", verdict="not_ready", statuses={"driver.nvml@container:a": "fail"}
    )
    assert [one.is_cured for one in cures(PROMISED, after)] == [True, True]


def test_a_journal_keeps_of_a_verdict_what_is_not_well() -> None:
    report = derived(BROKEN, OLDER, "canonical").report
    kept = statuses_of(report)
    assert kept["driver.nvml@host"] == "fail"
    assert set(kept.values()) <= {"fail", "warn", "unknown"}
    assert len(kept) == sum(f.status in ("fail", "warn", "unknown") for f in report.findings)


# --- lines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", JOURNALS)
def test_an_entry_is_one_line_that_reads_back(name: str) -> None:
    for entry in JOURNALS[name]:
        line = encode_entry(entry)
        assert line.endswith(b"}\n")
        assert line.count(b"\n") == 1
        assert decode_entry(line) == entry


def test_lines_of_a_later_edition_are_read_as_far_as_they_are_known() -> None:
    later = encode_entry(begun("driver"))[:-2] + b',"colour":"blue"}\n'
    assert decode_entry(later) == begun("driver")
    assert decode_entry(b'{"kind":"teleported","at":"x"}') is None


CUT = b"".join(encode_entry(entry) for entry in JOURNALS["failed, then resumed over a restart"])


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(CUT)), st.binary(max_size=20))
def test_a_journal_that_was_cut_anywhere_is_read(at: int, rubbish: bytes) -> None:
    data = CUT[:at] + rubbish
    entries = [entry for line in data.split(b"\n") if (entry := decode_entry(line)) is not None]
    assert len(entries) >= CUT[:at].count(b"\n") - rubbish.count(b"\n") - 1
    report = report_of(entries, PROMISED)
    assert report is None or report.end in ENDS


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([e for journal in JOURNALS.values() for e in journal]), max_size=25))
def test_entries_in_any_order_are_no_reason_to_crash(entries: list[Entry]) -> None:
    report = report_of(entries, PROMISED)
    has_changed(entries)
    if report is not None:
        assert report.end in ENDS
        assert render_run(report)
