"""The loaded module as the kernel's log of this boot names it, where nobody read `/proc`."""

from __future__ import annotations

from collections.abc import Iterable

from doctor.core.host import BootLog, Fact, Flavour, KernelMessage, Known
from doctor.core.pattern import pattern
from doctor.core.versions import Dotted
from doctor.facts.source import dotted

__all__ = ["module_by_log"]

_MISMATCH = pattern(r"this kernel module has (?:the )?version ([0-9.]{3,30}?)\.?(?:\s|$)")
_LOADING = pattern(
    r"NVRM: loading NVIDIA UNIX (Open )?.{0,60}?Kernel Module.{0,30}?\s([0-9]{3}[0-9.]{1,20})\b"
)
#: After these the module leaves again: `NVRM: None of the NVIDIA devices were initialized`.
_LEAVES = ("no_devices_probed", "probe_failed", "open_modules_required", "unsupported_gpu", "legacy_gpu")


def module_by_log(
    logs: Fact[tuple[BootLog, ...]],
) -> tuple[Fact[Dotted] | None, Fact[Flavour] | None]:
    """(version, flavour) of the module that was loaded last in this boot and stayed; None where untold."""
    boots = logs.value if isinstance(logs, Known) else ()
    origin = logs.origin if isinstance(logs, Known) else ""
    current: Iterable[KernelMessage] = next((boot.messages for boot in boots if boot.index == 0), ())
    version: Dotted | None = None
    flavour: Flavour | None = None
    for message in current:
        loading = _LOADING.search(message.text) if message.kind == "loading" else None
        mismatch = _MISMATCH.search(message.text) if message.kind == "api_mismatch" else None
        if loading is not None:
            version, flavour = dotted(loading.group(2)), "open" if loading.group(1) else "proprietary"
        elif mismatch is not None:
            version = dotted(mismatch.group(1))
        elif message.kind in _LEAVES:
            version, flavour = None, None
    return (
        Known(value=version, origin=origin) if version is not None else None,
        Known(value=flavour, origin=origin) if flavour is not None else None,
    )
