"""From branch to branch and back, on the same host, each time planned from what the host then is."""

from __future__ import annotations

import pytest

from tests.lab import product
from tests.lab.controller import play
from tests.lab.test_provision import is_installed, ran, unchanged

BOTH = pytest.mark.parametrize("system", ["ubuntu-24.04", "rocky-9"])


@pytest.fixture
def road(make, lab, plan, core, tmp_path):
    """A host and how it is brought to a goal: collected, planned, played, judged."""

    class Road:
        def __init__(self, system, card="L40S"):
            self.host = make(system, card, card)

        def to(self, goal, *arguments):
            bundle = product.collect(self.host, tmp_path / "bundle.tar.gz")
            self.plan = plan(bundle, goal, *arguments)
            assert not self.plan["mopt_refusals"], self.plan["mopt_refusals"]
            ran(play(lab, {self.host.name: self.plan}, "site.yml", core=core))
            return self.plan

        def refused(self, goal, *arguments):
            bundle = product.collect(self.host, tmp_path / "bundle.tar.gz")
            refused = plan(bundle, goal, *arguments)
            assert refused["mopt_refusals"]
            outcome = play(lab, {self.host.name: refused}, "site.yml", core=core)
            assert outcome.code != 0
            return refused["mopt_refusals"], outcome

        def repeats(self):
            unchanged(play(lab, {self.host.name: self.plan}, "site.yml", core=core), [self.host])

    return Road


@BOTH
def test_535_to_580_to_595_and_back(road, system):
    way = road(system)
    for driver in ("535.261.03", "580.126.20", "595.71.05", "580.126.20"):
        is_installed(way.host, way.to(f"driver=={driver},kernel-modules==open"))
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
    assert any(r["cause"] in outcome.failures() or r["text"][:30] in outcome.failures() for r in refusals)
