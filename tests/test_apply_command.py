"""`apply`, `resume`, `rollback` on the command line: consent, watching, an administrator's mistakes."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from doctor.apply import ansible, launch, places
from doctor.apply.ansible import find_playbook_program
from doctor.apply.journal import entries_of
from doctor.apply.order import read_order
from doctor.cli import main
from doctor.commands import apply_before
from doctor.commands.apply_before import difference, read_plan
from doctor.core.plan import Plan, PlannedHost, plan_digest
from doctor.core.run import report_of
from doctor.errors import ApplyError, ConfigError, UsageError
from doctor.report.machine import to_json
from tests.apply.conftest import site as site  # noqa: PLC0414 - a fixture
from tests.apply.site import STAGES, Site
from tests.core.plans import BROKEN, HEALTHY, HOSTS, NEWER, OLDER, changed, derived, plan

Done = subprocess.CompletedProcess[str]


@pytest.fixture
def host(site: Site) -> Site:
    """The site's host is a recorded one; of its plan two stages are left."""
    for stage in plan().variables.mopt_stages:
        if stage.id not in STAGES:
            site.set(f"done-{stage.id}")
    (site.place / "plan.json").write_bytes(to_json(plan()))
    return site


def environment(site: Site, **more: str) -> dict[str, str]:
    names = {"MOPT_DATA": str(site.data), "MOPT_TEST_EVIDENCE": str(HOSTS / HEALTHY)}
    return {**os.environ, **names, **more}


def doctor(site: Site, *words: str, **more: str) -> Done:
    return subprocess.run(
        [*site.argv, *words], capture_output=True, text=True, check=False, timeout=120,
        stdin=subprocess.DEVNULL, env=environment(site, **more), cwd=site.place,
    )  # fmt: skip


def folder_of(site: Site, name: str = "") -> Path:
    return site.state / "mopt-doctor/journals" / (name or plan().id)


def until(found: Any, what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def ended(site: Site, name: str = "") -> bool:
    report = report_of(entries_of(folder_of(site, name)))
    return report is not None and report.end != "open"


# --- a plan that is no longer one -----------------------------------------------------------------


def write(site: Site, one: Plan, name: str = "plan.json") -> str:
    path = site.place / name
    path.write_bytes(to_json(one))
    return str(path)


EDITS: dict[str, Any] = {
    "another goal": lambda one: msgspec.structs.replace(
        one, asked=msgspec.structs.replace(one.asked, goal=("driver==580.178.04",))
    ),
    "another host": lambda one: msgspec.structs.replace(one, host=PlannedHost(name="x", inventory="/tmp/x")),
    "a stage less": lambda one: msgspec.structs.replace(
        one, variables=msgspec.structs.replace(one.variables, mopt_stages=one.variables.mopt_stages[1:])
    ),
    "what a failure does": lambda one: msgspec.structs.replace(
        one, asked=msgspec.structs.replace(one.asked, on_failure="rollback")
    ),
    "its digest": lambda one: msgspec.structs.replace(one, digest="0" * 64),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_plan_is_refused(site: Site, name: str) -> None:
    path = write(site, EDITS[name](plan()))
    with pytest.raises(ApplyError, match="was edited") as caught:
        read_plan(path)
    assert (caught.value.exit_code, caught.value.end) == (4, "unchanged")
    assert "Nothing was changed" in caught.value.message


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema":"mopt.check/1"}', "\x00", "{" * 5000])
def test_what_is_no_plan_is_refused(site: Site, text: str) -> None:
    path = site.place / "plan.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="is no plan") as caught:
        read_plan(str(path))
    assert "makes one" in caught.value.hints[0]


def test_neither_a_folder_nor_a_pipe_is_waited_for(site: Site) -> None:
    os.mkfifo(site.place / "pipe")
    for name in ("pipe", "world", "none.json"):
        with pytest.raises(UsageError, match="is no file"):
            read_plan(str(site.place / name))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only root is held to it")
def test_root_believes_no_plan_that_another_can_write(host: Site) -> None:
    (host.place / "plan.json").chmod(0o666)
    with pytest.raises(ConfigError, match="the plan"):
        read_plan(str(host.place / "plan.json"))


def test_a_plan_of_another_edition_says_so(host: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is whole: its digest is that of another matrix."""
    other = msgspec.structs.replace(plan(), matrix="2026.10", matrix_digest="f" * 64)
    parts = (other.host, other.asked, other.variables, other.steps, other.matrix_digest)
    other = msgspec.structs.replace(other, digest=plan_digest(*parts))
    done = doctor(host, "apply", write(host, other), "--yes")
    assert done.returncode == 4
    assert "made from matrix 2026.10 (ffffffffffff), this is another one" in done.stderr
    assert "--overlay" in done.stderr


def changes_of(evidence: Any) -> str:
    from doctor.commands.derive import derive
    from tests.core.lowering import matrix

    one = derive(matrix(), evidence, plan().asked, PlannedHost()).plan
    assert one is not None
    assert one.digest != plan().digest
    return difference(plan(), one)


def test_a_package_that_changed_since_is_named(host: Site) -> None:
    blob = next(
        name for name, data in derived_blobs().items() if b"nvidia-open-580" in data and "dpkg" in name
    )
    said = changes_of(changed(HEALTHY, blob, b"580.126.20-1ubuntu1", b"580.95.05-1ubuntu1"))
    assert said.startswith("packages changed since: ")
    assert "nvidia-open-580" in said or "and more" in said


def derived_blobs() -> Any:
    from tests.core.plans import evidence

    return evidence(HEALTHY).blobs


def test_another_kernel_is_named_with_both_releases() -> None:
    one = derived(HEALTHY).plan
    assert one is not None
    target = msgspec.structs.replace(
        one.variables.mopt_target, kernel="6.8.0-99-generic", gpu_ids=("10de:2331",)
    )
    other = msgspec.structs.replace(
        one, digest="x", variables=msgspec.structs.replace(one.variables, mopt_target=target)
    )
    said = difference(one, other)
    assert "kernel was 6.8.0-64-generic and is 6.8.0-99-generic" in said
    assert re.search(r"gpu ids was 10de:\w+ and is 10de:2331", said)
    assert "[" not in said


def test_a_changed_host_is_not_touched(host: Site) -> None:
    done = doctor(host, "apply", "plan.json", "--yes", MOPT_TEST_EVIDENCE=str(HOSTS / BROKEN))
    assert done.returncode == 4
    assert "does not fit the host any more" in done.stderr
    assert "Nothing was changed" in done.stderr
    assert f"mopt-doctor plan --goal {NEWER}" in done.stderr.replace("'", "")
    assert not folder_of(host).exists()
    assert host.log == []


def test_a_refused_plan_is_told_and_not_begun(host: Site) -> None:
    refused = plan("docker-snap", "container-toolkit")
    done = doctor(host, "apply", write(host, refused), "--yes", MOPT_TEST_EVIDENCE=str(HOSTS / "docker-snap"))
    assert done.returncode == 1
    assert "REFUSED" in done.stdout
    assert host.log == []


# --- consent --------------------------------------------------------------------------------------


def test_nobody_to_ask_is_no_consent(host: Site) -> None:
    done = doctor(host, "apply", "plan.json")
    assert done.returncode == 2
    assert "nobody is there to ask" in done.stderr
    assert "`--yes`" in done.stderr
    assert not folder_of(host).exists()


class Terminal:
    """The command at a terminal of its own."""

    def __init__(self, site: Site, *words: str, **more: str) -> None:
        self.text = ""
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.chdir(site.place)
            os.execve(site.argv[0], [*site.argv, *words], environment(site, **more))

    def read(self, wanted: str, seconds: float = 60) -> str:
        deadline = time.monotonic() + seconds
        while wanted not in self.text:
            assert time.monotonic() < deadline, self.text
            if select.select([self.file], [], [], 0.2)[0]:
                try:
                    self.text += os.read(self.file, 65536).decode("utf-8", "replace")
                except OSError:
                    assert wanted in self.text, self.text
        return self.text

    def type(self, text: str) -> None:
        os.write(self.file, text.encode())

    def wait(self, seconds: float = 60) -> int:
        deadline = time.monotonic() + seconds
        while True:
            if select.select([self.file], [], [], 0.05)[0]:
                with contextlib.suppress(OSError):
                    self.text += os.read(self.file, 65536).decode("utf-8", "replace")
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.file)
                return os.waitstatus_to_exitcode(status)
            assert time.monotonic() < deadline, self.text


@pytest.mark.parametrize("answer", ["no", "y", "", "yesterday"])
def test_anything_but_yes_changes_nothing(host: Site, answer: str) -> None:
    terminal = Terminal(host, "apply", "plan.json")
    terminal.read("[yes/no]")
    terminal.type(f"{answer}\n")
    assert terminal.wait() == 4
    assert "not consented to" in terminal.text
    assert "Nothing was changed" in terminal.text
    assert not folder_of(host).exists()


# --- a run ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_yes_at_a_terminal_shows_the_plan_and_carries_it_out(host: Site) -> None:
    terminal = Terminal(host, "apply", "plan.json")
    terminal.read("[yes/no]")
    assert "nvidia-open" in terminal.text
    terminal.type("yes\n")
    assert terminal.wait() == 0
    assert "DONE" in terminal.text
    assert host.done >= set(STAGES)


@pytest.mark.slow
def test_progress_as_json_lines_is_the_journal(host: Site) -> None:
    done = doctor(host, "apply", "plan.json", "--yes", "--format", "jsonl")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["kind"] for row in rows][:2] == ["opened", "stage_begun"]
    assert rows[-1]["kind"] == "closed"
    kept = (folder_of(host) / "journal.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in kept if '"when":"before"' not in line] == rows
    again = doctor(host, "resume", plan().id)
    assert again.returncode == 0
    assert "DONE" in again.stdout
    listed = doctor(host, "resume")
    assert re.search(rf"^{plan().id} +apply +done ", listed.stdout)


@pytest.mark.slow
def test_a_run_that_nobody_watches_is_watched_later_and_a_second_one_waits_for_nobody(host: Site) -> None:
    host.set("slow-driver")
    done = doctor(host, "apply", "plan.json", "--yes", "--no-watch")
    assert done.returncode == 0, done.stderr
    assert f"`mopt-doctor resume {plan().id}` watches it" in done.stdout
    until((host.world / "at-work").exists, "the run never began")

    second = doctor(host, "apply", "plan.json", "--yes")
    assert second.returncode == 4
    assert re.search(rf"run {plan().id} \(pid \d+\) is changing localhost now", second.stderr)
    assert f"`mopt-doctor resume {plan().id}` watches it" in second.stderr
    back = doctor(host, "rollback", plan().id, "--yes")
    assert back.returncode == 4

    with subprocess.Popen(
        [*host.argv, "resume", plan().id], env=environment(host), stdin=subprocess.DEVNULL, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as watcher:  # fmt: skip
        time.sleep(1)
        host.unset("slow-driver")
        out, err = watcher.communicate(timeout=90)
    assert watcher.returncode == 0, err
    assert "driver" in err
    assert "DONE" in out


@pytest.mark.slow
def test_a_watcher_that_goes_says_that_the_run_goes_on(host: Site) -> None:
    host.set("slow-driver")
    with subprocess.Popen(
        [*host.argv, "apply", str(host.place / "plan.json"), "--yes"], env=environment(host), text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as watcher:  # fmt: skip
        until((host.world / "at-work").exists, "the run never began")
        watcher.send_signal(signal.SIGTERM)
        _out, err = watcher.communicate(timeout=30)
    assert watcher.returncode == 143
    assert "no longer watched" in err
    assert "nothing was changed" not in err
    host.unset("slow-driver")
    until(lambda: ended(host), "the run did not go on")
    assert host.done >= set(STAGES)


@pytest.mark.slow
def test_a_reader_that_goes_does_not_make_a_failed_run_a_good_one(host: Site) -> None:
    host.set("fail-driver")
    argv = " ".join([*host.argv, "apply", str(host.place / "plan.json"), "--yes", "--format", "jsonl"])
    done = subprocess.run(
        ["bash", "-c", f"{argv} | head -1; exit ${{PIPESTATUS[0]}}"], env=environment(host), check=False,
        capture_output=True, timeout=90,
    )  # fmt: skip
    assert done.returncode == 4, done.stderr


@pytest.mark.slow
def test_ctrl_c_ends_after_the_step_and_twice_now(host: Site) -> None:
    host.set("slow-driver")
    terminal = Terminal(host, "apply", "plan.json", "--yes")
    until((host.world / "at-work").exists, "the run never began")
    terminal.type("\x03")
    terminal.read("ends after this step; Ctrl-C again: now")
    assert not ended(host), "the step goes on"
    terminal.type("\x03")
    terminal.read("ends now")
    assert terminal.wait(30) == 4
    report = report_of(entries_of(folder_of(host)))
    assert report is not None
    assert (report.end, report.next) == (
        "half_way", (f"mopt-doctor resume {plan().id}", f"mopt-doctor rollback {plan().id}")
    )  # fmt: skip
    assert "HALF-WAY" in terminal.text
    host.unset("slow-driver")

    refused = doctor(host, "apply", "plan.json", "--yes")
    assert refused.returncode == 4
    assert "half-way" in refused.stderr
    back = doctor(host, "rollback", plan().id, "--yes")
    assert back.returncode == 0, back.stderr
    assert "ROLLED BACK" in back.stdout
    assert doctor(host, "rollback", plan().id, "--yes").returncode == 0, "once more does nothing"
    assert host.log.count("back") == 2


@pytest.mark.slow
def test_a_run_that_dies_is_told_with_the_ways_on(host: Site) -> None:
    host.set("slow-driver")
    with subprocess.Popen(
        [*host.argv, "apply", str(host.place / "plan.json"), "--yes"], env=environment(host), text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as watcher:  # fmt: skip
        until((host.world / "at-work").exists, "the run never began")
        report = report_of(entries_of(folder_of(host)))
        assert report is not None
        os.kill(report.pid, signal.SIGKILL)
        _out, err = watcher.communicate(timeout=30)
    assert watcher.returncode == 4
    assert "died without an end" in err
    assert f"mopt-doctor resume {plan().id}" in err
    assert f"mopt-doctor rollback {plan().id}" in err
    host.unset("slow-driver")
    assert doctor(host, "resume", plan().id).returncode == 0


@pytest.mark.slow
def test_the_unit_goes_on_with_what_was_under_way_and_with_nothing_else(host: Site) -> None:
    host.set("reboot-driver")
    done = doctor(host, "apply", "plan.json", "--yes", MOPT_TEST_BOOT="boot-1")
    assert done.returncode == 0, done.stderr
    assert "the host restarts" in done.stderr
    words = (host.world / "unit-present").read_text().split()
    assert words[-3:] == ["work", "--resume", str(folder_of(host))]
    host.unset("reboot-driver")
    assert doctor(host, *words[-3:], MOPT_TEST_BOOT="boot-2").returncode == 0
    report = report_of(entries_of(folder_of(host)))
    assert report is not None
    assert (report.act, report.end) == ("resume", "done")
    told = (folder_of(host) / "journal.jsonl").read_bytes()
    assert doctor(host, *words[-3:], MOPT_TEST_BOOT="boot-2").returncode == 0
    assert (folder_of(host) / "journal.jsonl").read_bytes() == told, "it had ended: nothing is begun anew"


@pytest.mark.slow
def test_a_run_that_cannot_begin_is_told_at_once(host: Site) -> None:
    """Half a minute was waited for a process that had ended."""
    host.write("site.yml", "- hosts: all\n")
    (host.data / "playbooks/site.yml").unlink()
    began = time.monotonic()
    done = doctor(host, "apply", "plan.json", "--yes")
    assert done.returncode == 4, done.stderr
    assert time.monotonic() - began < 25
    assert "site.yml" in done.stdout + done.stderr


@pytest.mark.slow
def test_a_run_that_changed_nothing_has_nothing_to_undo(host: Site) -> None:
    host.set("fail-begin")
    assert doctor(host, "apply", "plan.json", "--yes").returncode == 4
    back = doctor(host, "rollback", plan().id, "--yes")
    assert (back.returncode, back.stdout) == (0, f"nothing to undo: run {plan().id} changed nothing\n")
    host.unset("fail-begin")
    again = doctor(host, "apply", "plan.json", "--yes")
    assert again.returncode == 0, again.stderr
    assert folder_of(host, f"{plan().id}-2").is_dir(), "its capsule is another's"


@pytest.mark.slow
def test_a_dry_run_asks_nobody_and_is_no_run_to_go_on_with(host: Site) -> None:
    done = doctor(host, "apply", "plan.json", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "2 tasks would change something" in " ".join(done.stdout.split())
    assert not host.done & set(STAGES)
    for verb in ("resume", "rollback"):
        again = doctor(host, verb, f"{plan().id}-dry", "--yes")
        assert again.returncode == 2
        assert "dry run" in again.stderr


# --- mistakes -------------------------------------------------------------------------------------


def complaint(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit code, and one sentence with its hints."""
    code = main(list(words))
    said = capsys.readouterr().err
    lines = said.splitlines()
    assert lines[0].startswith("mopt-doctor: ")
    assert any(line.startswith("  hint: ") for line in lines), said
    assert "Traceback" not in said
    return code, said


@pytest.fixture
def person(host: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Not root, and this process's own command line."""
    for module in (apply_before, ansible, places, launch):
        monkeypatch.setattr(module.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(apply_before, "refuse_untrusted", lambda _path, _what: None)
    monkeypatch.delenv("ANSIBLE_BECOME_PASSWORD_FILE", raising=False)
    return host


def test_no_root_and_no_sudo(person: Site, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(apply_before.shutil, "which", lambda _name, **_more: None)
    monkeypatch.setattr(apply_before, "find_playbook_program", lambda: "x")
    code, said = complaint(capsys, "apply", str(person.place / "plan.json"), "--yes")
    assert code == 2
    assert "needs root, and there is no sudo" in said


def test_a_sudo_that_asks(person: Site, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    sudo = person.place / "sudo"
    sudo.write_text(
        '#!/bin/sh\ntest "$1 $2" = "-k -n" || exit 0\necho "sudo: a password is required" >&2; exit 1\n'
    )
    sudo.chmod(0o755)
    monkeypatch.setattr(apply_before.shutil, "which", lambda _name, **_more: str(sudo))
    monkeypatch.setattr(apply_before, "find_playbook_program", lambda: "x")
    code, said = complaint(capsys, "apply", str(person.place / "plan.json"), "--yes")
    assert code == 2
    assert "sudo asks for a password" in said
    assert "ANSIBLE_BECOME_PASSWORD_FILE" in said


@pytest.mark.parametrize("missing", ["ansible-core", "ansible-runner"])
def test_a_part_that_is_missing(
    host: Site, monkeypatch: pytest.MonkeyPatch, capsys: Any, missing: str
) -> None:
    import importlib.util

    if missing == "ansible-core":
        monkeypatch.setattr(ansible.shutil, "which", lambda _name, **_more: None)
        monkeypatch.setattr(ansible.os, "access", lambda _path, _mode: False)
    else:
        monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    code, said = complaint(capsys, "apply", str(host.place / "plan.json"), "--yes")
    assert code == 2
    assert f"{missing} is not installed" in said
    assert "pip install" in said


PLANS = {
    "an inventory that is not there": (("--host", "n1", "-i", "none.ini"), 2, "none.ini` does not exist"),
    "a host without an inventory": (("--host", "n1"), 2, "names a host of an inventory"),
    "an inventory without a host": (("-i", "hosts.ini"), 2, "may name many hosts"),
    "a pattern": (("--host", "n*", "-i", "hosts.ini"), 2, "is a pattern"),
    "everybody": (("--host", "n1:n2", "-i", "hosts.ini"), 2, "is a pattern"),
    "a password in an address": (("--index-url", "https://u:p@i/"), 2, "would be kept in the plan"),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_that_cannot_be_meant(
    host: Site, monkeypatch: pytest.MonkeyPatch, capsys: Any, name: str
) -> None:
    words, wanted, text = PLANS[name]
    monkeypatch.chdir(host.place)
    (host.place / "hosts.ini").write_text("[gpus]\nn1\nn2\n")
    machine = ("--from", str(HOSTS / HEALTHY)) if "--index-url" in words else ()
    code, said = complaint(capsys, "plan", "--goal", OLDER, *machine, *words)
    assert code == wanted
    assert text in said


REAL = Path(find_playbook_program()).parent
COLLECT = Path(__file__).parent.parent / "playbooks/collect.yml"


def far(site: Site, text: str) -> str:
    """An inventory, and the true playbook that takes evidence."""
    shutil.copy(COLLECT, site.data / "playbooks/collect.yml")
    path = site.place / "hosts.ini"
    path.write_text(text)
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hosts", "name", "text", "hint"),
    [
        ("n1 ansible_host=127.0.0.1 ansible_port=1\n", "n2", "does not name it", "ansible-inventory -i"),
        ("n1 ansible_host=127.0.0.1 ansible_port=1\n", "n1", "the network does not lead there", "`ssh n1`"),
        ("n1 ansible_host=no-such-host.invalid\n", "n1", "not known to the resolver", "ansible_host"),
        (
            "[gpus]\nn1 ansible_connection=local\nn2 ansible_connection=local\n",
            "gpus",
            "is a group",
            "one host",
        ),
    ],
)
def test_a_host_that_is_not_reached(  # noqa: PLR0917 - one for each column
    host: Site, capsys: Any, hosts: str, name: str, text: str, hint: str
) -> None:
    inventory = far(
        host, hosts + "[all:vars]\nansible_ssh_common_args=-o ConnectTimeout=3\nansible_become=false\n"
    )
    code, said = complaint(capsys, "plan", "--goal", OLDER, "--host", name, "-i", inventory)
    assert code in (2, 4)
    assert text in said
    assert hint in said


SAID = {
    "no key": ("Failed to connect via ssh: root@n1: Permission denied (publickey).", "ssh-copy-id n1"),
    "a host nobody knows": ("Host key verification failed.", "`ssh n1` shows the key"),
    "another host key": (
        "@@@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @@@\nHost key verification failed.",
        "ssh-keygen -R n1",
    ),
    "a sudo that asks": ("Missing sudo password", "ANSIBLE_BECOME_PASSWORD_FILE"),
    "a closed network": ("ssh: connect to host n1 port 22: Connection timed out", "firewall"),
    "something else": ("module went mad", "-m ping -b"),
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_what_ssh_and_sudo_say_leads_to_one_next_command(name: str) -> None:
    from doctor.apply.observe import _silent
    from doctor.apply.told import Played

    said, way = SAID[name]
    error = _silent("n1", "/etc/hosts.ini", Played(status="failed", code=4, failures=(said,)))
    assert (error.exit_code, error.end, len(error.hints)) == (4, "unchanged", 1)
    assert way in error.hints[0]
    assert error.message.startswith("`n1` gave no evidence: ")


def test_a_restart_that_is_awaited_keeps_other_plans_away(
    host: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from doctor.apply.journal import Journal
    from doctor.core.run import OpenedEntry, RebootEntry

    journal = Journal(host.folder)
    journal.write(
        OpenedEntry(at="x", run="r1", act="apply", plan="d", host="localhost", tool="t", pid=1, boot_id="b")
    )
    journal.write(RebootEntry(at="x", stage="driver", boot_id="b", why="modules"))
    done = doctor(host, "apply", "plan.json", "--yes")
    assert done.returncode == 4
    assert "run r1 waits for the restart of localhost" in done.stderr
    assert "`mopt-doctor resume r1`" in done.stderr


# --- what is kept ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_plan_that_was_made_with_an_overlay_is_applied_and_checked_with_it(host: Site) -> None:
    overlay = host.place / "overlay"
    overlay.mkdir()
    (overlay / "overlay.yaml").write_text(
        'name: lab\nas_of: "2026-11-30"\nsources:\n  t1: "a test"\n'
        'defaults: {as_of: "2026-11-30", review_by: "2027-05-31", confidence: measured}\n'
        'forbid:\n- component: driver\n  versions: ["==610.*"]\n  reason: "not here"\n  source: [t1]\n'
    )
    made = doctor(
        host,
        "plan",
        "--from",
        str(HOSTS / HEALTHY),
        "--goal",
        NEWER,
        "--overlay",
        "overlay",
        "-o",
        "own.json",
    )
    assert made.returncode == 0, made.stderr
    one = msgspec.json.decode((host.place / "own.json").read_bytes(), type=Plan)
    assert one.matrix_digest != plan().matrix_digest
    without = doctor(host, "apply", "own.json", "--yes")
    assert without.returncode == 4
    assert "give it here, too" in without.stderr
    done = doctor(host, "apply", "own.json", "--yes", "--overlay", "overlay")
    assert done.returncode == 0, done.stderr
    order = read_order(folder_of(host, one.id))
    assert order.overlays == (str(overlay),)
    report = json.loads((folder_of(host, one.id) / "check-after.json").read_bytes())
    assert report["overlays"], "the check of the run says which overlay it stood on"


def test_a_saved_plan_and_the_journal_of_a_run_have_text_and_json(host: Site, capsys: Any) -> None:
    import jsonschema

    from doctor.report.schemas import schema
    from tests.core.test_run import JOURNALS, encode_entry

    assert main(["report", str(host.place / "plan.json")]) == 0
    text = capsys.readouterr().out
    assert f"PLAN {plan().id}" in text
    assert "nvidia-open-580  580.126.20-1ubuntu1 -> removed".replace("  ", " ") in " ".join(text.split())
    assert main(["report", str(host.place / "plan.json"), "--format", "json"]) == 0
    jsonschema.validate(json.loads(capsys.readouterr().out), schema("mopt.plan/1"))

    journal = host.folder / "journal.jsonl"
    for entries in JOURNALS.values():
        journal.write_bytes(b"".join(encode_entry(entry) for entry in entries))
        assert main(["report", str(journal)]) == 0
        assert "run r1 on localhost" in capsys.readouterr().out
        assert main(["report", str(journal), "--format", "json"]) == 0
        saved = capsys.readouterr().out
        jsonschema.validate(json.loads(saved), schema("mopt.run/1"))
        (host.place / "run.json").write_text(saved)
        assert main(["report", str(host.place / "run.json")]) == 0
        capsys.readouterr()
    journal.write_bytes(b'{"kind":"stage_begun","at":"x","stage":"y"}\n')
    assert main(["report", str(journal)]) == 2


def test_shells_and_manuals_know_the_commands_and_not_the_hidden_one(capsys: Any) -> None:
    for words in (["completion", "bash"], ["man"], ["--help"]):
        with contextlib.suppress(SystemExit):
            main(words)
        said = capsys.readouterr().out
        for verb in ("apply", "resume", "rollback"):
            assert re.search(rf"\b{verb}\b", said), (words, verb)
        assert not re.search(r"(?m)^\s*work\b|mopt-doctor work|[ \"']work[ \"')]", said), words


def test_apply_is_not_loaded_to_check(tmp_path: Path) -> None:
    listing = "import sys; from doctor.cli import main\ntry:\n  main(sys.argv[1:])\nexcept SystemExit: pass\n"
    listing += "sys.stderr.write('\\n'.join(sys.modules))"
    words = [sys.executable, "-I", "-c", listing, "check", "--from", str(HOSTS / HEALTHY)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path)
    names = set(done.stderr.splitlines())
    assert "doctor.core.judge" in names
    assert not [name for name in names if name.startswith(("doctor.apply", "ansible", "doctor.core.plan"))]
