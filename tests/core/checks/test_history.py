"""Earlier boots and Xid events are told; what those of this boot mean, `gpu.xid` says."""

from __future__ import annotations

from doctor.core.host import BootLog, Host, KernelMessage, MessageKind, Xid
from tests.core.hosts import FIRST, SECOND, answer, at, expect, findings, healthy, put, reports, without

MISMATCH: MessageKind = "api_mismatch"


def with_boots(*boots: BootLog) -> Host:
    return put(healthy(), "kernel.logs", (*at(healthy(), "kernel.logs").value, *boots))


def boot(index: int, *xids: tuple[int, str, int], kind: MessageKind = "loading", count: int = 1) -> BootLog:
    events = tuple(Xid(code=c, gpu=g, count=n, first_text="NVRM: Xid") for c, g, n in xids)
    return BootLog(index=index, messages=(KernelMessage(kind=kind, text="NVRM: x"),) * count, xids=events)


def test_nothing_to_tell() -> None:
    expect(healthy(), "kernel.history", "pass", "", "none in the logs")
    expect(with_boots(boot(-1)), "kernel.history", "pass", "", "none in the logs")


def test_xids_of_an_earlier_boot_are_history_and_no_cause() -> None:
    host = with_boots(boot(-1, (79, FIRST, 1), (13, SECOND, 361)))
    words = f"Xid 79 on {FIRST}, Xid 13 on {SECOND} (361 times)"
    expect(host, "kernel.history", "pass", "boot -1", words, why="history")
    assert (answer(host).verdict, answer(host).causes) == ("ready", ())


def test_a_mismatch_of_an_earlier_boot_is_history() -> None:
    expect(
        with_boots(boot(-2, kind=MISMATCH, count=135)),
        "kernel.history",
        "pass",
        "boot -2",
        "api mismatch (135 times)",
    )


def test_an_xid_of_this_boot_is_counted() -> None:
    host = put(healthy(), "kernel.logs", (boot(0, (31, FIRST, 1), kind=MISMATCH),))
    expect(host, "kernel.history", "pass", "this boot", f"Xid 31 on {FIRST}")


def test_without_logs_it_is_not_known() -> None:
    expect(without(healthy(), ["kernel.logs"]), "kernel.history", "unknown", "")


def test_it_does_not_apply_without_a_gpu() -> None:
    expect(reports(put(healthy(), "pci", ()), gpus=()), "kernel.history", "skip", "")


def test_an_earlier_boot_s_xid_is_history() -> None:
    host = with_boots(boot(-1, (95, FIRST, 1)))
    assert "warn" not in {f.status for f in findings(host, "kernel.history")}
    expect(host, "gpu.xid", "pass", "", "none")
