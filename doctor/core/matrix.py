"""The compatibility matrix as typed rows, and the look-ups that judgements need. Data, no rules.

Rows come from `matrices/*.yaml`; the strict loader and the edition build live beside the data's
edge (`doctor.matrix_source`, `doctor.edition`). Every row names its source and the date it was read.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from doctor.core.versions import Dotted

__all__ = [
    "Architecture",
    "CauseRow",
    "Confidence",
    "DriverBranch",
    "DriverRule",
    "Edition",
    "GpuRow",
    "Matrix",
    "OpenModule",
    "Product",
    "RemedyRow",
    "Row",
    "ToolkitRow",
    "ToolkitUpdate",
]

Confidence = Literal["vendor", "measured", "derived", "unverified"]

#: Whether a GPU runs with the open kernel modules.
OpenModule = Literal["required", "supported", "unsupported"]


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What every row carries. `unverified` names the fields no primary source was read for."""

    source: tuple[str, ...]
    as_of: str
    confidence: Confidence
    review_by: str
    unverified: tuple[str, ...] = ()
    note: str = ""


class Architecture(Row, kw_only=True):
    """A GPU architecture: what all its chips share."""

    architecture: str
    compute_capability: tuple[str, ...]
    """`("5.0", "5.2")`."""
    sm: tuple[str, ...]
    open_module: OpenModule | None = None
    first_cuda: Dotted | None = None
    last_cuda_major: int | None = None
    first_branch: int | None = None
    """The first driver branch that drives it: 570."""
    last_branch: int | None = None
    """The last one that does: 580 for Volta; None while it is still supported."""
    bf16: bool | None = None
    fp16_tensor: bool | None = None
    int8_tensor: bool | None = None
    fp8: bool | None = None
    fp4: bool | None = None
    mig: bool | None = None


class Product(Row, kw_only=True):
    """A card as it is sold; its ids point into the PCI table."""

    product: str
    pci_device_ids: tuple[str, ...]
    """`10de:2335`, lower case."""
    architecture: str
    compute_capability: str
    memory_gb: float | None = None
    memory_type: str = ""
    bandwidth_gb_s: float | None = None
    ecc: bool | None = None
    nvlink: str = ""
    """`yes`, `bridge` or empty."""
    needs_fabric_manager: bool | None = None
    open_module: OpenModule | None = None
    min_driver: Dotted | None = None
    mig_instances: int | None = None
    mig_min_driver: Dotted | None = None
    is_arm64: bool = False
    supports_forward_compat: bool | None = None


class GpuRow(Row, kw_only=True):
    """A PCI device id."""

    pci_device_id: str
    """`10de:26b9`, lower case."""
    name: str
    chip: str
    architecture: str
    compute_capability: str
    open_module: OpenModule | None = None
    last_branch: int | None = None
    min_driver: Dotted | None = None
    """The first public open-module release that lists the id, where one does (no floor by itself)."""
    memory_gb: float | None = None
    memory_type: str = ""
    bandwidth_gb_s: float | None = None
    subsystem_ids: tuple[str, ...] = ()


class DriverBranch(Row, kw_only=True):
    """A driver branch."""

    branch: str
    """`R580`."""
    major: int
    kind: str
    """`LTSB`, `production`, `new feature`, …"""
    status: Literal["supported", "ended", "superseded"]
    ends: str = ""
    """Month its support ends, `2028-06`; empty when no source says."""
    cuda_version: Dotted | None = None
    """The highest CUDA its driver API speaks."""
    min_architecture: str = ""
    last_for: tuple[str, ...] = ()
    """Architectures that no later branch drives."""
    security_floor: Dotted | None = None
    latest_known: Dotted | None = None
    proprietary_module: bool | None = None
    """False when the branch has open modules only."""
    releases: tuple[Dotted, ...] = ()


class DriverRule(Row, kw_only=True):
    """A sentence about drivers or CUDA that has a source but no table; explanations quote its id."""

    id: str
    fact: str


class ToolkitUpdate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An update release of a toolkit, and the driver it came with."""

    version: Dotted
    driver: Dotted | None = None


class ToolkitRow(Row, kw_only=True):
    """A CUDA toolkit minor release."""

    cuda: Dotted
    driver: Dotted | None = None
    """The Linux driver it was released with: full features, no hard floor within the major."""
    driver_floor: Dotted
    """The least driver for minor-version compatibility within the major."""
    updates: tuple[ToolkitUpdate, ...] = ()
    sm_targets: tuple[str, ...] = ()
    max_host_gcc_major: int | None = None
    max_host_clang_major: int | None = None


class RemedyRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What to do about a cause. Commands are argv lists; they never switch off a security feature."""

    summary: str
    commands: tuple[tuple[str, ...], ...] = ()
    needs_root: bool = True
    cost: str
    """`none`, `drain`, `reload`, `reboot`, `reinstall`, `hardware`: what it interrupts at most."""
    undo: str = ""
    blast_radius: str = ""
    """Whom or what it hits, in a sentence."""


class CauseRow(Row, kw_only=True):
    """A root cause: when it holds, what it explains, what rules it out, what to do."""

    id: str
    """Of the taxonomy: `driver.userspace_kernel_mismatch`."""
    layer: str
    title: str
    """One sentence an admin understands."""
    when: tuple[str, ...] = ()
    """Claims that must all hold; `not NAME` negates. See `doctor.core.claims`."""
    ruled_out_by: tuple[str, ...] = ()
    """Claims any of which rules it out."""
    explains: tuple[str, ...] = ()
    """Finding ids that follow from it."""
    refines: str = ""
    """The more general cause that this one names more closely."""
    patterns: tuple[str, ...] = ()
    """Regular expressions for `explain` on text."""
    deciding_facts: tuple[str, ...] = ()
    """What would settle it when it is open, as a person would look it up."""
    remedy: RemedyRow | None = None


class Edition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The compiled matrix: one file, read in milliseconds."""

    schema: str = "mopt.matrix/1"
    name: str
    """`2026.11`."""
    as_of: str
    digest: str
    """SHA-256 over the YAML sources, in name order."""
    architectures: tuple[Architecture, ...]
    products: tuple[Product, ...]
    gpus: tuple[GpuRow, ...]
    drivers: tuple[DriverBranch, ...]
    driver_rules: tuple[DriverRule, ...]
    toolkits: tuple[ToolkitRow, ...]
    causes: tuple[CauseRow, ...]


class Matrix:
    """Look-ups over an edition. A miss is None: *not in this matrix*, which is not *unsupported*."""

    __slots__ = ("_architectures", "_branches", "_causes", "_gpus", "_products", "_toolkits", "edition")

    def __init__(self, edition: Edition) -> None:
        self.edition = edition
        self._gpus = {row.pci_device_id: row for row in edition.gpus}
        self._products = {i: row for row in edition.products for i in row.pci_device_ids}
        self._architectures = {row.architecture: row for row in edition.architectures}
        self._branches = {row.major: row for row in edition.drivers}
        self._toolkits = {row.cuda.parts[:2]: row for row in edition.toolkits}
        self._causes = {row.id: row for row in edition.causes}

    def gpu(self, device_id: str) -> GpuRow | None:
        """The row of a PCI id such as `10de:2335`."""
        return self._gpus.get(device_id.lower())

    def product(self, device_id: str) -> Product | None:
        """The hand-checked card with this PCI id."""
        return self._products.get(device_id.lower())

    def architecture(self, name: str) -> Architecture | None:
        return self._architectures.get(name)

    def branch(self, driver: Dotted) -> DriverBranch | None:
        """The branch a driver version belongs to."""
        return self._branches.get(driver.major)

    def toolkit(self, cuda: Dotted) -> ToolkitRow | None:
        """The row of a toolkit's minor release; `13.0.2` finds `13.0`."""
        parts = (*cuda.parts, 0)[:2]
        return self._toolkits.get(parts)

    def cause(self, cause_id: str) -> CauseRow | None:
        return self._causes.get(cause_id)

    def open_module(self, device_id: str) -> OpenModule | None:
        """Whether this GPU takes the open modules: product row, then id row, then architecture."""
        product, row = self.product(device_id), self.gpu(device_id)
        if product is not None and product.open_module is not None:
            return product.open_module
        if row is None:
            return None
        if row.open_module is not None:
            return row.open_module
        architecture = self.architecture(row.architecture)
        return architecture.open_module if architecture else None
