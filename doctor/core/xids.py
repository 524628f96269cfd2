"""Xid events of the running boot, put together by GPU: which came first, what is open, what decides it.

An event is open until the driver is loaded anew or takes its request back (Xid 154 to `None`). A log
line alone condemns no GPU: what the driver says of it now comes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from doctor.core.check import Case
from doctor.core.host import BootLog, Gpu, KernelMessage, Xid, known
from doctor.core.pattern import pattern
from doctor.core.rows.xid import XidRow
from doctor.core.views import probe, report, working_gpus

__all__ = [
    "ACTIONS",
    "Burst",
    "Event",
    "Level",
    "bursts",
    "first_open",
    "gpu_of",
    "grave",
    "is_action",
    "level_of",
    "loaded_since",
    "running_log",
    "shown",
]

Level = Literal["fail", "warn", "open", "info"]

#: NVIDIA's buckets as a person would do them.
ACTIONS = {
    "RESTART_APP": "start the program again, and look for its fault first",
    "RESET_GPU": "drain the GPU and reset it (with NVSwitch all of them together), or reboot",
    "RESTART_BM": "drain the host and restart it, without power for a moment if the GPU does not come back",
    "RESTART_VM": "restart the virtual machine",
    "RESTART_FM": "restart Fabric Manager where it stands alone; else see the Xid before it",
    "CHECK_MECHANICALS": "look at power leads and seating of the card",
    "UPDATE_SWFW": "update driver or firmware to versions that fit each other",
    "CONTACT_SUPPORT": "save `nvidia-bug-report.sh` and open a case with the vendor",
    "WORKFLOW_XID_48": "see to what follows it (63, 64, 94, 95); alone: drain the GPU and reset it",
    "WORKFLOW_NVLINK_ERR": "find the link in its text, reset the GPUs; the same link again: the board",
    "WORKFLOW_NVLINK5_ERR": "find link and side in its text; Fatal: reset the GPUs together, or reboot",
}
#: Of these nothing follows for the GPU itself.
_OF_PROGRAMS = ("RESTART_APP", "IGNORE")
#: What the driver says when it no longer asks for anything.
_RECOVERED = "to 0x0 (None)"
_RECOVERY = 154
#: `Fatal` as a word of its own: `Nonfatal` and `Non-fatal` hold it, too.
_FATAL = pattern(r"(?<![\w-])Fatal\b")
#: The card has left the bus: what the bus shows decides, and `gpu.on_bus` says it.
_FALLEN = 79


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One code on one GPU in the running boot."""

    code: int
    gpu: str
    count: int
    row: XidRow | None
    """None for a code that is newer than this edition."""
    text: str
    """As first reported since the driver was loaded; as ever reported where that is over."""
    is_open: bool
    seconds: float | None = None

    @property
    def is_fatal(self) -> bool:
        """Whether its own word, where it has one, is Fatal."""
        return bool(_FATAL.search(self.text))


class Burst(msgspec.Struct, frozen=True, kw_only=True):
    """All events of one GPU in the running boot, in the order of their first report."""

    gpu: str
    events: tuple[Event, ...]

    def own(self, *, of_program: bool) -> Iterator[Event]:
        """Open events that are no consequence of another one: of programs, or of the GPU itself."""
        own = (e for e in self.events if e.is_open and not (e.row and e.row.is_secondary))
        yield from (e for e in own if _is_program(e) == of_program)


def _is_program(event: Event) -> bool:
    return event.row is not None and event.row.kind == "application"


def running_log(case: Case) -> BootLog | None:
    """The log of the running boot."""
    return next((log for log in known(case.host.kernel.logs) or () if log.index == 0), None)


def loaded_since(log: BootLog) -> tuple[KernelMessage, ...]:
    """The messages after the driver was loaded last: what came before it is over."""
    loads = [number for number, message in enumerate(log.messages) if message.kind == "loading"]
    return log.messages[loads[-1] + 1 :] if loads else log.messages


def bursts(case: Case) -> tuple[Burst, ...]:
    """Xid events of the running boot by GPU."""
    if "bursts" not in case.memo:
        log = running_log(case)
        case.memo["bursts"] = tuple(_bursts(case, log)) if log else ()
    found: tuple[Burst, ...] = case.memo["bursts"]
    return found


def _bursts(case: Case, log: BootLog) -> list[Burst]:
    since, of_gpu = loaded_since(log), dict[str, list[Event]]()
    was_logged = {message.text for message in log.messages}
    for xid in log.xids:
        text = _open_text(since, xid)
        # Messages are kept for the newest few thousand lines; counts are of all.
        is_open = bool(text) if xid.first_text in was_logged else not _settled(since, xid.gpu, 0)
        event = Event(
            code=xid.code,
            gpu=xid.gpu,
            count=xid.count,
            row=case.matrix.xid(xid.code),
            text=text or xid.first_text,
            is_open=is_open,
            seconds=xid.first_seconds,
        )
        of_gpu.setdefault(xid.gpu, []).append(event)
    return [Burst(gpu=gpu, events=tuple(events)) for gpu, events in of_gpu.items()]


def _open_text(since: tuple[KernelMessage, ...], xid: Xid) -> str:
    """The event's first text after the driver was loaded; empty when the driver has recovered from it."""
    mark, found, last = f"): {xid.code}, ", "", 0
    for number, message in enumerate(since):
        if message.kind == "xid" and mark in message.text and message.gpu in ("", xid.gpu):
            is_request = xid.code == _RECOVERY
            found, last = (message.text if is_request else found or message.text), number
    if found and _settled(since, xid.gpu, last):
        return ""
    return found


def _settled(since: tuple[KernelMessage, ...], gpu: str, after: int) -> bool:
    requests = [m for m in since[after:] if f"): {_RECOVERY}, " in m.text and m.gpu in ("", gpu)]
    return bool(requests) and _RECOVERED in requests[-1].text


def gpu_of(case: Case, address: str) -> Gpu | None:
    """What NVML or nvidia-smi says of a card now."""
    answered = report(case)
    return next((g for g in answered.gpus if g.pci_address == address), None) if answered else None


def is_action(word: str | None) -> bool:
    """Whether a recovery action asks for something; a number that this edition cannot name does not."""
    return bool(word) and str(word).lower() != "none" and not str(word).startswith("unknown_")


def level_of(case: Case, event: Event) -> Level:
    """What an open event means now: `fail`, `warn`, nothing (`info`), or that nothing decides it (`open`)."""
    row = event.row
    if row is None:
        return "open"
    if not event.is_open or row.is_secondary or row.kind == "application" or event.code == _FALLEN:
        return "info"
    if row.is_by_word and not event.is_fatal:
        return "info"
    is_grave = row.severity in ("critical", "error") and row.immediate not in _OF_PROGRAMS
    if not is_grave:
        return "info"
    return _memory_level(case, event) if row.kind == "memory" else _grave_level(case, event, row)


def _memory_level(case: Case, event: Event) -> Level:
    """The counters decide: they start anew with a reset, and `gpu.row_remap` and `gpu.ecc` judge them."""
    gpu = gpu_of(case, event.gpu)
    if gpu is None:
        return "warn"
    told = (gpu.ecc_uncorrected_volatile, gpu.remap_pending, gpu.remap_failure, gpu.retired_pages_pending)
    return "warn" if all(value is None for value in told) or gpu.ecc_uncorrected_volatile else "info"


def _grave_level(case: Case, event: Event, row: XidRow) -> Level:
    gpu = gpu_of(case, event.gpu)
    if row.kind == "link" and row.is_by_word:
        # Fatal, by its own word: work across the links hangs, while each card by itself answers and asks
        # for nothing (open-gpu-kernel-modules issue 1355, marin issue 8934).
        return "fail"
    if gpu is not None and gpu.recovery_action and gpu.recovery_action.lower() == "none":
        # The driver's own word about this very card, and newer than the log's.
        return "warn" if _works(case, event.gpu) else "fail"
    if gpu is not None and is_action(gpu.recovery_action):
        return "fail"
    return "warn" if _works(case, event.gpu) else "fail"


def _works(case: Case, address: str) -> bool:
    """Listed by the driver, and CUDA was not asked or starts."""
    said = probe(case)
    is_refused = said is not None and said.result not in (0, None)
    return address in working_gpus(case) and not is_refused


def grave(case: Case, burst: Burst) -> list[Event]:
    """The open events of a GPU that fail or leave it in doubt; the first may have caused the others."""
    return [e for e in burst.own(of_program=False) if level_of(case, e) in ("fail", "warn")]


def first_open(case: Case, *kinds: str, besides: frozenset[str] = frozenset()) -> Event | None:
    """The first such event of any GPU, where its kind is one of these; `besides` are cards of no account."""
    firsts = (
        events[0] for events in (grave(case, b) for b in bursts(case) if b.gpu not in besides) if events
    )
    return next((e for e in firsts if e.row and e.row.kind in kinds), None)


def shown(event: Event) -> str:
    """`Xid 119 (GSP_RPC_TIMEOUT), 3 times: the GPU's own firmware did not answer`."""
    name = f" ({event.row.mnemonic})" if event.row else ""
    times = f", {event.count} times" if event.count > 1 else ""
    return f"Xid {event.code}{name}{times}" + (f": {event.row.meaning}" if event.row else "")
