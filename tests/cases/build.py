"""Compact recorded hosts: one YAML a case becomes an `Evidence`, as if the collector had been there.

A case extends a base (`_base-NAME.yaml`) and says what is wrong on it. `machine` holds the parameters of a
whole host (tests/cases/machine.py); `evidence` replaces single items. What the collector asks for and
no one gave is `missing`, as on a host that lacks it. The format is described in tests/data/cases/README.md.

    python -m tests.cases.build tests/data/cases/OPEN-001.yaml OUT    # a bundle for `check --from OUT`
"""

from __future__ import annotations

import base64
import copy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from doctor.core.evidence import Evidence, Item, Meta
from doctor.evidence.bundle import read_bundle, write_bundle
from tests.cases.items import ItemWriter
from tests.cases.machine import host_of
from tests.cases.params import Items

__all__ = ["DATA", "Recorded", "build", "load", "merged"]

DATA = Path(__file__).parent.parent / "data"
TAKEN_AT = "2026-11-30T09:12:04Z"

#: Files whose content is the newest part of a longer log, and what is only there for others.
_DOCUMENTS = ("nvml", "cuinit", "cuinit-caller", "distro", "resources", "machine", "docker", "environments")


class Recorded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A case as its file says it."""

    id: str
    title: str
    source: tuple[str, ...] = ()
    cause: str = ""
    """The first cause that must be named; `unknown` where the facts do not decide; empty: healthy."""
    also: tuple[str, ...] = ()
    """Causes that may stand beside it."""
    must_not_report: tuple[str, ...] = ()
    """Globs that no cause, advice, failed or warned finding may match."""
    scope: str = "host"
    text: str = ""
    """What a user would paste; judged by `explain` beside this host."""
    why: str = ""
    decoys: tuple[str, ...] = ()
    """Of a healthy host: what it shows that looks like a fault, and whom that fools."""
    base: str = ""
    bundle: str = ""
    """A recorded host of tests/hosts that it is, instead of a base."""
    machine: dict[str, Any] = {}
    evidence: dict[str, dict[str, Any]] = {}
    verdict: str = ""
    """Of `check`, where it matters beside the cause: a harmless thing leaves the host ready."""


# --- reading --------------------------------------------------------------------------------------


def merged(under: Any, over: Any) -> Any:
    """Two documents, the second before the first: mappings are joined, all else is replaced."""
    if isinstance(under, Mapping) and isinstance(over, Mapping):
        return {**under, **{key: merged(under.get(key), value) for key, value in over.items()}}
    return copy.deepcopy(over)


def load(path: Path, *, is_base: bool = False) -> Recorded:
    """A case with the bases that it extends, or a base alone. `ValidationError` on an unknown field."""
    document = _document(path)
    if is_base:
        document |= {"id": path.stem, "title": path.stem}
    return msgspec.convert(document, Recorded, strict=False)


def _document(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    base = document.get("base")
    if not base:
        return document
    under = _document(DATA / "cases" / f"_base-{base}.yaml")
    kept = {key: under[key] for key in ("machine", "evidence", "bundle") if key in under}
    return merged(kept, document)


# --- building -------------------------------------------------------------------------------------


def build(case: Recorded) -> Evidence:
    """The evidence of a case, all scopes."""
    blobs: dict[str, bytes] = {}
    items: dict[tuple[str, str], Item] = {}
    if case.bundle:
        recorded = read_bundle(DATA.parent / "hosts" / case.bundle)
        blobs |= recorded.blobs
        items |= {(item.key, item.scope): item for item in recorded.meta.items}
    for scope in dict.fromkeys(["host", *case.evidence] if case.machine else case.evidence):
        told, machine = _scope_of(case, scope)
        found = host_of(machine) if machine else Items()
        _overlay(found, told)
        written = ItemWriter(scope, blobs).all(found, is_whole=bool(machine))
        items |= {(item.key, scope): item for item in written}
        unasked = tuple(told.get("unasked") or ())
        items = {key: item for key, item in items.items() if not unasked or not key[0].startswith(unasked)}
    meta = Meta(
        tool="mopt-doctor test",
        collector="1",
        taken_at=TAKEN_AT,
        boot_id="bb13cfa6-0bff-4131-a840-6eeee47702a2",
        root=True,
        budget_s=15.0,
        elapsed_s=1.9,
        items=tuple(items.values()),
    )
    return Evidence(meta, blobs)


def _scope_of(case: Recorded, scope: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is told of a scope's items, and its machine; a scope beside the host may have its own base."""
    told = dict(case.evidence.get(scope) or {})
    if scope == "host":
        return told, case.machine
    base = told.pop("base", None)
    under = _document(DATA / "cases" / f"_base-{base}.yaml") if base else {}
    whole = merged((under.get("evidence") or {}).get("host", {}), told)
    return whole, merged(under.get("machine", {}), whole.pop("machine", {}))


_PARTS = {
    "files", "stats", "missing", "unasked", "commands", "env", "packages", "units", "owners", "base64",
    *_DOCUMENTS,
}  # fmt: skip


def _overlay(items: Items, told: Mapping[str, Any]) -> None:
    """Puts what a case says of single items over those of the machine."""
    unknown = set(told) - _PARTS
    if unknown:
        raise ValueError(f"evidence: no such part: {', '.join(sorted(unknown))}")
    items.files |= told.get("files") or {}
    items.files |= {path: base64.b64decode(text) for path, text in (told.get("base64") or {}).items()}
    for path, fields in (told.get("stats") or {}).items():
        items.stats[path] = {"kind": "file", "mode": "0644", **fields} if fields is not None else None
    for line, said in (told.get("commands") or {}).items():
        items.commands[line] = {"out": said} if isinstance(said, str) else said
    _documents(items, told)
    items.env |= {k: None if v is None else str(v) for k, v in (told.get("env") or {}).items()}
    for part in ("packages", "units", "owners"):
        target = getattr(items, part)
        for key, value in (told.get(part) or {}).items():
            if value is None:
                target.pop(key, None)
            else:
                target[key] = value
    for key in told.get("missing") or ():
        _drop(items, key)


def _documents(items: Items, told: Mapping[str, Any]) -> None:
    for name in _DOCUMENTS:
        if name in told:
            under = items.documents.get(name) or {}
            items.documents[name] = None if told[name] is None else merged(under, told[name])
    if isinstance(told.get("environments"), dict):
        items.documents["environments"] = _environments(told["environments"])


def _drop(items: Items, key: str) -> None:
    kind, _, rest = key.partition(":")
    {"file": items.files, "stat": items.stats, "command": items.commands, "env": items.env}.get(
        kind, items.documents
    )[rest or kind] = None  # type: ignore[index]


def _environments(told: Mapping[str, Any]) -> dict[str, Any]:
    """Prefix to what lies there; `packages: {torch: 2.9.1+cu128}` stands for the directories."""
    glibc = told.get("glibc", "2.39")
    found = {}
    for prefix, given in told.items():
        if prefix == "glibc":
            continue
        said = dict(given)
        python = str(said.pop("python", "3.12"))
        site = f"{prefix}/lib/python{python}/{'dist' if prefix == '/usr' else 'site'}-packages"
        packages = {name: version for name, version in said.pop("packages", {}).items() if version}
        said = {name: value for name, value in said.items() if value is not None}
        names = [f"{n.replace('-', '_')}-{v}.dist-info" for n, vs in packages.items() for v in _several(vs)]
        for part in ("requires", "tags"):
            asked = said.get(part) or {}
            said[part] = {
                f"{n.replace('-', '_')}-{_several(packages[n])[0]}.dist-info": v
                for n, v in asked.items()
                if v
            }
        if "libraries" in said:
            said["libraries"] = [f"{site}/{path}" for path in said["libraries"]]
        base = {
            "kind": "system" if prefix == "/usr" else "venv",
            "config": {} if prefix == "/usr" else {"home": "/usr/bin", "version": f"{python}.3"},
            "sites": [site],
            "distributions": names,
            "programs": ["/usr/bin/gcc", "/usr/bin/cc", f"{prefix}/bin/ninja"],
            "headers": {python: True},
            "mpi": "",
            "standard_library": "",
            "named": prefix != "/usr",
        }
        found[prefix] = {**base, **said}
    return {"environments": found, "glibc": glibc}


def _several(value: Any) -> list[str]:
    return [str(v) for v in value] if isinstance(value, list) else [str(value)]


if __name__ == "__main__":
    write_bundle(build(load(Path(sys.argv[1]))), sys.argv[2])
