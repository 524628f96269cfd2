"""A plan's package transactions on a lab host, by the program that the roles run there, without Ansible around it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.lab.guests import add_repositories
from tests.lab.hosts import Host
from tests.lab.places import TREE

__all__ = ["bring", "carry_out", "prepare", "transactions"]

UTILS = TREE / "playbooks/plugins/module_utils"
FOLDER = "/root/transaction"


def transactions(variables: Mapping[str, Any], *stages: str) -> Iterator[Mapping[str, Any]]:
    """Those of these stages, or of all, in the plan's order."""
    for stage in variables["mopt_stages"]:
        if not stages or stage["id"] in stages:
            yield from stage["packages"]


def prepare(host: Host, variables: Mapping[str, Any]) -> None:
    """The plan's repositories, preferences and module streams."""
    add_repositories(host, variables)
    for stage in variables["mopt_stages"]:
        for row in stage["streams"]:
            host.ssh(f"dnf -y -q module enable {row['module']}:{row['stream']}")


def carry_out(host: Host, transaction: Mapping[str, Any], act: str = "run") -> dict[str, Any]:
    """What the worker answers: `run`, or `simulate`."""
    place = f"{FOLDER}/worker"
    host.ssh(f"rm -rf {FOLDER}; mkdir -p {place}")
    for source in UTILS.glob("mopt_*.py"):
        name = "__main__.py" if source.name == "mopt_worker.py" else source.name
        host.write(f"{place}/{name}", source.read_text())
    kept = ("install", "remove", "allow_downgrade", "extra_allowed")
    request = {key: transaction[key] for key in kept}
    request |= {"manager": "dnf" if host.is_rocky else "apt", "unlock": [], "weak": False, "keep_in": ""}
    request |= {"lock_timeout_s": 120, "may_update": True}
    host.write(f"{FOLDER}/request.json", json.dumps(request))
    host.ssh(f"python3 -I {place} {act} {FOLDER}")
    answer: dict[str, Any] = json.loads(host.read(f"{FOLDER}/{'result' if act == 'run' else act + 'd'}.json"))
    return answer


def bring(host: Host, variables: Mapping[str, Any], *stages: str) -> dict[str, str]:
    """Carry them out; what changed: name to new version. A transaction that is not the planned one fails."""
    brought: dict[str, str] = {}
    for one in transactions(variables, *stages):
        answer = carry_out(host, one)
        assert not answer["failed"], answer["failed"]
        assert answer["outcome"] in ("done", "unchanged"), answer
        brought |= {change["name"]: change["after"] for change in answer["changes"]}
    return brought
