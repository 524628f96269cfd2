"""Recorded hosts: each bundle under `tests/hosts/` gets the verdict, cause and words its `expected.json` asks for."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import msgspec
import pytest

from doctor.core.evidence import Evidence
from doctor.core.finding import CheckReport, Verdict
from doctor.core.host import Host
from doctor.core.judge import EXIT_OF, judge
from doctor.edition.load import load_matrix
from doctor.evidence.bundle import read_bundle
from doctor.facts.read import read_host
from doctor.report.text import render_check

HOSTS = Path(__file__).parent / "hosts"
NAMES = sorted(path.parent.name for path in HOSTS.glob("*/expected.json"))


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What must and must not be said of one host."""

    verdict: Verdict
    exit_code: int
    first_cause: str | None
    refined_by: tuple[str, ...]
    must_not_report: tuple[str, ...]
    advice: tuple[str, ...]
    must_say: tuple[str, ...]


@cache
def expected(name: str) -> Expected:
    return msgspec.json.decode((HOSTS / name / "expected.json").read_bytes(), type=Expected)


@cache
def evidence(name: str) -> Evidence:
    return read_bundle(HOSTS / name)


@cache
def host(name: str) -> Host:
    return read_host(evidence(name))


@cache
def report(name: str) -> CheckReport:
    return judge(host(name), load_matrix())


def reported(answer: CheckReport) -> set[str]:
    """Ids of causes (with what refines or ties them), of advice, and of findings that fail, warn or stay open."""
    causes = {i for c in (*answer.causes, *answer.advice) for i in (c.id, *c.refined_by, *c.tied_with)}
    return causes | {f.id for f in answer.findings if f.status in ("fail", "warn")}


def matching(globs: tuple[str, ...], ids: set[str]) -> list[str]:
    return sorted(i for i in ids if any(fnmatchcase(i, pattern) for pattern in globs))


def test_there_are_hosts_to_judge() -> None:
    assert len(NAMES) >= 29
    assert {expected(name).verdict for name in NAMES} == {"ready", "not_ready", "unknown"}


@pytest.mark.parametrize("name", NAMES)
def test_verdict_and_exit_code(name: str) -> None:
    want, got = expected(name), report(name)
    wrong = [f"{f.id}@{f.subject}: {f.status}: {f.found}" for f in got.findings if f.status in ("fail", "unknown")]
    assert (got.verdict, got.exit_code) == (want.verdict, want.exit_code), wrong
    assert EXIT_OF[got.verdict] == got.exit_code


@pytest.mark.parametrize("name", NAMES)
def test_first_cause(name: str) -> None:
    want, causes = expected(name), report(name).causes
    first = causes[0] if causes else None
    assert (first.id if first else None) == want.first_cause, [(c.id, c.findings) for c in causes]
    assert set(want.refined_by) <= set(first.refined_by if first else ())


@pytest.mark.parametrize("name", NAMES)
def test_one_fault_gives_one_certain_cause(name: str) -> None:
    want, causes = expected(name), report(name).causes
    assert len(causes) == (1 if want.first_cause else 0), [(c.id, c.findings) for c in causes]
    if want.verdict == "not_ready":
        assert causes[0].is_certain, (causes[0].deciding_facts, causes[0].tied_with)
        assert causes[0].remedy is not None


@pytest.mark.parametrize("name", NAMES)
def test_nothing_wrong_is_claimed(name: str) -> None:
    ids = reported(report(name))
    assert matching(expected(name).must_not_report, ids) == []
    assert "internal.check_crashed" not in {f.id for f in report(name).findings}


@pytest.mark.parametrize("name", [n for n in NAMES if expected(n).advice])
def test_advice_is_given_beside_the_causes(name: str) -> None:
    advice = {c.id for c in report(name).advice}
    assert set(expected(name).advice) <= advice
    assert not advice & {c.id for c in report(name).causes}


@pytest.mark.parametrize("name", [n for n in NAMES if expected(n).must_say])
def test_the_report_says_what_matters(name: str) -> None:
    text = " ".join(render_check(report(name), width=400, verbose=True).split())
    silent = [pattern for pattern in expected(name).must_say if not re.search(pattern, text)]
    assert silent == [], text


@pytest.mark.parametrize("name", NAMES)
def test_remedies_never_switch_a_security_feature_off(name: str) -> None:
    remedies = [c.remedy for c in (*report(name).causes, *report(name).advice) if c.remedy]
    remedies += [f.remedy for f in report(name).findings if f.remedy]
    words = " ".join(" ".join((r.summary, *(" ".join(argv) for argv in r.commands))) for r in remedies)
    assert not re.search(r"--disable-validation|(?:disable|turn off|switch off) Secure Boot|setenforce 0", words, re.I)


@pytest.mark.parametrize("name", NAMES)
def test_a_bundle_is_whole(name: str) -> None:
    """Every item's bytes are there, and every file belongs to an item: nothing in a bundle is dead."""
    root = HOSTS / name
    own = {"README.md", "expected.json", "meta.json"}
    files = {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()} - own
    items = evidence(name).meta.items
    assert [(i.key, i.detail) for i in items if i.status == "error"] == []
    listed = {i.path for i in items if i.path}
    assert {f for f in files if f not in listed and f.removesuffix(".err") not in listed} == set()
    assert sum(p.stat().st_size for p in root.rglob("*") if p.is_file()) < 80_000


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_host_gets_the_same_verdict(name: str) -> None:
    """Facts written down and read again judge as the evidence did."""
    from doctor.report.machine import from_json, to_json

    saved = from_json(to_json(host(name)))
    assert isinstance(saved, Host)
    again = judge(saved, load_matrix())
    assert (again.verdict, again.causes) == (report(name).verdict, report(name).causes)
