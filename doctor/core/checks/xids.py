"""Checks of what GPUs and NVSwitches reported as Xid and SXid events in the running boot."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.core.check import Case, Outcome, check, failed, passed, skipped, unknown, warned
from doctor.core.checks.applies import on_gpu_host
from doctor.core.claims.events import fatal_switches, is_others
from doctor.core.claims.fabric import fabric_kind
from doctor.core.host import Absent, BootLog, Fact, Known, Sxid, known
from doctor.core.views import log_is_whole
from doctor.core.xids import ACTIONS, Burst, Event, bursts, grave, level_of, running_log, shown

__all__ = ["CHECKS"]

_NONE = "no open Xid in this boot"
#: More of them in a line tell no more.
_TOLD_MAX = 6


@check("gpu.xid", "Xid events of this boot", applies=(on_gpu_host,))
def xid(case: Case) -> Iterator[Outcome]:
    """The first event of each GPU that is no consequence of another one, where nothing settles it.

    A program's fault is told and judges nobody; a code that the edition lacks is told as unknown. Of GPUs
    that NVSwitches join a fatal fault of a link may stand in the log alone: there a log that did not answer
    leaves the verdict open. One that only root may read does not: the report says what root would add.
    """
    if running_log(case) is None:
        yield _unread(case, case.host.kernel.logs)
        return
    found = bursts(case)
    if not found:
        yield passed("none" if log_is_whole(case) else "none in the part that was read")
    for burst in found:
        yield from _of_gpu(case, burst)


def _unread(case: Case, logs: Fact[tuple[BootLog, ...]]) -> Outcome:
    absent = logs if isinstance(logs, Absent) else Absent(reason="not_collected")
    origin = f"`{absent.origin}`: {absent.reason.replace('_', ' ')}" if absent.origin else ""
    why = tuple(filter(None, (origin, absent.detail)))
    is_joined = fabric_kind(case) in ("switch", "nvlink5", "rack")
    is_open = is_joined and absent.reason not in ("not_collected", "not_installed", "denied")
    return unknown("no log of this boot was read", wanted=_NONE, why=why, critical=is_open)


def _of_gpu(case: Case, burst: Burst) -> Iterator[Outcome]:
    subject = burst.gpu or "a GPU"
    for event in burst.events:
        if event.row is None and event.is_open:
            edition = case.matrix.edition.name
            text = f"Xid {event.code} is not in matrix {edition}: newer than it, or not recorded"
            yield unknown(text, subject=f"{subject} Xid {event.code}", wanted=_NONE, why=(event.text,))
    if others := is_others(case, burst.gpu):
        yield passed(_listed(burst.events), subject=subject, why=(others,))
        return
    events = grave(case, burst)
    if events:
        is_failed = any(level_of(case, event) == "fail" for event in events)
        say = failed if is_failed else warned
        why = (events[0].text, *_advice(burst, events[0]))
        yield say(shown(events[0]), subject=subject, wanted=_NONE, why=why)
    elif any(event.row for event in burst.events):
        yield passed(_listed(burst.events), subject=subject, why=(_why_harmless(burst),))


def _advice(burst: Burst, first: Event) -> Iterator[str]:
    """What NVIDIA's bucket asks for, and what came with the first event."""
    if first.row and (action := ACTIONS.get(first.row.immediate)):
        yield f"{first.row.immediate}: {action}"
    others = [event for event in burst.events if event.code != first.code]
    if others:
        yield f"with it: {_listed(tuple(others))}"


def _listed(events: tuple[Event, ...]) -> str:
    told = [f"Xid {e.code}" + (f" ({e.count} times)" if e.count > 1 else "") for e in events[:_TOLD_MAX]]
    more = len(events) - len(told)
    return ", ".join(told) + (f" and {more} more" if more else "")


_HARMLESS = {
    "application": "faults of programs: the GPU itself goes on",
    "bus": "whether the card is gone, `gpu.on_bus` judges",
    "memory": "the memory's own counters decide: `gpu.row_remap` and `gpu.ecc`",
    "hang": "no lasting fault by NVIDIA's own table",
    "link": "not a fatal one by its own words",
}


def _why_harmless(burst: Burst) -> str:
    open_ones = [event for event in burst.events if event.is_open]
    if not open_ones:
        return "over: the driver was loaded anew, or took its request back"
    kinds = {event.row.kind for event in open_ones if event.row and not event.row.is_secondary}
    told = [words for kind, words in _HARMLESS.items() if kind in kinds]
    return "; ".join(told) or "what follows an error, or the end of a program: nothing by itself"


@check("gpu.nvswitch_errors", "no fatal NVSwitch error", needs=("kernel.logs",), applies=(on_gpu_host,))
def nvswitch_errors(case: Case) -> Iterator[Outcome]:
    """SXid events of this boot. The word in the line says whether one was fatal; others are corrected."""
    log = running_log(case)
    sxids = log.sxids if log else ()
    if not sxids:
        has_switch = any(device.is_nvswitch for device in known(case.host.pci) or ())
        none = "none was reported in what was read of this boot"
        yield passed(none) if has_switch else skipped("no NVSwitch reported anything, and none is on the bus")
        return
    fatal = {id(event) for event in fatal_switches(case)}
    for event in sxids:
        yield _of_switch(case, event, is_open=id(event) in fatal)


def _of_switch(case: Case, event: Sxid, *, is_open: bool) -> Outcome:
    row = case.matrix.sxid(event.code)
    word = {True: "fatal", False: "not fatal", None: "its line says no severity"}[event.is_fatal]
    times = f", {event.count} times" if event.count > 1 else ""
    text = f"SXid {event.code} ({word}){times}" + (f": {row.meaning}" if row else "")
    subject = f"{event.switch} SXid {event.code}"
    if is_open:
        why = (event.first_text, "all GPUs of the NVLink domain may be hit")
        return failed(text, subject=subject, wanted="no fatal SXid in this boot", why=why)
    if event.is_fatal:
        return passed(text, subject=subject, why=("over: the driver was loaded anew after it",))
    if event.is_fatal is None and row is None and isinstance(case.host.kernel.logs, Known):
        return unknown(text, subject=subject, why=(event.first_text,))
    return passed(
        text, subject=subject, why=(event.first_text, row.action if row else "corrected, and counted")
    )


CHECKS = (xid, nvswitch_errors)
