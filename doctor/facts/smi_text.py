"""`nvidia-smi -q` as text, brought into the shape of its XML.

Reports and tickets hold this form. Labels were renamed less often than their columns moved, so a line
is cut at its first ` : ` and its depth is its margin.
"""

from __future__ import annotations

import re

from doctor.core.pattern import pattern
from doctor.facts.xmltree import Node

__all__ = ["is_smi_log", "parse_smi_log"]

_LINES_MAX = 200_000
_DEPTH_MAX = 40
_GPU = pattern(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")

#: (name of the block, name of the label) -> element of the XML; other labels become their own snake case.
_ELEMENTS = {
    ("", "gpu_uuid"): "uuid",
    ("", "serial_number"): "serial",
    ("mig_mode", "current"): "current_mig",
    ("mig_mode", "pending"): "pending_mig",
    ("ecc_mode", "current"): "current_ecc",
    ("ecc_mode", "pending"): "pending_ecc",
    ("remapped_rows", "correctable_error"): "remapped_row_corr",
    ("remapped_rows", "uncorrectable_error"): "remapped_row_unc",
    ("remapped_rows", "pending"): "remapped_row_pending",
    ("remapped_rows", "remapping_failure_occurred"): "remapped_row_failure",
    ("retired_pages", "pending_page_blacklist"): "pending_blacklist",
    ("temperature", "gpu_current_temp"): "gpu_temp",
    ("temperature", "gpu_t_limit_temp"): "gpu_temp_tlimit",
    ("temperature", "gpu_slowdown_temp"): "gpu_temp_slow_threshold",
    ("clocks", "sm"): "sm_clock",
    ("clocks", "memory"): "mem_clock",
    ("max_clocks", "sm"): "sm_clock",
    ("gpu_power_readings", "instantaneous_power_draw"): "instant_power_draw",
    ("pci", "bus_id"): "pci_bus_id",
    ("pci", "gpu_link_info"): "pci_gpu_link_info",
    ("pci", "replays_since_reset"): "replay_counter",
    ("pci_gpu_link_info", "pcie_generation"): "pcie_gen",
    ("pci_gpu_link_info", "link_width"): "link_widths",
    ("pcie_gen", "max"): "max_link_gen",
    ("pcie_gen", "current"): "current_link_gen",
    ("link_widths", "max"): "max_link_width",
    ("link_widths", "current"): "current_link_width",
    ("processes", "process_id"): "process_info",
}


def is_smi_log(text: str) -> bool:
    """True for the output of `nvidia-smi -q`."""
    return "==NVSMI LOG==" in text[:2000]


def parse_smi_log(text: str) -> Node:
    """The same tree that the XML of this report would give, as far as it is read here."""
    root = Node("nvidia_smi_log", {})
    stack: list[tuple[int, Node]] = [(-1, root)]
    for line in text.splitlines()[:_LINES_MAX]:
        margin = len(line) - len(line.lstrip())
        label, colon, value = line.strip().partition(" : ")
        if not label or label.startswith("="):
            continue
        while len(stack) > 1 and (stack[-1][0] >= margin or len(stack) > _DEPTH_MAX):
            stack.pop()
        node = _node(stack[-1][1], label)
        node.text = value.strip() if colon else ""
        stack[-1][1].children.append(node)
        stack.append((margin, node))
    return root


def _node(parent: Node, label: str) -> Node:
    gpu = _GPU.match(label)
    if gpu is not None and parent.name == "nvidia_smi_log":
        return Node("gpu", {"id": gpu.group(1)})
    name = re.sub(r"\W+", "_", label.strip().lower()).strip("_")
    block = "" if parent.name == "gpu" else parent.name
    return Node(_ELEMENTS.get((block, name), name), {})
