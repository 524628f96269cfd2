"""Checks of the GPUs themselves: on the bus, memory, heat, power, link, pending modes, what they ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from doctor.core.check import Case, Outcome, check, failed, passed, skipped, unknown, warned
from doctor.core.checks.applies import answering, on_gpu_host
from doctor.core.host import Gpu, PciDevice
from doctor.core.views import messages, report, working_gpus, xid_counts

__all__ = ["CHECKS"]

_ANSWER = ("driver.nvml|driver.smi",)
_ON = (on_gpu_host, answering)


def _each(case: Case, judge_one: Callable[[Gpu], Outcome]) -> Iterator[Outcome]:
    answered = report(case)
    if answered is None:
        yield skipped("neither NVML nor nvidia-smi is there")
        return
    for gpu in answered.gpus:
        yield judge_one(gpu)


@check("gpu.on_bus", "GPU answers on the bus", applies=(on_gpu_host,))
def on_bus(case: Case) -> Iterator[Outcome]:
    """Config space that reads all ones, or an Xid 79 of this boot, means that the card is gone."""
    fallen = {gpu: count for (_, gpu), count in xid_counts(case, 79).items()}
    said = {m.gpu for m in messages(case, "fallen_off_bus") if m.gpu}
    devices = {d.address: d for d in case.host.gpus_on_bus}
    working = working_gpus(case)
    for address in sorted({*devices, *fallen, *said}):
        is_fallen = address in fallen or address in said
        if is_fallen and address in working and devices.get(address, _NO_DEVICE).is_responding is not False:
            why = ("it fell off the bus earlier in this boot and answers again: cause not known",)
            yield warned("the driver lists it", subject=address, wanted="no loss in this boot", why=why)
        else:
            yield _bus_outcome(devices.get(address), address, is_fallen=is_fallen)


_NO_DEVICE = PciDevice(address="", device_id="", class_code="", driver=None)


def _bus_outcome(device: PciDevice | None, address: str, *, is_fallen: bool) -> Outcome:
    wanted = "the card answers"
    if device is not None and device.is_responding is False:
        return failed("its config space reads all ones", subject=address, wanted=wanted)
    if is_fallen:
        return failed("the kernel says that it has fallen off the bus", subject=address, wanted=wanted)
    if device is not None and device.is_responding is None:
        return passed("its config space was not read", subject=address)
    return passed(subject=address)


@check("gpu.bars", "memory windows mapped", needs=("pci",), applies=(on_gpu_host,))
def bars(case: Case) -> Iterator[Outcome]:
    """BAR 1, the window into GPU memory, must have an address; a GPU that works proves that it does."""
    working = working_gpus(case)
    said = next(messages(case, "bar"), None)
    for device in case.host.gpus_on_bus:
        unmapped = len(device.bar_bytes) > 1 and device.bar_bytes[1] == 0
        if device.address in working:
            yield passed("the GPU works", subject=device.address)
        elif unmapped or (said is not None and said.gpu in ("", device.address)):
            found = "BAR 1 has no address" if unmapped else (said.text if said else "")
            yield failed(found, subject=device.address, wanted="every memory window mapped")
        elif len(device.bar_bytes) < 2:
            yield unknown("its resources were not read", subject=device.address)
        else:
            yield passed(f"BAR 1 is {device.bar_bytes[1] // 1024**2} MiB", subject=device.address)


@check("gpu.in_matrix", "GPU known to the matrix", needs=("pci",), applies=(on_gpu_host,))
def in_matrix(case: Case) -> Iterator[Outcome]:
    """An id that the matrix lacks is newer than the matrix, or rare: never *unsupported*."""
    for device in case.host.gpus_on_bus:
        row = case.matrix.gpu(device.device_id)
        if row is None:
            name = case.matrix.edition.name
            text = f"{device.device_id} is not in matrix {name}: newer than it, or not recorded"
            yield unknown(text, subject=device.address)
        elif row.confidence == "unverified":
            yield passed(row.name, subject=device.address, why=("this row is unverified",))
        else:
            yield passed(row.name, subject=device.address)


@check("gpu.row_remap", "memory rows repaired", needs=_ANSWER, applies=_ON)
def row_remap(case: Case) -> Iterator[Outcome]:
    """A pending remap waits for a reset; a failed one ends repair. A few remapped rows are normal."""

    def one(gpu: Gpu) -> Outcome:
        if gpu.remap_failure:
            return failed(
                "row remapping failed", subject=gpu.pci_address, wanted="no row that cannot be repaired"
            )
        if gpu.remap_pending or gpu.retired_pages_pending:
            what = "a row remap" if gpu.remap_pending else "a page retirement"
            return failed(f"{what} waits for a GPU reset", subject=gpu.pci_address, wanted="nothing pending")
        rows = (gpu.remapped_rows_correctable or 0) + (gpu.remapped_rows_uncorrectable or 0)
        return passed(f"{rows} row(s) remapped, nothing pending" if rows else "", subject=gpu.pci_address)

    yield from _each(case, one)


@check("gpu.ecc", "no uncorrected memory errors", needs=_ANSWER, applies=_ON)
def ecc(case: Case) -> Iterator[Outcome]:
    """Uncorrected errors since the driver was loaded. Corrected ones are what ECC is for."""

    def one(gpu: Gpu) -> Outcome:
        count = gpu.ecc_uncorrected_volatile
        if count:
            return warned(
                f"{count} uncorrected error(s) since the driver was loaded",
                subject=gpu.pci_address,
                wanted="none",
                why=("work that used that memory was lost; see `gpu.row_remap` for what follows",),
            )
        return passed("none" if count == 0 else "no ECC counters", subject=gpu.pci_address)

    yield from _each(case, one)


@check("gpu.pending_modes", "no mode change pending", needs=_ANSWER, applies=_ON)
def pending_modes(case: Case) -> Iterator[Outcome]:
    """ECC and MIG modes that were set and wait for a reset."""

    def one(gpu: Gpu) -> Outcome:
        pending = []
        if gpu.ecc_mode_pending is not None and gpu.ecc_mode_pending != gpu.ecc_mode:
            pending.append("ECC")
        if gpu.mig_mode_pending is not None and gpu.mig_mode_pending != gpu.mig_mode:
            pending.append("MIG")
        if pending:
            text = f"a change of {' and '.join(pending)} mode waits for a GPU reset"
            return warned(text, subject=gpu.pci_address, wanted="current and pending modes equal")
        return passed(subject=gpu.pci_address)

    yield from _each(case, one)


@check("gpu.temperature", "not throttled by heat", needs=_ANSWER, applies=_ON)
def temperature(case: Case) -> Iterator[Outcome]:
    """Hardware thermal slowdown now means that cooling does not keep up; the software one comes first."""

    def one(gpu: Gpu) -> Outcome:
        heat = f"{gpu.temperature_c} °C" if gpu.temperature_c is not None else ""
        if "hw_thermal_slowdown" in gpu.clock_limits:
            text = f"hardware thermal slowdown is active{', ' + heat if heat else ''}"
            return failed(text, subject=gpu.pci_address, wanted="no thermal slowdown")
        if "sw_thermal_slowdown" in gpu.clock_limits:
            text = f"the driver lowers the clocks for heat{', ' + heat if heat else ''}"
            return warned(text, subject=gpu.pci_address, wanted="no thermal slowdown")
        return passed(heat, subject=gpu.pci_address)

    yield from _each(case, one)


@check("gpu.power", "power as designed", needs=_ANSWER, applies=_ON)
def power(case: Case) -> Iterator[Outcome]:
    """The power brake is the platform's emergency signal; a lowered limit is a choice and only noted."""

    def one(gpu: Gpu) -> Outcome:
        if "hw_power_brake_slowdown" in gpu.clock_limits:
            text = "the platform asserts the power brake: clocks are cut"
            return failed(text, subject=gpu.pci_address, wanted="no power brake")
        limit, usual = gpu.power_limit_w, gpu.power_limit_default_w
        if limit and usual and limit < usual:
            note = ("speed under load follows the limit; somebody chose it",)
            return passed(f"limit {limit:g} W, default {usual:g} W", subject=gpu.pci_address, why=note)
        return passed(f"limit {limit:g} W" if limit else "", subject=gpu.pci_address)

    yield from _each(case, one)


@check("gpu.recovery_action", "the driver asks for nothing", needs=_ANSWER, applies=_ON)
def recovery_action(case: Case) -> Iterator[Outcome]:
    """The driver's own word on what the GPU needs before it can work again."""

    def one(gpu: Gpu) -> Outcome:
        action = (gpu.recovery_action or "").lower()
        if action and action != "none":
            return failed(
                f"the driver asks for `{action}`", subject=gpu.pci_address, wanted="no recovery action"
            )
        return passed(action, subject=gpu.pci_address)

    yield from _each(case, one)


@check("gpu.pcie_link", "PCIe link as wide as the card", needs=("pci",), applies=(on_gpu_host,))
def pcie_link(case: Case) -> Iterator[Outcome]:
    """Width does not change at rest, so a narrow one is real. Speed drops at rest by design."""
    for device in case.host.gpus_on_bus:
        width, most = device.link_width, device.link_width_max
        # 255 and 0 are what a virtual root port or a sleeping device shows.
        if not width or not most or not 0 < width <= 32 or not 0 < most <= 32:
            yield skipped("the platform does not tell", subject=device.address)
        elif width < most:
            why = ("slot, riser or bifurcation set the width; the card could do more",)
            yield warned(f"x{width}", subject=device.address, wanted=f"x{most}", why=why)
        else:
            yield passed(_speed_words(device), subject=device.address)


def _speed_words(device: PciDevice) -> str:
    words = f"x{device.link_width}"
    now, most = device.link_speed_gts, device.link_speed_max_gts
    if now and most and now < most:
        return f"{words} at {now:g} GT/s of {most:g}: links slow down at rest"
    return f"{words} at {now:g} GT/s" if now else words


CHECKS = (
    on_bus,
    bars,
    in_matrix,
    row_remap,
    ecc,
    pending_modes,
    temperature,
    power,
    recovery_action,
    pcie_link,
)
