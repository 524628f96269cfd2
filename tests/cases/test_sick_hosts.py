"""Sick hosts of public reports, written by somebody who had not read the checks.

One file a host in `tests/data/sick`, in the form of `tests/data/cases/README.md`. An empty `cause` is a host
that was suspected and is well; `unknown` one whose facts do not decide.
"""

from __future__ import annotations

import pytest

from tests.cases.build import DATA
from tests.cases.test_cases_hosts import checked, explained, first, forbidden, recorded

SICK = {path.stem: path for path in sorted((DATA / "sick").glob("*.yaml"))}


def test_there_are_forty_sick_hosts() -> None:
    assert len(SICK) >= 40
    for name, path in SICK.items():
        case = recorded(path)
        assert case.id == name
        assert case.title
        assert case.why
        assert case.must_not_report
        assert all(url.startswith("https://") for url in case.source)
        assert case.source


def test_no_report_is_used_twice() -> None:
    urls = [url for path in SICK.values() for url in recorded(path).source]
    assert sorted(urls) == sorted(set(urls))


@pytest.mark.parametrize("name", list(SICK))
def test_the_first_cause_is_the_one_of_the_report(name: str) -> None:
    case, report = recorded(SICK[name]), checked(SICK[name])
    cause, scope = first(SICK[name])
    said = [f"{c.id}@{c.scope}" for c in (*report.causes, *report.advice)]
    if case.cause == "unknown":
        assert cause in ("", "unknown"), said
        return
    assert (cause, scope) == (case.cause, case.scope), said


@pytest.mark.parametrize("name", list(SICK))
def test_nothing_else_is_made_the_cause(name: str) -> None:
    """Beside the cause of a host stands only what its report allows."""
    case, report = recorded(SICK[name]), checked(SICK[name])
    allowed = {case.cause, *case.also}
    assert [c.id for c in report.causes if c.id not in allowed] == []


@pytest.mark.parametrize("name", list(SICK))
def test_no_wrong_cause_is_reported(name: str) -> None:
    assert forbidden(SICK[name]) == []


@pytest.mark.parametrize("name", [n for n, path in SICK.items() if recorded(path).verdict])
def test_the_verdict_is_the_one_of_the_report(name: str) -> None:
    assert checked(SICK[name]).verdict == recorded(SICK[name]).verdict


@pytest.mark.parametrize("name", list(SICK))
def test_no_check_fails_of_itself(name: str) -> None:
    assert [f.found for f in checked(SICK[name]).findings if f.id == "internal.check_crashed"] == []


@pytest.mark.parametrize("name", [n for n, path in SICK.items() if recorded(path).text])
def test_a_text_is_explained(name: str) -> None:
    said = explained(SICK[name])
    assert said is not None
    assert [c.id for c in said.causes][:1] == (
        [recorded(SICK[name]).cause] if recorded(SICK[name]).cause != "unknown" else []
    )
