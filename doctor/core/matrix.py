"""Look-ups over the compatibility matrix that judgements need. Data, no rules.

Rows come from `matrices/*.yaml`, through the strict loader and the build of `doctor.edition`. Every row
names its source and the date it was read. Each table is decoded, and each index built, on first use.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Literal

import msgspec

from doctor.core.edition import Edition, dec_version, enc_version
from doctor.core.rows.base import Confidence, OpenModule, Row
from doctor.core.rows.cause import CauseRow, RemedyRow
from doctor.core.rows.driver import DriverBranch, DriverRule, ToolkitRow, ToolkitUpdate
from doctor.core.rows.hardware import Architecture, Chip, GpuRow, Product
from doctor.core.rows.package import Component, Release
from doctor.core.rows.site import Overlay
from doctor.core.rows.system import KernelRow, SystemRow
from doctor.core.rows.xid import DriverBug, DriverRange, SxidRow, XidRow
from doctor.core.versions import Dotted

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


class Matrix:
    """Look-ups over an edition. A miss is None: *not in this matrix*, which is not *unsupported*.

    `overlays` are those whose rows the edition holds already; `plain` is the edition without them.
    """

    def __init__(
        self, edition: Edition, *, overlays: tuple[Overlay, ...] = (), plain: Edition | None = None
    ) -> None:
        self.edition = edition
        self.overlays = overlays
        self._plain = plain or edition

    @property
    def overlay_names(self) -> tuple[str, ...]:
        """The overlays in force."""
        return tuple(overlay.name for overlay in self.overlays)

    def without_overlays(self) -> Matrix:
        """The matrix as it is published."""
        return Matrix(self._plain) if self.overlays else self

    @cached_property
    def _gpus(self) -> dict[str, list[GpuRow]]:
        found: dict[str, list[GpuRow]] = {}
        for gpu in self.edition.gpus:
            found.setdefault(gpu.pci_device_id, []).append(gpu)
        return found

    @cached_property
    def _products(self) -> dict[str, Product]:
        return {i: row for row in self.edition.products for i in row.pci_device_ids}

    @cached_property
    def _architectures(self) -> dict[str, Architecture]:
        return {row.architecture: row for row in self.edition.architectures}

    @cached_property
    def _chips(self) -> dict[str, Chip]:
        return {row.chip: row for row in self.edition.chips}

    @cached_property
    def _branches(self) -> dict[int, DriverBranch]:
        return {row.major: row for row in self.edition.drivers}

    @cached_property
    def _rules(self) -> dict[str, DriverRule]:
        return {row.id: row for row in self.edition.driver_rules}

    @cached_property
    def _toolkits(self) -> dict[tuple[int, ...], ToolkitRow]:
        return {row.cuda.parts[:2]: row for row in self.edition.toolkits}

    @cached_property
    def _causes(self) -> dict[str, CauseRow]:
        return {row.id: row for row in self.edition.causes}

    @cached_property
    def _xids(self) -> dict[int, XidRow]:
        return {row.xid: row for row in self.edition.xids}

    @cached_property
    def _sxids(self) -> dict[int, SxidRow]:
        return {code: row for row in self.edition.sxids for code in row.codes}

    @cached_property
    def _components(self) -> dict[str, Component]:
        return {row.component: row for row in self.edition.components}

    @cached_property
    def _releases(self) -> dict[str, dict[str, Release]]:
        found: dict[str, dict[str, Release]] = {}
        for row in self.edition.releases:
            found.setdefault(row.component, {})[row.version.raw] = row
        return found

    @cached_property
    def _systems(self) -> dict[str, SystemRow]:
        return {name: row for row in self.edition.systems for name in (*row.same_as, row.system)}

    @cached_property
    def _kernels(self) -> dict[tuple[int, ...], KernelRow]:
        return {row.kernel.parts[:2]: row for row in self.edition.kernels}

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

    def product_class(self, name: str) -> Literal["data-center", "geforce-rtx"]:
        """Whose bulletins count for a card of this name: they have floors of their own."""
        words = set(re.split(r"[^a-z0-9]+", name.casefold()))
        for row in self.edition.product_classes:
            if words.intersection(row.words):
                return row.products
        return "data-center"

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

    def xid(self, code: int) -> XidRow | None:
        """The row of an Xid code; None for a code newer than this edition."""
        return self._xids.get(code)

    def sxid(self, code: int) -> SxidRow | None:
        """The row of an NVSwitch's SXid code."""
        return self._sxids.get(code)

    def driver_bugs(self, driver: Dotted) -> tuple[DriverBug, ...]:
        """Known faults of a driver release that a later release mends."""
        return tuple(bug for bug in self.edition.driver_bugs if any(_is_in(r, driver) for r in bug.ranges))

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

    def component(self, name: str) -> Component | None:
        return self._components.get(name)

    def releases(self, component: str) -> tuple[Release, ...]:
        """The releases of a Python package, oldest version first; none where the matrix has no such table."""
        return tuple(self._releases.get(component, {}).values())

    def release(self, component: str, version: str) -> Release | None:
        """One release by its version as the package index writes it."""
        return self._releases.get(component, {}).get(version)

    def system(self, name: str) -> SystemRow | None:
        """The row of an operating system: `rocky-9`, and `rhel-9` as well."""
        return self._systems.get(name)

    def kernel(self, release: Dotted) -> KernelRow | None:
        """The row of a kernel's minor release; `6.8.0-124-generic` finds `6.8`."""
        return self._kernels.get((*release.parts, 0)[:2])


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


def _is_in(span: DriverRange, driver: Dotted) -> bool:
    is_late = span.fixed_in is not None and driver >= span.fixed_in
    return driver.major == span.branch and not is_late and (span.since is None or driver >= span.since)
