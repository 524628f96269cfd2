"""The YAML sources of the matrix as an edition; or every fault in them at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from yaml.nodes import MappingNode, ScalarNode

from doctor.core.edition import TABLES, Edition, layout
from doctor.core.rows.base import Confidence, Row
from doctor.edition.contradictions import judge_contradictions
from doctor.edition.digest import digest
from doctor.edition.flag_relations import judge_flags
from doctor.edition.folklore_relations import judge_folklore
from doctor.edition.install_relations import judge_install
from doctor.edition.package_relations import judge_packages
from doctor.edition.relations import Tables, judge_relations
from doctor.edition.signature_relations import judge_signatures
from doctor.edition.strict import BAD, Entry, Faults, Located, Place, Reader, compose, entries, nearest
from doctor.edition.system_relations import judge_systems
from doctor.errors import MatrixError

__all__ = ["TABLE_OF", "SourceFile", "compile_edition", "judge_tables", "read_head", "sections_of"]

R = TypeVar("R", bound=Row)

#: Which tables a file has rows of. Order matters once: chips are read before the ids that name them.
_FILES: dict[str, tuple[str, ...]] = {
    "advisories.yaml": ("advisories",),
    "ansible.yaml": ("ansible",),
    "causes.yaml": ("causes",),
    "causes_container.yaml": ("causes",),
    "causes_engine.yaml": ("causes",),
    "causes_fabric.yaml": ("causes",),
    "causes_goal.yaml": ("causes",),
    "causes_machine.yaml": ("causes",),
    "causes_provision.yaml": ("causes",),
    "causes_text.yaml": ("causes",),
    "components.yaml": ("components", "relations"),
    "container.yaml": ("tools", "stacks", "rules"),
    "cuda.yaml": ("toolkits", "rules"),
    "drivers.yaml": ("branches", "rules"),
    "driver_bugs.yaml": ("driver_bugs",),
    "engine_flags.yaml": ("engine_grammars", "engine_flags", "engine_batches", "engine_dtypes"),
    "engines.yaml": (
        *("hardware", "models", "quantization", "quantization_gates", "quantization_support", "kv_cache"),
        "rules",
    ),
    "flashinfer.yaml": ("releases",),
    "folklore.yaml": ("folklore",),
    "gpus.yaml": ("architectures", "products", "rules"),
    "kernels.yaml": ("kernels", "rules"),
    "modelopt.yaml": ("releases",),
    "names.yaml": ("names", "commands"),
    "packages.yaml": (
        *("repositories", "package_sets", "package_families", "package_versions"),
        "foreign_packages",
    ),
    "pci_ids.yaml": ("chips", "gpus"),
    "relations.yaml": ("owners", "makers", "product_classes", "changes"),
    "sglang.yaml": ("releases",),
    "signatures_container.yaml": ("signatures",),
    "signatures_cuda.yaml": ("signatures",),
    "signatures_driver.yaml": ("signatures",),
    "signatures_engine.yaml": ("signatures",),
    "signatures_kernel.yaml": ("signatures",),
    "signatures_provision.yaml": ("signatures",),
    "published_models.yaml": ("published",),
    "speeds.yaml": ("speeds", "speed_ranges", "rules"),
    "systems.yaml": ("systems", "rules"),
    "tensorrt.yaml": ("releases", "rules"),
    "tensorrt_llm.yaml": ("releases", "rules"),
    "torch.yaml": ("releases",),
    "torch_tensorrt.yaml": ("releases",),
    "vllm.yaml": ("releases",),
    "xgrammar.yaml": ("releases",),
    "xids.yaml": ("xids", "sxids"),
}
_HEAD = "edition.yaml"

#: Sections that have another name than their table.
TABLE_OF = {"branches": "drivers", "rules": "driver_rules"}

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
    component: str | None = None
    confidence: Confidence | None = None
    review_by: str | None = None


def compile_edition(sources: Mapping[str, bytes]) -> Edition:
    """The edition of these files. Raises MatrixError with every fault in `problems`."""
    faults = Faults()
    tables = Tables()
    head: _Head | None = None
    for name in sorted({*sources, *_NEEDED, _HEAD}):
        place = Place(name, 1, "")
        if name not in sources:
            faults.add(place, "the file is missing")
            tables.incomplete.update(_FILES.get(name, ()))
        elif name == _HEAD:
            head = read_head(name, sources[name], faults)
        elif name not in _FILES:
            faults.add(place, f"no such part of a matrix{nearest(name, _FILES)}")
        else:
            SourceFile(name, sources[name], faults, tables, kinds=sections_of(name), is_whole=True).read()
    if head is not None:
        judge_tables(tables, head.as_of, faults)
    if faults or head is None:
        lines = faults.lines()
        word = "fault" if len(lines) == 1 else "faults"
        raise MatrixError(f"the matrix source has {len(lines)} {word}", problems=lines)
    return _edition(head, tables, digest(sources))


def judge_tables(tables: Tables, as_of: str, faults: Faults) -> None:
    """Note whatever does not hold between rows, of the edition alone or of one with overlays."""
    judge_relations(tables, as_of, faults)
    judge_packages(tables, as_of, faults)
    judge_systems(tables, as_of, faults)
    judge_install(tables, faults)
    judge_folklore(tables, faults)
    judge_flags(tables, faults)
    judge_signatures(tables, faults)
    judge_contradictions(tables, faults)


def read_head(file: str, data: bytes, faults: Faults) -> _Head | None:
    """The name and day that a file of YAML begins with; None with the fault noted.

    Where the file holds sections as well (an overlay does), they are left for whoever reads rows.
    """
    node = compose(file, data, faults)
    if isinstance(node, MappingNode) and file != _HEAD:
        known = _Head.__struct_fields__
        own = [(key, value) for key, value in node.value if getattr(key, "value", None) in known]
        node = MappingNode(node.tag, own, node.start_mark, node.end_mark)
    return Reader(file, faults).struct(node, _Head, "") if node else None


def _edition(head: _Head, tables: Tables, sha256: str) -> Edition:
    sections = {table: section for section, table in TABLE_OF.items()}
    rows: dict[str, Any] = {
        table: tuple(located.row for located in tables[sections.get(table, table)]) for table in TABLES
    }
    return Edition(name=head.name, as_of=head.as_of, digest=sha256, layout=layout(), **rows)


def sections_of(name: str) -> dict[str, type[Row]]:
    """The sections of a file of this name and their row types; none where a matrix has no such part."""
    return {section: TABLES[TABLE_OF.get(section, section)] for section in _FILES.get(name, ())}


class SourceFile:
    """One file on its way into the tables: its own `sources` and `defaults`, and its sections.

    `kinds` are the sections that it may have; a whole one must have them all. `head` names keys that
    somebody else reads.
    """

    def __init__(  # noqa: PLR0913 - a file is read with these
        self,
        name: str,
        data: bytes,
        faults: Faults,
        tables: Tables,
        *,
        kinds: Mapping[str, type[Row]],
        is_whole: bool = False,
        head: tuple[str, ...] = (),
    ) -> None:
        self._name = name
        self._kinds = kinds
        self._is_whole = is_whole
        self._head = head
        self._faults = faults
        self._tables = tables
        self._reader = Reader(name, faults)
        self._node = compose(name, data, faults)
        self._section = ""
        self._texts: dict[str, str] = {}
        self._written: dict[str, Place] = {}
        self._used: set[str] = set()
        self._defaults: dict[str, Any] = {}

    def read(self) -> None:
        """Put the rows of every section into the tables; what is wrong goes to the faults."""
        sections, before = tuple(self._kinds), len(self._faults)
        parts = entries(self._node, Place(self._name, 1, ""), self._faults) if self._node else {}
        if not parts:
            self._tables.incomplete.update(sections)
            return
        for key in parts.keys() - {"sources", "defaults", *sections, *self._head}:
            known = ("sources", "defaults", *sections)
            at = Place(self._name, parts[key].line, key)
            self._faults.add(at, f"unknown section{nearest(key, known)}")
        self._read_sources(parts.get("sources"))
        self._read_defaults(parts.get("defaults"))
        for key in sections:
            self._read_section(key, self._kinds[key], parts.get(key))
        if len(self._faults) == before:
            self._refuse_unused()

    def _read_section(self, key: str, kind: type[Row], entry: Entry | None) -> None:
        self._section, before = key, len(self._faults)
        if entry is None:
            if self._is_whole:
                self._faults.add(Place(self._name, 1, ""), f"`{key}` is missing")
        else:
            rows = self._reader.rows(entry.node, kind, key, self._fill)
            self._tables[key].extend(self._sourced(row) for row in rows)
        if len(self._faults) > before or BAD in self._defaults.values():
            self._tables.incomplete.add(key)

    def _read_defaults(self, entry: Entry | None) -> None:
        if entry is None:
            return
        defaults = self._reader.struct(entry.node, _Defaults, "defaults")
        # Bad defaults are one fault, not one for each row that relies on them.
        bad = dict.fromkeys(("as_of", "component", "confidence", "review_by"), BAD)
        self._defaults = msgspec.to_builtins(defaults) if defaults else bad

    def _read_sources(self, entry: Entry | None) -> None:
        if entry is None:
            return
        at = Place(self._name, entry.line, "sources")
        for key, value in entries(entry.node, at, self._faults).items():
            place = Place(self._name, value.line, f"sources.{key}")
            if not _SOURCE_KEY.fullmatch(key):
                self._faults.add(place, "a key has lower-case letters, digits, `.`, `_` and `-`")
            elif not isinstance(value.node, ScalarNode) or not value.node.value.strip():
                self._faults.add(place, "the text of a source is wanted")
            else:
                self._texts[key] = value.node.value
                self._written[key] = place

    def _refuse_unused(self) -> None:
        for key in self._written.keys() - self._used:
            self._faults.add(self._written[key], "no row of this file uses it")

    def _fill(self, given: dict[str, Any], at: Callable[[str], Place]) -> None:
        """What a row need not repeat: the file's defaults, and what its chip says."""
        for name, value in self._defaults.items():
            if name in self._kinds[self._section].__struct_fields__:
                given.setdefault(name, value)
        code = given.get("chip")
        if code is None or self._section != "gpus":
            return
        chips = {located.row.chip: located.row for located in self._tables["chips"]}
        if code not in chips and code is not BAD and "chips" not in self._tables.incomplete:
            self._faults.add(at("chip"), f"the chip `{code}` is not in `chips`{nearest(code, chips)}")
        for name in ("architecture", "compute_capability"):
            # An unknown chip is one fault, not three.
            given.setdefault(name, getattr(chips[code], name) if code in chips else BAD)

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
