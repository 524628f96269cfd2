"""The 79 public cases as hosts, and healthy hosts full of decoys: what is named, and what must not be."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import msgspec
import pytest

from doctor.commands.explain import explain_text
from doctor.core.evidence import Evidence
from doctor.core.explain import ExplainReport
from doctor.core.finding import CheckReport
from doctor.core.host import known
from doctor.core.judge import judge_scopes
from doctor.evidence.bundle import read_bundle, write_bundle
from doctor.evidence.logtext import of_bytes
from doctor.facts.read import read_scopes
from tests.cases.build import DATA, Recorded, build, load
from tests.editions import tree_matrix
from tests.test_hosts import WITNESSES, without

CASES = {path.stem: path for path in sorted((DATA / "cases").glob("[A-Z]*.yaml"))}
HEALTHY = {path.stem: path for path in sorted((DATA / "healthy").glob("*.yaml"))}
BASES = {path.stem: path for path in sorted((DATA / "cases").glob("_base-*.yaml"))}

#: Of the cases with a known cause so many must be named first.
RIGHT_MIN = 0.95


@cache
def recorded(path: Path) -> Recorded:
    return load(path)


@cache
def evidence(path: Path) -> Evidence:
    return build(recorded(path))


@cache
def checked(path: Path) -> CheckReport:
    return judge_scopes(read_scopes(evidence(path)), tree_matrix(), tool="mopt-doctor test")


@cache
def explained(path: Path) -> ExplainReport | None:
    """The answer of `explain` about the case's text and this host; None for a case without a text."""
    case = recorded(path)
    if not case.text:
        return None
    return explain_text(
        of_bytes(case.text.encode()), tree_matrix(), evidence=evidence(path), host="this host"
    )


def first(path: Path) -> tuple[str, str]:
    """The cause that is named first, and where: by the text if there is one, else by the host's checks."""
    said = explained(path)
    if said is not None:
        return (said.causes[0].id if said.causes else "", recorded(path).scope)
    report = checked(path)
    named = [*report.causes, *report.advice]
    return (named[0].id, named[0].scope) if named else ("", recorded(path).scope)


def named(path: Path) -> set[str]:
    """Ids of causes (with what refines or ties them), of advice, and of findings that fail or warn."""
    report, said = checked(path), explained(path)
    causes = {i for c in (*report.causes, *report.advice) for i in (c.id, *c.refined_by, *c.tied_with)}
    texts = {c.id for c in said.causes} if said is not None else set()
    return causes | texts | {f.id for f in report.findings if f.status in ("fail", "warn")}


def forbidden(path: Path) -> list[str]:
    return sorted(i for i in named(path) for glob in recorded(path).must_not_report if fnmatchcase(i, glob))


def test_every_public_case_has_its_host() -> None:
    numbers = {int(name.removeprefix("OPEN-")) for name in CASES if name.startswith("OPEN-")}
    assert numbers == set(range(1, 80))
    assert all(recorded(path).id == name for name, path in CASES.items())
    assert all(recorded(path).source and recorded(path).cause for path in CASES.values())


def test_the_cause_is_named_first() -> None:
    """The share of all cases, and which are wrong: id, expected, named, and where."""
    wrong = [
        f"{name}: {recorded(path).cause}@{recorded(path).scope}, not {'@'.join(first(path)) or 'nothing'}"
        for name, path in CASES.items()
        if first(path) != (recorded(path).cause, recorded(path).scope)
    ]
    share = 1 - len(wrong) / len(CASES)
    print(f"{share:.1%} of {len(CASES)} right; wrong:", *wrong, sep="\n")  # noqa: T201 - `pytest -rP` shows it
    assert share >= RIGHT_MIN


def test_no_wrong_cause_is_reported() -> None:
    assert {name: forbidden(path) for name, path in CASES.items() if forbidden(path)} == {}


@pytest.mark.parametrize("name", [name for name, path in CASES.items() if recorded(path).verdict])
def test_the_verdict_is_the_one_that_matters(name: str) -> None:
    assert checked(CASES[name]).verdict == recorded(CASES[name]).verdict


@pytest.mark.parametrize("name", list(CASES))
def test_no_check_fails_of_itself(name: str) -> None:
    assert [f.found for f in checked(CASES[name]).findings if f.id == "internal.check_crashed"] == []


@pytest.mark.parametrize("name", ["OPEN-001", "OPEN-039", "OPEN-066", "OPEN-079"])
def test_a_written_bundle_is_the_same_host(name: str, tmp_path: Path) -> None:
    write_bundle(evidence(CASES[name]), tmp_path / "host")
    again = judge_scopes(read_scopes(read_bundle(tmp_path / "host")), tree_matrix(), tool="mopt-doctor test")
    assert (again.verdict, again.causes, again.advice) == (
        checked(CASES[name]).verdict,
        checked(CASES[name]).causes,
        checked(CASES[name]).advice,
    )


@pytest.mark.slow
@pytest.mark.parametrize("lost", WITNESSES)
@pytest.mark.parametrize("how", ["not asked", "timeout", "denied"])
def test_less_evidence_claims_no_more(lost: str, how: str) -> None:
    """Without a witness an answer may become *unknown*; it never turns round or names a wrong cause."""
    wrong = []
    for name, path in {**CASES, **HEALTHY}.items():
        less = without(evidence(path), WITNESSES[lost], how)
        got = judge_scopes(read_scopes(less), tree_matrix(), tool="mopt-doctor test")
        causes = {i for c in got.causes for i in (c.id, *c.refined_by)}
        bad = [i for i in causes for glob in recorded(path).must_not_report if fnmatchcase(i, glob)]
        # Whoever never asked for them may miss what cuInit or the kernel log alone shows, and so may a
        # user whom the kernel shows no log.
        is_excused = (how == "not asked" and lost == "cuInit") or (how != "timeout" and lost == "kernel log")
        turned = {checked(path).verdict, got.verdict} == {"ready", "not_ready"} and not is_excused
        if turned or bad or "internal.check_crashed" in {f.id for f in got.findings}:
            wrong.append((name, checked(path).verdict, got.verdict, sorted(causes)))
    assert wrong == []


# --- healthy hosts --------------------------------------------------------------------------------


@cache
def of_base(path: Path) -> CheckReport:
    """A base by itself: what it is made of, without a case."""
    case = msgspec.structs.replace(load(path, is_base=True), id=path.stem)
    return judge_scopes(read_scopes(build(case)), tree_matrix(), tool="mopt-doctor test")


def test_there_are_twenty_healthy_hosts_with_decoys() -> None:
    assert len(HEALTHY) >= 20
    assert all(len(recorded(path).decoys) >= 2 for path in HEALTHY.values())


@pytest.mark.parametrize("name", list(HEALTHY))
def test_a_healthy_host_is_ready_and_nothing_is_warned_of(name: str) -> None:
    report = checked(HEALTHY[name])
    loud = [
        f"{f.scope} {f.status} {f.id} {f.subject}: {f.found}"
        for f in report.findings
        if f.status in ("fail", "warn")
    ]
    assert (report.verdict, loud) == ("ready", [])
    assert (report.causes, report.advice) == ((), ())
    assert "internal.check_crashed" not in {f.id for f in report.findings}


@pytest.mark.parametrize("name", list(BASES))
def test_the_bases_are_healthy(name: str) -> None:
    report = of_base(BASES[name])
    loud = [
        f"{f.scope} {f.status} {f.id} {f.subject}: {f.found}"
        for f in report.findings
        if f.status in ("fail", "warn")
    ]
    assert (report.verdict, loud) == ("ready", [])


@pytest.mark.parametrize("name", [name for name in BASES if name != "_base-wsl2"])
def test_nvml_and_nvidia_smi_of_a_base_agree(name: str) -> None:
    """Both are made from one description: what both tell must be the same."""
    driver = read_scopes(build(load(BASES[name], is_base=True)))[0].driver
    nvml, smi = known(driver.nvml), known(driver.smi)
    assert nvml is not None
    assert smi is not None
    assert (nvml.driver_version, nvml.cuda_driver_version) == (smi.driver_version, smi.cuda_driver_version)
    assert len(nvml.gpus) == len(smi.gpus) > 0
    for one, other in zip(nvml.gpus, smi.gpus, strict=True):
        told = {f: (getattr(one, f), getattr(other, f)) for f in one.__struct_fields__ if f != "errors"}
        both = {field: pair for field, pair in told.items() if None not in pair}
        assert {field: pair for field, pair in both.items() if pair[0] != pair[1]} == {}
        assert len(both) >= 25
