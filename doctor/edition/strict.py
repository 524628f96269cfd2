"""Hand-written YAML as typed rows, strictly: every fault is noted with its file, line and field.

YAML guesses types; a matrix must not. A version `12.10` that YAML reads as the number 12.1 is the
classic, so whatever is text in a row must be text in the file, and nothing is converted.
"""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec
import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from doctor.core.versions import Dotted, Version
from doctor.timeouts import MATRIX_DEPTH_MAX, MATRIX_FILE_BYTES_MAX, MATRIX_NODES_MAX

__all__ = ["BAD", "Entry", "Faults", "Located", "Place", "Reader", "compose", "entries", "nearest"]

S = TypeVar("S", bound=msgspec.Struct)

#: What stands for a value that could not be read; its fault is noted already.
BAD: Final = object()

#: Fields whose text has one form, wherever they appear: pattern and how to say it.
_FORMS: dict[str, tuple[str, str]] = {
    "pci_device_id": (r"10de:[0-9a-f]{4}", "a PCI id such as `10de:2335`, in lower case"),
    "pci_device_ids": (r"10de:[0-9a-f]{4}", "a PCI id such as `10de:2335`, in lower case"),
    "subsystem_ids": (r"[0-9a-f]{4}:[0-9a-f]{4}", "a subsystem id such as `10de:14a9`, in lower case"),
    "compute_capability": (r"\d+\.\d", "a compute capability such as `9.0`"),
    "sm": (r"\d{2,3}", "an nvcc target number such as `90`"),
    "sm_targets": (r"\d{2,3}", "an nvcc target number such as `90`"),
    "branch": (r"R\d{3}", "a branch such as `R580`"),
    "ends": (r"\d{4}-(0[1-9]|1[0-2])", "a month such as `2028-06`"),
    "as_of": (r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])", "a date such as `2026-11-30`"),
    "review_by": (r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])", "a date such as `2026-11-30`"),
    "released": (r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])", "a date such as `2026-11-30`"),
    "support_ends": (r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])", "a date such as `2026-11-30`"),
    "extended_ends": (r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])", "a date such as `2026-11-30`"),
    "min_compute_capability": (r"\d+\.\d", "a compute capability such as `9.0`"),
    "native_compute_capability": (r"\d+\.\d", "a compute capability such as `9.0`"),
    "ptx": (r"\d+\.\d", "a compute capability such as `9.0`"),
    "interpreters": (r"3\.\d{1,2}", "a Python version such as `3.12`"),
    "cves": (r"CVE-\d{4}-\d{4,7}", "a number such as `CVE-2026-24260`"),
}

#: Fields that name a row in messages, in order of preference.
_LABELS = (
    *("id", "pci_device_id", "product", "chip", "branch", "version", "cuda", "architecture", "line"),
    *("system", "kernel", "method", "scheme", "family", "dtype", "name", "flag", "command", "gpu", "model"),
    "component",
)


class Place(NamedTuple):
    """Where in the source something stands."""

    file: str
    line: int
    path: str


class Entry(NamedTuple):
    """One entry of a mapping: the line of its key, and its value."""

    line: int
    node: Node


class Faults:
    """Every fault of a source, so that one run tells them all."""

    def __init__(self) -> None:
        self._found: set[tuple[str, int, str, str]] = set()

    def add(self, place: Place, message: str) -> None:
        self._found.add((place.file, place.line, place.path, message))

    def __len__(self) -> int:
        return len(self._found)

    def lines(self) -> tuple[str, ...]:
        """`file:line: field path: message`, in the order of files and lines."""
        return tuple(
            f"{file}:{line}: {path}: {text}" if path else f"{file}:{line}: {text}"
            for file, line, path, text in sorted(self._found)
        )


class Located(Generic[S]):
    """A row and where each of its fields stands."""

    __slots__ = ("_lines", "place", "row")

    def __init__(self, row: S, place: Place, lines: dict[str, int]) -> None:
        self.row = row
        self.place = place
        self._lines = lines

    def at(self, field: str) -> Place:
        """The place of a field; of the row when the field is not written out."""
        line = self._lines.get(field, self.place.line)
        return Place(self.place.file, line, f"{self.place.path}.{field}")

    def replace(self, row: S) -> Located[S]:
        return Located(row, self.place, self._lines)


def nearest(name: str, known: Iterable[str]) -> str:
    """` (did you mean …?)` when a known name is close, else nothing."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" (did you mean `{close[0]}`?)" if close else ""


# --- bytes to nodes -------------------------------------------------------------------------------

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def compose(file: str, data: bytes, faults: Faults) -> Node | None:
    """The node tree of one file; None when it cannot be read, with the fault noted."""
    start = Place(file, 1, "")
    if len(data) > MATRIX_FILE_BYTES_MAX:
        faults.add(start, f"{len(data)} bytes; a matrix file has {MATRIX_FILE_BYTES_MAX} at most")
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        faults.add(Place(file, data.count(b"\n", 0, error.start) + 1, ""), "not UTF-8")
        return None
    try:
        if not _is_plain(file, text, faults):
            return None
        node: Node | None = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        parts = (getattr(error, "context", None), getattr(error, "problem", None))
        problem = ", ".join(part for part in parts if part)
        faults.add(Place(file, mark.line + 1 if mark else 1, ""), f"not YAML: {problem or error}")
        return None
    if node is None:
        faults.add(start, "the file is empty")
    return node


def _is_plain(file: str, text: str, faults: Faults) -> bool:
    """False when the text uses what a matrix has no need of: anchors, tags, depth, a flood of nodes.

    Aliases let a small file unfold into gigabytes; tags ask for types.
    """
    depth, plain = 0, True
    events: Iterable[Any] = yaml.parse(text, Loader=_Loader)
    for count, event in enumerate(events, start=1):
        place = Place(file, event.start_mark.line + 1, "")
        if getattr(event, "anchor", None):
            faults.add(place, f"anchors and aliases are not used here (`{event.anchor}`)")
            plain = False
        elif getattr(event, "tag", None):
            faults.add(place, f"tags are not used here (`{event.tag}`)")
            plain = False
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MATRIX_DEPTH_MAX or count > MATRIX_NODES_MAX:
            faults.add(place, f"more than {MATRIX_DEPTH_MAX} levels or {MATRIX_NODES_MAX} values")
            return False
    return plain


def entries(node: Node, place: Place, faults: Faults) -> dict[str, Entry]:
    """The entries of a mapping; a key that is no text or stands twice is a fault."""
    if not isinstance(node, MappingNode):
        faults.add(place, f"a mapping is wanted, not {_kind(node)}")
        return {}
    found: dict[str, Entry] = {}
    for key, value in node.value:
        at = Place(place.file, key.start_mark.line + 1, place.path)
        if not isinstance(key, ScalarNode):
            faults.add(at, f"a key is text, not {_kind(key)}")
        elif key.value in found:
            faults.add(at, f"`{key.value}` stands here twice")
        else:
            found[key.value] = Entry(at.line, value)
    return found


def _kind(node: Node) -> str:
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, SequenceNode):
        return "a list"
    names = {"null": "nothing", "int": "a number", "float": "a number", "bool": "true or false"}
    return names.get(node.tag.rpartition(":")[2], "text")


# --- nodes to typed rows --------------------------------------------------------------------------


#: Adds to a row the fields that follow from elsewhere; its second argument gives a field's place.
Fill = Callable[[dict[str, Any], Callable[[str], Place]], None]


class Reader:
    """Reads rows of one file; what is wrong goes to `faults`, what is right comes back."""

    def __init__(self, file: str, faults: Faults) -> None:
        self._file = file
        self._faults = faults

    def rows(
        self,
        node: Node,
        kind: type[S],
        path: str,
        fill: Fill = lambda _given, _at: None,
    ) -> list[Located[S]]:
        """The rows of a section. `fill` adds fields that follow from elsewhere before any is missed."""
        if not isinstance(node, SequenceNode) or not node.value:
            self._faults.add(self._place(node, path), f"a list of rows is wanted, not {_empty_or(node)}")
            return []
        found = (
            self._row(item, kind, f"{path}[{_label(item, n)}]", fill) for n, item in enumerate(node.value)
        )
        return [row for row in found if row is not None]

    def struct(self, node: Node, kind: type[S], path: str) -> S | None:
        """One mapping as a struct; None when something in it is wrong."""
        row = self._row(node, kind, path, lambda _given, _at: None)
        return row.row if row else None

    def _row(self, node: Node, kind: type[S], path: str, fill: Fill) -> Located[S] | None:
        place = self._place(node, path)
        fields = _fields(kind)
        written = entries(node, place, self._faults)
        lines = {name: entry.line for name, entry in written.items()}
        given: dict[str, Any] = {}
        for name, entry in written.items():
            at = f"{path}.{name}" if path else name
            if name in fields:
                given[name] = self._value(entry.node, fields[name].type, at)
            else:
                self._faults.add(Place(self._file, entry.line, at), f"unknown field{nearest(name, fields)}")
        if not isinstance(node, MappingNode):
            return None
        fill(given, lambda field: Place(self._file, lines.get(field, place.line), f"{path}.{field}"))
        for name in (name for name, field in fields.items() if field.required and name not in given):
            self._faults.add(place, f"`{name}` is missing")
            given[name] = BAD
        if any(value is BAD for value in given.values()):
            return None
        return Located(kind(**given), place, lines)

    def _value(self, node: Node, kind: Any, path: str) -> Any:
        origin = get_origin(kind)
        if origin in (Union, types.UnionType):
            return self._value(node, next(a for a in get_args(kind) if a is not type(None)), path)
        if origin is tuple:
            return self._list(node, get_args(kind)[0], path)
        if origin is dict:
            return self._texts(node, path)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            nested = self._row(node, kind, path, lambda _given, _at: None)
            return nested.row if nested else BAD
        if not isinstance(node, ScalarNode):
            return self._wrong(node, path, f"{_wanted(kind)} is wanted, not {_kind(node)}")
        return self._scalar(node, kind, path)

    def _list(self, node: Node, kind: Any, path: str) -> Any:
        if not isinstance(node, SequenceNode):
            return self._wrong(node, path, f"a list is wanted, not {_kind(node)}")
        if not node.value:
            return self._wrong(node, path, "an empty list says nothing: leave the field out")
        values = [self._value(item, kind, f"{path}[{n}]") for n, item in enumerate(node.value)]
        return BAD if any(value is BAD for value in values) else tuple(values)

    def _texts(self, node: Node, path: str) -> Any:
        """A mapping of text to text."""
        found = entries(node, self._place(node, path), self._faults)
        if not found:
            return self._wrong(node, path, f"a mapping is wanted, not {_empty_or(node)}")
        texts = {name: self._value(entry.node, str, f"{path}.{name}") for name, entry in found.items()}
        return BAD if any(text is BAD for text in texts.values()) else texts

    def _scalar(self, node: ScalarNode, kind: Any, path: str) -> Any:
        resolved, text = node.tag.rpartition(":")[2], node.value
        if resolved == "null":
            return self._wrong(node, path, "nothing is written here: leave the field out")
        if kind is bool:
            if resolved == "bool" and text in ("true", "false"):
                return text == "true"
        elif kind is int:
            if resolved == "int" and re.fullmatch(r"-?\d{1,15}", text):
                return int(text)
        elif kind is float:
            if resolved in ("int", "float") and re.fullmatch(r"\d{1,15}(\.\d+)?", text):
                return float(text)
        elif resolved in ("str", "timestamp"):
            return self._text(node, kind, path)
        elif resolved in ("int", "float", "bool"):
            return self._wrong(node, path, f"`{text}` reads as {_kind(node)} here: put it in quotes")
        return self._wrong(node, path, f"{_wanted(kind)} is wanted, not `{text[:40]}`")

    def _text(self, node: ScalarNode, kind: Any, path: str) -> Any:
        text = node.value
        if not text.strip():
            return self._wrong(node, path, "empty text says nothing: leave the field out")
        if get_origin(kind) is Literal:
            known = [str(value) for value in get_args(kind)]
            if text in known:
                return text
            listed = ", ".join(f"`{value}`" for value in known)
            return self._wrong(node, path, f"`{text[:40]}` is none of {listed}{nearest(text, known)}")
        if issubclass(kind, Version):
            return self._version(node, kind, path)
        pattern, meaning = _FORMS.get(re.sub(r"\[.*?\]", "", path).rpartition(".")[2], ("", ""))
        if pattern and not re.fullmatch(pattern, text):
            return self._wrong(node, path, f"`{text[:40]}` is not {meaning}")
        return text

    def _version(self, node: ScalarNode, kind: type[Version], path: str) -> Any:
        if kind is not Dotted:
            try:
                return kind(node.value)
            except ValueError as error:
                return self._wrong(node, path, str(error))
        # The scheme itself lets a suffix pass (`6.8.0-124-generic`); no version in a matrix has one.
        if not re.fullmatch(r"\d+(\.\d+)*", node.value):
            return self._wrong(node, path, f"`{node.value[:40]}` is not a version such as `580.126.09`")
        return kind(node.value)

    def _wrong(self, node: Node, path: str, message: str) -> Any:
        self._faults.add(self._place(node, path), message)
        return BAD

    def _place(self, node: Node, path: str) -> Place:
        return Place(self._file, node.start_mark.line + 1, path)


def _fields(kind: type[msgspec.Struct], _known: dict[type, dict[str, Any]] = {}) -> dict[str, Any]:  # noqa: B006
    """Fields of a row type by name, resolved once: resolving type hints costs more than reading a row."""
    if kind not in _known:
        # Nobody writes `overlay`: the loader of overlays says where a row comes from.
        _known[kind] = {f.name: f for f in msgspec.structs.fields(kind) if f.name != "overlay"}
    return _known[kind]


def _label(node: Node, index: int) -> str:
    """What names a row in messages: its first naming field, else its number."""
    if isinstance(node, MappingNode):
        texts = {
            k.value: v.value for k, v in node.value if isinstance(v, ScalarNode) and isinstance(k, ScalarNode)
        }
        for name in _LABELS:
            if name in texts:
                return str(texts[name])
    return str(index)


def _empty_or(node: Node) -> str:
    if isinstance(node, MappingNode):
        return "an empty one"
    return "an empty list" if isinstance(node, SequenceNode) else _kind(node)


def _wanted(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "a word"
    if isinstance(kind, type) and issubclass(kind, Version):
        return "a version in quotes"
    return {bool: "true or false", int: "a whole number", float: "a number"}.get(kind, "text")
