"""Checks of the GPUs themselves: on the bus, memory, heat, power, link, pending modes, what they ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from doctor.core.check import Case, Outcome, check, failed, passed, skipped, unknown, warned
from doctor.core.checks.applies import answering, on_gpu_host
from doctor.core.checks.told import gpu_untold
from doctor.core.claims.bus import bar_fault, has_window, is_asleep
from doctor.core.host import Gpu, PciDevice
from doctor.core.views import messages, report, working_gpus, xid_counts
from doctor.core.xids import is_action

__all__ = ["CHECKS"]

_ANSWER = ("driver.nvml|driver.smi",)
_ON = (on_gpu_host, answering)
#: NVML's calls, by their newer and older names.
_REASONS = ("current_clocks_event_reasons", "current_clocks_throttle_reasons")
_ACTIONS = ("gpu_recovery_action", "recovery_action")


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
        device = devices.get(address, _NO_DEVICE)
        if is_fallen and device.is_responding is not False:
            yield _fallen_outcome(case, device, address, works=address in working)
        else:
            yield _bus_outcome(device, address, is_fallen=is_fallen, works=address in working)


_NO_DEVICE = PciDevice(address="", device_id="", class_code="", driver=None)


def _fallen_outcome(case: Case, device: PciDevice, address: str, *, works: bool) -> Outcome:
    """A card that the kernel called lost in this boot, and whose config space does not say so now."""
    said, wanted = "the kernel says that it has fallen off the bus", "no loss in this boot"
    if works:
        why = ("it fell off the bus earlier in this boot and answers again: cause not known",)
        return warned("the driver lists it", subject=address, wanted=wanted, why=why)
    if device.is_responding and report(case) is None:
        why = ("its config space answers; whether the driver lists it was not read",)
        return unknown(said, subject=address, wanted=wanted, why=why)
    return failed(said, subject=address, wanted=wanted)


def _bus_outcome(device: PciDevice, address: str, *, is_fallen: bool, works: bool) -> Outcome:
    wanted = "the card answers"
    if is_asleep(device) and not is_fallen:
        text = "its config space reads all ones in power state D3cold: asleep, or gone"
        return unknown(text, subject=address, wanted=wanted)
    if device.is_responding is False:
        return failed("its config space reads all ones", subject=address, wanted=wanted)
    if device.is_responding is None and not works:
        return unknown("its config space was not read", subject=address, wanted=wanted)
    return passed("the driver lists it" if works else "its config space answers", subject=address)


@check("gpu.bars", "memory windows mapped", needs=("pci",), applies=(on_gpu_host,))
def bars(case: Case) -> Iterator[Outcome]:
    """BAR 1, the window into GPU memory, must have an address; a GPU that works proves that it does."""
    working, wanted = working_gpus(case), "every memory window mapped"
    for device in case.host.gpus_on_bus:
        if device.address in working:
            yield passed("the GPU works", subject=device.address)
        elif fault := bar_fault(case, device):
            yield failed(fault, subject=device.address, wanted=wanted)
        elif has_window(device) is None:
            yield unknown("its resources were not read", subject=device.address, wanted=wanted)
        else:
            size = max(device.bar_bytes[1:3]) // 1024**2
            yield passed(f"the memory window is {size} MiB", subject=device.address)


@check("gpu.in_matrix", "GPU known to the matrix", needs=("pci",), applies=(on_gpu_host,))
def in_matrix(case: Case) -> Iterator[Outcome]:
    """An id that the matrix lacks is newer than the matrix, or rare: never *unsupported*."""
    for device in case.host.gpus_on_bus:
        row = case.matrix.gpu(device.device_id, device.subsystem_id)
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
        told = (gpu.remap_failure, gpu.remap_pending, gpu.retired_pages_pending)
        if all(one is None for one in told):
            words = "the card repairs no rows, or it was not told"
            return gpu_untold(gpu, "remapped_rows", "retired_pages_pending_status", words=words)
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
        if count is None:
            return gpu_untold(
                gpu, "total_ecc_errors", words="the card has no ECC counters, or it was not told"
            )
        return passed("none", subject=gpu.pci_address)

    yield from _each(case, one)


@check("gpu.pending_modes", "no mode change pending", needs=_ANSWER, applies=_ON)
def pending_modes(case: Case) -> Iterator[Outcome]:
    """ECC and MIG modes that were set and wait for a reset."""

    def one(gpu: Gpu) -> Outcome:
        pairs = {
            "ECC": (gpu.ecc_mode, gpu.ecc_mode_pending),
            "MIG": (gpu.mig_mode, gpu.mig_mode_pending),
        }
        told = {name: pair for name, pair in pairs.items() if None not in pair}
        pending = [name for name, (now, then) in told.items() if now != then]
        if not told:
            return gpu_untold(
                gpu, "ecc_mode", "mig_mode", words="the card has no such modes, or it was not told"
            )
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
        if gpu.clock_limits is None:
            return gpu_untold(gpu, *_REASONS, words="what limits the clocks was not told")
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
        if gpu.clock_limits is None:
            return gpu_untold(gpu, *_REASONS, words="what limits the clocks was not told")
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
        if action.startswith("unknown_"):
            text = f"the driver answers `{action}`: newer than this edition"
            return unknown(text, subject=gpu.pci_address, wanted="no recovery action")
        if is_action(action):
            return failed(
                f"the driver asks for `{action}`", subject=gpu.pci_address, wanted="no recovery action"
            )
        if not action:
            return gpu_untold(gpu, *_ACTIONS, words="this driver cannot be asked, or it was not told")
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
        elif width * 2 == most:
            why = (
                f"the card could do x{most}; boards share the lanes of a slot between two cards by design",
            )
            yield passed(_speed_words(device), subject=device.address, why=why)
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
