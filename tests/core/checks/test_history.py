"""Earlier boots and Xid events are told; a few Xids of this boot leave a GPU in doubt."""

from __future__ import annotations

import pytest

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
    expect(host, "kernel.history", "pass", "this boot", f"Xid 31 on {FIRST}", why="other checks")


def test_without_logs_it_is_not_known() -> None:
    expect(without(healthy(), ["kernel.logs"]), "kernel.history", "unknown", "")


def test_it_does_not_apply_without_a_gpu() -> None:
    expect(reports(put(healthy(), "pci", ()), gpus=()), "kernel.history", "skip", "")


def in_this_boot(*texts: str) -> Host:
    """A log of this boot with these messages in their order, and the Xids among them."""
    messages = tuple(KernelMessage(kind=_kind(t), text=t, gpu=FIRST if "Xid" in t else "") for t in texts)
    codes = dict.fromkeys(int(t.split("): ")[1].split(",")[0]) for t in texts if "Xid" in t)
    first = {c: next(t for t in texts if f"): {c}," in t) for c in codes}
    xids = tuple(Xid(code=c, gpu=FIRST, count=1, first_text=first[c]) for c in codes)
    return put(healthy(), "kernel.logs", (BootLog(index=0, messages=messages, xids=xids),))


def _kind(text: str) -> MessageKind:
    return "xid" if "Xid" in text else "loading"


def xid(code: int, text: str = "x") -> str:
    return f"NVRM: Xid (PCI:{FIRST[:-2]}): {code}, pid=1, {text}"


LOADING = "NVRM: loading NVIDIA UNIX Open Kernel Module"
ASKS = xid(154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)")
ASKS_NO_MORE = xid(154, "GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)")


@pytest.mark.parametrize("code", [48, 95, 119, 120, 154])
def test_an_xid_that_leaves_a_gpu_in_doubt_warns_with_its_text(code: int) -> None:
    host = in_this_boot(LOADING, xid(code, "as the kernel said"))
    expect(host, "kernel.history", "warn", f"Xid {code} {FIRST}", f"Xid {code}", why="as the kernel said")
    assert (answer(host).verdict, answer(host).causes) == ("ready", ())


@pytest.mark.parametrize(
    "texts",
    [
        (xid(95), LOADING),
        (ASKS, ASKS_NO_MORE),
        (xid(13), xid(31), xid(43)),
    ],
    ids=["loaded anew", "no longer asked for", "of a program"],
)
def test_what_was_settled_or_is_the_fault_of_a_program_does_not_warn(texts: tuple[str, ...]) -> None:
    assert "warn" not in {f.status for f in findings(in_this_boot(*texts), "kernel.history")}


def test_an_earlier_boot_s_xid_is_history() -> None:
    assert "warn" not in {f.status for f in findings(with_boots(boot(-1, (95, FIRST, 1))), "kernel.history")}
