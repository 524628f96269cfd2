"""The YAML sources of the matrix as an edition; or every fault in them at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from yaml.nodes import Node, ScalarNode

from doctor.core.matrix import (
    Architecture,
    CauseRow,
    Chip,
    Confidence,
    DriverBranch,
    DriverRule,
    Edition,
    GpuRow,
    Product,
    Row,
    ToolkitRow,
)
from doctor.edition.digest import digest
from doctor.edition.relations import Table, judge_relations
from doctor.edition.strict import Faults, Located, Place, Reader, compose, entries, nearest
from doctor.errors import MatrixError

__all__ = ["compile_edition"]

R = TypeVar("R", bound=Row)

#: Which sections a file has. Order matters once: chips are read before the ids that name them.
_FILES: dict[str, dict[str, type[Row]]] = {
    "causes.yaml": {"causes": CauseRow},
    "cuda.yaml": {"toolkits": ToolkitRow, "rules": DriverRule},
    "drivers.yaml": {"branches": DriverBranch, "rules": DriverRule},
    "gpus.yaml": {"architectures": Architecture, "products": Product, "rules": DriverRule},
    "pci_ids.yaml": {"chips": Chip, "gpus": GpuRow},
}
_HEAD = "edition.yaml"

#: Without rows of these an edition is of no use. Causes may live elsewhere while they are written.
_NEEDED = ("cuda.yaml", "drivers.yaml", "gpus.yaml", "pci_ids.yaml")

#: A word of this form in `source` is a key of the file's `sources`; anything else is the text itself.
_SOURCE_KEY = re.compile(r"[a-z0-9][a-z0-9._-]*")


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    as_of: str


class _Defaults(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What rows of a file have in common. A row's source is never among it."""

    as_of: str | None = None
    confidence: Confidence | None = None
    review_by: str | None = None


def compile_edition(sources: Mapping[str, bytes]) -> Edition:
    """The edition of these files. Raises MatrixError with every fault in `problems`."""
    faults = Faults()
    tables: dict[str, Table] = {}
    head: _Head | None = None
    for name in sorted({*sources, *_NEEDED, _HEAD}):
        place = Place(name, 1, "")
        if name not in sources:
            faults.add(place, "the file is missing")
        elif name == _HEAD:
            head = _read_head(sources[name], faults)
        elif name not in _FILES:
            faults.add(place, f"no such part of a matrix{nearest(name, _FILES)}")
        else:
            _File(name, sources[name], faults, tables).read()
    if head is not None:
        tables = judge_relations(tables, head.as_of, faults)
    if faults or head is None:
        lines = faults.lines()
        word = "fault" if len(lines) == 1 else "faults"
        raise MatrixError(f"the matrix source has {len(lines)} {word}", problems=lines)
    return _edition(head, tables, digest(sources))


def _read_head(data: bytes, faults: Faults) -> _Head | None:
    node = compose(_HEAD, data, faults)
    return Reader(_HEAD, faults).struct(node, _Head, "") if node else None


def _edition(head: _Head, tables: dict[str, Table], sha256: str) -> Edition:
    def rows(section: str) -> tuple[Any, ...]:
        return tuple(located.row for located in tables.get(section, []))

    return Edition(
        name=head.name,
        as_of=head.as_of,
        digest=sha256,
        architectures=rows("architectures"),
        products=rows("products"),
        chips=rows("chips"),
        gpus=rows("gpus"),
        drivers=rows("branches"),
        driver_rules=rows("rules"),
        toolkits=rows("toolkits"),
        causes=rows("causes"),
    )


class _File:
    """One file on its way into the tables: its own `sources` and `defaults`, and its sections."""

    def __init__(self, name: str, data: bytes, faults: Faults, tables: dict[str, Table]) -> None:
        self._name = name
        self._faults = faults
        self._tables = tables
        self._reader = Reader(name, faults)
        self._node = compose(name, data, faults)
        self._texts: dict[str, str] = {}
        self._used: set[str] = set()
        self._defaults: dict[str, str] = {}

    def read(self) -> None:
        if self._node is None:
            return
        sections = _FILES[self._name]
        parts = entries(self._node, Place(self._name, 1, ""), self._faults)
        for key in parts.keys() - {"sources", "defaults", *sections}:
            known = ("sources", "defaults", *sections)
            self._faults.add(self._place(parts[key], key), f"unknown section{nearest(key, known)}")
        self._read_sources(parts.get("sources"))
        if "defaults" in parts:
            defaults = self._reader.struct(parts["defaults"], _Defaults, "defaults")
            self._defaults = msgspec.to_builtins(defaults) if defaults else {}
        for key, kind in sections.items():
            if key not in parts:
                self._faults.add(Place(self._name, 1, ""), f"`{key}` is missing")
                continue
            rows = self._reader.rows(parts[key], kind, key, self._fill)
            self._tables.setdefault(key, []).extend(self._sourced(row) for row in rows)
        self._refuse_unused(parts.get("sources"))

    def _read_sources(self, node: Node | None) -> None:
        if node is None:
            return
        for key, value in entries(node, self._place(node, "sources"), self._faults).items():
            place = self._place(value, f"sources.{key}")
            if not _SOURCE_KEY.fullmatch(key):
                self._faults.add(place, "a key has lower-case letters, digits, `.`, `_` and `-`")
            elif not isinstance(value, ScalarNode) or not value.value.strip():
                self._faults.add(place, "the text of a source is wanted")
            else:
                self._texts[key] = value.value

    def _refuse_unused(self, node: Node | None) -> None:
        for key in self._texts.keys() - self._used if node else ():
            self._faults.add(self._place(node, f"sources.{key}"), "no row of this file uses it")

    def _fill(self, given: dict[str, Any], place: Place) -> None:
        """What a row need not repeat: the file's defaults, and what its chip says."""
        for name, value in self._defaults.items():
            given.setdefault(name, value)
        code = given.get("chip")
        if code is None or not place.path.startswith("gpus["):
            return
        chip = next((c.row for c in self._tables.get("chips", []) if c.row.chip == code), None)
        if chip is None:
            known = (str(c.row.chip) for c in self._tables.get("chips", []))
            self._faults.add(place, f"the chip `{code}` is not in `chips`{nearest(str(code), known)}")
        for name in ("architecture", "compute_capability"):
            # An unknown chip is one fault, not three: the row is given up with what it would have.
            given.setdefault(name, getattr(chip, name) if chip else "")

    def _sourced(self, located: Located[R]) -> Located[R]:
        """The row with its source keys replaced by their texts."""
        texts = []
        for entry in located.row.source:
            if entry in self._texts:
                self._used.add(entry)
                texts.append(self._texts[entry])
            elif _SOURCE_KEY.fullmatch(entry):
                message = f"`{entry}` is no key of `sources`{nearest(entry, self._texts)}"
                self._faults.add(located.at("source"), message)
            else:
                texts.append(entry)
        return located.replace(msgspec.structs.replace(located.row, source=tuple(texts)))

    def _place(self, node: Node | None, path: str) -> Place:
        return Place(self._name, node.start_mark.line + 1 if node else 1, path)
