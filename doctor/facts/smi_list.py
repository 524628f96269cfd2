"""The list that `nvidia-smi -L` prints: index, name and UUID of each GPU, and nothing of where it sits."""

from __future__ import annotations

from doctor.core.host import Gpu, GpuReport
from doctor.core.pattern import pattern

__all__ = ["is_smi_list", "parse_smi_list"]

_GPU = pattern(r"^GPU (\d{1,3}): (\S.{0,120}?) \(UUID: (GPU-[0-9a-fA-F-]{1,60})\)\s*$")
_INSTANCE = pattern(r"^\s+MIG \S")
_LINES_MAX = 5000


def is_smi_list(text: str) -> bool:
    """True for the output of `nvidia-smi -L`."""
    return any(_GPU.match(line) for line in text.splitlines()[:20])


def parse_smi_list(text: str) -> GpuReport:
    """The GPUs of the list. It tells no addresses, so it is never a whole answer to which GPU is missing.

    Instances stand below a GPU where MIG is on; where none stands, it may be off, or have none.
    """
    gpus: list[Gpu] = []
    with_instance = set[int]()
    for line in text.splitlines()[:_LINES_MAX]:
        found = _GPU.match(line)
        if found is not None:
            gpus.append(Gpu(index=int(found[1]), pci_address="", name=found[2], uuid=found[3]))
        elif gpus and _INSTANCE.match(line):
            with_instance.add(gpus[-1].index)
    marked = (
        Gpu(index=g.index, pci_address="", name=g.name, uuid=g.uuid, mig_mode=True)
        if g.index in with_instance
        else g
        for g in gpus
    )
    return GpuReport(gpus=tuple(marked), is_complete=False)
