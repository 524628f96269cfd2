"""Runs playbooks as a site would: plain `ansible-playbook` over SSH, from an environment of its own, and reads what happened."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.lab.base import locked, run
from tests.lab.hosts import Lab
from tests.lab.places import CACHE, LAB, RUN, TREE

__all__ = ["CONTROLLERS", "Outcome", "default_core", "ensure_controller", "play"]

#: ansible-core and the Python that it is run by.
CONTROLLERS = {"2.19": "3.11", "2.21": "3.12"}


@functools.cache
def default_core() -> str:
    """The newest ansible-core whose Python is on this machine: a bare Debian 12 has 3.11 alone."""
    for core, python in sorted(CONTROLLERS.items(), reverse=True):
        if run(TREE / ".ci/find-python", python, check=False).returncode == 0:
            return core
    raise RuntimeError(f"no Python of {', '.join(CONTROLLERS.values())} for ansible-core is on this machine")


def ensure_controller(core: str) -> Path:
    """A virtual environment with this ansible-core; built where the package registry answers, outside of the lab."""
    target = CACHE / f"controller-{core}"
    if (target / ".complete").exists():
        return target
    with locked(target.name):
        if not (target / ".complete").exists():
            run(TREE / ".ci/make-venv", target, CONTROLLERS[core])
            run(
                target / "bin/python",
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                f"ansible-core=={core}.*",
            )
            (target / ".complete").touch()
    return target


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a playbook run did."""

    code: int
    events: tuple[Mapping[str, Any], ...] = ()
    stats: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    said: str = ""

    def changed(self, host: str) -> int:
        return self.stats.get(host, {}).get("changed", -1)

    def tasks(self, status: str, host: str = "") -> list[str]:
        """Names of the tasks that ended so: `changed`, `failed`, `ok`, `skipped`, `unreachable`."""
        return [e["task"] for e in self.events if e["status"] == status and (not host or e["host"] == host)]

    def failures(self) -> str:
        """What failed, in the modules' own words."""
        return "\n".join(
            f"{e['host']}: {e['task']}: {e['message']}"
            for e in self.events
            if e["status"] in ("failed", "unreachable")
        )

    def results(self, module: str, host: str = "") -> list[Mapping[str, Any]]:
        """Results of every task of a module whose name ends so."""
        return [
            e["result"]
            for e in self.events
            if e["module"].endswith(module) and (not host or e["host"] == host)
        ]


def play(
    lab: Lab,
    plans: Mapping[str, Mapping[str, Any]],
    playbook: str,
    *,
    core: str = "2.19",
    check: bool = False,
    extra: Sequence[str] = (),
    timeout_s: float = 900,
) -> Outcome:
    """Run `playbooks/PLAYBOOK` on hosts by name, each with its own variables."""
    folder = lab.folder / "play"
    folder.mkdir(exist_ok=True)
    events = folder / "events.jsonl"
    events.unlink(missing_ok=True)
    inventory = json.loads(lab.inventory(*plans))
    for name, variables in plans.items():
        inventory["all"]["hosts"][name] |= variables
    (folder / "inventory.json").write_text(json.dumps(inventory))
    argv = [
        str(ensure_controller(core) / "bin/ansible-playbook"), "-i", str(folder / "inventory.json"), f"playbooks/{playbook}",
        *(["--check", "--diff"] if check else []), *extra,
    ]  # fmt: skip
    done = subprocess.run(
        argv,
        cwd=_snapshot(),
        env=_environment(folder, events),
        text=True,
        capture_output=True,
        check=False,
        timeout=timeout_s,
    )
    rows = [json.loads(line) for line in events.read_text().splitlines()] if events.exists() else []
    return Outcome(
        code=done.returncode,
        events=tuple(r for r in rows if r["kind"] == "task"),
        stats=next((r["stats"] for r in rows if r["kind"] == "stats"), {}),
        said=(done.stdout + done.stderr)[-20000:],
    )


@functools.cache
def _snapshot() -> Path:
    """The playbooks as they are when the session first plays one: who edits them meanwhile changes the next session."""
    folder = Path(tempfile.mkdtemp(prefix="playbooks-", dir=RUN))
    shutil.copytree(TREE / "playbooks", folder / "playbooks", symlinks=True)
    return folder


def _environment(folder: Path, events: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ANSIBLE_")}
    return {
        **kept,
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_FORKS": "4",
        "ANSIBLE_HOST_KEY_CHECKING": "False",
        "ANSIBLE_RETRY_FILES_ENABLED": "False",
        "ANSIBLE_CALLBACK_PLUGINS": str(LAB / "callbacks"),
        "ANSIBLE_CALLBACKS_ENABLED": "lab_events",
        "ANSIBLE_NOCOLOR": "1",
        "LAB_EVENTS": str(events),
        "LC_ALL": "C.UTF-8",
    }
