"""What `nvidia-smi` says when it fails as a whole or on one GPU, in every form of its output."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.core.pattern import pattern
from doctor.facts.source import pci_address
from doctor.facts.xmltree import Node

__all__ = ["address_of", "broken_rows", "code_of", "device_failures", "failure_in", "is_broken"]

_GPUS_MAX = 512
#: Sentences with which it gives up as a whole.
_FAILURES = pattern(
    r"Failed to initialize NVML: [^\n]+|NVIDIA-SMI has failed because[^\n]+|No devices were found"
    r"|NVIDIA-SMI couldn't find [^\n]+|Failed to properly shut down NVML[^\n]*|No supported GPUs were found"
    r"|NVML: Driver/library version mismatch[^\n]*"
)
_DEVICE_FAILURES = pattern(r"Unable to determine the device handle for [^\n]+|GPU is lost[^\n]*")
_DEVICE = pattern(
    r"device handle for (?:GPU ?\d{0,3}:? ?)?((?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])"
)
#: NVML's return codes behind the sentences, for texts without an exit status.
_CODES = (
    ("Driver/library version mismatch", 18),
    ("Insufficient Permissions", 4),
    ("No devices were found", 6),
    ("No supported GPUs were found", 6),
    ("Driver Not Loaded", 9),
    ("couldn't communicate with the NVIDIA driver", 9),
    ("couldn't find", 12),
    ("GPU is lost", 15),
    ("Unknown Error", 999),
)
_LOST = "GPU is lost"
#: In the place of a value that could not be read.
_ERRORS = ("ERR!", "Unknown Error", _LOST)
#: A fan or a power sensor alone may fail on a card that works.
_VITAL = (
    ("product_name",),
    ("performance_state",),
    ("temperature", "gpu_temp"),
    ("fb_memory_usage", "used"),
)


def failure_in(said: str) -> str:
    """The sentence with which it gave up; empty when there is none."""
    found = _FAILURES.search(said)
    return found.group(0).strip() if found is not None else ""


def code_of(failure: str) -> int | None:
    """NVML's return code behind a sentence; None for one that names no known cause."""
    return next((code for words, code in _CODES if words in failure), None)


def device_failures(said: str) -> tuple[str, ...]:
    """Each GPU that could not be opened, its address in front where the words name one."""
    # A row of the table that says so names its GPU better.
    lines = (line.strip()[:300] for line in _DEVICE_FAILURES.findall(said) if not line.rstrip().endswith("|"))
    return tuple(dict.fromkeys(map(_named, lines)))[:_GPUS_MAX]


def _named(line: str) -> str:
    found = _DEVICE.search(line)
    address = pci_address(found.group(1)) if found is not None else ""
    return f"{address}: {line}" if address else line


def address_of(node: Node) -> str:
    """The PCI address of a `gpu` element; empty when it gives none."""
    bus = node.child("pci", "pci_bus_id")
    return pci_address(node.attributes.get("id") or (bus.text if bus is not None else ""))


def is_broken(node: Node) -> bool:
    """True for a GPU that went away: its fields hold an error instead of values."""
    vital = (node.child(*path) for path in _VITAL)
    return _is_lost(node) or any(e in found.text for found in vital if found is not None for e in _ERRORS)


def _is_lost(node: Node) -> bool:
    return any(_LOST in child.text for part in node.children for child in (part, *part.children))


def broken_rows(rows: list[Node]) -> Iterator[str]:
    """`0000:41:00.0: GPU is lost` of each broken one."""
    for number, node in enumerate(rows):
        if is_broken(node):
            text = _LOST if _is_lost(node) else "errors stand in place of its values"
            yield f"{address_of(node) or f'index {number}'}: {text}"
