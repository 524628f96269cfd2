"""The table that plain `nvidia-smi` prints, brought into the shape of its XML.

People paste this one most. Columns moved and widened over the years; the order of the cells did not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.core.pattern import pattern
from doctor.facts.xmltree import Node

__all__ = ["is_smi_table", "parse_smi_table"]

_HEAD = pattern(r"\|\s*NVIDIA-SMI\s+(\S+)\s+(?:KMD Version|Driver Version):")
_DRIVER = pattern(r"(?:Driver|KMD) Version: *([0-9.]{3,30})")
_CUDA = pattern(r"CUDA (?:UMD )?Version: *([0-9.]{3,10})")
_FIRST = pattern(
    r"\|\s*(?P<index>\d{1,3})\s+(?P<name>\S.{0,60}?)\s+(?P<persistence>On|Off|N/A)?\s*"
    r"\|\s*(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]|N/A)\s+\S+\s*\|\s*(?P<ecc>\S+)\s*\|"
)
_SECOND = pattern(
    r"\|\s*\S+\s+(?P<heat>\S+)\s+(?P<state>P\d+|\S+)\s+(?P<power>\S+?)\s*/\s*(?P<limit>\S+)\s*"
    r"\|\s*(?P<used>\d+)MiB\s*/\s*(?P<total>\d+)MiB\s*\|\s*\S+\s+(?P<mode>\S[^|]*?)\s*\|"
)
_THIRD = pattern(r"\|\s*\|\s*\|\s*(?P<mig>Enabled\*?|Disabled\*?|N/A)\s*\|")
_LINES_MAX = 5000


def is_smi_table(text: str) -> bool:
    """True for the output of `nvidia-smi` without options."""
    return _HEAD.search(text[:20_000]) is not None


def parse_smi_table(text: str) -> Node:
    """The tree that the XML would give, as far as the table tells."""
    root = Node("nvidia_smi_log", {})
    for name, wanted in (("driver_version", _DRIVER), ("cuda_version", _CUDA)):
        found = wanted.search(text)
        if found is not None:
            _add(root, found.group(1), name)
    lines = text.splitlines()[:_LINES_MAX]
    for number, line in enumerate(lines):
        first = _FIRST.match(line.strip())
        if first is not None:
            root.children.append(_gpu(first, lines[number + 1 : number + 3]))
    return root


def _gpu(first: re.Match[str], following: list[str]) -> Node:
    gpu = Node("gpu", {"id": first["bus"]})
    for path, value in _cells(first, following):
        _add(gpu, value, *path)
    return gpu


def _cells(first: re.Match[str], following: list[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    # A name that fills its column ends in dots and is no name.
    if not first["name"].endswith("..."):
        yield ("product_name",), first["name"]
    if first["persistence"] in ("On", "Off"):
        yield ("persistence_mode",), "Enabled" if first["persistence"] == "On" else "Disabled"
    if first["ecc"].isdigit():
        yield ("ecc_mode", "current_ecc"), "Enabled"
    fault = _fault(following[0]) if following else ""
    if fault:
        yield ("performance_state",), fault
        return
    second = _SECOND.match(following[0].strip()) if following else None
    if second is None:
        return
    yield ("temperature", "gpu_temp"), second["heat"]
    yield ("performance_state",), second["state"]
    yield ("gpu_power_readings", "power_draw"), second["power"]
    yield ("gpu_power_readings", "current_power_limit"), second["limit"]
    yield ("fb_memory_usage", "used"), second["used"]
    yield ("fb_memory_usage", "total"), second["total"]
    third = _THIRD.match(following[1].strip()) if len(following) > 1 else None
    if third is not None:
        yield ("mig_mode", "current_mig"), third["mig"].rstrip("*")


def _fault(line: str) -> str:
    """What stands in place of heat, state or memory of a GPU that the driver cannot read; else empty."""
    if "GPU is lost" in line:
        return "GPU is lost"
    cells = line.strip().strip("|").split("|")
    vital = [*cells[0].split()[1:3], *(cells[1].split() if len(cells) > 1 else ())]
    return "ERR!" if "ERR!" in vital or "Unknown Error" in line else ""


def _add(node: Node, value: str, *path: str) -> None:
    for name in path[:-1]:
        child = node.child(name)
        if child is None:
            child = Node(name, {})
            node.children.append(child)
        node = child
    leaf = Node(path[-1], {})
    leaf.text = value
    node.children.append(leaf)
