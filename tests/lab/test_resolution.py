"""Every plan that is kept for reference resolves: the true apt and dnf, against repositories made from the matrix."""

from __future__ import annotations

import json

import pytest

from tests.lab.guests import add_repositories, install_by_hand
from tests.lab.places import TREE
from tests.lab.repository import ensure_repositories

NAMES = sorted(p.stem for p in (TREE / "tests/data/vars").glob("*.json"))


def system_of(name: str) -> str:
    return "-".join(name.split("-")[:2])


@pytest.fixture(scope="module")
def all_systems(session_server):
    """The server with the repositories of every system that has a plan."""
    known = session_server.folders
    session_server.folders = ensure_repositories(sorted({system_of(n) for n in NAMES})).folders
    yield session_server
    session_server.folders = known


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_resolves_to_its_own_versions(make, all_systems, variables, name):
    plan = variables(name)
    if "airgap" in name:
        plan = json.loads(json.dumps(plan))
        pytest.skip("its addresses are the site's") if "example" in json.dumps(plan["mopt_stages"]) else None
    host = make(system_of(name))
    add_repositories(host, plan)
    for stage in plan["mopt_stages"]:
        for stream in stage["streams"]:
            host.ssh(f"dnf -y -q module enable {stream['module']}:{stream['stream']}")
        for transaction in stage["packages"]:
            installs(host, transaction["install"])


def installs(host, wanted) -> None:
    """Really install: a later transaction is resolved against what an earlier one left."""
    join = "-" if host.is_rocky else "="
    words = [f"{p['name']}{join}{p['version']}" if p["version"] else p["name"] for p in wanted]
    install_by_hand(host, *words)
    for package in wanted:
        if not package["version"]:
            continue
        if host.is_rocky:
            said = host.say(
                f"rpm -q --qf '%{{EPOCH}}:%{{VERSION}}-%{{RELEASE}}' {package['name']}"
            ).removeprefix("(none):")
        else:
            said = host.say(f"dpkg-query -W -f '${{Version}}' {package['name']}")
        assert said == package["version"]
