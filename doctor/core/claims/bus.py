"""Claims about the PCI bus: cards, bindings, BARs, cards that are gone."""

from __future__ import annotations

from doctor.core.check import Case
from doctor.core.claims.claimed import UNTOLD, Claimed, either, no, yes
from doctor.core.claims.listed import HANDED_OVER, NOUVEAU, is_beside
from doctor.core.host import Known, PciDevice
from doctor.core.pattern import pattern
from doctor.core.views import log_is_whole, messages, report, working_gpus, xid_counts


def gpu_on_bus(case: Case) -> Claimed:
    if isinstance(case.host.pci, Known):
        gpus = case.host.gpus_on_bus
        names = ", ".join(sorted({d.device_id for d in gpus}))
        return yes(f"{len(gpus)} NVIDIA GPU(s) on the PCI bus: {names}") if gpus else no()
    answered = report(case)
    return yes("the driver lists GPUs") if answered and answered.gpus else UNTOLD


def no_gpu_on_bus(case: Case) -> Claimed:
    if not isinstance(case.host.pci, Known):
        return UNTOLD
    return either(not case.host.gpus_on_bus, "the PCI bus was read and holds no NVIDIA GPU")


def _bound_to(case: Case, *drivers: str) -> tuple[list[PciDevice], bool]:
    """GPUs bound to one of these drivers, and whether every GPU's binding is known."""
    gpus = case.host.gpus_on_bus
    return [d for d in gpus if d.driver in drivers], bool(gpus) and all(d.driver is not None for d in gpus)


def nouveau_bound(case: Case) -> Claimed:
    """Nouveau has a GPU that is meant for work; one for the screen beside GPUs that work is no fault."""
    found, complete = _bound_to(case, *NOUVEAU)
    bound = [d for d in found if not is_beside(case, d)]
    if bound:
        return yes(f"{bound[0].address} is bound to `{bound[0].driver}`")
    return no() if complete else UNTOLD


def vfio_bound_all(case: Case) -> Claimed:
    bound, complete = _bound_to(case, *HANDED_OVER)
    if not complete:
        return UNTOLD
    names = ", ".join(sorted({f"`{d.driver}`" for d in bound}))
    return either(len(bound) == len(case.host.gpus_on_bus), f"every NVIDIA GPU is bound to {names}")


def is_asleep(device: PciDevice) -> bool:
    """Config space of a card without power reads all ones as well; only the power state tells."""
    return device.is_responding is False and device.power_state == "D3cold"


def gpu_not_responding(case: Case) -> Claimed:
    gone = [d.address for d in case.host.gpus_on_bus if d.is_responding is False and not is_asleep(d)]
    if gone:
        return yes(f"config space of {', '.join(gone)} reads all ones: the device is gone from the bus")
    told = case.host.gpus_on_bus and all(d.is_responding for d in case.host.gpus_on_bus)
    return no() if told else UNTOLD


def gpu_lost_said(case: Case) -> Claimed:
    lost = list(messages(case, "fallen_off_bus"))
    fallen = xid_counts(case, 79)
    if lost or fallen:
        gpu = (next(iter(fallen))[1] if fallen else lost[0].gpu) or "a GPU"
        what = "Xid 79" if fallen else "a loss from the bus"
        return yes(f"the kernel reported {what} for {gpu} in this boot")
    answered = report(case)
    if answered and any("lost" in e.lower() for e in (answered.error, *answered.device_errors)):
        return yes("the driver says that a GPU is lost")
    return no() if log_is_whole(case) else UNTOLD


def has_window(device: PciDevice) -> bool | None:
    """Whether registers and GPU memory have an address on the bus; None when that was not read.

    The memory window is BAR 1, or BAR 2 where BAR 0 is a 64-bit one and takes two places (Hopper).
    """
    if len(device.bar_bytes) < 3:
        return None
    return device.bar_bytes[0] > 0 and max(device.bar_bytes[1:3]) > 0


_MEMORY_BAR = pattern(r"\bBAR ?[0-3]\b")


def bar_fault(case: Case, device: PciDevice) -> str:
    """What says that a card's memory windows are not mapped; empty when nothing does.

    The driver's own words count. The kernel's count only where the ranges were not read: it fails to
    place I/O ports, ROMs and bridge windows on healthy hosts, and tries again.
    """
    for said in messages(case, "bar"):
        is_drivers = said.text.startswith("NVRM") and said.gpu in ("", device.address)
        is_kernels = said.gpu == device.address and _MEMORY_BAR.search(said.text)
        if is_drivers or (is_kernels and has_window(device) is None):
            return f"kernel: {said.text}"
    return "BAR 0 or BAR 1 has no address" if has_window(device) is False else ""


def bar_unmapped(case: Case) -> Claimed:
    """A card that the driver does not list has a memory window without an address."""
    working = working_gpus(case)
    if not isinstance(case.host.pci, Known):
        named = (m for m in messages(case, "bar") if m.text.startswith("NVRM") and m.gpu)
        down = next((m for m in named if m.gpu not in working), None)
        return yes(f"kernel: {down.text}") if down is not None else UNTOLD
    idle = [d for d in case.host.gpus_on_bus if d.address not in working and not is_beside(case, d)]
    faults = [f"{d.address}: {fault}" for d in idle if (fault := bar_fault(case, d))]
    if faults:
        return yes("; ".join(faults[:2]))
    told = case.host.gpus_on_bus and all(has_window(d) for d in idle)
    return no() if told else UNTOLD


def bar_said(case: Case) -> Claimed:
    said = next(messages(case, "bar"), None)
    if said:
        return yes(f"kernel: {said.text}")
    return no() if log_is_whole(case) else UNTOLD


def nvswitch_present(case: Case) -> Claimed:
    if not isinstance(case.host.pci, Known):
        return UNTOLD
    return either(any(d.is_nvswitch for d in case.host.pci.value), "NVSwitch devices are on the bus")


def gpu_fallen(case: Case) -> Claimed:
    """A card is gone now: its config space says so, or it was reported lost and the driver lacks it."""
    gone, said = gpu_not_responding(case), gpu_lost_said(case)
    if gone.holds:
        return yes(f"{gone.because}; {said.because}" if said.holds else gone.because)
    if said.holds:
        return _still_lost(case, said)
    # Every card answers on the bus: what an older part of the log would say is over.
    return no() if gone.holds is False else UNTOLD


def _still_lost(case: Case, said: Claimed) -> Claimed:
    named = {m.gpu for m in messages(case, "fallen_off_bus")} | {gpu for _, gpu in xid_counts(case, 79)}
    on_bus = {d.address: d for d in case.host.gpus_on_bus}
    missing = ((named - {""}) or set(on_bus)) - working_gpus(case)
    if missing and report(case) is None and all(a in on_bus and on_bus[a].is_responding for a in missing):
        # It answers on the bus again, and nobody asked the driver.
        return UNTOLD
    return either(bool(missing) or not on_bus, said.because)


def gsp_blocks(case: Case) -> Claimed:
    """The kernel reports a fault of GSP for a card that the driver does not list."""
    return _blocks(case, "gsp")


def firmware_missing(case: Case) -> Claimed:
    """The module did not find its firmware file, for a card that the driver does not list."""
    claimed = _blocks(case, "firmware_missing")
    # The line stands just before those that say what came of it.
    is_past = claimed.holds is None and any(True for _ in messages(case, "gsp", "init_failed"))
    return no() if is_past else claimed


def _blocks(case: Case, kind: str) -> Claimed:
    working = working_gpus(case)
    for said in messages(case, kind):
        named = {d.address for d in case.host.gpus_on_bus} & {said.gpu}
        # The driver mostly gives its own number, `GPU1`, which no other fact knows.
        if (named or {d.address for d in case.host.gpus_on_bus}) - working or not working:
            return yes(f"kernel: {said.text}")
    return no() if log_is_whole(case) else UNTOLD
