"""Claims about the PCI bus: cards, bindings, BARs, cards that are gone."""

from __future__ import annotations

from doctor.core.check import Case
from doctor.core.claims.claimed import UNTOLD, Claimed, either, no, yes
from doctor.core.host import Known, PciDevice
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
    bound, complete = _bound_to(case, "nouveau", "nova", "nova_core")
    if bound:
        return yes(f"{bound[0].address} is bound to `{bound[0].driver}`")
    return no() if complete else UNTOLD


def vfio_bound_all(case: Case) -> Claimed:
    bound, complete = _bound_to(case, "vfio-pci")
    if not complete:
        return UNTOLD
    return either(len(bound) == len(case.host.gpus_on_bus), "every NVIDIA GPU is bound to `vfio-pci`")


def gpu_not_responding(case: Case) -> Claimed:
    gone = [d.address for d in case.host.gpus_on_bus if d.is_responding is False]
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


def bar_unmapped(case: Case) -> Claimed:
    said = next(messages(case, "bar"), None)
    if said:
        return yes(f"kernel: {said.text}")
    # BAR 1 is the framebuffer aperture on every GPU since Fermi.
    sizes = [d.bar_bytes for d in case.host.gpus_on_bus]
    if not sizes or any(len(s) < 2 for s in sizes):
        return UNTOLD
    bad = [d.address for d in case.host.gpus_on_bus if d.bar_bytes[1] == 0]
    return either(bool(bad), f"BAR 1 of {', '.join(bad)} is not mapped")


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
        return gone
    if said.holds:
        back = working_gpus(case)
        missing = [d.address for d in case.host.gpus_on_bus if d.address not in back]
        return either(bool(missing) or not case.host.gpus_on_bus, said.because)
    return no() if gone.holds is False and said.holds is False else UNTOLD
