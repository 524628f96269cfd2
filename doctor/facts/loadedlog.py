"""Module and GPUs as the kernel's log of this boot names them, where nobody read `/proc` and `/sys`."""

from __future__ import annotations

from collections.abc import Iterable

from doctor.core.host import BootLog, Fact, Flavour, KernelMessage, Known, PciDevice
from doctor.core.pattern import pattern
from doctor.core.versions import Dotted
from doctor.facts.source import dotted

__all__ = ["gpus_by_log", "module_by_log"]

_MISMATCH = pattern(r"this kernel module has (?:the )?version ([0-9.]{3,30}?)\.?(?:\s|$)")
_LOADING = pattern(
    r"NVRM: loading NVIDIA UNIX (Open )?.{0,60}?Kernel Module.{0,30}?\s([0-9]{3}[0-9.]{1,20})\b"
)
#: The first of the classes of displays.
_ANY_GPU = "030000"
#: After these the module leaves again: `NVRM: None of the NVIDIA devices were initialized`.
_LEAVES = ("no_devices_probed", "probe_failed", "open_modules_required", "unsupported_gpu", "legacy_gpu")


def module_by_log(
    logs: Fact[tuple[BootLog, ...]],
) -> tuple[Fact[Dotted] | None, Fact[Flavour] | None]:
    """(version, flavour) of the module that was loaded last in this boot; None where untold.

    Of one that left again there is no version; its flavour where its words of refusal tell it.
    """
    origin = logs.origin if isinstance(logs, Known) else ""
    version: Dotted | None = None
    flavour: Flavour | None = None
    for message in _current(logs):
        loading = _LOADING.search(message.text) if message.kind == "loading" else None
        mismatch = _MISMATCH.search(message.text) if message.kind == "api_mismatch" else None
        if loading is not None:
            version, flavour = dotted(loading.group(2)), "open" if loading.group(1) else "proprietary"
        elif mismatch is not None:
            version = dotted(mismatch.group(1))
        elif message.kind in _LEAVES:
            refusal = _flavour_of_refusal(message.text)
            version, flavour = None, refusal or (flavour if version is None else None)
    return (
        Known(value=version, origin=origin) if version is not None else None,
        Known(value=flavour, origin=origin) if flavour is not None else None,
    )


def _flavour_of_refusal(text: str) -> Flavour | None:
    """Each flavour names itself, or the other one that a GPU needs."""
    if "not supported by open" in text or "required GPU System Processor" in text:
        return "open"
    return "proprietary" if "requires use of the NVIDIA open kernel modules" in text else None


def _current(logs: Fact[tuple[BootLog, ...]]) -> Iterable[KernelMessage]:
    boots = logs.value if isinstance(logs, Known) else ()
    return next((boot.messages for boot in boots if boot.index == 0), ())


def gpus_by_log(logs: Fact[tuple[BootLog, ...]]) -> Fact[tuple[PciDevice, ...]] | None:
    """GPUs that the driver names with address and id (`The NVIDIA GPU 0000:af:00.0 (PCI ID: 10de:1db5)`).

    That it is a GPU is said, VGA or 3D is not. None where no message names one.
    """
    named = {m.gpu: m.device_id for m in _current(logs) if m.gpu and m.device_id and "NVIDIA GPU" in m.text}
    found = (
        PciDevice(address=address, device_id=named[address], class_code=_ANY_GPU, driver=None)
        for address in sorted(named)
    )
    return Known(value=tuple(found), origin=logs.origin) if named else None
