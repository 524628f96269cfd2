"""The loop on a host: finding, plan, apply, verify, evidence; on the host itself."""

from __future__ import annotations

import pytest

from tests.lab import product
from tests.lab.applier import doctor, ended, install, journal, plan_on, run_name
from tests.lab.capsules import difference, packages

BOTH = pytest.mark.parametrize("system", ["ubuntu-24.04", "rocky-9"])


@BOTH
def test_from_bare_to_ready_on_the_host_itself(make, system):
    host = make(system, "H100", "H100")
    install(host)
    before = packages(host)
    assert product.check(host)["verdict"] == "not_ready"
    plan = plan_on(host, "driver==580.126.20")
    assert {p["finding"] for p in plan["promises"]} >= {"kernel.module_on_disk"}
    done = doctor(host, "apply /root/plan.json --yes", 0)
    name = run_name(host)
    end = ended(host, name)
    assert (end["end"], end["exit_code"]) == ("done", 0), journal(host, name)[-12:]
    assert "cured" in done.stdout or "restarts" in done.stderr
    assert product.check(host)["verdict"] == "ready"

    again = doctor(host, "apply /root/plan.json --yes", 4)
    assert "does not fit the host any more" in again.stderr
    plan_on(host, "driver==580.126.20")
    assert "nothing to do" in doctor(host, "apply /root/plan.json --yes", 0).stdout

    doctor(host, f"rollback {name} --yes", 0)
    assert difference(before, packages(host)) == {}
    assert journal(host, name)[-1]["end"] == "rolled_back"
