"""CDI specifications (`/etc/cdi`, `/run/cdi`) in JSON or YAML: devices, and the host files they name.

YAML is read line by line for the few keys that matter: PyYAML costs 20 ms of CPU at import, and
`nvidia-ctk` writes nothing but plain blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from doctor.core.evidence import Evidence, Item
from doctor.core.host import Fact, Known
from doctor.core.host_container import CdiSpec
from doctor.core.pattern import pattern
from doctor.facts.source import (
    absent,
    at,
    document,
    driver_version_in,
    first_usable,
    is_present,
    stat_of,
    string,
)

__all__ = ["parse_spec", "read_cdi_specs"]

DIRECTORIES = ("/etc/cdi", "/run/cdi", "/var/run/cdi")
_SPECS_MAX = 64
_LINES_MAX = 50_000
_PATHS_MAX = 512
_DEVICES_MAX = 512
_LINE = pattern(
    r"( *)((?:- +)*)([\"']?)(cdiVersion|kind|devices|containerEdits|deviceNodes|mounts|hooks|name|hostPath"
    r"|path)\3 *:(?: +(.*))?$"
)

_Found = dict[str, list[str]]


def read_cdi_specs(evidence: Evidence) -> Fact[tuple[CdiSpec, ...]]:
    """Every specification in the directories that engines read; an empty tuple where none is there."""
    specs: dict[str, CdiSpec] = {}
    for directory in DIRECTORIES:
        for item in evidence.below(f"{directory}/"):
            path = item.key.removeprefix("file:")
            if path.endswith((".yaml", ".yml", ".json")):
                # `/var/run` leads to `/run`: the same file.
                specs.setdefault(path.replace("/var/run/", "/run/"), _spec(evidence, item, path))
    if specs:
        first = next(iter(specs))
        return Known(value=tuple(specs.values())[:_SPECS_MAX], origin=f"file:{first}")
    asked = [stat_of(evidence, directory) for directory in DIRECTORIES]
    if any(r.status in ("ok", "missing") for r in asked):
        return Known(value=(), origin=next(r.origin for r in asked if r.status in ("ok", "missing")))
    return absent(first_usable(*asked))


def _spec(evidence: Evidence, item: Item, path: str) -> CdiSpec:
    reading = evidence.read(item.key)
    if not reading.has_data:
        return CdiSpec(
            path=path, fault=f"it cannot be read: {item.detail or item.status}"[:300], is_read=False
        )
    folder = evidence.item(f"stat:{path.rpartition('/')[0]}")
    spec = replace(
        parse_spec(path, reading.data), folder_mode=(folder.mode or "") if folder is not None else ""
    )
    looked = {p: is_present(evidence, p) for p in spec.host_paths}
    if any(answer is not None for answer in looked.values()):
        return replace(spec, missing_paths=tuple(p for p, answer in looked.items() if answer is False))
    return spec


def parse_spec(path: str, data: bytes) -> CdiSpec:
    """One specification. Never raises: what is wrong with it stands in `fault`."""
    if not data.strip(b" \t\r\n\0"):
        return CdiSpec(path=path, fault="it is empty")
    is_json = data.lstrip()[:1] == b"{"
    found = _by_json(data) if is_json else _by_lines(data.decode("utf-8", "replace"))
    if found is None:
        return CdiSpec(path=path, fault="it begins as JSON and is none")
    paths = tuple(dict.fromkeys(p for p in found["path"] if p.startswith("/")))[:_PATHS_MAX]
    versions = {str(v) for v in map(driver_version_in, paths) if v is not None}
    kind, version = _first(found, "kind"), _first(found, "cdiVersion")
    return CdiSpec(
        path=path,
        kind=kind,
        cdi_version=version,
        devices=tuple(dict.fromkeys(found["device"]))[:_DEVICES_MAX],
        driver_versions=tuple(sorted(versions)),
        host_paths=paths,
        fault=_fault(kind, version, found),
    )


def _first(found: _Found, key: str) -> str:
    return next(iter(found[key]), "")


def _fault(kind: str, version: str, found: _Found) -> str:
    """Why an engine would refuse it (CDI specification, *required* fields)."""
    if not kind or not version:
        missing = [f"`{name}`" for name, value in (("cdiVersion", version), ("kind", kind)) if not value]
        return f"it has no {' and no '.join(missing)}"
    return "" if found["device"] else "it lists no device"


def _empty() -> _Found:
    return {"kind": [], "cdiVersion": [], "device": [], "path": []}


def _by_json(data: bytes) -> _Found | None:
    doc = document(data)
    if doc is None:
        return None
    found = _empty()
    for key in ("kind", "cdiVersion"):
        found[key] += [text for text in (string(doc.get(key), 100),) if text]
    devices = at(doc, "devices")
    edits = [at(doc, "containerEdits")]
    for device in devices[:_DEVICES_MAX] if isinstance(devices, list) else ():
        name = string(at(device, "name"), 200)
        found["device"] += [name] if name else []
        edits.append(at(device, "containerEdits"))
    for edit in edits:
        found["path"] += _host_paths(edit)
    return found


def _host_paths(edit: object) -> Iterator[str]:
    """Nodes, mounts and hooks of one `containerEdits`: the host's side of each."""
    for group, keys in (
        ("deviceNodes", ("hostPath", "path")),
        ("mounts", ("hostPath",)),
        ("hooks", ("path",)),
    ):
        rows = at(edit, group)
        for row in rows[:_PATHS_MAX] if isinstance(rows, list) else ():
            named = next((t for t in (string(at(row, key), 400) for key in keys) if t), None)
            if named is not None:
                yield named


class _Lines:
    """Where the reader stands in a YAML specification."""

    __slots__ = ("depth", "found", "group", "is_in_devices", "node")

    def __init__(self) -> None:
        self.found = _empty()
        self.group = ""
        self.is_in_devices = False
        self.depth = -1
        """The column of the devices' names: deeper ones are of other things."""
        self.node = ""
        """Which key named the host's side of the entry that is open: its `hostPath` goes before `path`."""

    def take(self, column: int, key: str, value: str) -> None:
        if column == 0:
            self.is_in_devices, self.group, self.depth = key == "devices", "", -1
            if key in ("kind", "cdiVersion") and value:
                self.found[key].append(value)
        elif key in ("deviceNodes", "mounts", "hooks"):
            self.group = key
        elif key == "name" and self.is_in_devices:
            self._name(column, value)
        elif key in ("hostPath", "path") and value:
            self._path(key, value)

    def _name(self, column: int, value: str) -> None:
        self.depth = column if self.depth < 0 else self.depth
        if column == self.depth and value:
            self.found["device"].append(value)
            self.group = ""

    def _path(self, key: str, value: str) -> None:
        is_hosts = key == "hostPath" or (self.group in ("deviceNodes", "hooks") and not self.node)
        if not self.group or not is_hosts or len(self.found["path"]) >= _PATHS_MAX * 4:
            return
        if key == "hostPath" and self.node == "path":
            self.found["path"].pop()
        self.found["path"].append(value)
        self.node = key


def _by_lines(text: str) -> _Found:
    """The same out of YAML. The group a path stands in is the last one named above it."""
    state = _Lines()
    for line in text.splitlines()[:_LINES_MAX]:
        if line.lstrip(" ").startswith("- "):
            state.node = ""
        match = _LINE.match(line[:1000])
        if match is not None:
            margin, dashes, _, key, rest = match.groups()
            state.take(len(margin) + len(dashes), key, _scalar(rest or ""))
    return state.found


def _scalar(text: str) -> str:
    """A plain or quoted scalar without the comment behind it."""
    text = text.strip()
    if text[:1] in ("'", '"'):
        end = text.find(text[0], 1)
        return text[1:end] if end > 0 else ""
    return re.split(r"\s#", text, maxsplit=1)[0].strip()[:400]
