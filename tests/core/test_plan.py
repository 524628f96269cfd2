"""Plans: what is under their digest, what they promise, and when there is nothing to be done."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from doctor.commands.derive import derive
from doctor.core.plan import Plan, PlannedHost, RebootNeed, Step, plan_digest, plan_of, promises
from tests.core.hosts import healthy, put
from tests.core.lowering import UBUNTU, carried_out, ground, matrix, variables, with_host
from tests.core.plans import BROKEN, HEALTHY, OLDER, asked, derived, evidence, plan


def again(one: Plan, **fields: object) -> str:
    """The digest of a plan with some of its fields changed."""
    parts = {name: getattr(one, name) for name in ("host", "asked", "variables", "steps", "matrix_digest")}
    return plan_digest(**{**parts, **fields})  # type: ignore[arg-type]


def test_the_digest_is_that_of_what_the_plan_says_and_its_first_digits_name_it() -> None:
    one = plan()
    assert again(one) == one.digest
    assert one.id == one.digest[:12] == one.variables.mopt_plan.id


def test_times_boots_and_names_of_machines_are_not_under_the_digest() -> None:
    one = plan()
    first = derive(
        matrix(), evidence(HEALTHY), one.asked, PlannedHost(hostname="other", boot_id="f" * 8)
    ).plan
    assert first is not None
    assert first.digest == one.digest
    assert again(one, host=replace(one.host, hostname="other", boot_id="0" * 8)) == one.digest


STEPS = plan().steps
STAGES = plan().variables.mopt_stages
MATTERS: dict[str, dict[str, object]] = {
    "another goal": {"asked": asked("driver==580.178.04")},
    "something held": {"asked": asked(hold=("kernel",))},
    "something had": {"asked": asked(have=("docker==27.0",))},
    "another origin": {"asked": replace(asked(), choices=replace(asked().choices, origin="canonical"))},
    "a mirror": {"asked": replace(asked(), choices=replace(asked().choices, mirrors={"cuda": "https://m/"}))},
    "what a failure does": {"asked": asked(on_failure="rollback")},
    "another machine": {
        "variables": replace(
            plan().variables, mopt_target=replace(plan().variables.mopt_target, kernel="6.8.0-1-generic")
        )
    },
    "a stage less": {"variables": replace(plan().variables, mopt_stages=STAGES[:-1])},
    "another order": {"variables": replace(plan().variables, mopt_stages=STAGES[::-1])},
    "a step less": {"steps": STEPS[1:]},
    "a package that is there": {"steps": (replace(STEPS[0], changes=()), *STEPS[1:], Step(stage="lock"))},
    "another matrix": {"matrix_digest": "0" * 64},
    "another host": {"host": PlannedHost(name="node2", inventory="/etc/ansible/hosts")},
    "another inventory": {"host": PlannedHost(name="node1", inventory="/tmp/hosts")},
}


@pytest.mark.parametrize("name", MATTERS)
def test_whatever_matters_changes_the_digest(name: str) -> None:
    digests = {again(plan(), **MATTERS[other]) for other in MATTERS}
    assert again(plan(), **MATTERS[name]) != plan().digest
    assert len(digests) == len(MATTERS)


def test_a_plan_that_was_saved_is_the_same_plan() -> None:
    saved = msgspec.json.decode(msgspec.json.encode(plan()), type=Plan)
    assert saved == plan()
    assert again(saved) == saved.digest


# --- nothing to be done, or not allowed -----------------------------------------------------------


def test_a_host_that_is_as_planned_has_an_empty_plan() -> None:
    there = with_host(ground(UBUNTU), carried_out(variables(UBUNTU), healthy()))
    report = derived(HEALTHY).report
    one = plan_of(there, variables(UBUNTU), report, asked=asked(OLDER), host=PlannedHost(), made_at="")
    acting = {step.stage for step in one.steps}
    assert "driver" not in acting, "its packages are there"
    assert not any(step.changes for step in one.steps)
    assert replace(one, steps=()).is_empty
    assert replace(one, steps=()).promises == ()


def test_a_refused_plan_is_not_an_empty_one() -> None:
    refused = plan("docker-snap", "container-toolkit")
    assert refused.is_refused
    assert not refused.is_empty
    assert refused.variables.mopt_refusals[0].way_out


def test_packages_that_nobody_read_count_as_not_there() -> None:
    host = put(ground(UBUNTU).host, "packages", healthy().packages)
    unread = plan_of(
        ground(UBUNTU),
        variables(UBUNTU),
        derived(HEALTHY).report,
        asked=asked(OLDER),
        host=PlannedHost(),
        made_at="",
    )
    assert ground(UBUNTU).installed is None
    assert {step.stage for step in unread.steps} >= {"driver"}
    assert unread.undo == "decided_by_capsule", "nothing says that no package is replaced"
    assert with_host(ground(UBUNTU), host).installed is not None


# --- what it means --------------------------------------------------------------------------------


def test_what_a_stage_mends_is_promised_and_nothing_else() -> None:
    one = plan(BROKEN, OLDER, "canonical")
    promised = {p.finding: p.stage for p in one.promises}
    assert promised == {
        "driver.userspace_match": "driver",
        "driver.nvml": "driver",
        "cuda.init": "driver",
    }
    assert "kernel.messages" in {f.id for f in derived(BROKEN, OLDER, "canonical").report.findings}


def test_a_card_that_is_ill_is_promised_no_cure_by_a_driver() -> None:
    ill = derived("row-remap-failure").report
    sick = [f for f in ill.findings if f.area == "gpu" and f.status == "fail"]
    assert sick
    every = frozenset(step.stage for step in plan().steps) | {"driver", "kernel", "fabric", "cuda"}
    assert not [p for p in promises(ill.findings, every) if p.finding.startswith("gpu.")]


NEEDS: dict[str, tuple[tuple[RebootNeed, ...], RebootNeed]] = {
    "none": (("no", "no"), "no"),
    "one that looks": (("no", "if_needed"), "if_needed"),
    "one that must": (("if_needed", "yes", "no"), "yes"),
}


@pytest.mark.parametrize("name", NEEDS)
def test_the_reboot_is_the_most_that_a_step_needs(name: str) -> None:
    from doctor.core.plan import _downtime, _reboot

    needs, whole = NEEDS[name]
    steps = [Step(stage="driver", reboot=need) for need in needs]
    assert _reboot(steps) == whole
    least, most = _downtime(steps)
    assert 0 < least < most, "a driver is away while it is replaced"
    assert (least > 60) == (whole == "yes")
    assert (most > 600) == (whole != "no")


def test_downtime_and_undo_are_said() -> None:
    one = plan()
    assert one.reboot == "if_needed"
    assert one.downtime_s == (60, 1500)
    assert one.undo == "exact", "NVIDIA keeps every version"
    assert plan(BROKEN, OLDER, "canonical").undo == "decided_by_capsule"


def test_changes_are_now_and_then() -> None:
    driver = next(step for step in plan().steps if step.stage == "driver")
    changes = {change.name: (change.now, change.then) for change in driver.changes}
    assert changes["nvidia-open"] == ("", "595.71.05-1ubuntu1")
    assert changes["nvidia-open-580"] == ("580.126.20-1ubuntu1", "")
    assert "nvidia-persistenced" in driver.stops
