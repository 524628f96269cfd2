"""Playbooks run in earnest on this host: what is heard of them, how they end, and what they leave."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from doctor.apply import ansible as module
from doctor.apply.ansible import controller_environment, find_playbook_program, play, sweep
from doctor.apply.ending import _is_transaction, _words
from doctor.apply.observe import inventory_of
from doctor.apply.told import Played, Told
from doctor.errors import ApplyError, ConfigError

pytestmark = pytest.mark.slow

Run = Callable[..., tuple[Played, list[Told]]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Tasks as YAML, run on this host; how it ended and what was told."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)

    def one(tasks: str, *, head: str = "", inventory: str = "", **more: object) -> tuple[Played, list[Told]]:
        path = tmp_path / "book.yml"
        path.write_text(f"- hosts: all\n  gather_facts: false\n{head}  tasks:\n{tasks}")
        told: list[Told] = []
        given = {"limit": "localhost", "variables": {}, "on_task": told.append, **more}
        played = play(path, folder=folder, inventory=inventory_of(folder, inventory), **given)  # type: ignore[arg-type]
        return played, told

    yield one
    assert {p.name for p in folder.iterdir()} <= {"inventory.json"}, "nothing is left on disk"
    assert not list(Path("/dev/shm").glob("mopt-ansible-run-*"))


def test_tasks_are_told_as_they_end(run: Run) -> None:
    played, told = run("""
    - name: looks
      command: {argv: ["true"]}
      changed_when: false
    - name: acts
      command: {argv: ["true"]}
    - name: is left out
      command: {argv: ["false"]}
      when: false
    - name: may fail
      fail: {msg: "as expected"}
      ignore_errors: true
    - name: fails in a loop
      fail: {msg: "prov.x: {{ item }}"}
      loop: [one, two, two]
      when: item != 'three'
""")
    assert [(t.task, t.state) for t in told] == [
        ("looks", "ok"),
        ("acts", "changed"),
        ("is left out", "skipped"),
        ("fails in a loop", "failed"),
    ]
    assert told[-1].said == "prov.x: one; prov.x: two"
    assert (played.status, played.code, played.changed, played.hosts) == ("failed", 2, 1, ("localhost",))
    assert played.failures == ("prov.x: one; prov.x: two",)
    assert not played.is_good
    assert all(t.took_s >= 0 for t in told)


def test_a_failure_that_was_rescued_is_no_failure_of_the_run(run: Run) -> None:
    played, told = run("""
    - block:
      - name: breaks
        fail: {msg: broken}
      rescue:
      - name: mends
        debug: {msg: mended}
""")
    assert played.is_good
    assert [t.state for t in told] == ["failed", "ok"]


def test_a_host_that_is_not_reached_is_unreachable(run: Run, tmp_path: Path) -> None:
    inventory = tmp_path / "hosts"
    inventory.write_text(
        "far ansible_host=127.0.0.1 ansible_port=1 ansible_ssh_common_args='-o ConnectTimeout=3'\n"
    )
    played, told = run("    - ping:\n", inventory=str(inventory), limit="far")
    assert played.unreachable
    assert [t.state for t in told] == ["unreachable"]
    assert "Connection refused" in told[0].said
    assert not played.is_good


def test_no_host_is_no_success(run: Run) -> None:
    played, told = run("    - ping:\n", limit="nobody")
    assert not played.is_good
    assert told == []
    assert "leaves us with no hosts" in played.tail
    assert "WARNING" not in played.tail


def test_what_is_said_with_no_log_is_not_kept(run: Run) -> None:
    played, told = run("""
    - name: secretly
      fail: {msg: "the word is xyzzy-plugh-42"}
      no_log: true
""")
    assert "xyzzy" not in f"{played}{told}"
    assert played.failures == ("secretly",)


@pytest.mark.parametrize(
    "error", [ValueError("no"), OSError(28, "No space left on device"), KeyboardInterrupt()]
)
def test_an_exception_of_the_caller_ends_the_run_and_is_raised(
    run: Run, tmp_path: Path, error: BaseException
) -> None:
    """ansible-runner 2.4.3 swallows an OSError, and with another leaves the playbook running."""
    mark = tmp_path / "second"

    def on_task(_told: Told) -> None:
        raise error

    began = time.monotonic()
    with pytest.raises(type(error)) as caught:
        run(
            f"    - command: {{argv: ['true']}}\n    - command: {{argv: [sleep, '3000']}}\n"
            f"    - command: {{argv: [touch, '{mark}']}}\n",
            on_task=on_task,
        )
    assert caught.value is error
    assert time.monotonic() - began < 30
    assert not mark.exists()


def test_a_stop_ends_everything_within_seconds(run: Run, tmp_path: Path) -> None:
    """A worker of ansible-core 2.19 and its command outlive the SIGKILL that ansible-runner sends."""
    mark = tmp_path / "at-work"
    asked: list[float] = []

    def should_stop() -> bool:
        if mark.exists():
            asked.append(time.monotonic())
        return mark.exists()

    script = f"echo $$ > {mark}; trap '' INT; while :; do sleep 1; done"
    played, _told = run(f'    - command: {{argv: [sh, -c, "{script}"]}}\n', should_stop=should_stop)
    assert played.status == "canceled"
    assert time.monotonic() - asked[0] < 10
    pid = int(mark.read_text())
    deadline = time.monotonic() + 5
    while str(mark) in " ".join(_words(pid)):
        assert time.monotonic() < deadline, "the command goes on"
        time.sleep(0.05)


def test_a_command_that_will_not_end_is_killed(run: Run, tmp_path: Path) -> None:
    mark = tmp_path / "at-work"
    script = f"echo $$ > {mark}; trap '' INT TERM HUP; while :; do sleep 1; done"
    played, _told = run(f'    - command: {{argv: [sh, -c, "{script}"]}}\n', should_stop=mark.exists)
    assert played.status == "canceled"
    deadline = time.monotonic() + 5
    while str(mark) in " ".join(_words(int(mark.read_text()))):
        assert time.monotonic() < deadline, "the command goes on"
        time.sleep(0.05)


def test_a_package_transaction_is_not_killed() -> None:
    """What `mopt_transaction` starts goes on to its end, whoever is stopped."""
    folder = "/var/lib/mopt-doctor/transactions/0123456789ab"
    assert _is_transaction(["/usr/bin/python3", "-I", f"{folder}/worker", "run", folder])
    assert not _is_transaction(["/usr/bin/python3", "-I", f"{folder}/worker", "simulate", folder])
    assert not _is_transaction(["sh", "-c", "run"])


def test_host_keys_are_checked_and_the_callers_environment_stays_outside(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANSIBLE_HOST_KEY_CHECKING", "False")
    monkeypatch.setenv("ANSIBLE_STDOUT_CALLBACK", "minimal")
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789abcdefghij")
    before = dict(os.environ)
    played, told = run("""
    - name: look
      command: {argv: ["true"]}
      changed_when: false
      failed_when: >-
        lookup('config', 'HOST_KEY_CHECKING') != true or lookup('env', 'HF_TOKEN') != ''
""")
    assert played.is_good, told
    assert dict(os.environ) == before


def test_files_of_an_earlier_run_are_not_read(run: Run, tmp_path: Path) -> None:
    """ansible-runner reads whatever lies in `env` of its folder."""
    stale = tmp_path / "run" / "env"
    stale.mkdir()
    (stale / "extravars").write_text('{"answer": "stale"}')
    (stale / "envvars").write_text('{"STALE": "yes"}')
    (stale / "cmdline").write_text("--tags never")
    played, told = run("""
    - name: look
      command: {argv: ["true"]}
      failed_when: answer | default('') == 'stale' or lookup('env', 'STALE') != ''
""")
    assert played.is_good, told
    for path in stale.iterdir():
        path.unlink()
    stale.rmdir()


def test_the_plan_outranks_the_sites_files(run: Run, tmp_path: Path) -> None:
    site = tmp_path / "with space.yml"
    site.write_text("answer: theirs\nhook: from the site\n")
    played, told = run(
        "    - assert: {that: [\"answer == 'ours'\", \"hook == 'from the site'\"]}\n",
        variables={"answer": "ours"},
        variable_files=[site],
    )
    assert played.is_good, told


@pytest.mark.parametrize(
    "value", ["{{ lookup('pipe', 'id') }}", ["x", {"y": "{% if 1 %}"}], {"{{ k }}": 1}, "{# c #}"]
)
def test_a_template_in_a_plan_is_refused(run: Run, value: object) -> None:
    """Ansible carries out what it finds in extra variables; a plan's texts come from a file."""
    with pytest.raises(ApplyError, match="holds a template") as caught:
        run("    - ping:\n", variables={"mopt_stages": [{"why": value}]})
    assert caught.value.end == "unchanged"


def test_check_mode_changes_nothing(run: Run, tmp_path: Path) -> None:
    mark = tmp_path / "made"
    played, told = run(f"    - file: {{path: '{mark}', state: touch}}\n", is_dry=True)
    assert (played.is_good, played.changed, told[0].state) == (True, 1, "changed")
    assert not mark.exists()


def test_what_a_killed_run_left_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, other = tmp_path / "r1", tmp_path / "r12"
    folder.mkdir()
    monkeypatch.setattr(module, "_parents", lambda _folder: [tmp_path])
    for name in ("mopt-ansible-r1-abc", "mopt-ansible-r12-abc", "something"):
        (tmp_path / name / "artifacts").mkdir(parents=True)
    sweep(folder)
    assert not (tmp_path / "mopt-ansible-r1-abc").exists()
    assert (tmp_path / "mopt-ansible-r12-abc").exists(), f"that is of {other}"
    assert (tmp_path / "something").exists()


# --- before it starts -----------------------------------------------------------------------------


def test_where_things_are_is_handed_on_and_what_they_say_is_not() -> None:
    given = {
        "HOME": "/home/me", "SSH_AUTH_SOCK": "/run/agent", "ANSIBLE_BECOME_PASSWORD_FILE": "/etc/pw",
        "HTTPS_PROXY": "http://u:p@proxy", "AWS_SECRET_ACCESS_KEY": "x", "PYTHONPATH": "/evil",
        "PATH": "/evil", "LD_PRELOAD": "/evil.so", "ANSIBLE_BECOME_PASS": "x", "ANSIBLE_LIBRARY": "/evil",
    }  # fmt: skip
    kept = controller_environment(given)
    assert set(kept) == {
        "HOME", "SSH_AUTH_SOCK", "ANSIBLE_BECOME_PASSWORD_FILE", "PATH", "LC_ALL", "PYTHONSAFEPATH",
    }  # fmt: skip
    assert "/evil" not in kept["PATH"]
    if os.geteuid() == 0:
        assert kept["HOME"] != "/home/me", "plugins below HOME are code, and sudo may leave the caller's"


def test_missing_parts_are_named_with_the_command_that_brings_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import importlib.util

    monkeypatch.setattr(module.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(module, "_PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"^ansible-core is not installed") as caught:
        find_playbook_program()
    assert "pip install" in caught.value.hints[0]
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"^ansible-core and ansible-runner are not installed"):
        find_playbook_program()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only root is held to it")
def test_root_runs_no_playbook_that_another_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "playbooks").mkdir()
    monkeypatch.setenv("MOPT_DATA", str(tmp_path))
    module.trust_what_runs()
    (tmp_path / "playbooks/site.yml").write_text("[]")
    (tmp_path / "playbooks/site.yml").chmod(0o666)
    with pytest.raises(ConfigError, match="the playbooks"):
        module.trust_what_runs()
