"""Checks of how the GPUs are set up and used: power state, clocks, compute mode, memory, ECC, PCIe errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from doctor.core.check import Case, Outcome, check, failed, passed, skipped, unknown, warned
from doctor.core.checks.applies import answering, not_jetson, not_wsl, on_gpu_host
from doctor.core.checks.told import gpu_untold
from doctor.core.claims.bus import is_asleep
from doctor.core.claims.setup import idles_at_work, is_laptop, is_prohibited, laptop_power_off, stuck_low
from doctor.core.host import Gpu, known
from doctor.core.views import report, working_gpus

__all__ = ["CHECKS"]

_ANSWER = ("driver.nvml|driver.smi",)
_ON = (on_gpu_host, answering)
_MIB = 1024**2
#: AER messages about one card in one boot from which on the link repeats itself often enough to cost speed.
_LINK_ERRORS_MANY = 100


def _each(case: Case, judge_one: Callable[[Gpu], Outcome]) -> Iterator[Outcome]:
    answered = report(case)
    if answered is None:
        yield skipped("neither NVML nor nvidia-smi is there")
        return
    for gpu in answered.gpus:
        yield judge_one(gpu)


@check("gpu.runtime_power", "GPU powered", needs=("pci",), applies=(on_gpu_host, not_jetson))
def runtime_power(case: Case) -> Iterator[Outcome]:
    """Hybrid graphics of a laptop take a GPU's power; one that the driver put to sleep it wakes itself."""
    off, working = laptop_power_off(case), working_gpus(case)
    for device in case.host.gpus_on_bus:
        state = device.power_state
        if device.address in working:
            note = ("it wakes when it is used",) if state.startswith("D3") else ()
            yield passed(f"power state {state}" if state else "it works", subject=device.address, why=note)
        elif off.holds and (device.address in off.because or len(case.host.gpus_on_bus) == 1):
            yield failed(off.because, subject=device.address, wanted="a GPU with power")
        elif is_asleep(device):
            text = "power state D3cold: asleep, or gone"
            yield unknown(text, subject=device.address, wanted="a GPU with power")
        elif not state:
            yield skipped("its power state was not told", subject=device.address)
        else:
            yield passed(f"power state {state}", subject=device.address)


@check("gpu.pcie_errors", "PCIe link without errors", needs=("machine.pcie_errors",), applies=(on_gpu_host,))
def pcie_errors(case: Case) -> Iterator[Outcome]:
    """Messages of PCIe error reporting (AER) about a GPU. A few are usual; many cost speed."""
    counts = known(case.host.machine.pcie_errors) or {}
    for device in case.host.gpus_on_bus:
        count = counts.get(device.address, 0)
        if count >= _LINK_ERRORS_MANY:
            why = ("look at seat, riser, cable and supply of the card before the driver",)
            text = f"{count} error messages (AER) in this boot"
            yield warned(text, subject=device.address, wanted="next to none", why=why)
        else:
            yield passed(f"{count} error messages in this boot", subject=device.address)


@check("gpu.clocks", "clocks rise with load", needs=_ANSWER, applies=_ON)
def clocks(case: Case) -> Iterator[Outcome]:
    """A GPU that is busy at its idle clocks, with no reason that the driver names."""

    def one(gpu: Gpu) -> Outcome:
        fault = stuck_low(gpu)
        if fault:
            return warned(fault, subject=gpu.pci_address, wanted="clocks that rise with the load")
        if gpu.utilisation_percent is None or gpu.clock_sm_mhz is None:
            return gpu_untold(gpu, "utilization_rates", "clock_info", words="load or clocks were not told")
        text = f"{gpu.clock_sm_mhz} MHz at {gpu.utilisation_percent} % load"
        if gpu.clock_limits is None and idles_at_work(gpu):
            return unknown(f"{text}; why the clocks are low was not told", subject=gpu.pci_address)
        return passed(text, subject=gpu.pci_address)

    yield from _each(case, one)


@check("gpu.compute_mode", "CUDA programs allowed", needs=_ANSWER, applies=_ON)
def compute_mode(case: Case) -> Iterator[Outcome]:
    """Prohibited refuses every CUDA program; exclusive takes one, so that a second worker is refused."""
    answered = report(case)
    gpus = answered.gpus if answered else ()
    is_all = bool(gpus) and all(is_prohibited(gpu) for gpu in gpus)

    def one(gpu: Gpu) -> Outcome:
        mode = (gpu.compute_mode or "").lower().replace(" ", "_")
        if is_prohibited(gpu):
            say = failed if is_all else warned
            why = ("CUDA programs are refused on it until somebody sets the mode back",)
            return say("compute mode is prohibited", subject=gpu.pci_address, wanted="default", why=why)
        if mode.startswith("exclusive"):
            why = ("it takes one CUDA process: a second one gets error 46 or 201, unless MPS shares it",)
            return passed(f"compute mode is {mode}", subject=gpu.pci_address, why=why)
        if not mode:
            return gpu_untold(gpu, "compute_mode")
        return passed(mode, subject=gpu.pci_address)

    yield from _each(case, one)


@check("gpu.memory_in_use", "memory in use", needs=_ANSWER, applies=_ON)
def memory_in_use(case: Case) -> Iterator[Outcome]:
    """How much is taken now and by whom: an engine that starts finds only the rest. Information."""

    def one(gpu: Gpu) -> Outcome:
        used, total = gpu.memory_used_bytes, gpu.memory_bytes
        if used is None or not total:
            return gpu_untold(gpu, "memory_info")
        text = f"{used // _MIB} of {total // _MIB} MiB"
        names = [f"{p.name or 'a process'} (pid {p.pid})" for p in (gpu.processes or ())[:4]]
        is_much = used * 10 > total
        why = (f"used by {', '.join(names)}",) if names else ("no process was told that holds it",)
        return passed(text, subject=gpu.pci_address, why=why if is_much else ())

    yield from _each(case, one)


@check("gpu.ecc_mode", "ECC on where the card has it", needs=_ANSWER, applies=_ON)
def ecc_mode(case: Case) -> Iterator[Outcome]:
    """Without ECC a flipped bit stays unseen. Somebody chose it: information."""

    def one(gpu: Gpu) -> Outcome:
        if gpu.ecc_mode is None:
            return gpu_untold(gpu, "ecc_mode", words="the card has no ECC, or it was not told")
        if gpu.ecc_mode:
            return passed("on", subject=gpu.pci_address)
        return passed("off", subject=gpu.pci_address, why=("memory errors of this card stay unseen",))

    yield from _each(case, one)


@check("gpu.persistence", "driver kept initialised", needs=_ANSWER, applies=(*_ON, not_wsl, not_jetson))
def persistence(case: Case) -> Iterator[Outcome]:
    """Without it the first program of each round waits until the GPU is initialised. Information."""
    unit = next(
        (u for u in known(case.host.system.units) or () if u.name.startswith("nvidia-persistenced")), None
    )
    is_daemon = unit is not None and unit.active == "active"
    for gpu in answered.gpus if (answered := report(case)) else ():
        if gpu.persistence_mode is None and not is_daemon:
            yield gpu_untold(gpu, "persistence_mode")
        elif gpu.persistence_mode or is_daemon:
            yield passed("on", subject=gpu.pci_address)
        else:
            why = (
                ()
                if is_laptop(case)
                else ("while nothing holds the GPU, each start takes some seconds more",)
            )
            yield passed("off", subject=gpu.pci_address, why=why)


CHECKS = (runtime_power, pcie_errors, clocks, compute_mode, memory_in_use, ecc_mode, persistence)
