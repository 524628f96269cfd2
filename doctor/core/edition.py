"""The compiled matrix: every table of rows under one name and digest, each decoded when it is asked for."""

from __future__ import annotations

import zlib
from typing import Any, Literal

import msgspec

from doctor.core.rows.base import Row
from doctor.core.rows.cause import CauseRow, RemedyRow
from doctor.core.rows.choice import ChangeCost, DriverOwner, GpuMaker, ProductClass
from doctor.core.rows.driver import DriverBranch, DriverRule, ToolkitRow, ToolkitUpdate
from doctor.core.rows.engine import (
    CommandRow,
    KvCacheDtype,
    ModelRow,
    NameRow,
    QuantizationGate,
    QuantizationMethod,
    QuantizationSupport,
)
from doctor.core.rows.flag import EngineBatch, EngineDtype, EngineFlag, EngineGrammar
from doctor.core.rows.folklore import FolkloreRow
from doctor.core.rows.hardware import Architecture, Chip, GpuRow, Product
from doctor.core.rows.install import ForeignPackage, PackageFamily, PackageSet, PackageVersions, RepositoryRow
from doctor.core.rows.package import AnsibleLine, Component, HardwareSupport, Release, ToolRelease
from doctor.core.rows.published import PublishedModel
from doctor.core.rows.relation import Advisory, ReferenceStack, Relation
from doctor.core.rows.signature import SignatureRow, Suspect
from doctor.core.rows.speed import GpuSpeed, SpeedRange
from doctor.core.rows.system import KernelBuild, KernelRow, StableChange, SystemRow
from doctor.core.rows.xid import DriverBug, DriverRange, SxidRow, XidRow
from doctor.core.versions import Version
from doctor.errors import MatrixError

__all__ = ["TABLES", "Edition", "dec_version", "enc_version", "layout", "read_edition"]

#: The row type of each table, in the order in which tables are shown.
TABLES: dict[str, type[Row]] = {
    "architectures": Architecture,
    "products": Product,
    "chips": Chip,
    "gpus": GpuRow,
    "drivers": DriverBranch,
    "driver_rules": DriverRule,
    "toolkits": ToolkitRow,
    "causes": CauseRow,
    "xids": XidRow,
    "sxids": SxidRow,
    "driver_bugs": DriverBug,
    "components": Component,
    "releases": Release,
    "tools": ToolRelease,
    "ansible": AnsibleLine,
    "hardware": HardwareSupport,
    "relations": Relation,
    "advisories": Advisory,
    "stacks": ReferenceStack,
    "systems": SystemRow,
    "kernels": KernelRow,
    "models": ModelRow,
    "quantization": QuantizationMethod,
    "quantization_gates": QuantizationGate,
    "quantization_support": QuantizationSupport,
    "kv_cache": KvCacheDtype,
    "names": NameRow,
    "commands": CommandRow,
    "engine_grammars": EngineGrammar,
    "engine_flags": EngineFlag,
    "engine_batches": EngineBatch,
    "engine_dtypes": EngineDtype,
    "published": PublishedModel,
    "speeds": GpuSpeed,
    "speed_ranges": SpeedRange,
    "owners": DriverOwner,
    "makers": GpuMaker,
    "product_classes": ProductClass,
    "changes": ChangeCost,
    "folklore": FolkloreRow,
    "signatures": SignatureRow,
    "repositories": RepositoryRow,
    "package_sets": PackageSet,
    "package_families": PackageFamily,
    "package_versions": PackageVersions,
    "foreign_packages": ForeignPackage,
}

_NESTED: tuple[type[msgspec.Struct], ...] = (
    DriverRange,
    KernelBuild,
    RemedyRow,
    StableChange,
    Suspect,
    ToolkitUpdate,
)


class Edition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The matrix as one value. A table that was read from the compiled file is decoded on first use."""

    schema: Literal["mopt.matrix/1"] = "mopt.matrix/1"
    name: str
    """`2026.11`."""
    as_of: str
    digest: str
    """SHA-256 over the YAML sources, in name order."""
    layout: str = ""
    """Of the row types that it was compiled for; see `layout`."""
    architectures: tuple[Architecture, ...]
    products: tuple[Product, ...]
    chips: tuple[Chip, ...]
    gpus: tuple[GpuRow, ...]
    drivers: tuple[DriverBranch, ...]
    driver_rules: tuple[DriverRule, ...]
    toolkits: tuple[ToolkitRow, ...]
    causes: tuple[CauseRow, ...]
    xids: tuple[XidRow, ...] = ()
    sxids: tuple[SxidRow, ...] = ()
    driver_bugs: tuple[DriverBug, ...] = ()
    components: tuple[Component, ...] = ()
    releases: tuple[Release, ...] = ()
    tools: tuple[ToolRelease, ...] = ()
    ansible: tuple[AnsibleLine, ...] = ()
    hardware: tuple[HardwareSupport, ...] = ()
    relations: tuple[Relation, ...] = ()
    advisories: tuple[Advisory, ...] = ()
    stacks: tuple[ReferenceStack, ...] = ()
    systems: tuple[SystemRow, ...] = ()
    kernels: tuple[KernelRow, ...] = ()
    models: tuple[ModelRow, ...] = ()
    quantization: tuple[QuantizationMethod, ...] = ()
    quantization_gates: tuple[QuantizationGate, ...] = ()
    quantization_support: tuple[QuantizationSupport, ...] = ()
    kv_cache: tuple[KvCacheDtype, ...] = ()
    names: tuple[NameRow, ...] = ()
    commands: tuple[CommandRow, ...] = ()
    engine_grammars: tuple[EngineGrammar, ...] = ()
    engine_flags: tuple[EngineFlag, ...] = ()
    engine_batches: tuple[EngineBatch, ...] = ()
    engine_dtypes: tuple[EngineDtype, ...] = ()
    published: tuple[PublishedModel, ...] = ()
    speeds: tuple[GpuSpeed, ...] = ()
    speed_ranges: tuple[SpeedRange, ...] = ()
    owners: tuple[DriverOwner, ...] = ()
    makers: tuple[GpuMaker, ...] = ()
    product_classes: tuple[ProductClass, ...] = ()
    changes: tuple[ChangeCost, ...] = ()
    folklore: tuple[FolkloreRow, ...] = ()
    signatures: tuple[SignatureRow, ...] = ()
    repositories: tuple[RepositoryRow, ...] = ()
    package_sets: tuple[PackageSet, ...] = ()
    package_families: tuple[PackageFamily, ...] = ()
    package_versions: tuple[PackageVersions, ...] = ()
    foreign_packages: tuple[ForeignPackage, ...] = ()

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if type(value) is msgspec.Raw:
            # The value means the same before and after; only its form changes, once.
            value = _decoded(name, value)
            msgspec.structs.force_setattr(self, name, value)
        return value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Edition):
            return NotImplemented
        return all(getattr(self, field) == getattr(other, field) for field in self.__struct_fields__)

    __hash__ = None  # type: ignore[assignment]  # holds mappings

    def rows(self) -> dict[str, tuple[Row, ...]]:
        """Every row by table, in the order of the tables."""
        return {table: getattr(self, table) for table in TABLES}


_Compiled: Any = msgspec.defstruct(
    "_Compiled",
    [
        ("schema", Literal["mopt.matrix/1"]),
        *((name, str) for name in ("name", "as_of", "digest", "layout")),
        *((table, msgspec.Raw) for table in TABLES),
    ],
    forbid_unknown_fields=True,
)


def read_edition(data: bytes) -> Edition:
    """A compiled edition, its tables still encoded. Raises msgspec.MsgspecError when it is damaged."""
    compiled = msgspec.json.decode(data, type=_Compiled)
    return Edition(**{field: getattr(compiled, field) for field in _Compiled.__struct_fields__})


def layout() -> str:
    """A fingerprint of the row types: an edition compiled for others is compiled again, or refused."""
    kinds = (*TABLES.values(), *_NESTED)
    names = ";".join(f"{kind.__name__}:{','.join(kind.__struct_fields__)}" for kind in kinds)
    return f"{zlib.crc32(names.encode()):08x}"


def _decoded(table: str, raw: msgspec.Raw) -> tuple[Row, ...]:
    kind: Any = TABLES[table]  # chosen at run time, which a type checker cannot follow
    try:
        rows: tuple[Row, ...] = msgspec.json.decode(raw, type=tuple[kind, ...], dec_hook=dec_version)
    except msgspec.MsgspecError as error:
        raise MatrixError(
            f"the table `{table}` of the compiled matrix is damaged: {error}",
            hints=("remove `edition.json` in a source tree; install again elsewhere",),
        ) from error
    return rows


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
