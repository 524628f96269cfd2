"""Why a GPU's clocks are held down: NVML's bits and nvidia-smi's labels under the same names."""

from __future__ import annotations

__all__ = ["limit_of_label", "limits_of_mask"]

#: `nvmlClocksEventReason…` of nvml.h, named as `nvidia-smi -q` labels them.
_BITS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
_ALIASES = {"idle": "gpu_idle", "display_clocks_setting": "display_clock_setting"}
_PREFIXES = ("clocks_event_reason_", "clocks_throttle_reason_")


def limits_of_mask(mask: int | None) -> tuple[str, ...] | None:
    """Names of the set bits, lowest first; a bit that is not known keeps its number. None: not told."""
    if mask is None or mask < 0:
        return None
    return tuple(
        _BITS.get(1 << bit, f"unknown_{1 << bit:#x}") for bit in range(mask.bit_length()) if mask >> bit & 1
    )


def limit_of_label(label: str) -> str:
    """The name of a reason from an element or a label of nvidia-smi."""
    name = label.strip().lower().replace(" ", "_")
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return _ALIASES.get(name, name)
