"""What the kernel said before: Xid events of each boot, and faults of earlier boots.

Told and not judged: Xids of the running boot are `gpu.xid`'s, and its faults those of other checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from doctor.core.check import Case, Outcome, check, passed
from doctor.core.checks.applies import on_gpu_host
from doctor.core.host import BootLog, MessageKind, known

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
        # Those of the running boot `gpu.xid` judges; here they are counted.
        why = ("history: the running boot is judged by what it shows itself",) if log.index else ()
        yield passed(_words(log), subject=subject, why=why)
    if not logs:
        yield passed("none in the logs that were read")


def _words(log: BootLog) -> str:
    """`Xid 56 on 0000:0a:00.0 (110 times)`; of the running boot its Xids only, for its faults are judged."""
    events = {f"Xid {x.code} on {x.gpu or 'a GPU'}": x.count for x in log.xids}
    if log.index:
        kinds = Counter(message.kind for message in log.messages)
        events |= {kind.replace("_", " "): kinds[kind] for kind in _FAULTS if kinds[kind]}
    return ", ".join(f"{what} ({count} times)" if count > 1 else what for what, count in events.items())


CHECKS = (history,)
