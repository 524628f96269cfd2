"""Rows of the matrix in words, for a terminal of 80 columns. A long address stays whole, to be copied."""

from __future__ import annotations

from collections.abc import Iterable

from doctor.commands.matrix_layout import Pair, lines_of, origin, wrapped, yes_no
from doctor.core.matrix import Architecture, DriverBranch, GpuRow, Matrix, Product, Row, ToolkitRow
from doctor.core.versions import Dotted

__all__ = [
    "architecture_text",
    "branch_line",
    "branch_text",
    "gpu_line",
    "gpu_text",
    "overview_text",
    "toolkit_line",
    "toolkit_text",
]

_MODULES = {
    "required": "open only",
    "supported": "open or proprietary (R620 and newer: open only)",
    "unsupported": "proprietary only",
}


def overview_text(matrix: Matrix) -> str:
    """The edition, the size of its tables, and the branches that are still supported."""
    edition = matrix.edition
    ids = len({row.pci_device_id for row in edition.gpus})
    counts = [(table.replace("_", " "), str(len(rows))) for table, rows in edition.rows().items()]
    counts = [(name, f"{text} for {ids} PCI ids" if name == "gpus" else text) for name, text in counts]
    live = [branch_line(row) for row in edition.drivers if row.status == "supported"]
    head = f"Matrix {edition.name}, sources read up to {edition.as_of}"
    return "\n".join(
        (head, *lines_of(counts), "Driver branches with support:", *(f"  {line}" for line in live))
    )


# --- GPUs -----------------------------------------------------------------------------------------


def gpu_line(row: GpuRow) -> str:
    """An id in a line, or in two where several boards share it."""
    return "\n".join(
        wrapped(f"{row.pci_device_id}  {row.compute_capability:<4}  {row.architecture:<15}  ", row.name)
    )


def gpu_text(matrix: Matrix, device_id: str) -> str:
    """All that the matrix knows of a PCI id: the id's row, its product, its chip and architecture."""
    row, product = matrix.gpu(device_id), matrix.product(device_id)
    if row is None:
        raise LookupError(device_id)
    architecture = matrix.architecture(row.architecture)
    pairs: list[Pair] = [
        ("chip", f"{row.chip}, {row.architecture}, compute capability {row.compute_capability}"),
        ("memory", _memory(row, product)),
        ("kernel modules", _MODULES.get(matrix.open_module(device_id) or "", "not known")),
        ("driver branches", _branches(*matrix.branches_for(device_id))),
        ("CUDA toolkits", _toolkits(architecture) if architecture else ""),
        ("open modules list it", f"from {row.min_driver} on" if row.min_driver else "no release read does"),
        *(_product_pairs(product) if product else ()),
        *_board_pairs(matrix.gpus(device_id)),
        ("former names", ", ".join(row.former_names)),
    ]
    rows: list[Row] = [item for item in (product, row, matrix.chip(row.chip), architecture) if item]
    head = wrapped(f"{row.pci_device_id}  ", row.name)
    return "\n".join((*head, *lines_of(pairs), *origin(rows)))


def architecture_text(row: Architecture) -> str:
    """What all chips of an architecture share."""
    formats = (
        ("bf16", row.bf16),
        ("FP16 tensor", row.fp16_tensor),
        ("INT8 tensor", row.int8_tensor),
        ("FP8", row.fp8),
        ("FP4", row.fp4),
    )
    pairs: list[Pair] = [
        ("capabilities", ", ".join(row.compute_capability)),
        ("nvcc targets", ", ".join(f"sm_{target}" for target in row.sm)),
        ("kernel modules", _MODULES.get(row.open_module or "", "not known")),
        ("driver branches", _branches(row.first_branch, row.last_branch)),
        ("CUDA toolkits", _toolkits(row)),
        *((name, yes_no(has)) for name, has in formats),
        ("MIG", yes_no(row.mig)),
    ]
    return "\n".join((f"architecture {row.architecture}", *lines_of(pairs), *origin([row])))


def _memory(row: GpuRow, product: Product | None) -> str:
    """The product's figure when it has one: it was checked by hand."""
    size = (product and product.memory_gb) or row.memory_gb
    kind = (product and product.memory_type) or row.memory_type
    speed = (product and product.bandwidth_gb_s) or row.bandwidth_gb_s
    parts = [f"{size:g} GB {kind}".strip() if size else kind, f"{speed:g} GB/s" if speed else ""]
    return ", ".join(part for part in parts if part)


def _branches(first: int | None, last: int | None) -> str:
    if first is None and last is None:
        return "not known"
    if last is None:
        return f"R{first} and newer"
    return f"up to R{last}" if first is None else f"R{first} to R{last}"


def _toolkits(architecture: Architecture) -> str:
    first, last = architecture.first_cuda, architecture.last_cuda_major
    if last is None:
        return f"{first} and newer" if first else "not known"
    return f"{first} to {last}.x" if first else f"up to {last}.x"


def _product_pairs(product: Product) -> list[Pair]:
    mig = ""
    if product.mig_instances is not None:
        mig = f"{product.mig_instances} instances" if product.mig_instances else "no"
        mig += f", from driver {product.mig_min_driver} on" if product.mig_min_driver else ""
    return [
        ("product", product.product),
        ("least driver", str(product.min_driver or "")),
        ("MIG", mig),
        ("NVLink", product.nvlink),
        ("ECC", yes_no(product.ecc)),
        ("fabric manager", "needed on NVSwitch systems" if product.needs_fabric_manager else ""),
        ("forward compat", yes_no(product.supports_forward_compat)),
        ("host", "arm64" if product.is_arm64 else ""),
    ]


def _board_pairs(rows: Iterable[GpuRow]) -> list[Pair]:
    """Boards by subsystem id, where the matrix tells them apart."""
    pairs: list[Pair] = []
    for row in rows:
        if row.subsystem_ids:
            pairs.append(("boards", f"{', '.join(row.subsystem_ids)}: {row.name}"))
        elif row.unlisted_subsystems:
            pairs.append(("boards", f"{row.unlisted_subsystems} not listed here: {row.name}"))
    return pairs


# --- drivers and toolkits -------------------------------------------------------------------------


def branch_line(row: DriverBranch) -> str:
    """A branch in a line."""
    ends = f"ends {row.ends}" if row.ends else ""
    known = f"latest {row.latest_known}" if row.latest_known else ""
    return ", ".join(
        part
        for part in (f"{row.branch}: {row.kind}", row.status, ends, f"CUDA {row.cuda_version}", known)
        if part
    )


def branch_text(row: DriverBranch, release: Dotted | None = None) -> str:
    """A branch; with a release, where that one stands in it."""
    pairs: list[Pair] = [
        ("kind", row.kind),
        ("status", row.status + (f", support ends {row.ends}" if row.ends else "")),
        ("CUDA of its API", str(row.cuda_version or "not known")),
        ("least architecture", row.min_architecture),
        ("last branch for", ", ".join(row.last_for)),
        ("kernel modules", _flavours(row)),
        ("security floor", str(row.security_floor or "no bulletin read names the branch")),
        ("latest known", str(row.latest_known or "")),
        ("releases seen", ", ".join(str(version) for version in row.releases)),
    ]
    head = row.branch if release is None else f"{release}: a release of {row.branch}{_standing(row, release)}"
    return "\n".join((head, *lines_of(pairs), *origin([row])))


def _standing(row: DriverBranch, release: Dotted) -> str:
    if row.security_floor is not None and release < row.security_floor:
        return f", older than its security floor {row.security_floor}"
    return ""


def _flavours(row: DriverBranch) -> str:
    flavours = (("open", row.open_module), ("proprietary", row.proprietary_module))
    return " or ".join(name for name, has in flavours if has) or "not known"


def toolkit_line(row: ToolkitRow) -> str:
    """A toolkit in a line."""
    driver = f"released with driver {row.driver}" if row.driver else "driver not known"
    return f"CUDA {row.cuda}: {driver}, runs from {row.driver_floor} on"


def toolkit_text(row: ToolkitRow) -> str:
    """A toolkit minor release: drivers, updates, targets, host compilers."""
    updates = ", ".join(f"{u.version} ({u.driver or 'driver not known'})" for u in row.updates)
    pairs: list[Pair] = [
        ("released with", str(row.driver or "driver not known")),
        ("driver floor", f"{row.driver_floor} (minor-version compatibility)"),
        ("updates", updates),
        ("nvcc targets", ", ".join(f"sm_{target}" for target in row.sm_targets)),
        ("newest host gcc", str(row.max_host_gcc_major or "")),
        ("newest host clang", str(row.max_host_clang_major or "")),
    ]
    return "\n".join((f"CUDA {row.cuda}", *lines_of(pairs), *origin([row])))
