"""A host held against a goal: what is there, what would have to change, what nobody read, what cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from doctor.core.check import Case
from doctor.core.claims import evaluate
from doctor.core.finding import CheckReport, Finding
from doctor.core.goal import parse_goal
from doctor.core.host import Host
from doctor.core.host_engine import Environment
from doctor.core.judge import judge_scopes
from doctor.core.matrix import Matrix
from doctor.core.rows.site import Overlay, SiteRule
from doctor.core.versions import Dotted
from tests.core.hosts import (
    NOT_THERE,
    devices,
    healthy,
    in_container,
    in_wsl2,
    known_of,
    matrix,
    no_driver,
    put,
    without,
)

P40 = "10de:1b38"
H200 = "10de:2335"
OLD = Dotted("535.247.01")


def venv(path: str = "/opt/vllm", **packages: str) -> Host:
    return Host(scope=f"venv:{path}", environment=known_of(Environment(**packages)))


def judged(host: Host, goal: str, *others: Host, site: Matrix | None = None) -> CheckReport:
    return judge_scopes([host, *others], site or matrix(), parse_goal(goal))


def of(report: CheckReport, check: str = "engine.goal") -> dict[str, Finding]:
    return {finding.subject: finding for finding in report.findings if finding.id == check}


def test_with_the_goal_present_nothing_is_added() -> None:
    report = judged(healthy(), "present")
    assert (report.verdict, report.stack, report.conflict) == ("ready", None, ())
    assert of(report)[""].status == "skip"


def test_a_host_that_has_all_of_it_is_ready() -> None:
    report = judged(healthy(), "vllm==0.33.0", venv(vllm="0.33.0"))
    assert (report.verdict, report.exit_code, report.goal) == ("ready", 0, "vllm==0.33.0")
    assert {f.status for f in of(report).values()} == {"pass"}
    assert report.stack is not None
    assert report.stack.components["vllm"] == "0.33.0"
    assert "driver" in report.stack.keeps
    assert report.conflict == ()


def test_an_engine_that_nobody_saw_leaves_the_verdict_open() -> None:
    report = judged(healthy(), "vllm==0.33.0")
    assert (report.verdict, report.exit_code) == ("unknown", 3)
    finding = of(report)["vllm"]
    assert (finding.status, finding.wanted) == ("unknown", "vllm==0.33.0")
    assert "no environment that was looked into has vllm" in finding.found


def test_another_release_of_the_engine_is_not_the_goal() -> None:
    report = judged(healthy(), "vllm==0.33.0", venv(vllm="0.30.0"))
    assert (report.verdict, report.exit_code) == ("not_ready", 1)
    finding = of(report)["vllm"]
    assert (finding.status, finding.found) == ("fail", "vllm 0.30.0 in venv:/opt/vllm")
    assert [cause.id for cause in report.causes] == ["engine.goal_unmet"]
    assert "vllm 0.30.0" in report.causes[0].because[0]
    # One environment that has it is enough.
    assert judged(healthy(), "vllm==0.33.0", venv(vllm="0.30.0"), venv("/b", vllm="0.33.0")).exit_code == 0


def test_a_driver_below_the_floor_is_named_with_its_reasons_and_its_price() -> None:
    host = put(healthy(), "driver.kernel_version", OLD)
    finding = of(judged(host, "vllm==0.33.0"))["driver"]
    assert (finding.status, finding.found, finding.wanted) == (
        "fail",
        "driver 535.247.01",
        "driver 580.178.04",
    )
    assert any("needs driver 580.65.06 or newer [" in reason for reason in finding.why)
    assert any("min; a reboot" in reason for reason in finding.why)
    report = judged(host, "vllm==0.33.0")
    assert report.stack is not None
    assert [(c.component, c.before, c.after) for c in report.stack.changes] == [
        ("driver", "535.247.01", "580.178.04")
    ]


def test_a_goal_that_cannot_be_met_is_a_conflict() -> None:
    report = judged(devices(healthy(), device_id=P40), "vllm==0.33.0")
    assert report.verdict == "not_ready"
    assert report.stack is None
    assert {link.kind for link in report.conflict} == {"fact", "goal", "relation"}
    assert all(link.source for link in report.conflict if link.kind == "relation")
    finding = of(report)[""]
    assert (finding.status, finding.cause) == ("fail", "engine.goal_conflict")
    assert any(reason.startswith("one way: ") for reason in finding.why)


def test_a_goal_newer_than_the_matrix_is_unknown() -> None:
    report = judged(healthy(), "vllm==0.99.0")
    assert (report.verdict, of(report)[""].status) == ("unknown", "unknown")
    assert report.conflict
    assert report.stack is None


def test_what_is_needed_and_was_looked_for_is_missing() -> None:
    report = judged(devices(healthy(), device_id=H200), "vllm==0.33.0", venv(vllm="0.33.0"))
    finding = of(report)["fabric-manager"]
    assert (finding.status, finding.wanted) == ("fail", "fabric-manager 580.178.04")
    unread = without(devices(healthy(), device_id=H200), ["packages"])
    finding = of(judged(unread, "vllm==0.33.0", venv(vllm="0.33.0")))["fabric-manager"]
    assert (finding.status, finding.is_critical) == ("unknown", True)


def test_a_driver_that_is_not_there_is_missing() -> None:
    finding = of(judged(no_driver(), "vllm==0.33.0"))["driver"]
    assert (finding.status, finding.found) == ("fail", "driver is not installed")
    unread = without(healthy(), ["driver.kernel_version", "driver.userspace_version", "kernel.installed"])
    finding = of(judged(unread, "vllm==0.33.0"))["driver"]
    assert (finding.status, finding.found) == ("unknown", "whether driver is installed was not read")


def test_in_a_container_the_host_around_it_is_not_blamed() -> None:
    host = devices(in_container(), device_id=H200)
    finding = of(judged(host, "vllm==0.33.0", venv(vllm="0.33.0")))["fabric-manager"]
    assert (finding.status, finding.is_critical) == ("unknown", False)


@pytest.mark.parametrize("path", ["system.os", "pci"])
def test_without_what_everything_rests_on_nothing_is_said(path: str) -> None:
    gone = [path] if path != "pci" else ["pci", "driver.nvml", "driver.smi"]
    report = judged(without(healthy(), gone), "vllm==0.33.0", venv(vllm="0.33.0"))
    goals = of(report)
    assert set(goals) == {""}
    assert goals[""].status in ("unknown", "skip")
    assert report.verdict != "ready"


def test_policy_harden_asks_for_what_the_bulletins_say() -> None:
    host = put(healthy(), "driver.kernel_version", Dotted("580.95.05"))
    assert of(judged(host, "torch==2.10.0", venv(torch="2.10.0")))["driver"].status == "pass"
    finding = of(judged(host, "torch==2.10.0,policy=harden", venv(torch="2.10.0")))["driver"]
    assert (finding.status, finding.wanted) == ("fail", "driver 580.178.04")


# --- a site's rules -------------------------------------------------------------------------------


def site(kind: Any, component: str, *versions: str) -> Matrix:
    rule = SiteRule(
        component=component,
        versions=versions,
        reason="known to be bad",
        source=("ticket 4711",),
        as_of="2026-11-30",
        confidence="measured",
        review_by="2027-11-30",
        overlay="site-a: overlay.yaml:7",
    )
    overlay = Overlay(name="site-a", as_of="2026-11-30", digest="0", rules=((kind, rule),))
    return Matrix(matrix().edition, overlays=(overlay,), plain=matrix().edition)


RULES: dict[str, tuple[tuple[Any, ...], str]] = {
    "the version is forbidden": (("forbid", "driver", "==580.178.04"), "fail"),
    "another one is": (("forbid", "driver", "==595.*"), "pass"),
    "outside of the pin": (("pin", "driver", "==570.*", "==595.*"), "fail"),
    "inside of it": (("pin", "driver", "==570.*", "==580.*"), "pass"),
    "a mirror says nothing of what is there": (("mirror", "driver", "==595.*"), "skip"),
    "nothing of it is there": (("forbid", "dcgm", "*"), "skip"),
    "the kernel is forbidden": (("forbid", "kernel", "==6.8.*"), "fail"),
    "outside of the system's pin": (("pin", "os", "==rocky-9"), "fail"),
}


@pytest.mark.parametrize("name", RULES)
def test_rules_of_a_site(name: str) -> None:
    rule, status = RULES[name]
    report = judged(healthy(), "present", site=site(*rule))
    (finding,) = [f for f in report.findings if f.id == "system.site_rules"]
    assert finding.status == status
    assert report.verdict == ("not_ready" if status == "fail" else "ready")
    assert (finding.overlay == "site-a") is True
    if status == "fail":
        assert [cause.id for cause in report.causes] == ["policy.site_rule_broken"]
        assert "ticket 4711" in finding.why[0]


@pytest.mark.parametrize(
    ("component", "facts"),
    [
        ("driver", ["driver.kernel_version", "driver.userspace_version", "kernel.installed"]),
        ("kernel", ["kernel.release"]),
        ("os", ["system.os"]),
        ("container-toolkit", ["packages"]),
        ("cuda-toolkit", ["cuda.toolkits"]),
    ],
)
def test_a_rule_about_what_nobody_read_is_not_said_to_be_kept(component: str, facts: list[str]) -> None:
    rules = site("forbid", component, "==1.0")
    (finding,) = of(
        judged(without(healthy(), facts, "denied"), "present", site=rules), "system.site_rules"
    ).values()
    assert (finding.status, finding.subject) == ("unknown", component)
    assert finding.found == f"which {component} is here was not read"
    assert finding.wanted == f"{component} none of ==1.0"


def test_a_rule_about_what_is_not_there_is_kept() -> None:
    rules = site("forbid", "cuda-toolkit", "==13.*")
    host = put(healthy(), "cuda.toolkits", NOT_THERE)
    assert of(judged(host, "present", site=rules), "system.site_rules")[""].status == "skip"


def test_rules_reach_into_environments() -> None:
    rules = site("forbid", "vllm", "==0.30.0")
    report = judged(healthy(), "present", venv(vllm="0.30.0"), site=rules)
    (finding,) = [f for f in report.findings if f.id == "system.site_rules"]
    assert (finding.status, finding.subject) == ("fail", "vllm")
    assert "vllm 0.30.0 in venv:/opt/vllm is forbidden by overlay site-a" in finding.found


def test_a_windows_driver_has_numbers_of_its_own() -> None:
    report = judged(in_wsl2(), "present", site=site("pin", "driver", "==570.*"))
    assert of(report, "system.site_rules")[""].status == "skip"


def test_without_overlays_no_rule_is_judged() -> None:
    report = judged(healthy(), "present")
    assert of(report, "system.site_rules")[""].status == "skip"
    assert not [f for f in report.findings if f.overlay]


def test_a_finding_names_the_overlay_that_made_it() -> None:
    """The goal's own finding, too: without the overlay the host would meet the goal."""
    rules = site("forbid", "driver", "==580.178.04")
    report = judged(healthy(), "vllm==0.33.0", venv(vllm="0.33.0"), site=rules)
    finding = of(report)["driver"]
    assert (finding.status, finding.overlay) == ("fail", "site-a")
    assert of(report)["vllm"].overlay == ""
    assert report.overlays == ("site-a",)


# --- claims ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "host", "goal", "rules", "wanted"),
    [
        ("goal_unmet", put(healthy(), "driver.kernel_version", OLD), "vllm==0.33.0", None, True),
        ("goal_unmet", healthy(), "vllm==0.33.0", None, False),
        ("goal_unmet", put(healthy(), "driver.kernel_version", OLD), "present", None, False),
        ("goal_unmet", healthy(), "vllm==0.99.0", None, None),
        ("goal_conflict", devices(healthy(), device_id=P40), "vllm==0.33.0", None, True),
        ("goal_conflict", healthy(), "vllm==0.33.0", None, False),
        ("site_rule_broken", healthy(), "present", site("forbid", "driver", "==580.*"), True),
        ("site_rule_broken", healthy(), "present", site("pin", "driver", "==580.*"), False),
        ("site_rule_broken", healthy(), "present", None, False),
    ],
)
def test_claims_of_a_wish(
    claim: str, host: Host, goal: str, rules: Matrix | None, wanted: bool | None
) -> None:
    case = Case(host=host, matrix=rules or matrix(), goal=parse_goal(goal))
    found = evaluate(claim, case)
    assert found.holds is wanted
    assert bool(found.because) is (wanted is True)
