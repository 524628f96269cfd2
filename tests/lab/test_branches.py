"""From branch to branch and back, on the same host, each time planned from what the host then is."""

from __future__ import annotations

import pytest

from tests.lab import product
from tests.lab.capsules import capsule, is_as, packages
from tests.lab.controller import play
from tests.lab.test_provision import arrived, is_installed, is_planned, ran, told, unchanged, was_true

BOTH = pytest.mark.parametrize("system", ["ubuntu-24.04", "rocky-9"])
BRANCHES = ("535.261.03", "580.126.20", "595.71.05")


def driver(version: str) -> str:
    return f"driver=={version},kernel-modules==open"


@pytest.fixture
def road(make, lab, plan, core, tmp_path):
    """A host and how it is brought to a goal: collected, planned, played, judged."""

    class Road:
        def __init__(self, system, card="L40S"):
            self.host = make(system, card, card)
            self.plan = {}

        def play(self, variables, playbook="site.yml", **how):
            return play(lab, {self.host.name: variables}, playbook, core=core, **how)

        def planned(self, goal, *arguments):
            return plan(product.collect(self.host, tmp_path / "bundle.tar.gz"), goal, *arguments)

        def to(self, goal, *arguments, dry=False):
            """The plan that was carried out; with `dry` a dry run before it, held to what then happens."""
            self.plan = self.planned(goal, *arguments)
            assert not self.plan["mopt_refusals"], self.plan["mopt_refusals"]
            before = packages(self.host)
            said = ran(self.play(self.plan, check=True)) if dry else None
            done = ran(self.play(self.plan))
            changes = arrived(before, packages(self.host))
            assert changes == told(done, self.host)
            is_planned(self.plan, changes)
            if said:
                was_true(said, done, self.host)
            return self.plan

        def refused(self, goal, *arguments):
            refused = self.planned(goal, *arguments)
            assert refused["mopt_refusals"]
            before = packages(self.host)
            outcome = self.play(refused)
            assert outcome.code != 0
            assert packages(self.host) == before
            return refused["mopt_refusals"], outcome

        def repeats(self):
            unchanged(self.play(self.plan), [self.host])

    return Road


@BOTH
def test_535_to_580_to_595_and_back(road, system):
    """Back by the capsules of the runs, the last one first: each leads to what that run found."""
    way = road(system)
    found, plans = [], []
    for version in BRANCHES:
        found.append(capsule(way.host))
        plans.append(way.to(driver(version), dry=True))
        is_installed(way.host, way.plan)
    for state, plan in zip(found[:0:-1], plans[:0:-1], strict=True):
        ran(way.play(plan, "rollback.yml"))
        way.host.reboot()
        is_as(state, way.host)
        report = product.check(way.host)
        assert (report["verdict"], report["exit"]) == ("ready", 0), report["causes"]


@BOTH
def test_595_to_580_by_a_plan(road, system):
    way = road(system)
    for version in BRANCHES[:0:-1]:
        is_installed(way.host, way.to(driver(version)))
    way.repeats()


@BOTH
def test_a_second_cuda_stands_beside_the_first(road, system):
    way = road(system, "H100")
    way.to("driver==580.126.20,kernel-modules==open,cuda-toolkit==12.9")
    way.to("driver==580.126.20,kernel-modules==open,cuda-toolkit==13.0")
    assert way.host.say("ls -d /usr/local/cuda-12.9 /usr/local/cuda-13.0").split() == [
        "/usr/local/cuda-12.9",
        "/usr/local/cuda-13.0",
    ]
    assert product.check(way.host)["verdict"] == "ready"


@BOTH
def test_the_container_toolkit_moves_to_the_advisorys_floor(road, system):
    way = road(system, "H100")
    for version in ("1.17.8", "1.20.0"):
        way.to(f"driver==580.126.20,kernel-modules==open,container-toolkit=={version}")
        assert version in way.host.say("nvidia-ctk --version")
    way.repeats()


def test_a_change_of_origin_is_refused(road):
    """Canonical's driver on a host that has NVIDIA's: the names overlap, apt would mix them."""
    way = road("ubuntu-24.04")
    way.to("driver==580.126.20,kernel-modules==open")
    refusals, outcome = way.refused("driver==580.173.02", "--origin", "canonical")
    assert [r["cause"] for r in refusals] == ["plan.origin_changes"]
    assert "plan.origin_changes: " in outcome.failures()


def test_a_change_of_origin_that_was_decided_replaces_every_package_of_the_driver(road):
    way = road("ubuntu-24.04")
    way.to("driver==580.126.20,kernel-modules==open")
    is_installed(way.host, way.to("driver==580.173.02", "--origin", "canonical", "--change-origin"))
    left = [n for n in packages(way.host) if n.startswith(("nvidia-", "libnvidia-")) and "-server" not in n]
    assert left == [], "packages of NVIDIA's repository beside Canonical's"
