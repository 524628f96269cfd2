"""Recorded hosts: each bundle in `tests/hosts/` gets the verdict, the cause and the words it must get."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import msgspec
import pytest

from doctor.core.evidence import Evidence, Item, ItemStatus
from doctor.core.finding import CheckReport, Verdict
from doctor.core.host import Host, known
from doctor.core.judge import EXIT_OF, judge, judge_scopes
from doctor.evidence.bundle import read_bundle, write_bundle
from doctor.evidence.redact import redact
from doctor.facts.read import read_host, read_scopes
from doctor.report.text import render_check
from tests.editions import tree_matrix

#: What one child of the collector, one tool or one missing privilege can take away together.
WITNESSES = {
    "nvml": ("nvml",),
    "nvidia-smi": ("command:nvidia-smi",),
    "nvml and nvidia-smi": ("nvml", "command:nvidia-smi"),
    "cuInit": ("cuinit",),
    "kernel log": ("command:dmesg", "command:journalctl"),
    "modinfo": ("command:modinfo",),
    "package manager": ("command:dpkg", "command:rpm"),
    "PCI bus": ("file:/sys/bus/pci", "stat:/sys/bus/pci"),
    "PCI files": ("file:/sys/bus/pci",),
    "libraries": ("stat:/usr/lib", "command:ldconfig"),
    "driver's files": ("file:/proc/driver", "file:/sys/module"),
    "module list": ("file:/proc/modules",),
    "kernels": ("stat:/lib/modules", "stat:/boot"),
    "DKMS": ("command:dkms", "file:/var/lib/dkms"),
    "device nodes": ("stat:/dev",),
    "systemd": ("command:systemctl", "command:systemd-detect-virt"),
    "firmware": ("file:/sys/firmware", "stat:/sys/firmware", "command:mokutil", "file:/sys/kernel/security"),
}

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
    scopes: dict[str, Verdict] = {}
    """Of each scope that is judged; left out where the host is the only one."""


@cache
def expected(name: str) -> Expected:
    return msgspec.json.decode((HOSTS / name / "expected.json").read_bytes(), type=Expected)


@cache
def evidence(name: str) -> Evidence:
    return read_bundle(HOSTS / name)


@cache
def scopes(name: str) -> tuple[Host, ...]:
    return read_scopes(evidence(name))


def host(name: str) -> Host:
    return scopes(name)[0]


@cache
def report(name: str) -> CheckReport:
    return judge_scopes(scopes(name), tree_matrix(), tool="mopt-doctor test")


def reported(answer: CheckReport) -> set[str]:
    """Ids of causes (with what refines or ties them), of advice, and of findings that fail or warn."""
    causes = {i for c in (*answer.causes, *answer.advice) for i in (c.id, *c.refined_by, *c.tied_with)}
    return causes | {f.id for f in answer.findings if f.status in ("fail", "warn")}


def matching(globs: tuple[str, ...], ids: set[str]) -> list[str]:
    return sorted(i for i in ids if any(fnmatchcase(i, pattern) for pattern in globs))


def test_there_are_hosts_to_judge() -> None:
    assert len(NAMES) >= 37
    assert {expected(name).verdict for name in NAMES} == {"ready", "not_ready", "unknown"}


@pytest.mark.parametrize("name", NAMES)
def test_verdict_and_exit_code(name: str) -> None:
    want, got = expected(name), report(name)
    wrong = [
        f"{f.id}@{f.subject}: {f.status}: {f.found}" for f in got.findings if f.status in ("fail", "unknown")
    ]
    assert (got.verdict, got.exit_code) == (want.verdict, want.exit_code), wrong
    assert EXIT_OF[got.verdict] == got.exit_code


@pytest.mark.parametrize("name", NAMES)
def test_each_scope_has_its_verdict(name: str) -> None:
    want = expected(name).scopes or {"host": expected(name).verdict}
    assert {s.scope: s.verdict for s in report(name).scopes} == want
    broken = {scope for scope, verdict in want.items() if verdict != "ready"}
    assert {c.scope for c in report(name).causes} == broken


@pytest.mark.parametrize("name", [n for n in NAMES if not expected(n).scopes])
def test_a_host_alone_is_judged_as_ever(name: str) -> None:
    assert scopes(name) == (read_host(evidence(name)),)
    assert judge(host(name), tree_matrix(), tool="mopt-doctor test") == report(name)


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
    # What fails may have a cause that only another scope can settle: `unknown`, with its candidates.
    if want.verdict == "not_ready" and want.first_cause != "unknown":
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
    assert not re.search(
        r"--disable-validation|(?:disable|turn off|switch off) Secure Boot|setenforce 0", words, re.IGNORECASE
    )


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
    # A host written by hand is small; one recorded on hardware is as large as it is.
    limit = 200_000 if "real node" in (root / "README.md").read_text() else 80_000
    assert sum(p.stat().st_size for p in root.rglob("*") if p.is_file()) < limit


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_host_gets_the_same_verdict(name: str) -> None:
    """Facts written down and read again judge as the evidence did."""
    from doctor.report.machine import to_json
    from doctor.report.saved import from_json

    saved = [one for one in (from_json(to_json(h)) for h in scopes(name)) if isinstance(one, Host)]
    again = judge_scopes(saved, tree_matrix(), tool="mopt-doctor test")
    assert (again.verdict, again.causes) == (report(name).verdict, report(name).causes)


@pytest.mark.parametrize("name", NAMES)
def test_a_redacted_and_packed_bundle_gets_the_same_answer(name: str, tmp_path: Path) -> None:
    write_bundle(redact(evidence(name)), tmp_path / "host.tar.gz")
    hosts = read_scopes(read_bundle(tmp_path / "host.tar.gz"))
    again = judge_scopes(hosts, tree_matrix(), tool="mopt-doctor test")
    assert gist(again) == gist(report(name))


def gist(answer: CheckReport) -> tuple[object, ...]:
    """What redaction must leave as it is. A container is named after its host name: its place counts."""
    places = {s.scope: place for place, s in enumerate(answer.scopes)}
    findings = [(f.id, places[f.scope], f.subject, f.status) for f in answer.findings]
    causes = [(c.id, places[c.scope], c.refined_by, c.is_certain) for c in answer.causes]
    return [s.verdict for s in answer.scopes], answer.verdict, causes, findings


@pytest.mark.slow
@pytest.mark.parametrize("lost", WITNESSES)
@pytest.mark.parametrize("how", ["not asked", "timeout", "denied"])
def test_less_evidence_claims_no_more(lost: str, how: str) -> None:
    """Without a witness an answer may become *unknown*; it never turns round or names a wrong cause."""
    wrong = []
    for name in NAMES:
        want = expected(name)
        less = read_scopes(without(evidence(name), WITNESSES[lost], how))
        got = judge_scopes(less, tree_matrix(), tool="test")
        ids = {i for c in got.causes for i in (c.id, *c.refined_by)}
        # Evidence that never asked for cuInit (foreign reports) may miss what it alone shows.
        is_excused = (lost, how) == ("cuInit", "not asked")
        turned = {want.verdict, got.verdict} == {"ready", "not_ready"} and not is_excused
        crashed = [f.found for f in got.findings if f.id == "internal.check_crashed"]
        if turned or crashed or matching(want.must_not_report, ids):
            wrong.append((name, got.verdict, sorted(ids), crashed))
    assert wrong == []


def without(whole: Evidence, prefixes: tuple[str, ...], how: str) -> Evidence:
    """The evidence after a witness has been lost: its items are gone, or say why they hold nothing."""
    items = []
    for item in whole.meta.items:
        if not item.key.startswith(prefixes):
            items.append(item)
        elif how != "not asked":
            status: ItemStatus = "timeout" if how == "timeout" else "denied"
            items.append(Item(key=item.key, status=status, scope=item.scope, argv=item.argv))
    meta = msgspec.structs.replace(whole.meta, items=tuple(items))
    return Evidence(meta, whole.blobs, hand_made=whole.hand_made)


def test_nvml_and_nvidia_smi_agree_on_the_real_node() -> None:
    """Field by field: each figure that both witnesses of one H200 know, but those that move by the moment."""
    driver = host("h200-ubuntu-24.04").driver
    nvml, smi = known(driver.nvml), known(driver.smi)
    assert nvml is not None
    assert smi is not None
    assert (nvml.driver_version, nvml.cuda_driver_version) == (smi.driver_version, smi.cuda_driver_version)
    # Used memory: NVML's first call counts what the driver reserves, nvidia-smi lists that apart.
    moving = {
        "power_w",
        "clock_sm_mhz",
        "memory_used_bytes",
        "temperature_c",
        "temperature_margin_c",
        "errors",
    }
    (one,), (other,) = nvml.gpus, smi.gpus
    both = {
        f: (getattr(one, f), getattr(other, f)) for f in one.__struct_fields__ if f not in moving | {"errors"}
    }
    told = {field: pair for field, pair in both.items() if None not in pair}
    assert {field: pair for field, pair in told.items() if pair[0] != pair[1]} == {}
    assert len(told) >= 35
