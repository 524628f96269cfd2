"""Acts of a run on a small site: what they do to the host, and what the journal says of it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

import doctor.apply.work
from doctor.apply import restart
from doctor.apply.journal import entries_in, entries_of
from doctor.apply.order import read_order, write_order, write_stop
from doctor.core.plan import Promise
from doctor.core.run import (
    CheckedEntry,
    ClosedEntry,
    OpenedEntry,
    RebootEntry,
    RunReport,
    StageEnded,
    TaskEntry,
    report_of,
)
from doctor.errors import ApplyError
from tests.apply.site import Site, small_plan
from tests.core.plans import BROKEN, HEALTHY, evidence

pytestmark = pytest.mark.slow

RESUME, ROLLBACK = "mopt-doctor resume r1", "mopt-doctor rollback r1"


@pytest.fixture(autouse=True)
def _seen(monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, HEALTHY)


def see(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """`check` after the run sees this recorded host."""
    monkeypatch.setattr(doctor.apply.work, "observe", lambda **_asked: evidence(host))


def act(site: Site) -> RunReport:
    """One act in this process; its report, of which the exit code is that of the process."""
    code = doctor.apply.work.work(site.folder)
    report = report_of(entries_of(site.folder), read_order(site.folder).plan.promises)
    assert report is not None
    assert report.exit_code in (code, None)
    assert not list(Path("/dev/shm").glob("mopt-ansible-r1-*"))
    assert {p.name for p in site.folder.iterdir()} <= {
        "order.json", "journal.jsonl", "inventory.json", "check-after.json", "stop", "output.log"
    }  # fmt: skip
    return report


def test_apply_goes_stage_by_stage_and_judges_the_host(site: Site) -> None:
    site.order()
    report = act(site)
    assert (report.end, report.exit_code, report.said) == ("done", 0, "the host is as planned")
    assert site.log == ["begin", "repositories", "driver", "finish True"]
    assert [(s.stage, s.state) for s in report.stages] == [
        ("begin", "done"), ("repositories", "done"), ("driver", "done"), ("finish", "done")
    ]  # fmt: skip
    assert report.after == "ready"
    changed = [e.task for e in entries_of(site.folder) if isinstance(e, TaskEntry) and e.state == "changed"]
    assert changed == ["Packages of repositories", "Packages of driver"]


def test_stages_that_hold_are_left_alone(site: Site) -> None:
    site.set("done-repositories")
    site.order()
    assert act(site).end == "done"
    assert site.log == ["begin", "driver", "finish True"]


def test_a_host_that_does_not_say_what_is_left_is_not_done(site: Site) -> None:
    site.set("dumb")
    site.order()
    report = act(site)
    assert (report.end, report.exit_code) == ("unchanged", 4)
    assert "did not say what is left to do" in report.said
    assert site.done == set()


PROMISE = Promise(finding="driver.nvml", scope="host", stage="driver", found="mismatch")


def test_a_promise_that_was_not_kept_is_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, BROKEN)
    write_order(site.folder, replace(site.order(), plan=small_plan(PROMISE)))
    report = act(site)
    assert (report.end, report.exit_code) == ("done", 1)
    assert "not cured of driver.nvml" in report.said
    assert [one.is_cured for one in report.cures] == [False]


def test_a_promise_that_nobody_can_judge_is_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, "bus-unreadable")
    promise = Promise(finding="system.nvidia_gpu", scope="host", stage="driver")
    write_order(site.folder, replace(site.order(), plan=small_plan(promise)))
    report = act(site)
    assert (report.end, report.exit_code) == ("done", 3)
    assert "could not be told" in report.said


# --- failures -------------------------------------------------------------------------------------


def test_a_failure_before_any_change_leaves_the_host_unchanged(site: Site) -> None:
    site.set("fail-begin")
    site.order()
    report = act(site)
    assert (report.end, report.exit_code) == ("unchanged", 4)
    assert report.next == ()
    assert report.stages[-1].state == "failed"
    assert site.done == set()


def test_a_failure_after_a_change_is_half_way_with_both_ways_on(site: Site) -> None:
    site.set("fail-driver")
    site.order()
    report = act(site)
    assert (report.end, report.exit_code) == ("half_way", 4)
    assert report.next == (RESUME, ROLLBACK)
    assert report.said.startswith("driver: ")
    assert site.done == {"repositories"}


def test_the_cause_of_a_failure_is_named_with_its_page(site: Site) -> None:
    site.set("late-driver")
    site.order()
    report = act(site)
    assert report.stages[-1].cause == "prov.late"
    assert report.next[-1] == "mopt-doctor explain prov.late"


def test_a_transaction_that_failed_half_way_is_no_unchanged_host(site: Site) -> None:
    """No task said `changed`; packages lie half configured all the same."""
    site.set("hurt-repositories")
    site.order()
    report = act(site)
    assert report.end == "half_way"
    assert "half-way" in report.said
    assert not [e for e in entries_of(site.folder) if isinstance(e, TaskEntry) and e.state == "changed"]


def test_a_check_that_fails_afterwards_does_not_call_the_host_unchanged(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(**_asked: object) -> None:
        raise ApplyError("the host gave no evidence", end="unchanged")

    monkeypatch.setattr(doctor.apply.work, "observe", silent)
    site.order()
    report = act(site)
    assert (report.end, report.said) == ("half_way", "the host gave no evidence")
    assert site.done == {"repositories", "driver"}


def test_a_bug_is_told_in_the_journal(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.apply.work, "statuses_of", lambda _report: 1 / 0)
    site.order()
    with pytest.raises(ZeroDivisionError):
        doctor.apply.work.work(site.folder)
    last = list(entries_of(site.folder))[-1]
    assert isinstance(last, ClosedEntry)
    assert (last.end, last.exit_code) == ("half_way", 70)


def test_a_disk_that_fills_ends_the_run_before_the_next_task(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be told is not done, and nothing pretends to an end."""
    site.set("slow-driver")
    true_write, room = doctor.apply.work.Journal.write, [9]

    def write(journal: doctor.apply.work.Journal, entry: object) -> None:
        room[0] -= 1
        if room[0] < 0:
            raise journal._unwritable(OSError(28, "No space left on device"))
        true_write(journal, entry)  # type: ignore[arg-type]

    monkeypatch.setattr(doctor.apply.work.Journal, "write", write)
    site.order()
    with pytest.raises(ApplyError, match="No space left on device") as caught:
        doctor.apply.work.work(site.folder)
    assert (caught.value.end, caught.value.exit_code) == ("half_way", 4)
    assert "driver" not in site.done
    report = report_of(entries_of(site.folder))
    assert report is not None
    assert report.end == "open"
    monkeypatch.setattr(doctor.apply.work.Journal, "write", true_write)
    site.unset("slow-driver")
    site.order("resume")
    assert act(site).end == "done"


def test_a_plan_that_says_so_is_undone_at_once(site: Site) -> None:
    site.set("fail-driver")
    write_order(site.folder, replace(site.order(), plan=small_plan(on_failure="rollback")))
    report = act(site)
    assert (report.act, report.end, report.exit_code) == ("rollback", "rolled_back", 4)
    assert "undone, as the plan says" in report.said
    assert site.done == set()
    assert read_order(site.folder).act == "rollback", "a crash during the undo goes on with the undo"


def test_an_undo_that_fails_is_not_tried_for_ever(site: Site) -> None:
    site.set("fail-driver", "fail-rollback")
    write_order(site.folder, replace(site.order(), plan=small_plan(on_failure="rollback")))
    report = act(site)
    assert (report.end, report.exit_code) == ("half_way", 4)
    assert site.log.count("back") == 2, "rehearsed once, tried once"
    assert report.next[:2] == (RESUME, ROLLBACK)


def test_nothing_is_undone_where_nothing_was_changed(site: Site) -> None:
    site.set("fail-begin")
    write_order(site.folder, replace(site.order(), plan=small_plan(on_failure="rollback")))
    assert act(site).end == "unchanged"
    assert "back" not in site.log


def test_a_dry_run_changes_nothing_and_counts(site: Site) -> None:
    site.order("dry-run")
    report = act(site)
    assert (report.end, report.exit_code) == ("unchanged", 0)
    assert "2 tasks would change something" in report.said
    assert site.done == set()


# --- stopping -------------------------------------------------------------------------------------


def test_a_stop_after_the_step_lets_it_end(site: Site) -> None:
    """Asked for while `begin` runs, whose end is waited for."""
    site.order()
    write_stop(site.folder, "step")
    report = act(site)
    assert site.log == ["begin"]
    assert (report.end, report.is_stopping) == ("unchanged", True)
    site.order("resume")
    assert act(site).end == "done", "what was asked of one act is not asked of the next"


def _until(found: object, what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not found():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def _start(site: Site, *words: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*site.argv, "work", *words, str(site.folder)],
        stdin=subprocess.DEVNULL,
        env=os.environ | environment,
        start_new_session=True,
    )


def _left(site: Site) -> list[str]:
    """Processes of this site that are still there."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if str(site.place) in words:
            found.append(words)
    return found


@pytest.mark.parametrize("how", ["now", "SIGTERM"])
def test_a_stop_now_ends_it_within_seconds_and_leaves_no_process(site: Site, how: str) -> None:
    site.set("slow-driver")
    site.order()
    with _start(site) as child:
        _until((site.world / "at-work").exists, "the driver's stage never began")
        asked = time.monotonic()
        if how == "now":
            write_stop(site.folder, "now")
        else:
            child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=20) == 4
        assert time.monotonic() - asked < 10
    report = report_of(entries_of(site.folder))
    assert report is not None
    assert (report.end, report.stages[-1].state) == ("half_way", "interrupted")
    assert report.next == (RESUME, ROLLBACK)
    _until(lambda: not _left(site), f"{_left(site)}", 5)
    site.unset("slow-driver")
    site.order("resume")
    assert act(site).end == "done"


def test_a_run_that_was_killed_is_resumed(site: Site) -> None:
    site.set("slow-driver")
    site.order()
    with _start(site) as child:
        _until((site.world / "at-work").exists, "the driver's stage never began")
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    report = report_of(entries_of(site.folder))
    assert report is not None
    assert (report.end, report.stage) == ("open", "driver")
    site.unset("slow-driver")  # Ansible outlives its caller: nobody has asked it to end
    _until(lambda: not _left(site), f"{_left(site)}")
    site.order("resume")
    report = act(site)
    assert (report.act, report.end, report.exit_code) == ("resume", "done", 0)
    assert site.done == {"repositories", "driver"}


# --- restarts -------------------------------------------------------------------------------------


def test_a_restart_is_on_disk_before_it_happens_and_the_run_goes_on_after_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restart, "boot_id", lambda: "boot-1")
    site.set("reboot-driver")
    site.order()
    report = act(site)
    assert (report.end, report.reboot) == ("open", "boot-1")
    at = list(entries_in((site.world / "journal-at-reboot").read_bytes()))
    assert isinstance(at[-1], RebootEntry)
    assert at[-1].why == "the module is another"
    unit = (site.world / "unit-present").read_text()
    assert unit.endswith(f"-m doctor work --resume {site.folder}")

    monkeypatch.setattr(restart, "boot_id", lambda: "boot-2")
    site.unset("reboot-driver")
    site.order("resume")
    report = act(site)
    assert (report.end, report.reboot) == ("done", "")


def test_a_host_is_not_restarted_for_ever(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.set("reboot-driver")
    site.order()
    monkeypatch.setattr(restart, "boot_id", lambda: "boot-1")
    assert act(site).reboot == "boot-1"
    monkeypatch.setattr(restart, "boot_id", lambda: "boot-2")
    site.unset("done-driver")
    site.order("resume")
    report = act(site)
    assert (report.end, report.exit_code) == ("half_way", 4)
    assert "still due" in report.said
    site.unset("done-driver")
    site.order("resume")
    assert act(site).end == "open", "whoever resumes it has mended something: once more"


def test_a_stop_that_was_asked_for_comes_before_a_restart(site: Site) -> None:
    site.set("reboot-driver", "done-repositories", "slow-driver")
    site.order()
    with _start(site) as child:
        _until((site.world / "at-work").exists, "the driver's stage never began")
        write_stop(site.folder, "step")
        site.unset("slow-driver")  # its work ends by itself
        assert child.wait(timeout=60) == 4
    report = report_of(entries_of(site.folder))
    assert report is not None
    assert (report.end, report.is_stopping, report.reboot) == ("half_way", True, "")
    assert not (site.world / "unit-present").exists()


def test_a_unit_that_cannot_be_left_is_told_and_nothing_restarts(site: Site) -> None:
    site.set("reboot-driver", "fail-unit")
    site.order()
    report = act(site)
    assert (report.end, report.exit_code, report.reboot) == ("half_way", 4, "")
    assert report.next[-1] == "reboot the host by hand first"


# --- the way back ---------------------------------------------------------------------------------


def test_rollback_is_rehearsed_then_done(site: Site) -> None:
    site.order()
    assert act(site).end == "done"
    site.order("rollback")
    report = act(site)
    assert (report.end, report.exit_code) == ("rolled_back", 0)
    assert site.log[-2:] == ["back", "back"]
    assert site.done == set()


def test_a_rehearsal_that_fails_changes_nothing_and_leaves_a_whole_host_whole(site: Site) -> None:
    site.order()
    assert act(site).end == "done"
    site.set("fail-rehearsal")
    site.order("rollback")
    report = act(site)
    assert (report.end, report.exit_code) == ("unchanged", 4)
    assert "nothing was changed" in report.said
    assert site.done == {"repositories", "driver"}
    assert not [e for e in entries_of(site.folder) if isinstance(e, StageEnded) and e.stage == "rollback"]


def test_a_rehearsal_that_fails_leaves_a_half_way_host_half_way(site: Site) -> None:
    site.set("fail-driver")
    site.order()
    assert act(site).end == "half_way"
    site.set("fail-rehearsal")
    site.order("rollback")
    report = act(site)
    assert (report.end, report.exit_code) == ("half_way", 4)
    assert report.next[:2] == (RESUME, ROLLBACK)


# --- what a run stands on -------------------------------------------------------------------------


def test_the_check_uses_the_overlays_of_the_plan(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    overlay = site.place / "overlay"
    overlay.mkdir()
    (overlay / "overlay.yaml").write_text(
        'name: lab\nas_of: "2026-11-30"\nsources:\n  t1: "a test"\n'
        'defaults: {as_of: "2026-11-30", review_by: "2027-05-31", confidence: measured}\n'
        'forbid:\n- component: driver\n  versions: ["==580.*"]\n  reason: "not here"\n  source: [t1]\n'
    )
    site.order(overlays=(str(overlay),))
    report = act(site)
    checked = [e for e in entries_of(site.folder) if isinstance(e, CheckedEntry)]
    assert checked, report.said
    assert "system.site_rules@host" in checked[-1].statuses, (report.said, checked[-1])


def test_the_lock_is_free_again_and_another_run_cannot_have_it_meanwhile(site: Site) -> None:
    from doctor.apply.lock import Lock, owner_of

    site.order()
    held = Lock("localhost", "other")
    with pytest.raises(ApplyError, match=r"run other .* is changing this host"):
        doctor.apply.work.work(site.folder)
    held.release()
    assert not [e for e in entries_of(site.folder) if isinstance(e, OpenedEntry)]
    assert act(site).end == "done"
    assert owner_of("localhost") == ""
