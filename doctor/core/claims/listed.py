"""Which GPUs the driver lists, and why one may be missing from its list without being broken."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.core.check import Case
from doctor.core.host import GpuReport, KernelMessage, PciDevice, known
from doctor.core.pattern import pattern
from doctor.core.views import messages, report, working_gpus, xid_counts

__all__ = [
    "HANDED_OVER",
    "NOUVEAU",
    "REFUSALS",
    "down_by_log",
    "excluded_by_option",
    "faults_of",
    "is_beside",
    "why_hidden",
]

#: Drivers that hold a GPU for a virtual machine; the host itself does not use it then.
HANDED_OVER = frozenset(
    (
        "vfio-pci",
        "pci-stub",
        "pciback",
        "xen-pciback",
        "nvgrace-gpu-vfio-pci",
        "nvgrace_gpu_vfio_pci",
        "nvidia-vgpu-vfio",
        "nvidia_vgpu_vfio",
    )
)
NOUVEAU = frozenset(("nouveau", "nova", "nova_core"))

#: The module's word that it will not drive a card: it has nothing to do with the card's health.
REFUSALS = ("open_modules_required", "unsupported_gpu", "legacy_gpu")
_FAULTS = ("init_failed", "fallen_off_bus", "gsp", "firmware_missing", "bar")
#: Xids after which a card may be out of service until it is reset.
_FAULT_XIDS = (48, 62, 64, 74, 79, 95, 119, 120, 140, 143, 154)


def faults_of(case: Case, device: PciDevice) -> Iterator[KernelMessage]:
    """What the kernel said in this boot that may be about a fault of this card.

    The driver mostly gives a number of its own, `GPU1`, that no other fact knows: it may mean any card.
    """
    for message in messages(case, *_FAULTS):
        is_nameless = not message.gpu and message.text.startswith("NVRM")
        if message.gpu == device.address or is_nameless:
            yield message


def down_by_log(case: Case) -> dict[str, str]:
    """Cards that the driver does not list and would not or could not start in this boot, by its own words.

    For where the bus was not read: what the driver said there is the only list of cards that should be there.
    """
    kinds = ("init_failed", "firmware_missing", "bar", *REFUSALS)
    working, said = working_gpus(case), dict[str, str]()
    for message in messages(case, *kinds):
        is_drivers = message.kind != "bar" or message.text.startswith("NVRM")
        if message.gpu and is_drivers and message.gpu not in working:
            said[message.gpu] = message.text
    return said


def is_beside(case: Case, device: PciDevice) -> bool:
    """True for a card that serves the screen, or nothing, on a host whose working GPUs are of other ids.

    Either the matrix lacks it, or it is a display card that is no card for inference, beside cards
    without outputs or left to nouveau. One that the driver took and could not start is broken instead.
    Where nobody asked the driver, the cards bound to it stand for those that work.
    """
    used = _used(case)
    if not used or device.device_id in {d.device_id for d in used.values()} or device.address in used:
        return False
    if case.matrix.gpu(device.device_id) is None:
        return True
    is_for_inference = case.matrix.product(device.device_id) is not None
    if is_for_inference or device.driver == "nvidia" or not _is_display(device):
        return False
    if any(m.gpu == device.address for m in faults_of(case, device)):
        return False
    return device.driver in NOUVEAU or not any(map(_is_display, used.values()))


def _used(case: Case) -> dict[str, PciDevice]:
    """The GPUs that work, or stand for those that do, by address."""
    if "used" not in case.memo:
        working, is_asked = working_gpus(case), report(case) is not None
        case.memo["used"] = {
            d.address: d
            for d in case.host.gpus_on_bus
            if d.address in working or (not is_asked and d.driver == "nvidia")
        }
    used: dict[str, PciDevice] = case.memo["used"]
    return used


def _is_display(device: PciDevice) -> bool:
    return device.class_code.startswith("0300")


#: An error of the driver about some GPU, and not about a call that has nothing to do with one.
_ABOUT_A_GPU = pattern(r"handle|index|\blost\b|ERR!", re.IGNORECASE)
#: Set inside a job of Slurm, PBS or LSF.
_JOB_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")


def why_hidden(case: Case, answered: GpuReport, device: PciDevice) -> str:
    """Why the process that asked may not see a card that nothing speaks against; empty when it should.

    NVML and CUDA leave out what a device cgroup closes, without an error.
    """
    speaks_against = device.is_responding is False or any(True for _ in faults_of(case, device))
    has_xid = any(gpu == device.address for _, gpu in xid_counts(case, *_FAULT_XIDS))
    if speaks_against or has_xid or device.driver not in ("nvidia", None):
        return ""
    if any(_ABOUT_A_GPU.search(error) for error in answered.device_errors):
        return ""
    job = next((name for name in _JOB_VARIABLES if case.host.system.environment.get(name)), "")
    if job:
        return f"`{job}` is set: a job sees the GPUs that it was given"
    if case.host.collection.root is False:
        return "not asked as root: a job or a device cgroup may hide it from this user"
    return ""


def excluded_by_option(case: Case, lost: int) -> str:
    """The module's option that leaves out as many GPUs as are missing; empty when there is none."""
    excluded = (known(case.host.driver.parameters) or {}).get("ExcludedGpus", "").strip('" ')
    return f"ExcludedGpus={excluded}" if excluded and lost <= len(excluded.split(",")) else ""
