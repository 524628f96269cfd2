"""Claims about what GPUs and switches reported in the running boot, and about known faults of the driver."""

from __future__ import annotations

from doctor.core.check import Case
from doctor.core.claims.bus import gpu_fallen
from doctor.core.claims.claimed import UNTOLD, Claim, Claimed, clock_limit, no, yes
from doctor.core.claims.listed import HANDED_OVER
from doctor.core.claims.stack import unfit_cards
from doctor.core.host import Sxid, known
from doctor.core.rows.xid import DriverBug
from doctor.core.views import log_is_whole, messages, report, working_gpus, xid_counts
from doctor.core.xids import bursts, first_open, loaded_since, running_log, shown


def is_others(case: Case, address: str) -> str:
    """Why a GPU that reported something is none of this scope's; empty when it is."""
    device = next((d for d in case.host.gpus_on_bus if d.address == address), None)
    if device is not None and device.driver in HANDED_OVER:
        return f"{address} is handed to a virtual machine"
    answered = report(case)
    if case.virtualisation == "container" and answered is not None and address not in working_gpus(case):
        return "this container was not given that GPU"
    return ""


def events_of(*kinds: str) -> Claim:
    """A claim that the first open event of some GPU is of these kinds, and fails or leaves it in doubt."""

    def claim(case: Case) -> Claimed:
        unfit = unfit_cards(case)
        event = first_open(case, *kinds, besides=unfit)
        if event and not is_others(case, event.gpu):
            # Where the text's own word decides, the text is what to show.
            words = event.text if event.row and event.row.is_by_word else shown(event)
            others = sum(any(e.code == event.code for e in burst.events) for burst in bursts(case)) - 1
            return yes(f"{event.gpu or 'a GPU'}: {words}" + (f"; and on {others} more" if others else ""))
        return no() if log_is_whole(case) or bursts(case) else UNTOLD

    return claim


gpu_hung = events_of("hang", "power", "event")


def nvlink_fatal(case: Case) -> Claimed:
    """A fatal event of a link or of an NVSwitch that nothing has settled since."""
    switches = fatal_switches(case)
    if switches:
        return yes(f"NVSwitch {switches[0].switch}: {switches[0].first_text}")
    return events_of("link")(case)


def fatal_switches(case: Case) -> tuple[Sxid, ...]:
    """Fatal SXid events since the driver was loaded, where no GPU's own state says that all is well."""
    log = running_log(case)
    if log is None or not any(event.is_fatal for event in log.sxids):
        return ()
    since = [message.text for message in loaded_since(log) if message.kind == "sxid"]
    was_logged = {message.text for message in log.messages}
    return tuple(
        event
        for event in log.sxids
        if event.is_fatal and (event.first_text not in was_logged or any(_is_of(event, t) for t in since))
    )


def _is_of(event: Sxid, text: str) -> bool:
    return f"): {event.code}, Fatal" in text


def known_bug(case: Case) -> tuple[DriverBug, str] | None:
    """A fault that this driver release is known for and that shows in this boot, with what shows it."""
    driver = known(case.host.driver.kernel_version)
    for bug in case.matrix.driver_bugs(driver) if driver else ():
        flavour = known(case.host.driver.flavour)
        if bug.flavour and flavour is not None and flavour != bug.flavour:
            continue
        if sign := _sign_of(case, bug):
            return bug, sign
    return None


def _sign_of(case: Case, bug: DriverBug) -> str:
    """What the log of this boot has of a known fault; empty when nothing."""
    for burst in bursts(case):
        for event in burst.events:
            if event.code in bug.xids and event.is_open:
                return f"{event.gpu or 'a GPU'}: {event.text}"
    said = messages(case, "oops") if bug.functions else ()
    named = (m for m in said if any(f" {name}+0x" in m.text for name in bug.functions))
    return next((f"kernel: {m.text}" for m in named), "")


def module_oops(case: Case) -> Claimed:
    """The kernel stopped in this boot over a fault of its own inside one of the driver's modules."""
    message = next(messages(case, "oops"), None)
    if message is not None:
        return yes(f"kernel: {message.text}")
    return no() if log_is_whole(case) else UNTOLD


def known_bug_shows(case: Case) -> Claimed:
    """The release is one with a known fault, and its sign is in the log of this boot."""
    found, driver = known_bug(case), known(case.host.driver.kernel_version)
    if found:
        bug, sign = found
        fixed = ", ".join(
            str(r.fixed_in) for r in bug.ranges if r.fixed_in and driver and r.branch == driver.major
        )
        return yes(f"driver {driver}: {bug.title}, mended in {fixed or 'a later branch'}; {sign}")
    bugs = case.matrix.driver_bugs(driver) if driver else case.matrix.edition.driver_bugs
    signs = {code for bug in bugs for code in bug.xids}
    has_signs = bool(signs) or any(bug.functions for bug in bugs)
    was_logged = any(event.code in signs for burst in bursts(case) for event in burst.events)
    if driver is None and (was_logged or module_oops(case).holds):
        return UNTOLD
    return no() if not has_signs or log_is_whole(case) or was_logged else UNTOLD


#: Receiver and other link errors of a card whose supply or seat is unsound; a few are usual at any start.
_LINK_ERRORS_MIN = 3
#: Within which cards that lose one supply or one switch are lost together.
_TOGETHER_S = 1.0


def power_suspected(case: Case) -> Claimed:
    """A card is lost, and more than that one card speaks: link errors before it, or every card at once."""
    if not gpu_fallen(case).holds:
        return no()
    fallen = {gpu for _, gpu in xid_counts(case, 79)} | {m.gpu for m in messages(case, "fallen_off_bus")}
    if together := _all_at_once(case, fallen - {""}):
        return yes(together)
    errors = known(case.host.machine.pcie_errors) or {}
    for address in sorted(fallen - {""}):
        count, device = errors.get(address, 0), _device(case, address)
        is_narrow = bool(device and device[0] and device[1] and device[0] * 2 < device[1])
        if count >= _LINK_ERRORS_MIN and not is_narrow:
            return yes(f"{count} PCIe error messages (AER) about {address}, which is lost, in this boot")
    return no()


def _device(case: Case, address: str) -> tuple[int | None, int | None] | None:
    found = next((d for d in case.host.gpus_on_bus if d.address == address), None)
    return (found.link_width, found.link_width_max) if found else None


def _all_at_once(case: Case, fallen: set[str]) -> str:
    """Where every GPU of a host with several was lost within a second; empty otherwise."""
    log, addresses = running_log(case), {d.address for d in case.host.gpus_on_bus}
    if log is None or len(fallen) < 2 or not addresses <= fallen:
        return ""
    times = [x.first_seconds for x in log.xids if x.code == 79 and x.first_seconds is not None]
    if len(times) < len(fallen) or max(times) - min(times) > _TOGETHER_S:
        return ""
    return f"all {len(fallen)} GPUs were lost within {max(times) - min(times):.1f} s of each other"


def power_unsound(case: Case) -> Claimed:
    """The power brake is asserted now, or a card was lost with signs of its supply."""
    brake, lost = (
        clock_limit("hw_power_brake_slowdown", "the power brake is asserted")(case),
        power_suspected(case),
    )
    return lost if lost.holds else brake
