"""One bug report with one thing changed at a time: the cause that such a report shows, or none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from doctor.core.finding import CheckReport
from doctor.core.judge import judge
from doctor.edition.load import load_matrix
from doctor.evidence.foreign import read_foreign
from doctor.facts.read import read_host

SAMPLE = (Path(__file__).parents[1] / "data" / "foreign" / "mismatch-2023.log").read_text()
RULE = "_" * 44
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running."
)
ERROR = "nv.c:12:3: error: too few arguments\nmake: *** [Makefile:82: modules] Error 2\n"
OPTION = "gcc: error: unrecognized command-line option '-ftrivial-auto-var-init=zero'\n"
LOCKED = (
    "[    0.000001] Kernel is locked down from EFI Secure Boot mode; see man kernel_lockdown.7\n"
    "[    6.500000] Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7\n"
)


def answer(log: str) -> CheckReport:
    return judge(read_host(read_foreign(log.encode())), load_matrix(), tool="test")


def unloaded(log: str, bound: str = "") -> str:
    """The report of a host whose module is on disk and not in memory."""
    log = RULE.join(_unloaded(section) for section in log.split(RULE))
    driver = f"\tKernel driver in use: {bound}\n" if bound else ""
    log = log.replace("\tKernel driver in use: nvidia\n", driver)
    return log.replace("Failed to initialize NVML: Driver/library version mismatch", NO_DRIVER)


def _unloaded(section: str) -> str:
    if "\n*** /proc/driver/nvidia/./version\n" in section:
        return "\n\n*** /proc/driver/nvidia/./version does not exist\n\n"
    if "\n*** /proc/modules\n" in section:
        return re.sub(r"nvidia.*\n", "", section)
    if "\ndmesg:\n" in section:
        return re.sub(r"^.*(?:NVRM|nvidia).*\n", "", section, flags=re.MULTILINE)
    if "\nScanning kernel log" in section:
        section = re.sub(r"^.*NVRM: (?:API|this|make|comp).*\n", "", section, flags=re.MULTILINE)
        return re.sub(r"(journalctl -b -0:\n)(?:.+\n)*", r"\1", section)
    return section


def without_module(log: str) -> str:
    """…and whose running kernel has none: modinfo is silent, and lspci knows others only."""
    log = re.sub(r"vermagic: .*\n", "", log)
    return log.replace(
        "Kernel modules: nvidiafb, nouveau, nvidia_drm, nvidia", "Kernel modules: nvidiafb, nouveau"
    )


def without(log: str, *words: str) -> str:
    """Without the sections whose title holds one of these words."""
    return RULE.join(s for s in log.split(RULE) if not any(w in s.strip().split("\n")[0] for w in words))


def never_loaded(log: str) -> str:
    return log.replace("NVRM: loading NVIDIA", "NVRM: something")


def failed(log: str, error: str = ERROR) -> str:
    return without_module(unloaded(log)).replace("  LD [M]  /var", f"{error}  LD [M]  /var")


def in_ring(log: str, lines: str) -> str:
    return log.replace("[    6.600000] Bluetooth", f"{lines}[    6.600000] Bluetooth")


BARE = without(without_module(unloaded(SAMPLE)), "make.log")

CASES: dict[str, tuple[str, str]] = {
    "as it is": (SAMPLE, "driver.userspace_kernel_mismatch"),
    "unsigned, locked down": (in_ring(unloaded(SAMPLE), LOCKED), "driver.module_signature_rejected"),
    "nouveau has the card, a module is there": (unloaded(SAMPLE, "nouveau"), "driver.nouveau_bound"),
    # Whether the kernel asks for signatures, and whether the module has one, such a report does not say.
    "the same with Secure Boot": (
        unloaded(SAMPLE, "nouveau").replace("Secure boot disabled", "Secure boot enabled"),
        "unknown",
    ),
    "the build failed": (failed(SAMPLE), "driver.dkms_build_failed"),
    "the build failed over the compiler": (
        failed(SAMPLE, OPTION + ERROR).replace(
            "gcc (Ubuntu 11.2.0-19ubuntu1) 11.2.0", "gcc-12 (Ubuntu) 12.3.0"
        ),
        "driver.compiler_mismatch",
    ),
    "built for another kernel": (
        without_module(unloaded(SAMPLE)).replace("525.125.06/5.15.0-46", "525.125.06/5.15.0-48"),
        "driver.module_not_built_for_running_kernel",
    ),
    "loaded by an earlier boot, never through dkms": (BARE, "driver.module_not_built_for_running_kernel"),
    "no trace of a driver": (
        never_loaded(without(BARE, "application-profiles")),
        "driver.not_installed",
    ),
    "no trace of a driver, nouveau": (
        never_loaded(
            without(without_module(unloaded(SAMPLE, "nouveau")), "make.log", "application-profiles")
        ),
        "driver.not_installed",
    ),
    "user space without any module": (never_loaded(BARE), "unknown"),
    "removed since the boot before": (without(BARE, "application-profiles"), "unknown"),
    "gone from the bus": (SAMPLE.replace("(rev a1)", "(rev ff)"), "gpu.fallen_off_bus"),
    "no card": (re.sub(r"0000:41:00\.0 3D.*\n(?:\t.*\n)*", "", SAMPLE), "system.no_nvidia_gpu"),
    "no listing of the bus": (without(unloaded(SAMPLE), "lspci"), "unknown"),
}


@pytest.mark.parametrize("name", CASES)
def test_first_cause(name: str) -> None:
    log, expected = CASES[name]
    causes = answer(log).causes
    assert (causes[0].id if causes else "none") == expected, [(c.id, c.tied_with, c.findings) for c in causes]


def test_a_report_that_was_cut_never_names_what_the_whole_one_does_not() -> None:
    """Cut after any section, an answer may be open; it does not turn into another cause."""
    allowed = {"driver.userspace_kernel_mismatch", "unknown"}
    sections = SAMPLE.split(RULE)
    for length in range(2, len(sections)):
        causes = answer(RULE.join(sections[:length])).causes
        assert {c.id for c in causes} <= allowed, (length, causes)


@pytest.mark.parametrize(
    "words", ["lspci", "modinfo", "dmesg", "Scanning", "/proc/modules", "nvidia-smi", "make.log", "profiles"]
)
def test_a_report_without_a_section_claims_no_other_cause(words: str) -> None:
    for name, (log, expected) in CASES.items():
        causes = {c.id for c in answer(without(log, words)).causes[:1]}
        assert causes <= {expected, "unknown", *EXCUSED.get(name, ())}, (name, causes)


#: Without the section that decides, what is left shows another cause, or the more general one.
EXCUSED = {
    "user space without any module": ("driver.not_installed",),
    "removed since the boot before": ("driver.not_installed",),
    "the build failed": ("driver.module_not_built_for_running_kernel",),
    "the build failed over the compiler": (
        "driver.module_not_built_for_running_kernel",
        "driver.dkms_build_failed",
    ),
    "built for another kernel": ("driver.not_installed",),
    "gone from the bus": ("driver.userspace_kernel_mismatch",),
    "no card": ("driver.userspace_kernel_mismatch",),
}
