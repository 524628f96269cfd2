"""Xid and SXid events of this boot: which comes first, what it means now, and whose fault it is."""

from __future__ import annotations

import pytest

from doctor.core.finding import Status
from doctor.core.host import AbsentReason, Host
from tests.core.hosts import (
    FIRST,
    NOT_THERE,
    SECOND,
    answer,
    device,
    expect,
    failing_probe,
    findings,
    gpu,
    having,
    healthy,
    in_container,
    lost_gpu,
    put,
    reports,
    said,
    without,
)
from tests.core.hosts_fabric import hgx
from tests.core.pairs_machine import (
    GSP_TIMEOUT,
    LINK_FATAL,
    LINK_NONFATAL,
    LOADING,
    SWITCH,
    events,
    hung,
    switch_error,
    xid_text,
)

ASKS = xid_text(154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)")
ASKS_NO_MORE = xid_text(154, "GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)")
UNTOLD = gpu(healthy(), recovery_action=None)
UNASKED = without(healthy(), ["driver.nvml", "driver.smi", "cuda.probe"])
MEMORY_UNTOLD = {
    "ecc_uncorrected_volatile": None,
    "remap_pending": None,
    "remap_failure": None,
    "retired_pages_pending": None,
}

CASES: dict[str, tuple[Host, Status, str]] = {
    # what the card does now outranks the log
    "GSP silent, the card works": (events(healthy(), GSP_TIMEOUT), "warn", "Xid 119 (GSP_RPC_TIMEOUT)"),
    "GSP silent, CUDA does not start": (hung(healthy()), "fail", "Xid 119"),
    "GSP silent, the driver does not list it": (
        events(lost_gpu(healthy(), FIRST), GSP_TIMEOUT),
        "fail",
        "Xid 119",
    ),
    "GSP silent, a reset is asked for": (
        events(gpu(healthy(), recovery_action="reset"), GSP_TIMEOUT),
        "fail",
        "Xid 119",
    ),
    "GSP silent, nobody asked the driver": (events(UNASKED, GSP_TIMEOUT), "fail", "Xid 119"),
    "GSP silent, then loaded anew": (events(healthy(), GSP_TIMEOUT, LOADING), "pass", "Xid 119"),
    "GSP silent, then recovered": (events(healthy(), GSP_TIMEOUT, ASKS, ASKS_NO_MORE), "pass", "Xid 119"),
    # whose fault
    "out of bounds": (events(healthy(), xid_text(13)), "pass", "Xid 13"),
    "page fault and what follows it": (
        events(healthy(), xid_text(31), xid_text(45)),
        "pass",
        "Xid 31, Xid 45",
    ),
    "cleanup alone": (events(healthy(), xid_text(45)), "pass", "Xid 45"),
    "a program's fault before the GPU's own": (
        events(healthy(), xid_text(31), GSP_TIMEOUT, xid_text(45)),
        "warn",
        "Xid 119",
    ),
    "many of one code": (events(healthy(), *[GSP_TIMEOUT] * 3), "warn", "3 times"),
    # the first that is no consequence
    "halt, cleanup, silence": (
        events(healthy(), xid_text(62), xid_text(45), GSP_TIMEOUT, ASKS),
        "warn",
        "Xid 62",
    ),
    "a request alone": (events(healthy(), ASKS), "pass", "Xid 154"),
    # memory: the counters decide
    "uncontained, counters at zero": (events(healthy(), xid_text(95)), "pass", "Xid 95"),
    "uncontained, counters say so": (
        events(gpu(healthy(), ecc_uncorrected_volatile=2), xid_text(95)),
        "warn",
        "Xid 95",
    ),
    "double bit error, counters not told": (
        events(gpu(healthy(), **MEMORY_UNTOLD), xid_text(48)),
        "warn",
        "Xid 48",
    ),
    "double bit error, nobody asked": (events(UNASKED, xid_text(48)), "warn", "Xid 48"),
    "a row noted": (events(healthy(), xid_text(63)), "pass", "Xid 63"),
    "contained": (events(healthy(), xid_text(94)), "pass", "Xid 94"),
    # links: the word decides
    "link fatal": (events(UNTOLD, LINK_FATAL), "fail", "Xid 145"),
    "link fatal, the driver asks for nothing": (events(healthy(), LINK_FATAL), "fail", "Xid 145"),
    "link not fatal": (events(UNTOLD, LINK_NONFATAL), "pass", "Xid 145"),
    # off the bus is another check's
    "off the bus": (events(healthy(), xid_text(79)), "pass", "Xid 79"),
}


@pytest.mark.parametrize("name", CASES)
def test_xid(name: str) -> None:
    host, status, words = CASES[name]
    expect(host, "gpu.xid", status, FIRST, words)


def test_the_first_event_says_what_came_with_it_and_what_to_do() -> None:
    host = events(healthy(), xid_text(62), xid_text(45), GSP_TIMEOUT)
    expect(host, "gpu.xid", "warn", FIRST, why="with it: Xid 45, Xid 119")
    expect(host, "gpu.xid", "warn", FIRST, why="RESET_GPU: drain the GPU")


def test_a_code_that_the_edition_lacks_is_told_as_unknown_and_leaves_the_verdict() -> None:
    host = events(healthy(), xid_text(999, "a code of tomorrow"))
    expect(host, "gpu.xid", "unknown", f"{FIRST} Xid 999", "not in matrix", why="a code of tomorrow")
    assert answer(host).verdict == "ready"


def test_a_code_that_the_edition_lacks_hides_no_other() -> None:
    host = events(healthy(), xid_text(999), GSP_TIMEOUT)
    expect(host, "gpu.xid", "unknown", f"{FIRST} Xid 999")
    expect(host, "gpu.xid", "warn", FIRST, "Xid 119")


def test_each_gpu_by_itself() -> None:
    host = events(events(healthy(), xid_text(31)), xid_text(119, address=SECOND), address=SECOND)
    expect(host, "gpu.xid", "pass", FIRST, "Xid 31")
    expect(host, "gpu.xid", "warn", SECOND, "Xid 119")


def test_a_gpu_that_is_somebody_else_s_is_told_only() -> None:
    guest = events(device(lost_gpu(healthy(), FIRST), 0, driver="vfio-pci"), GSP_TIMEOUT)
    expect(guest, "gpu.xid", "pass", FIRST, why="virtual machine")
    inside = put(in_container(), "kernel.logs", healthy().kernel.logs)
    other = events(lost_gpu(inside, FIRST), GSP_TIMEOUT)
    expect(other, "gpu.xid", "pass", FIRST, why="not given")


def test_a_healthy_host_with_xids_of_programs_is_ready_without_advice() -> None:
    host = events(
        healthy(), xid_text(13), xid_text(31), xid_text(43), xid_text(45), xid_text(94), xid_text(63)
    )
    report = answer(host)
    assert (report.verdict, report.causes, report.advice) == ("ready", (), ())


def test_no_log_and_none_in_it() -> None:
    expect(healthy(), "gpu.xid", "pass", "", "none")
    expect(without(healthy(), ["kernel.logs"]), "gpu.xid", "unknown", "")
    expect(put(healthy(), "kernel.logs", ()), "gpu.xid", "unknown", "", "no log of this boot")


def test_it_does_not_apply_without_a_gpu() -> None:
    without_gpu = having(
        reports(put(healthy(), "pci", ()), gpus=()), {"driver.nvml": NOT_THERE, "driver.smi": NOT_THERE}
    )
    expect(without_gpu, "gpu.xid", "skip", "")
    expect(without_gpu, "gpu.nvswitch_errors", "skip", "")


# --- NVSwitch -------------------------------------------------------------------------------------

SUBJECT = f"{SWITCH} SXid"
SWITCHES: dict[str, tuple[Host, Status, str, str]] = {
    "fatal": (switch_error(healthy(), 20034), "fail", f"{SUBJECT} 20034", "went down"),
    "fatal, then loaded anew": (
        switch_error(healthy(), 20034, "Fatal", LOADING),
        "pass",
        f"{SUBJECT} 20034",
        "fatal",
    ),
    "corrected": (switch_error(healthy(), 12028, "Non-fatal"), "pass", f"{SUBJECT} 12028", "not fatal"),
    "a code that nobody knows, fatal by its word": (
        switch_error(healthy(), 29999),
        "fail",
        f"{SUBJECT} 29999",
        "SXid 29999 (fatal)",
    ),
    "a code that nobody knows, without a word": (
        switch_error(healthy(), 29999, "Strange"),
        "unknown",
        f"{SUBJECT} 29999",
        "no severity",
    ),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_nvswitch_errors(name: str) -> None:
    host, status, subject, words = SWITCHES[name]
    expect(host, "gpu.nvswitch_errors", status, subject, words)


def test_nvswitch_errors_without_any() -> None:
    expect(healthy(), "gpu.nvswitch_errors", "skip", "", "no NVSwitch")
    expect(without(healthy(), ["kernel.logs"]), "gpu.nvswitch_errors", "unknown", "")


def test_a_switch_that_lost_a_gpu_from_the_bus_is_a_consequence() -> None:
    gone = ("fallen_off_bus", f"NVRM: GPU {SECOND}: GPU has fallen off the bus.", SECOND)
    lost = said(device(lost_gpu(healthy()), 1, is_responding=False), gone)
    report = answer(switch_error(lost, 20034))
    assert [c.id for c in report.causes] == ["gpu.fallen_off_bus"]
    assert any(key.startswith("gpu.nvswitch_errors") for key in report.causes[0].findings)


# --- power or card --------------------------------------------------------------------------------


def test_a_card_that_is_lost_after_errors_of_its_link_is_one_of_two_causes() -> None:
    lost = device(
        lost_gpu(events(healthy(), xid_text(79, address=SECOND), address=SECOND)), 1, is_responding=False
    )
    report = answer(put(lost, "machine.pcie_errors", {SECOND: 12}))
    first = report.causes[0]
    assert (first.id, first.is_certain, first.tied_with) == (
        "gpu.power_delivery",
        False,
        ("gpu.fallen_off_bus",),
    )
    assert any("supply" in fact for fact in first.deciding_facts)
    quiet = answer(put(lost, "machine.pcie_errors", {}))
    assert [(c.id, c.is_certain) for c in quiet.causes] == [("gpu.fallen_off_bus", True)]


def test_a_hang_that_cuda_shows_is_named_with_what_follows() -> None:
    report = answer(hung(healthy()))
    assert [(c.id, c.is_certain) for c in report.causes] == [("gpu.hang", True)]
    assert set(report.causes[0].findings) == {f"gpu.xid@{FIRST}", "cuda.init"}
    unknown_card = put(events(healthy(), GSP_TIMEOUT), "cuda.probe", failing_probe(999, "CUDA_ERROR_UNKNOWN"))
    assert answer(unknown_card).causes[0].id == "gpu.hang"


def test_every_event_of_a_burst_is_counted_once() -> None:
    host = events(healthy(), *[xid_text(31)] * 5)
    assert [f.found for f in findings(host, "gpu.xid")] == ["Xid 31 (5 times)"]


@pytest.mark.parametrize(
    ("host", "reason", "verdict"),
    [
        (hgx(), "denied", "ready"),
        (hgx(), "timeout", "unknown"),
        (hgx(), "not_collected", "ready"),
        (healthy(), "denied", "ready"),
    ],
)
def test_a_log_that_did_not_answer_leaves_the_links_of_a_board_open(
    host: Host, reason: AbsentReason, verdict: str
) -> None:
    blind = without(host, ["kernel.logs"], reason)
    expect(blind, "gpu.xid", "unknown", "", "no log of this boot")
    assert answer(blind).verdict == verdict
