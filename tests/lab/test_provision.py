"""From bare hosts to installed ones and back, with the true package managers, and what `check` says on the way.

A test takes an Ubuntu and a Rocky at once, as a fleet would be: a play's time is that of its slowest host.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from tests.lab import product
from tests.lab.capsules import capsule, difference, is_as, packages
from tests.lab.controller import play
from tests.lab.fakegpu.plant import MODELS

#: Reference variables by pair: both systems, branches 580 and 595, open and proprietary where the hardware allows it.
PAIRS = {
    "580-open": ("ubuntu-24.04-h100-580-open", "rocky-9-h100-580-open"),
    "595-open": ("ubuntu-24.04-h100-595-open", "rocky-9-h100-595-open"),
    "580-proprietary": ("ubuntu-24.04-l40s-580-proprietary", "rocky-9-l40s-580-proprietary"),
    "volta": ("ubuntu-24.04-v100-580-proprietary", "rocky-9-v100-580-proprietary"),
    "595-blackwell": ("ubuntu-24.04-b200-595-open", "rocky-9-b200-595-open"),
    "whole-stack": ("ubuntu-24.04-h100-580-stack", "rocky-9-h100-580-stack"),
}

#: What a dry run leaves to the packages that it does not install: modules, units, runtimes, and an initramfs.
FOLLOWS = ("kernel : ", "services : ", "containers : ", "verify : ")


def system_of(name: str) -> str:
    return "-".join(name.split("-")[:2])


def card_of(name: str) -> str:
    card = name.split("-")[2].upper()
    assert card in MODELS
    return card


def transactions(variables) -> list[dict]:
    return [one for stage in variables["mopt_stages"] for one in stage["packages"]]


def planned(variables) -> dict[str, str]:
    """Every package that a plan installs, at its version."""
    return {p["name"]: p["version"] for one in transactions(variables) for p in one["install"]}


def driver_of(variables) -> str:
    return next(
        w.partition("==")[2] for w in variables["mopt_plan"]["goal"].split(",") if w.startswith("driver==")
    )


def ran(outcome):
    """The outcome of a run that succeeded."""
    assert outcome.code == 0, outcome.failures() or outcome.said
    return outcome


def unchanged(outcome, hosts):
    ran(outcome)
    assert {h.name: outcome.changed(h.name) for h in hosts} == {h.name: 0 for h in hosts}, outcome.tasks(
        "changed"
    )


def told(outcome, host) -> dict[str, str]:
    """What the transactions of a run say that they bring, move and take on a host: name to version, empty where it goes."""
    rows = outcome.results("mopt_transaction", host.name)
    changes = [c for row in rows for one in row.get("results", [row]) for c in one.get("changes") or ()]
    return {c["name"]: c["after"] for c in changes}


def arrived(before, after) -> dict[str, str]:
    return {name: now for name, (_, now) in difference(before, after).items()}


def is_planned(variables, changes) -> None:
    """Every package that changed stands in the plan: by name and version, or by a glob of what a solver may add."""
    names, gone = planned(variables), {n for one in transactions(variables) for n in one["remove"]}
    globs = [glob for one in transactions(variables) for glob in one["extra_allowed"]]
    for name, version in changes.items():
        if name in names:
            assert names[name] in ("", version), f"{name} is {version}, planned {names[name]}"
        elif not version:
            assert name in gone, f"{name} went, and the plan does not take it"
        else:
            assert any(fnmatchcase(name, glob) for glob in globs), f"{name} {version} came unplanned"


def was_true(dry, done, host) -> None:
    """A dry run said of each package what then happened, and named no task that then changed nothing."""
    assert told(dry, host) == told(done, host)
    said, did = set(dry.tasks("changed", host.name)), set(done.tasks("changed", host.name))
    assert said <= did, f"said and not done: {sorted(said - did)}"
    silent = {task for task in did - said if not task.startswith(FOLLOWS)}
    assert silent == set(), f"done and not said: {sorted(silent)}"


@pytest.mark.parametrize(
    "pair", [pytest.param(p, marks=pytest.mark.slice if p == "580-open" else ()) for p in PAIRS]
)
def test_bare_to_installed_and_back(make, lab, variables, pair, core):
    names = PAIRS[pair]
    hosts = [make(system_of(n), card_of(n), card_of(n)) for n in names]
    plans = {h.name: variables(n) for h, n in zip(hosts, names, strict=True)}
    for host in hosts:
        assert product.check(host)["verdict"] == "not_ready"
    bare = {h.name: capsule(h) for h in hosts}
    before = {h.name: packages(h) for h in hosts}

    dry = ran(play(lab, plans, "site.yml", core=core, check=True))
    for host in hosts:
        is_as(bare[host.name], host, " after a dry run")

    done = ran(play(lab, plans, "site.yml", core=core))
    for host in hosts:
        changes = arrived(before[host.name], packages(host))
        assert changes == told(done, host)
        is_planned(plans[host.name], changes)
        was_true(dry, done, host)
        is_installed(host, plans[host.name])

    unchanged(play(lab, plans, "site.yml", core=core), hosts)
    unchanged(play(lab, plans, "site.yml", core=core, check=True), hosts)

    ran(play(lab, plans, "rollback.yml", core=core))
    for host in hosts:
        host.reboot()
        is_as(bare[host.name], host, " after the rollback")
        assert product.check(host)["causes"][0]["id"] == "driver.not_installed"


def is_installed(host, variables) -> None:
    """The packages are the plan's, the module is loaded, and `check` finds the host ready, before a reboot and after it."""
    here = packages(host)
    for package, version in planned(variables).items():
        assert package in here, f"{host.system}: {package} of the plan is not installed"
        assert not version or here[package] == version, f"{package} is {here[package]}, planned {version}"
    assert host.say("cat /sys/module/nvidia/version") == driver_of(variables)
    ready = product.check(host)
    assert (ready["verdict"], ready["exit"]) == ("ready", 0), ready["causes"]
    host.reboot()
    again = product.check(host)
    assert (again["verdict"], again["exit"]) == ("ready", 0), again["causes"]
