"""Hosts by hand: boots them, serves the repositories, and opens a shell from which they can be reached."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from tests.lab.fakegpu.plant import MODELS
from tests.lab.fakegpu.plant import secure_boot as set_secure_boot
from tests.lab.hosts import Lab
from tests.lab.places import BRIDGE_ADDRESS
from tests.lab.repository import ensure_repositories
from tests.lab.server import Server

__all__ = ["up"]

WORDS = """\
{hosts}
  ansible-playbook -i $INVENTORY playbooks/site.yml -e @$LAB/vars.json      (fingerprints: python -m tests.lab.keys VARS)
  $LAB/ssh NAME [COMMAND]      root's shell on a host; its disk is $LAB/NAME/root
The hosts end with this shell.
"""


def up(wanted: Sequence[str], cards: Sequence[str], *, secure_boot: bool, command: str | None) -> int:
    """Boot `[NAME=]SYSTEM` each, then a shell or `command`; its exit code."""
    repositories = ensure_repositories(sorted({w.rpartition("=")[2] for w in wanted}))
    lab = Lab(repositories.authority)
    server = Server(repositories.folders, repositories.authority, BRIDGE_ADDRESS)
    try:
        for number, word in enumerate(wanted):
            name, _, system = word.rpartition("=")
            host = lab.host(name or f"gpu{number}", system, gpus=[MODELS[c] for c in cards], boot=False)
            if secure_boot:
                set_secure_boot(host.root, is_on=True)
        lab.boot_all(lab.hosts.values())
        (lab.folder / "inventory.json").write_text(lab.inventory())
        script = lab.folder / "ssh"
        options = " ".join(lab.ssh_options)
        cases = "".join(f"{h.name}) address={h.address};;\n" for h in lab.hosts.values())
        script.write_text(
            f'#!/bin/sh\ncase $1 in\n{cases}esac\nshift\nexec ssh {options} root@$address "$@"\n'
        )
        script.chmod(0o755)
        environment = {**os.environ, "LAB": str(lab.folder), "INVENTORY": str(lab.folder / "inventory.json")}
        environment |= {"ANSIBLE_PIPELINING": "1", "ANSIBLE_HOST_KEY_CHECKING": "False", "PS1": "lab# "}
        if command:
            return subprocess.run(["bash", "-c", command], env=environment, check=False).returncode
        lines = "".join(f"{h.name:12} {h.system:14} {h.address}\n" for h in lab.hosts.values())
        print(WORDS.format(hosts=lines), flush=True)
        return subprocess.run(["bash", "--norc", "-i"], env=environment, check=False).returncode
    finally:
        server.close()
        lab.close()
