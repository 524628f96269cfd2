"""The judge: missing facts, checks that crash or do not apply, verdicts, and what less evidence changes."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.core.check import Case, Check, Outcome, check, failed, missing_need, passed, unknown, warned
from doctor.core.checks import CHECKS
from doctor.core.finding import AREAS, CheckReport, Finding
from doctor.core.host import Absent, AbsentReason, Gpu, Host, Known
from doctor.core.judge import EXIT_OF, judge, run_checks, selected
from tests.core.environments import inside
from tests.core.hosts import (
    DRIVER,
    FACTS,
    FIRST,
    NOT_THERE,
    REASONS,
    SECOND,
    answer,
    at,
    case_of,
    compat_library,
    device,
    devices,
    dkms_build,
    driver_packages,
    failing_probe,
    gpu,
    having,
    healthy,
    in_container,
    in_wsl2,
    known_of,
    library,
    loaded_modules,
    lost_gpu,
    matrix,
    no_driver,
    placed,
    put,
    reports,
    said,
    unloadable_probe,
    without,
    without_module,
    without_module_file,
    wrong,
)

BY_ID = {one.id: one for one in CHECKS}
NEEDY = [(one.id, need) for one in CHECKS for need in one.needs]

#: Hosts on which nothing is wrong, in the forms that tools mistake for faults.
HEALTHY: dict[str, Host] = {
    "bare metal": healthy(),
    "passthrough guest": placed(devices(healthy(), numa_node=None, link_width=None), "vm", "kvm"),
    "container": in_container(),
    "WSL2": in_wsl2(),
    "module built into the image, nothing in /lib/modules": put(
        put(healthy(), "kernel.installed", ()), "kernel.next_release", NOT_THERE
    ),
    "driver container: module loaded, files elsewhere": without_module_file(
        having(healthy(), {"kernel.dkms": NOT_THERE, "packages": NOT_THERE})
    ),
    "no nvidia_drm, no nvidia_modeset": put(
        healthy(), "kernel.modules", loaded_modules("nvidia_uvm", "nvidia")
    ),
    "nvidia-smi alone answers": without(healthy(), ["driver.nvml"]),
    "nodes and nvidia_uvm not made before the first use": having(
        healthy(), {"driver.device_nodes": (), "kernel.modules": loaded_modules("nvidia")}
    ),
    "MIG": gpu(
        gpu(healthy(), 0, mig_mode=True, mig_mode_pending=True), 1, mig_mode=True, mig_mode_pending=True
    ),
    "a few rows remapped": gpu(healthy(), remapped_rows_correctable=4, ecc_uncorrected_aggregate=2),
    "a GPU left out on purpose": put(
        lost_gpu(healthy()), "driver.parameters", {"ExcludedGpus": "GPU-00000000-0000-0000-0000-000000000001"}
    ),
    "one GPU for a virtual machine": device(lost_gpu(healthy()), 1, driver="vfio-pci"),
    "compat library beside a newer driver": put(
        healthy(),
        "driver.libraries",
        (*at(healthy(), "driver.libraries").value, compat_library(DRIVER, is_default=False)),
    ),
    "failures that were mended": said(
        put(healthy(), "kernel.dkms", (dkms_build(state="failed", failure="error: x"), dkms_build())),
        ("api_mismatch", "NVRM: API mismatch: the client has version 1"),
        ("init_failed", f"NVRM: GPU {FIRST}: RmInitAdapter failed!", FIRST),
        ("bar", "pcieport 0000:40:01.0: BAR 13: failed to assign [io size 0x1000]", "0000:40:01.0"),
    ),
    "a card newer than the matrix": devices(healthy(), device_id="10de:ffff"),
    "Secure Boot with a trusted key": having(
        healthy(), {"kernel.secure_boot": "enabled", "kernel.lockdown": "integrity"}
    ),
    "a driver from a runfile": having(
        healthy(),
        {
            "packages": NOT_THERE,
            "kernel.dkms": NOT_THERE,
            "driver.libraries": (library("libcuda.so.1", package=""),),
        },
    ),
    "asleep card of a hybrid laptop, the other one works": device(
        put(lost_gpu(healthy()), "driver.parameters", {"ExcludedGpus": "GPU-1"}),
        1,
        is_responding=False,
        power_state="D3cold",
    ),
}


# --- every check ----------------------------------------------------------------------------------


def test_there_are_the_checks_that_were_declared() -> None:
    ids = [one.id for one in CHECKS]
    assert len(ids) == len(set(ids)) >= 39
    assert {one.area for one in CHECKS} <= set(AREAS)
    assert all(one.id.startswith(f"{one.area}.") for one in CHECKS)
    assert ids[0] == "system.nvidia_gpu"


@pytest.mark.parametrize("check_id", BY_ID)
def test_every_check_passes_or_skips_on_the_healthy_machine(check_id: str) -> None:
    host = inside() if "environment" in BY_ID[check_id].needs else healthy()
    mine = [f for f in answer(host).findings if f.id == check_id]
    assert mine
    assert {f.status for f in mine} <= {"pass", "skip"}


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize(("check_id", "need"), NEEDY)
def test_a_missing_need_is_unknown_with_its_reason(check_id: str, need: str, reason: AbsentReason) -> None:
    lost = Absent(reason=reason, origin="file:/the/item", detail="what the system said")
    host = having(healthy(), dict.fromkeys(need.split("|"), lost))
    found = run_checks(case_of(host), [BY_ID[check_id]])
    applies = BY_ID[check_id].applies
    if any(reason_not(case_of(host)) for reason_not in applies):
        assert {f.status for f in found} == {"skip"}
        return
    assert [f.status for f in found] == ["unknown"]
    assert "file:/the/item" in " ".join(found[0].why)
    assert "what the system said" in " ".join(found[0].why)


@pytest.mark.parametrize(("check_id", "need"), NEEDY)
def test_a_need_that_is_known_not_to_be_there_is_knowledge(check_id: str, need: str) -> None:
    host = having(healthy(), dict.fromkeys(need.split("|"), NOT_THERE))
    assert missing_need(host, need) is None
    assert all("the facts it needs" not in f.found for f in run_checks(case_of(host), [BY_ID[check_id]]))


def test_one_of_two_alternatives_is_enough() -> None:
    host = without(healthy(), ["driver.nvml"], "timeout")
    assert missing_need(host, "driver.nvml|driver.smi") is None
    both = without(host, ["driver.smi"], "denied")
    missing = missing_need(both, "driver.nvml|driver.smi")
    assert missing is not None
    assert missing.reason == "timeout"


def test_findings_name_the_evidence_behind_their_facts() -> None:
    host = put(healthy(), "packages", Known(value=driver_packages(), origin="command:dpkg-query"))
    finding = next(f for f in answer(host).findings if f.id == "driver.packages")
    assert finding.evidence == ("command:dpkg-query",)


# --- crashes and odd checks -----------------------------------------------------------------------


@check("gpu.crash", "raises", critical=True)
def crash(_: Case) -> Iterator[Outcome]:
    yield passed("said before the crash")
    raise KeyError("a bug")


@check("gpu.bad_path", "needs a fact that does not exist", needs=("driver.no_such_fact",))
def bad_path(_: Case) -> Iterator[Outcome]:
    yield passed()


@check("gpu.silent", "says nothing")
def silent(_: Case) -> Iterator[Outcome]:
    yield from ()


@pytest.mark.parametrize("broken", [crash, bad_path], ids=["raises", "bad path"])
def test_a_check_that_crashes_is_told_and_the_others_go_on(broken: Check) -> None:
    report = judge(healthy(), matrix(), checks=(broken, *CHECKS))
    told = [f for f in report.findings if f.id == "internal.check_crashed"]
    assert [(f.area, f.status, f.subject) for f in told] == [("internal", "unknown", broken.id)]
    assert "Error" in told[0].found
    assert "bug in mopt-doctor" in " ".join(told[0].why)
    rest = [f for f in report.findings if f.id != "internal.check_crashed"]
    assert [f.id for f in rest] == [f.id for f in answer(healthy()).findings]


def test_a_crash_of_a_check_that_matters_leaves_the_verdict_open() -> None:
    assert judge(healthy(), matrix(), checks=(crash, *CHECKS)).verdict == "unknown"
    assert judge(healthy(), matrix(), checks=(bad_path, *CHECKS)).verdict == "ready"


def test_a_check_that_says_nothing_is_skipped() -> None:
    found = run_checks(case_of(healthy()), [silent])
    assert [(f.status, f.found) for f in found] == [("skip", "nothing here to judge")]


# --- verdicts -------------------------------------------------------------------------------------


def saying(*outcomes: Outcome, critical: bool = False) -> CheckReport:
    one = check("gpu.test", "a test", critical=critical)(lambda _: outcomes)
    return judge(healthy(), matrix(), checks=(one,))


@pytest.mark.parametrize(
    ("report", "verdict"),
    [
        (saying(passed()), "ready"),
        (saying(warned("it", wanted="that")), "ready"),
        (saying(unknown("it")), "ready"),
        (saying(unknown("it"), critical=True), "unknown"),
        (saying(failed("it", wanted="that")), "not_ready"),
        (saying(unknown("it"), failed("it", wanted="that", subject="a"), critical=True), "not_ready"),
    ],
    ids=["pass", "warn", "unknown", "critical unknown", "fail", "fail beside a critical unknown"],
)
def test_the_worst_finding_gives_the_verdict(report: CheckReport, verdict: str) -> None:
    assert (report.verdict, report.exit_code) == (verdict, EXIT_OF[report.verdict])
    assert [s.verdict for s in report.scopes] == [verdict]


def test_checks_are_selected_by_area_and_id() -> None:
    assert {one.area for one in selected(["cuda"], [])} == {"cuda"}
    assert [one.id for one in selected(["cuda.init"], [])] == ["cuda.init"]
    assert {one.id for one in selected(["cuda"], ["cuda.init"])} == {
        o.id for o in CHECKS if o.area == "cuda"
    } - {"cuda.init"}
    assert selected([], []) == CHECKS
    assert selected(["cuda"], ["cuda"]) == ()


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_host_is_ready(name: str) -> None:
    report = answer(HEALTHY[name])
    assert (report.verdict, report.exit_code, report.causes) == ("ready", 0, ()), wrong(HEALTHY[name])


QUIET = [n for n in HEALTHY if n not in ("one GPU for a virtual machine", "a GPU left out on purpose")]


@pytest.mark.parametrize("name", QUIET)
def test_a_healthy_host_gets_no_advice(name: str) -> None:
    report = answer(HEALTHY[name])
    assert [(a.id, a.findings, a.because) for a in report.advice] == []


def test_the_same_host_gets_the_same_answer() -> None:
    assert answer(healthy()) == answer(healthy())


# --- the summary ----------------------------------------------------------------------------------


def test_the_summary_joins_bus_and_driver() -> None:
    host = put(lost_gpu(healthy()), "cuda.probe", failing_probe(999, "CUDA_ERROR_UNKNOWN"))
    summary = answer(host).host
    assert summary.os == {"id": "ubuntu", "version": "24.04", "pretty_name": "Ubuntu 24.04.4 LTS"}
    assert summary.driver == {"version": "580.178.04", "flavour": "open", "userspace_version": "580.178.04"}
    assert [(g["address"], g["name"], g["compute_capability"]) for g in summary.gpus] == [
        (FIRST, "NVIDIA L40S", "8.9"),
        (SECOND, "NVIDIA L40S", "8.9"),
    ]
    assert summary.gpus[0]["memory_bytes"] == 46068 * 1024**2
    assert summary.gpus[1]["memory_bytes"] is None
    assert (summary.virtualisation, summary.cuda_driver_version, summary.hostname) == (
        "bare_metal",
        "13.0",
        "node",
    )


def test_the_summary_of_an_unknown_host_is_null_not_invented() -> None:
    summary = answer(Host()).host
    assert (summary.gpus, summary.virtualisation, summary.hostname) == ((), None, None)
    assert set(summary.driver.values()) == set(summary.os.values()) == {None}


# --- less evidence: properties --------------------------------------------------------------------

#: What is written nowhere else: which GPUs were left out on purpose, and that a kernel is WSL2's own.
ALONE = ("driver.parameters", "kernel.release")
Loss = tuple[str, AbsentReason]
losses = st.lists(st.tuples(st.sampled_from(FACTS), st.sampled_from(REASONS)), max_size=len(FACTS))


def lose(host: Host, lost: list[Loss]) -> Host:
    return having(host, {path: Absent(reason=reason) for path, reason in lost})


def crashes(report: CheckReport) -> list[str]:
    return [f.found for f in report.findings if f.id == "internal.check_crashed"]


SICK: dict[str, Host] = {
    "no driver": no_driver(),
    "not loaded": without_module(healthy()),
    "not built": without_module_file(without_module(healthy())),
    "one GPU lost": lost_gpu(healthy()),
    "no libcuda": put(healthy(), "cuda.probe", unloadable_probe()),
    "CUDA fails": put(healthy(), "cuda.probe", failing_probe(999, "CUDA_ERROR_UNKNOWN")),
    "NVML fails": reports(healthy(), error="Driver/library version mismatch", error_code=18, gpus=()),
    "nvidia_uvm missing": having(
        healthy(),
        {
            "kernel.modules": loaded_modules("nvidia"),
            "cuda.probe": failing_probe(999, "CUDA_ERROR_UNKNOWN"),
        },
    ),
    "reported lost": said(lost_gpu(healthy()), ("fallen_off_bus", "GPU has fallen off the bus.", SECOND)),
    "too hot": gpu(healthy(), clock_limits=("hw_thermal_slowdown",)),
    "container without a GPU": having(
        in_container(), {"driver.device_nodes": (), "cuda.probe": unloadable_probe()}
    ),
    "WSL2 without an adapter": having(in_wsl2(), {"driver.nvml": NOT_THERE, "driver.smi": NOT_THERE}),
}


@settings(max_examples=400, deadline=None)
@given(name=st.sampled_from(sorted(HEALTHY)), lost=losses)
def test_a_healthy_host_with_less_evidence_is_never_not_ready(name: str, lost: list[Loss]) -> None:
    host = lose(HEALTHY[name], [(path, why) for path, why in lost if path not in ALONE])
    report = answer(host)
    assert report.verdict in ("ready", "unknown"), wrong(host)
    assert crashes(report) == []
    assert {c.id for c in report.causes} <= {"unknown"}


@settings(max_examples=400, deadline=None)
@given(name=st.sampled_from(sorted(SICK)), lost=losses)
def test_no_check_crashes_whatever_is_missing(name: str, lost: list[Loss]) -> None:
    assert crashes(answer(lose(SICK[name], lost))) == []


#: (check, fact): a failure that passes without the fact, because what is left shows the subject to be well.
EXPLAINED = {
    ("driver.uvm", "cuda.probe"),  # made with the first CUDA call, and nobody knows of one
    ("gpu.on_bus", "kernel.logs"),  # its config space answers; the driver's list is another check's
}


@pytest.mark.parametrize("name", SICK)
def test_a_failure_never_passes_for_want_of_a_fact(name: str) -> None:
    before = {(f.id, f.subject) for f in answer(SICK[name]).findings if f.status == "fail"}
    assert before
    turned = []
    for fact in FACTS:
        after: dict[tuple[str, str], Finding] = {
            (f.id, f.subject): f for f in answer(without(SICK[name], [fact])).findings
        }
        turned += [
            (fact, key, after[key].found)
            for key in before
            if key in after and after[key].status == "pass" and (key[0], fact) not in EXPLAINED
        ]
    assert turned == []


def test_more_facts_than_a_check_reads_change_nothing() -> None:
    host = put(healthy(), "system.hostname", "another")
    assert answer(host).findings == answer(healthy()).findings


def test_a_gpu_of_which_nothing_is_told_breaks_no_check() -> None:
    host = reports(healthy(), gpus=(Gpu(index=0, pci_address=FIRST), Gpu(index=1, pci_address=SECOND)))
    report = answer(host)
    assert crashes(report) == []
    assert report.verdict == "ready"


def test_facts_cover_every_fact_of_the_host() -> None:
    host = healthy()
    assert all(isinstance(at(host, path), Known | Absent) for path in FACTS)
    listed = {path.partition(".")[0] for path in FACTS}
    # No check reads what is in an environment yet.
    plain = {"schema", "scope", "collection", "environment"}
    assert listed | plain == set(Host.__struct_fields__)
    assert known_of(1) == Known(value=1, origin="test")
    assert msgspec.structs.asdict(host)["scope"] == "host"
