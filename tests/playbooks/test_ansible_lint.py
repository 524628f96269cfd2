"""ansible-lint's production profile over the playbooks, and Ansible's own syntax check."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.playbooks.conftest import PLAYBOOKS

pytestmark = pytest.mark.slow


def _tool(name: str) -> str:
    """Beside this Python, or on PATH; `MOPT_ANSIBLE` names a folder of another environment."""
    own = PLAYBOOKS.parent / "build/ansible-lint/bin"
    places = [
        os.environ.get("MOPT_ANSIBLE", ""),
        str(own),
        str(Path(sys.executable).parent),
        os.environ["PATH"],
    ]
    found = shutil.which(name, path=os.pathsep.join(p for p in places if p))
    if found is None and os.environ.get("CI"):
        pytest.fail(f"{name} is not installed: `make build/ansible-lint/.installed` makes its environment")
    if found is None:
        pytest.skip(f"{name} is not installed: `pip install ansible-lint`, or MOPT_ANSIBLE=FOLDER")
    return found


def _run(*argv: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        # Roles are looked at one by one there, without the folders beside the playbooks.
        "ANSIBLE_LIBRARY": str(PLAYBOOKS / "plugins/modules"),
        "ANSIBLE_MODULE_UTILS": str(PLAYBOOKS / "plugins/module_utils"),
        "PATH": f"{Path(argv[0]).parent}{os.pathsep}{os.environ['PATH']}",
        "NO_COLOR": "1",
    }
    return subprocess.run(argv, cwd=PLAYBOOKS, env=environment, text=True, capture_output=True, check=False)


def test_the_production_profile_has_nothing_to_say():
    done = _run(_tool("ansible-lint"), "--offline", "--profile", "production", "-q", "--nocolor", ".")
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]


@pytest.mark.parametrize("name", ["site.yml", "rollback.yml", "capsule.yml", "verify.yml"])
def test_the_syntax_is_right(name):
    done = _run(_tool("ansible-playbook"), "--syntax-check", "-i", "localhost,", name)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
