"""The check that the driver lists every GPU of the host, and says of each one that is missing why."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.core.check import Case, Outcome, check, failed, passed, skipped, unknown, warned
from doctor.core.checks.applies import on_gpu_host, on_own_kernel, with_module
from doctor.core.claims.listed import (
    HANDED_OVER,
    NOUVEAU,
    down_by_log,
    excluded_by_option,
    is_beside,
    why_hidden,
)
from doctor.core.host import Absent, GpuReport, PciDevice, known
from doctor.core.views import (
    card_name,
    cut_short,
    log_is_whole,
    named_in,
    names_gpu,
    report,
    working_gpus,
)

__all__ = ["gpu_count", "is_table"]

_NOT_LISTED = "the driver does not list it"


@check(
    "driver.gpu_count",
    "every GPU on the bus is usable",
    needs=("driver.nvml|driver.smi",),
    applies=(on_gpu_host, on_own_kernel, with_module),
)
def gpu_count(case: Case) -> Iterator[Outcome]:
    """The driver lists each GPU that is bound to it."""
    answered = report(case)
    if answered is None or answered.error:
        yield skipped("NVML does not answer")
    elif isinstance(case.host.pci, Absent):
        yield from _compare_with_log(case, answered, case.host.pci)
    else:
        bound = [d for d in case.host.gpus_on_bus if d.driver not in HANDED_OVER | NOUVEAU]
        yield from _compare_counts(case, answered, bound)


def is_table(case: Case, answered: GpuReport) -> bool:
    """True for the table of plain nvidia-smi: it names the driver, and its GPUs are not read from it."""
    says_nothing = not (answered.gpus or answered.device_errors or answered.error)
    return says_nothing and answered is known(case.host.driver.smi)


def _compare_with_log(case: Case, answered: GpuReport, why: Absent) -> Iterator[Outcome]:
    """Where the bus was not read: what the driver calls lost, what the kernel refused or could not start."""
    errors = {address: error for error in answered.device_errors for address in named_in(error)}
    said = down_by_log(case)
    for address in sorted(errors):
        yield _named_outcome(errors[address], address, "it works")
    for address in sorted(set(said) - set(errors)):
        yield failed(_NOT_LISTED, subject=address, wanted="it starts", why=(said[address],))
    for error in answered.device_errors:
        if not named_in(error) and "lost" in error.lower():
            yield failed(error, subject=error.partition(":")[0], wanted="it works")
    text = f"{len(answered.gpus)} listed; the PCI bus was not read"
    yield unknown(text, why=(why.detail or why.reason,))


def _named_outcome(error: str, address: str, wanted: str) -> Outcome:
    """A GPU that the driver names in an error: a refusal to this user says nothing about the card."""
    if "permission" in error.lower():
        text = "this user may not open it"
        return unknown(text, subject=address, wanted=wanted, why=(error,), critical=True)
    return failed("the driver cannot use it", subject=address, wanted=wanted, why=(error,))


def _compare_counts(case: Case, answered: GpuReport, bound: list[PciDevice]) -> Iterator[Outcome]:
    listed = {g.pci_address for g in answered.gpus}
    if any(not g.pci_address and not g.errors for g in answered.gpus) or is_table(case, answered):
        yield unknown(f"{len(answered.gpus)} listed, {len(bound)} on the bus: addresses were not told")
        return
    working = working_gpus(case)
    lost = [d for d in bound if d.address not in working]
    for device in lost:
        yield _not_listed(case, answered, device, len(lost))
    if not lost:
        yield passed(f"{len(listed)} of {len(bound)}")


def _not_listed(case: Case, answered: GpuReport, device: PciDevice, lost: int) -> Outcome:
    wanted, errors = f"{card_name(case, device)} usable", answered.device_errors
    refused = [error for error in errors if "permission" in error.lower()]
    own = next((error for error in errors if names_gpu(error, device.address)), "")
    own = own or (refused[0] if len(refused) >= lost and not any(map(named_in, errors)) else "")
    option = excluded_by_option(case, lost)
    if option:
        return skipped(f"the driver was told to leave GPUs out: {option}", subject=device.address)
    if own:
        return _named_outcome(own, device.address, wanted)
    if cut_short(answered) or not answered.is_complete:
        why = errors or ("the listing was cut, filtered or asked for some GPUs only",)
        return unknown(_NOT_LISTED, subject=device.address, wanted=wanted, why=why)
    if not answered.gpus and any(map(named_in, errors)):
        text = "nvidia-smi stopped at another GPU and lists none"
        return unknown(text, subject=device.address, wanted=wanted, why=errors)
    if is_beside(case, device):
        why = ("other GPUs work: it may be for the screen, or unused", *errors)
        return warned(_NOT_LISTED, subject=device.address, wanted=wanted, why=why)
    if hidden := why_hidden(case, answered, device):
        # A whole log without a word against it leaves little room for a fault.
        is_open = not log_is_whole(case)
        return unknown(_NOT_LISTED, subject=device.address, wanted=wanted, why=(hidden,), critical=is_open)
    return failed(_NOT_LISTED, subject=device.address, wanted=wanted, why=errors)
