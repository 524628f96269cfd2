"""Any row of the matrix in words, from its fields alone; matrix_text has words of their own for some."""

from __future__ import annotations

from doctor.commands.matrix_layout import Pair, lines_of, origin, wrapped, yes_no
from doctor.core.rows.base import Row
from doctor.core.rows.package import Release, ToolRelease
from doctor.core.rows.relation import Advisory
from doctor.core.rows.system import KernelBuild, StableChange
from doctor.core.rows.xid import DriverRange
from doctor.edition.keys import KEYS, label

__all__ = ["row_line", "row_text"]

#: Fields whose name says too little, or too much for the column of labels.
_LABELS = {
    "allreduce_floor_gb_s": "all-reduce floor",
    "allreduce_gpus": "over GPUs",
    "bandwidth_gb_s": "bandwidth, GB/s",
    "compute_capability": "capabilities",
    "copy_floor_gb_s": "copy floor, GB/s",
    "cpu": "processors",
    "default_of": "default kernel of",
    "extended_ends": "extended until",
    "first": "first seen in",
    "host_copy_floor_gb_s": "PCIe floor, GB/s",
    "is_in_driver_guide": "in driver guide",
    "is_tested_by_container_toolkit": "toolkit tested on it",
    "is_whole": "list is whole",
    "last": "last seen in",
    "later_kernels": "later kernels",
    "manages_el8_dnf": "dnf on EL 8",
    "measured_bf16_tflops": "bf16 measured",
    "measured_fp8_tflops": "fp8 measured",
    "min_compute_capability": "least capability",
    "native_compute_capability": "computes from",
    "on_x86_cpu": "on x86 CPUs",
    "peer_copy_floor_gb_s": "peer floor, GB/s",
    "precompiled_branches": "precompiled for",
    "size_bytes": "download",
    "unsuffixed_variant": "without suffix",
}

#: Put before what names a row, where that alone says too little.
_TITLES = {
    "advisories": "bulletin ",
    "ansible": "ansible-core ",
    "components": "component ",
    "engine_batches": "batch limits of ",
    "engine_dtypes": "computing in ",
    "engine_flags": "grammar of ",
    "engine_grammars": "command line of ",
    "kernels": "kernel ",
    "kv_cache": "KV cache of ",
    "models": "model architecture of ",
    "quantization": "quantization of ",
    "quantization_gates": "quantization gate of ",
    "quantization_support": "quantization support of ",
    "relations": "relation ",
    "sxids": "SXid ",
    "xids": "Xid ",
}

#: What `origin` says already.
_OF_EVERY_ROW = frozenset(Row.__struct_fields__)


def row_text(table: str, row: Row) -> str:
    """A row in full: what names it, each field that says something, and what it rests on."""
    named = {*_OF_EVERY_ROW, *KEYS.get(table, ("id",))}
    pairs = [
        pair
        for field in row.__struct_fields__
        if field not in named
        for pair in _pairs(field, getattr(row, field))
    ]
    head = f"{_TITLES.get(table, '')}{label(table, row)}"
    return "\n".join((*wrapped("", head), *lines_of(pairs), *origin([row])))


def row_line(table: str, row: Row) -> str:
    """A row in a line or two: what names it, and what tells it from its neighbours."""
    return "\n".join(wrapped(f"{label(table, row)}  ", _gist(row)))


def _pairs(field: str, value: object) -> list[Pair]:
    """What a field says, one pair a statement."""
    name = _LABELS.get(field, field.replace("_", " "))
    if isinstance(value, dict):
        return [(name if not n else "", f"{key} {text}") for n, (key, text) in enumerate(value.items())]
    if isinstance(value, tuple) and value and isinstance(value[0], KernelBuild):
        return [(name if not n else "", _build(build)) for n, build in enumerate(value)]
    if isinstance(value, tuple) and value and isinstance(value[0], StableChange):
        return [pair for change in value for pair in _change(change)]
    if isinstance(value, tuple) and value and isinstance(value[0], DriverRange):
        return [(name if not n else "", _range(span)) for n, span in enumerate(value)]
    return [(name, _words(field, value))]


def _range(span: DriverRange) -> str:
    """`R525 before 525.105.17`."""
    since = f" from {span.since}" if span.since else ""
    return f"R{span.branch}{since} before {span.fixed_in}" if span.fixed_in else f"R{span.branch}{since}"


def _words(field: str, value: object) -> str:
    if value is None or value == ():
        return ""
    if isinstance(value, bool):
        return yes_no(value)
    if field == "size_bytes" and isinstance(value, int):
        return f"{value / 2**20:.1f} MiB"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value)
    return str(value)


def _build(build: KernelBuild) -> str:
    """`R535 from 535.154.05 with a patch of ubuntu, without one from 535.179`."""
    text = f"R{build.branch} from {build.since}"
    if build.patched_by:
        text += f" with a patch of {build.patched_by}"
    if build.upstream_since is not None:
        text += f", without one from {build.upstream_since}"
    return f"{text} ({build.note})" if build.note else text


def _change(change: StableChange) -> list[Pair]:
    """A patch level, what it brought, and which drivers know it."""
    fails = ", ".join(str(version) for version in change.fails)
    return [
        (f"from {change.since} on", change.change),
        *(("", f"{_build(build)} knows it") for build in change.builds),
        ("", f"seen to fail: {fails}" if fails else ""),
    ]


def _gist(row: Row) -> str:
    """The few fields that a list shows."""
    if isinstance(row, Release):
        parts = [row.released, f"CUDA {row.cuda}" if row.cuda else "", *row.cuda_variants, row.engine_backend]
        pins = (f"{name} {row.requires[name]}" for name in ("torch", "python") if name in row.requires)
        return ", ".join(part for part in (*parts, *pins) if part)
    if isinstance(row, ToolRelease):
        return ", ".join(part for part in (row.released, row.changes) if part)
    if isinstance(row, Advisory):
        fixed = row.fixed_release or ", ".join(str(version) for version in row.fixed_in)
        return ", ".join(
            part for part in (row.component, row.published, f"fixed in {fixed}", *row.cves) if part
        )
    for field in ("fact", "status", "meaning", "support_ends", "line", "first", "min_compute_capability"):
        value = getattr(row, field, "")
        if value:
            return str(value)
    return row.confidence
