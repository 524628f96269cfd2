"""From bare hosts to installed ones and back, with the true package managers, and what `check` says on the way.

A test takes an Ubuntu and a Rocky at once, as a fleet would be: a play's time is that of its slowest host.
"""

from __future__ import annotations

import pytest

from tests.lab import product
from tests.lab.capsules import difference, packages
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


def system_of(name: str) -> str:
    return "-".join(name.split("-")[:2])


def card_of(name: str) -> str:
    card = name.split("-")[2].upper()
    assert card in MODELS
    return card


def planned(variables) -> dict[str, str]:
    """Every package that a plan installs, at its version."""
    return {
        p["name"]: p["version"] for s in variables["mopt_stages"] for t in s["packages"] for p in t["install"]
    }


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


@pytest.mark.parametrize(
    "pair", [pytest.param(p, marks=pytest.mark.slice if p == "580-open" else ()) for p in PAIRS]
)
def test_bare_to_installed_and_back(make, lab, variables, pair, core):
    names = PAIRS[pair]
    hosts = [make(system_of(n), card_of(n), card_of(n)) for n in names]
    plans = {h.name: variables(n) for h, n in zip(hosts, names, strict=True)}
    before = {h.name: packages(h) for h in hosts}
    for host in hosts:
        assert product.check(host)["verdict"] == "not_ready"

    ran(play(lab, plans, "site.yml", core=core, check=True))
    for host in hosts:
        assert difference(before[host.name], packages(host)) == {}, "a dry run changed packages"

    ran(play(lab, plans, "site.yml", core=core))
    for host in hosts:
        is_installed(host, plans[host.name])

    unchanged(play(lab, plans, "site.yml", core=core), hosts)
    unchanged(play(lab, plans, "site.yml", core=core, check=True), hosts)

    ran(play(lab, plans, "rollback.yml", core=core))
    for host in hosts:
        assert difference(before[host.name], packages(host)) == {}
        host.reboot()
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
