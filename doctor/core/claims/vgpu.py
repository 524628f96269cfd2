"""Claims about virtual GPUs: a slice of a card in a virtual machine, which a plain driver does not drive."""

from __future__ import annotations

from doctor.core.check import Case
from doctor.core.claims.claimed import UNTOLD, Claimed, no, yes
from doctor.core.claims.modules import module_loaded
from doctor.core.claims.running import nvml_sees_no_gpu
from doctor.core.host import Known, PciDevice, known
from doctor.core.views import DRIVER_PACKAGE, log_is_whole, xid_counts

__all__ = ["vgpu_refused", "vgpu_with_plain_driver"]

_GIB = 1024**3


def vgpu_refused(case: Case) -> Claimed:
    """The host of a vGPU refuses the guest's driver (Xid 78)."""
    refusals = xid_counts(case, 78)
    if refusals:
        return yes(f"the kernel reports Xid 78 for {next(iter(refusals))[1] or 'a GPU'} in this boot")
    return no() if log_is_whole(case) else UNTOLD


def _is_slice(case: Case, device: PciDevice) -> bool:
    """A board that the matrix does not name, whose memory window is a fraction of the card's memory.

    A whole card in a virtual machine keeps its subsystem id, and a window for all its memory, or of 256 MiB.
    """
    rows = case.matrix.gpus(device.device_id)
    boards = {board for row in rows for board in row.subsystem_ids}
    memory = max((row.memory_gb or 0 for row in rows), default=0)
    window = max(device.bar_bytes[1:3], default=0) / _GIB
    is_other = bool(boards) and device.subsystem_id.startswith("10de:") and device.subsystem_id not in boards
    return is_other and 0.25 < window < memory / 2


def vgpu_with_plain_driver(case: Case) -> Claimed:
    """A virtual machine has a slice of a card, and its driver is one for whole cards, which lists no GPU."""
    if case.virtualisation != "vm":
        return no() if case.virtualisation else UNTOLD
    none_listed, module, packages = nvml_sees_no_gpu(case), module_loaded(case), known(case.host.packages)
    if not isinstance(case.host.pci, Known) or packages is None or None in (none_listed.holds, module.holds):
        return UNTOLD
    slices = [d for d in case.host.gpus_on_bus if _is_slice(case, d)]
    plain = [p.name for p in packages.installed if DRIVER_PACKAGE.match(p.name)]
    has_grid = any("grid" in p.name for p in packages.installed)
    if not slices or not plain or has_grid or not none_listed.holds or not module.holds:
        return no()
    first = slices[0]
    return yes(
        f"{first.address} (subsystem {first.subsystem_id}) is a slice of a card, and the driver `{plain[0]}`"
    )
