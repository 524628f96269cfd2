"""The compatibility matrix as typed rows, and the look-ups that judgements need. Data, no rules.

Rows come from `matrices/*.yaml`, through the strict loader and the build of `doctor.edition`. Every row
names its source and the date it was read.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from doctor.core.versions import Dotted, Version

__all__ = [
    "Architecture",
    "CauseRow",
    "Chip",
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
    "dec_version",
    "enc_version",
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


class Architecture(Row, frozen=True, kw_only=True):
    """A GPU architecture: what all its chips share."""

    architecture: str
    compute_capability: tuple[str, ...]
    """`("5.0", "5.2")`."""
    sm: tuple[str, ...]
    """nvcc target numbers, as `ToolkitRow.sm_targets` has them; Thor has two, `("101", "110")`."""
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


class Product(Row, frozen=True, kw_only=True):
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


class Chip(Row, frozen=True, kw_only=True):
    """A chip code: what decides the architecture and capability of every id that carries it."""

    chip: str
    """`GH100`."""
    architecture: str
    compute_capability: str


class GpuRow(Row, frozen=True, kw_only=True):
    """A PCI device id, or the boards of one id that a name or a memory size sets apart.

    The build fills `architecture` and `compute_capability` in from the chip, `open_module` and
    `last_branch` from the architecture; all rows of an id agree on them.
    """

    pci_device_id: str
    """`10de:26b9`, lower case."""
    name: str
    former_names: tuple[str, ...] = ()
    """Names that earlier lists gave to the same boards."""
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
    """The boards meant, `10de:14a9`; empty when the row is for every board no other row names."""
    unlisted_subsystems: int = 0
    """How many boards carry the name when the matrix does not list their ids."""

    @property
    def is_general(self) -> bool:
        """True for the row of every board that no other row names."""
        return not self.subsystem_ids and not self.unlisted_subsystems


class DriverBranch(Row, frozen=True, kw_only=True):
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
    open_module: bool | None = None
    """False when the branch is older than the open modules."""
    proprietary_module: bool | None = None
    """False when the branch has open modules only."""
    releases: tuple[Dotted, ...] = ()


class DriverRule(Row, frozen=True, kw_only=True):
    """A sentence about drivers or CUDA that has a source but no table; explanations quote its id."""

    id: str
    fact: str


class ToolkitUpdate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An update release of a toolkit, and the driver it came with."""

    version: Dotted
    driver: Dotted | None = None


class ToolkitRow(Row, frozen=True, kw_only=True):
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


class CauseRow(Row, frozen=True, kw_only=True):
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
    yields_to: tuple[str, ...] = ()
    """Claims of a closer cause: one that holds rules it out; untold, they leave it true but not certain."""
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

    schema: Literal["mopt.matrix/1"] = "mopt.matrix/1"
    name: str
    """`2026.11`."""
    as_of: str
    digest: str
    """SHA-256 over the YAML sources, in name order."""
    architectures: tuple[Architecture, ...]
    products: tuple[Product, ...]
    chips: tuple[Chip, ...]
    gpus: tuple[GpuRow, ...]
    drivers: tuple[DriverBranch, ...]
    driver_rules: tuple[DriverRule, ...]
    toolkits: tuple[ToolkitRow, ...]
    causes: tuple[CauseRow, ...]

    def rows(self) -> dict[str, tuple[Row, ...]]:
        """Every row by component, in the order of the fields."""
        return {
            "architectures": self.architectures,
            "products": self.products,
            "chips": self.chips,
            "gpus": self.gpus,
            "drivers": self.drivers,
            "driver_rules": self.driver_rules,
            "toolkits": self.toolkits,
            "causes": self.causes,
        }


class Matrix:
    """Look-ups over an edition. A miss is None: *not in this matrix*, which is not *unsupported*."""

    __slots__ = (
        "_architectures",
        "_branches",
        "_causes",
        "_chips",
        "_gpus",
        "_products",
        "_rules",
        "_toolkits",
        "edition",
    )

    def __init__(self, edition: Edition) -> None:
        self.edition = edition
        self._gpus: dict[str, list[GpuRow]] = {}
        for gpu in edition.gpus:
            self._gpus.setdefault(gpu.pci_device_id, []).append(gpu)
        self._products = {i: row for row in edition.products for i in row.pci_device_ids}
        self._architectures = {row.architecture: row for row in edition.architectures}
        self._chips = {row.chip: row for row in edition.chips}
        self._branches = {row.major: row for row in edition.drivers}
        self._rules = {row.id: row for row in edition.driver_rules}
        self._toolkits = {row.cuda.parts[:2]: row for row in edition.toolkits}
        self._causes = {row.id: row for row in edition.causes}

    def gpus(self, device_id: str) -> tuple[GpuRow, ...]:
        """Every row of a PCI id: one, or one for each kind of board that shares it."""
        return tuple(self._gpus.get(device_id.lower(), ()))

    def gpu(self, device_id: str, subsystem_id: str = "") -> GpuRow | None:
        """The row of a PCI id such as `10de:2335`, and of a subsystem id such as `10de:18be` if known.

        Where several boards remain possible the answer is one row that claims only what they share:
        names joined by ` / `, memory left out when it differs.
        """
        rows = self.gpus(device_id)
        board = subsystem_id.lower()
        if board and len(rows) > 1:
            named = tuple(row for row in rows if board in row.subsystem_ids)
            rows = named or tuple(row for row in rows if not row.subsystem_ids) or rows
        if not rows:
            return None
        return rows[0] if len(rows) == 1 else _common(rows)

    def product(self, device_id: str) -> Product | None:
        """The hand-checked card with this PCI id."""
        return self._products.get(device_id.lower())

    def architecture(self, name: str) -> Architecture | None:
        return self._architectures.get(name)

    def chip(self, code: str) -> Chip | None:
        return self._chips.get(code)

    def branch(self, driver: Dotted) -> DriverBranch | None:
        """The branch a driver version belongs to."""
        return self._branches.get(driver.major)

    def rule(self, rule_id: str) -> DriverRule | None:
        """The sentence with a source that explanations quote: `fwd-compat`."""
        return self._rules.get(rule_id)

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

    def branches_for(self, device_id: str) -> tuple[int | None, int | None]:
        """The first and last driver branch for a GPU; None at an end that is open or not known."""
        row = self.gpu(device_id)
        architecture = self.architecture(row.architecture) if row else None
        if row is None or architecture is None:
            return None, None
        return architecture.first_branch, row.last_branch or architecture.last_branch


def _common(rows: tuple[GpuRow, ...]) -> GpuRow:
    """One row for several boards of an id: what they share, and nothing more."""
    first = rows[0]
    names = {row.name.casefold(): row.name for row in reversed(rows)}
    listed = [row.min_driver for row in rows if row.min_driver is not None]
    shared = {
        field: getattr(first, field)
        for field in ("memory_gb", "memory_type", "bandwidth_gb_s")
        if len({getattr(row, field) for row in rows}) == 1
    }
    differing = {"memory_gb": None, "memory_type": "", "bandwidth_gb_s": None}
    return msgspec.structs.replace(
        first,
        name=" / ".join(reversed(names.values())),
        former_names=tuple(name for row in rows for name in row.former_names),
        min_driver=min(listed, default=None),
        source=tuple(dict.fromkeys(text for row in rows for text in row.source)),
        subsystem_ids=tuple(board for row in rows for board in row.subsystem_ids),
        unlisted_subsystems=sum(row.unlisted_subsystems for row in rows),
        **{**differing, **shared},
    )


def enc_version(value: object) -> str:
    """How msgspec writes a version: its raw text."""
    if isinstance(value, Version):
        return value.raw
    raise NotImplementedError(f"{type(value).__name__} is not a type of the matrix")


def dec_version(kind: type, value: object) -> object:
    """How msgspec reads a version back."""
    if issubclass(kind, Version) and isinstance(value, str):
        return kind(value)
    raise NotImplementedError(f"{kind.__name__} is not a type of the matrix")
