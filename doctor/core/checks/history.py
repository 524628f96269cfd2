"""What the kernel said before: Xid events of each boot, and faults of earlier boots.

Told and not judged, but for the few Xids of this boot after which a GPU needs a reset to be trusted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from doctor.core.check import Case, Outcome, check, passed, warned
from doctor.core.checks.applies import on_gpu_host
from doctor.core.host import BootLog, MessageKind, Xid, known

__all__ = ["CHECKS"]

_FAULTS: tuple[MessageKind, ...] = (
    "api_mismatch",
    "init_failed",
    "fallen_off_bus",
    "firmware_missing",
    "gsp",
    "probe_failed",
    "module_signature_rejected",
)
#: Xids that leave a GPU in doubt until it is reset or the driver is loaded anew, and what they mean.
_SERIOUS = {
    48: "memory that ECC could not correct",
    95: "an uncontained memory error",
    119: "the GPU's own firmware (GSP) did not answer",
    120: "the GPU's own firmware (GSP) stopped",
    154: "the driver asks for a recovery",
}
#: What the driver says when it no longer asks for anything.
_RECOVERED = "to 0x0 (None)"
#: More boots than this tell no more.
_BOOTS_MAX = 8


@check(
    "kernel.history",
    "Xid events, and faults of earlier boots",
    needs=("kernel.logs",),
    applies=(on_gpu_host,),
)
def history(case: Case) -> Iterator[Outcome]:
    """Counts by boot. A fault of an earlier boot is no fault now, and an Xid alone condemns no card."""
    logs = [log for log in known(case.host.kernel.logs) or () if _words(log)]
    for log in logs[:_BOOTS_MAX]:
        subject = f"boot {log.index}" if log.index else "this boot"
        why = "history: the running boot is judged by what it shows itself"
        if not log.index:
            why = "counted only: whether a GPU works is judged by other checks"
        yield passed(_words(log), subject=subject, why=(why,))
        if not log.index:
            yield from _serious(log)
    if not logs:
        yield passed("none in the logs that were read")


def _serious(log: BootLog) -> Iterator[Outcome]:
    """Xids of this boot that nothing in the log has settled since."""
    for xid in log.xids:
        text = _last_text(log, xid)
        if xid.code in _SERIOUS and text:
            yield warned(
                f"Xid {xid.code}: {_SERIOUS[xid.code]}",
                subject=f"Xid {xid.code} {xid.gpu}".strip(),
                wanted="none since the driver was loaded",
                why=(text, "drain the GPU and reset it, or reboot, before it is trusted again"),
            )


def _last_text(log: BootLog, xid: Xid) -> str:
    """The event as last reported; empty where the driver was loaded, or took its request back, after it."""
    mark, last = f"): {xid.code}, ", xid.first_text
    for message in log.messages:
        if message.kind == "loading":
            last = ""
        elif message.kind == "xid" and mark in message.text and message.gpu in ("", xid.gpu):
            last = message.text
    return "" if _RECOVERED in last else last


def _words(log: BootLog) -> str:
    """`Xid 56 on 0000:0a:00.0 (110 times)`; of the running boot its Xids only, for its faults are judged."""
    events = {f"Xid {x.code} on {x.gpu or 'a GPU'}": x.count for x in log.xids}
    if log.index:
        kinds = Counter(message.kind for message in log.messages)
        events |= {kind.replace("_", " "): kinds[kind] for kind in _FAULTS if kinds[kind]}
    return ", ".join(f"{what} ({count} times)" if count > 1 else what for what, count in events.items())


CHECKS = (history,)
