"""XML of small tools as nested values: bounded, no entities, no document type of its own.

Expat is used directly: `xml.etree` costs 6 ms of CPU at import and expands entities by default.
"""

from __future__ import annotations

__all__ = ["Node", "XmlError", "parse_xml"]

_DEPTH_MAX = 40
_NODES_MAX = 200_000
_BYTES_MAX = 32 * 1024 * 1024
_TEXT_MAX = 16 * 1024


class XmlError(ValueError):
    """The text is not XML, or more than a report of a tool would hold."""


class Node:
    """An element: its name, attributes, text without margins, children in order."""

    __slots__ = ("attributes", "children", "name", "text")

    def __init__(self, name: str, attributes: dict[str, str]) -> None:
        self.name = name
        self.attributes = attributes
        self.text = ""
        self.children: list[Node] = []

    def child(self, *path: str) -> Node | None:
        """The first element at a path of names below this one."""
        node: Node | None = self
        for name in path:
            node = next((c for c in node.children if c.name == name), None) if node is not None else None
        return node

    def all(self, name: str) -> list[Node]:
        """The children of one name."""
        return [child for child in self.children if child.name == name]


class _Builder:
    """Receives expat's events; raises on what a report never holds."""

    def __init__(self) -> None:
        self.root: Node | None = None
        self._open: list[Node] = []
        self._count = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > _NODES_MAX or len(self._open) >= _DEPTH_MAX:
            raise XmlError("more elements, or deeper ones, than a report holds")
        node = Node(name, attributes)
        if self._open:
            self._open[-1].children.append(node)
        elif self.root is None:
            self.root = node
        self._open.append(node)

    def end(self, _name: str) -> None:
        node = self._open.pop()
        node.text = node.text.strip()

    def data(self, text: str) -> None:
        if self._open and len(self._open[-1].text) < _TEXT_MAX:
            self._open[-1].text += text

    def doctype(
        self, _name: str, _system: str | None, _public: str | None, has_internal_subset: bool
    ) -> None:
        if has_internal_subset:
            raise XmlError("it brings a document type of its own")

    def entity(self, *_: object) -> None:
        raise XmlError("it declares an entity")


def parse_xml(data: bytes) -> Node:
    """The root element. Raises `XmlError` for anything that is not plain, whole XML."""
    # 1 ms of CPU at import, and only hosts with nvidia-smi need it.
    from xml.parsers import expat

    if len(data) > _BYTES_MAX:
        raise XmlError(f"{len(data)} bytes are more than a report holds")
    builder = _Builder()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = builder.doctype
    parser.EntityDeclHandler = builder.entity
    try:
        parser.Parse(data, True)  # noqa: FBT003 - expat takes it by position
    except (expat.ExpatError, UnicodeError, LookupError) as error:
        raise XmlError(str(error)) from None
    if builder.root is None:
        raise XmlError("it holds no element")
    return builder.root
