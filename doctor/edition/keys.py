"""Which fields name a row of each table: for messages, for uniqueness, and for whoever looks one up."""

from __future__ import annotations

from doctor.core.rows.base import Row

__all__ = ["KEYS", "label"]

#: Tables whose rows are named by these fields together, each once.
KEYS: dict[str, tuple[str, ...]] = {
    "components": ("component",),
    "releases": ("component", "version"),
    "tools": ("component", "version"),
    "ansible": ("line",),
    "hardware": ("component", "versions"),
    "relations": ("id",),
    "advisories": ("id",),
    "stacks": ("id",),
    "systems": ("system",),
    "kernels": ("kernel",),
    "models": ("component", "architecture"),
    "quantization": ("component", "method"),
    "quantization_gates": ("component", "versions", "scheme"),
    "quantization_support": ("component", "versions", "family"),
    "kv_cache": ("component", "dtype"),
    "names": ("component", "kind", "name", "command"),
    "commands": ("component", "versions", "command"),
    "engine_grammars": ("component", "command"),
    "engine_flags": ("component", "command", "flag", "first"),
    "engine_batches": ("component", "first", "min_memory_gib"),
    "engine_dtypes": ("component", "dtype", "first"),
    "published": ("model",),
    "speeds": ("gpu",),
    "speed_ranges": ("id",),
    "owners": ("id",),
    "makers": ("maker",),
    "product_classes": ("products",),
    "changes": ("component", "change"),
    "xids": ("xid",),
    "sxids": ("id",),
    "driver_bugs": ("id",),
    "folklore": ("id",),
    "signatures": ("id",),
    "repositories": ("id",),
    "package_sets": ("id",),
    "package_families": ("id",),
    "package_versions": ("id",),
    "foreign_packages": ("id",),
}

#: Fields that name a row of the other tables, in order of preference.
_NAMES = ("id", "product", "pci_device_id", "chip", "branch", "cuda", "architecture")


def label(table: str, row: Row) -> str:
    """What a person calls a row: its id, product, branch, its component and version."""
    if table in KEYS:
        return " ".join(str(getattr(row, field)) for field in KEYS[table] if getattr(row, field))
    return next(str(getattr(row, name)) for name in _NAMES if hasattr(row, name))
