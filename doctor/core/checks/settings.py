"""Checks of how the driver is set up: options, GSP firmware, known faults of the release, its origin."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.core.check import Case, Outcome, check, passed, skipped, unknown, warned
from doctor.core.checks.applies import answering, not_jetson, not_wsl, on_gpu_host, on_own_kernel, with_module
from doctor.core.checks.told import fact_untold
from doctor.core.claims.events import known_bug
from doctor.core.claims.setup import driver_vendors, repositories_mixed
from doctor.core.host import Gpu, ModprobeLine, known
from doctor.core.versions import Dotted
from doctor.core.views import report, same_version

__all__ = ["CHECKS"]

_HERE = (on_gpu_host, on_own_kernel)

#: Options of `nvidia` worth telling when they are set away from their default, and what follows.
_NOTABLE = {
    "EnableMSI": ("1", "the GPU interrupts by a shared line: slower, and in a crowd unsafe"),
    "RegistryDwords": (
        "",
        "keys of the driver's registry are set by hand: they change what no document says",
    ),
    "ExcludedGpus": ("", "the driver leaves these GPUs out"),
    "EnableGpuFirmware": ("18", "GSP firmware was switched by hand; the open modules always run with it"),
    "EnablePCIERelaxedOrderingMode": ("0", "PCIe ordering was relaxed by hand"),
    "OpenRmEnableUnsupportedGpus": ("1", "the open modules were told to leave some GPUs alone"),
}


@check(
    "driver.known_bug",
    "no known fault of this release",
    needs=("driver.kernel_version",),
    applies=(*_HERE, with_module),
)
def known_fault(case: Case) -> Iterator[Outcome]:
    """Faults that a later release of the branch mends. One that shows in this boot is a warning."""
    driver, shows = known(case.host.driver.kernel_version), known_bug(case)
    if driver is None:
        yield skipped("no driver version is known")
        return
    bugs = case.matrix.driver_bugs(driver)
    for bug in bugs:
        fixed = next((str(r.fixed_in) for r in bug.ranges if r.branch == driver.major and r.fixed_in), "")
        text = f"driver {driver}: {bug.title}"
        wanted = f"driver {fixed} or newer" if fixed else "another branch"
        if shows and shows[0].id == bug.id:
            why = tuple(filter(None, (shows[1], bug.workaround, bug.source[0])))
            yield warned(text, subject=bug.id, wanted=wanted, why=why)
        else:
            why = ("nothing of it shows in what was read of this boot", bug.source[0])
            yield passed(f"{text}; mended in {fixed or 'another branch'}", subject=bug.id, why=why)
    if not bugs:
        yield passed(f"none of {driver} in matrix {case.matrix.edition.name}")


@check(
    "driver.gsp_firmware",
    "GSP firmware of the driver's version",
    needs=("driver.nvml|driver.smi",),
    applies=(on_gpu_host, answering, not_wsl, not_jetson),
)
def gsp_firmware(case: Case) -> Iterator[Outcome]:
    """Where a GPU runs with firmware of its own, that is the driver's; the open modules cannot do without."""
    answered, driver = report(case), known(case.host.driver.kernel_version)
    driver = driver or (answered.driver_version if answered else None)
    for gpu in answered.gpus if answered else ():
        if driver is None:
            fact, words = case.host.driver.kernel_version, "the driver has no version to compare"
            yield fact_untold(fact, "the driver's version", absent=words, subject=gpu.pci_address)
        else:
            yield _firmware_outcome(gpu, driver)


def _firmware_outcome(gpu: Gpu, driver: Dotted) -> Outcome:
    words = (gpu.gsp_firmware or "").strip()
    if not words[:1].isdigit():
        text = "it runs without GSP firmware" if words.upper() == "N/A" else "not told"
        return skipped(text, subject=gpu.pci_address)
    if same_version(Dotted(words), driver):
        return passed(words, subject=gpu.pci_address)
    why = ("module and firmware are loaded together: one of the two was exchanged on disk since",)
    return warned(words, subject=gpu.pci_address, wanted=f"GSP firmware {driver}", why=why)


@check(
    "driver.module_parameters",
    "options of the module",
    needs=("driver.parameters",),
    applies=(*_HERE, with_module),
)
def module_parameters(case: Case) -> Iterator[Outcome]:
    """Options in force that are not the default and may explain what somebody wonders about. Information."""
    values = known(case.host.driver.parameters) or {}
    told = False
    for name, (usual, meaning) in _NOTABLE.items():
        value = values.get(name, usual).strip().strip('"')
        if value != usual and value:
            told = True
            yield passed(f"{name}={value[:80]}", subject=name, why=(meaning,))
    if not told:
        yield passed("defaults") if values else skipped("the module told none")


@check(
    "driver.options_in_force",
    "options of modprobe.d in force",
    needs=("kernel.module_options", "driver.parameters"),
    applies=(*_HERE, with_module),
)
def options_in_force(case: Case) -> Iterator[Outcome]:
    """An option takes effect when the module is loaded next: one that differs waits for that. Information."""
    values = known(case.host.driver.parameters) or {}
    waiting = [
        (line, name, value)
        for line in known(case.host.kernel.module_options) or ()
        for name, value in _options(line)
        if name in values and not _is_same(values[name], value)
    ]
    for line, name, value in waiting[:8]:
        why = (f"`{line.file}` says {value}; it takes effect when the module is loaded again",)
        yield passed(f"{name} is {values[name]}", subject=name, why=why)
    if not waiting:
        yield passed("none differs from what is loaded") if values else skipped("the module told none")


def _options(line: ModprobeLine) -> Iterator[tuple[str, str]]:
    """(name, value) of `options nvidia NVreg_NAME=VALUE …`, names as the driver's own list has them."""
    if line.directive == "options" and line.module == "nvidia":
        for word in line.arguments.split():
            name, is_set, value = word.partition("=")
            if is_set and name.startswith("NVreg_"):
                yield name.removeprefix("NVreg_"), value


def _is_same(one: str, other: str) -> bool:
    one, other = one.strip().strip('"'), other.strip().strip('"')
    if one == other:
        return True
    # The driver prints numbers in decimal, whatever modprobe.d has: `0x1`, and modes in octal, `0666`.
    return one.isdecimal() and int(one) in _readings(other)


def _readings(text: str) -> Iterator[int]:
    """What a number may mean: hexadecimal where it says so, else decimal, and octal where it can be."""
    head, digits = text[:2].lower(), text[2:]
    if head == "0x" and digits and all(c in "0123456789abcdef" for c in digits.lower()):
        yield int(digits, 16)
    elif text.isdecimal():
        yield int(text)
        if not set(text) - set("01234567"):
            yield int(text, 8)


@check("driver.package_origins", "driver packages from one repository", needs=("packages",), applies=_HERE)
def package_origins(case: Case) -> Iterator[Outcome]:
    """Packages of the driver by who made them: mixed ones replace each other at the next update."""
    mixed, vendors = repositories_mixed(case), driver_vendors(case)
    if mixed.holds is None:
        yield unknown("installed packages were not read")
    elif mixed.holds:
        why = ("an update of one of the repositories may replace half of the driver",)
        yield warned(mixed.because, wanted="one vendor for all of them", why=why)
    elif vendors:
        yield passed(next(iter(vendors)))
    else:
        yield skipped("the driver does not come from packages, or their vendor was not told")


CHECKS = (known_fault, gsp_firmware, module_parameters, options_in_force, package_origins)
