"""Each check in each of its states: pass, fail or warn, unknown, does not apply, and crash; each with a page.

The cases are data in `states/`. What a check cannot answer stands in `states/never.py`, and is held here to
its code and to every host that this project has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest

from doctor.cli import main
from doctor.core.check import Case, Check, Outcome, failed, passed
from doctor.core.checks import CHECKS
from doctor.core.finding import CheckReport, Finding
from doctor.core.host import Host
from doctor.core.judge import EXIT_OF, judge, judge_scopes, run_checks
from doctor.report.pages import identifiers, page_of
from tests.cases.test_cases_hosts import CASES, HEALTHY, checked
from tests.cases.test_sick_hosts import SICK
from tests.core.checks.reach import reachable
from tests.core.checks.states import KINDS, NEVER, STATES, Kind, States, case_for
from tests.core.environments import SCOPE, scoped
from tests.core.hosts import healthy, matrix, without_module
from tests.test_hosts import NAMES, report

BY_ID = {one.id: one for one in CHECKS}
CELLS = [(one.id, kind) for one in CHECKS for kind in KINDS if (one.id, kind) not in NEVER]
DOCS = Path(__file__).parents[3] / "docs"


def said(check_id: str, kind: Kind) -> list[Finding]:
    """What a check says on the case that its row names for an answer; nothing where it names none."""
    case = case_for(BY_ID[check_id], STATES.get(check_id, States()), kind)
    return list(run_checks(case, [BY_ID[check_id]])) if case else []


# --- the four answers -----------------------------------------------------------------------------


@pytest.mark.parametrize(("check_id", "kind"), CELLS)
def test_a_check_gives_this_answer(check_id: str, kind: Kind) -> None:
    found = said(check_id, kind)
    mine = [f for f in found if f.status in KINDS[kind]]
    assert mine, (
        f"`{check_id}` is not shown as `{kind}`: add a case of that to its row in tests/core/checks/states/, "
        f"or, where no path of its code leads there, the reason to states/never.py; "
        f"it said {[(f.status, f.subject, f.found) for f in found] or 'nothing: there is no case'}"
    )
    # A reader is told what was found, and of what is wrong what it should be.
    assert kind == "ok" or all(f.found for f in mine)
    assert kind != "bad" or all(f.wanted for f in mine)
    assert all(f.area == check_id.partition(".")[0] for f in mine)


def test_the_tables_are_about_checks_that_there_are() -> None:
    assert set(STATES) - set(BY_ID) == set()
    assert {check_id for check_id, _ in NEVER} - set(BY_ID) == set()
    assert all(len(reason.split()) > 5 for reason in NEVER.values())


def test_what_a_row_says_of_an_answer_that_never_comes_is_dead() -> None:
    dead = [(i, kind) for i, kind in NEVER if i in STATES and getattr(STATES[i], kind) is not None]
    assert dead == []


# --- answers that never come ----------------------------------------------------------------------


def test_what_is_declared_never_to_come_is_what_no_path_leads_to() -> None:
    """A proof over the code, both ways: a declaration cannot be wrong, and none can be missing."""
    cannot = {(one.id, kind) for one in CHECKS for kind in KINDS if kind not in reachable(one)}
    assert cannot == set(NEVER)


@cache
def every_report() -> tuple[tuple[str, CheckReport], ...]:
    """The answers about all recorded hosts, cases and sick hosts."""
    recorded = [(name, report(name)) for name in NAMES]
    built = [(name, checked(path)) for d in (CASES, HEALTHY, SICK) for name, path in d.items()]
    return (*recorded, *built)


def test_no_host_that_was_recorded_gets_an_answer_that_never_comes() -> None:
    kind_of = {status: kind for kind, statuses in KINDS.items() for status in statuses}
    wrong = {
        (name, f.id, f.status)
        for name, answer in every_report()
        for f in answer.findings
        if (f.id, kind_of[f.status]) in NEVER
    }
    assert wrong == set()


@pytest.mark.parametrize(
    ("body", "kinds"),
    [
        (lambda _: iter([passed()]), {"ok"}),
        (lambda case: iter([(failed if case else passed)("x", wanted="y")]), {"ok", "bad"}),
    ],
)
def test_the_proof_sees_what_a_function_names(body: object, kinds: set[str]) -> None:
    body.__module__ = "doctor.core.checks.test"
    one = msgspec.structs.replace(BY_ID["system.collection"], run=body, applies=(), needs=())
    assert reachable(one) == kinds


# --- a check that crashes -------------------------------------------------------------------------


def _crashing(_: Case) -> Iterator[Outcome]:
    yield failed("said before the crash", wanted="nothing of it in the answer")
    raise ZeroDivisionError("a bug of a check")


def _broken(one: Check) -> Check:
    """The check with a body that raises after its first word; it applies, and needs nothing it lacks."""
    needs = tuple(need for need in one.needs if need == "environment")
    return msgspec.structs.replace(one, run=_crashing, applies=(), needs=needs)


def _judged(checks: tuple[Check, ...], host: Host) -> CheckReport:
    return judge_scopes((host, scoped()), matrix(), checks=checks)


@cache
def _whole(*, is_sick: bool) -> CheckReport:
    return _judged(CHECKS, without_module(healthy()) if is_sick else healthy())


@pytest.mark.parametrize("check_id", BY_ID)
def test_a_check_that_crashes_is_unknown_and_touches_no_other(check_id: str) -> None:
    broken = tuple(_broken(one) if one.id == check_id else one for one in CHECKS)
    whole, answer = _whole(is_sick=False), _judged(broken, healthy())
    told = [f for f in answer.findings if f.id == "internal.check_crashed"]
    scope = SCOPE if "environment" in BY_ID[check_id].needs else "host"
    assert {(f.status, f.subject, f.area) for f in told} == {("unknown", check_id, "internal")}
    assert scope in {f.scope for f in told}
    assert all("ZeroDivisionError: a bug of a check" in f.found for f in told)
    assert all("bug in mopt-doctor" in " ".join(f.why) for f in told)
    rest = [f for f in answer.findings if f.id != "internal.check_crashed"]
    assert rest == [f for f in whole.findings if f.id != check_id]
    # What leaves the verdict open when it is unknown does so by a crash, too; else the host is ready.
    verdict = "unknown" if BY_ID[check_id].is_critical else "ready"
    assert (answer.verdict, answer.exit_code) == (verdict, EXIT_OF[verdict])


@pytest.mark.parametrize("check_id", BY_ID)
def test_beside_a_fault_a_crash_changes_no_verdict_and_no_cause(check_id: str) -> None:
    broken = tuple(_broken(one) if one.id == check_id else one for one in CHECKS)
    whole, answer = _whole(is_sick=True), _judged(broken, without_module(healthy()))
    assert (answer.verdict, answer.exit_code) == ("not_ready", 1)
    explained = {key for cause in whole.causes for key in cause.findings}
    if check_id not in {key.partition("@")[0] for key in explained}:
        assert [c.id for c in answer.causes] == [c.id for c in whole.causes]


@pytest.mark.parametrize("check_id", [one.id for one in CHECKS if one.applies])
def test_a_crash_of_the_question_whether_it_applies_is_told_alike(check_id: str) -> None:
    def applies(_: Case) -> str:
        raise ZeroDivisionError("a bug of a condition")

    one = msgspec.structs.replace(BY_ID[check_id], applies=(applies,), needs=())
    (found,) = judge(healthy(), matrix(), checks=(one,)).findings
    assert (found.id, found.status, found.subject) == ("internal.check_crashed", "unknown", check_id)


# --- pages ----------------------------------------------------------------------------------------

IDS = identifiers(matrix())


@pytest.mark.parametrize("identifier", sorted(set(IDS)))
def test_each_finding_and_each_cause_has_a_page(identifier: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", identifier]) == 0
    page = capsys.readouterr().out
    assert page == f"{page_of(identifier, matrix())}\n"
    head, _, body = page.partition("\n\n")
    assert head == f"# {identifier}"
    assert len(body.split()) >= 8, page
    one = BY_ID.get(identifier)
    if one is not None:
        assert (one.run.__doc__ or "").strip().endswith(".")


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("findings", [*BY_ID, "internal.check_crashed"]),
        ("causes", [row.id for row in matrix().edition.causes]),
    ],
)
def test_the_same_pages_stand_in_docs(name: str, ids: list[str]) -> None:
    headings = re.findall(r"^## (\S+)$", (DOCS / f"{name}.md").read_text(), re.MULTILINE)
    assert [h for h in headings if "." in h] == ids


def test_every_id_that_a_report_shows_has_a_page() -> None:
    shown = {f.id for _, answer in every_report() for f in answer.findings}
    shown |= {c.id for _, answer in every_report() for c in (*answer.causes, *answer.advice)} - {"unknown"}
    assert shown - set(IDS) == set()
