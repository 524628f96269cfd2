"""Compact recorded hosts: one YAML a case becomes an `Evidence`, as if the collector had been there.

A case extends a base (`_base-NAME.yaml`) and says what is wrong on it. `machine` holds the parameters of a whole host
(tests/cases/machine.py); `evidence` replaces single items, by scope. What the collector asks for and no one gave is
`missing`, as on a host that does not have it. The format is described in tests/data/cases/README.md.

    python -m tests.cases.build tests/data/cases/OPEN-001.yaml OUT    # writes the bundle for `check --from OUT`
"""

from __future__ import annotations

import base64
import copy
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from doctor.core.evidence import Evidence, Item, Meta, command_name, scope_suffix
from doctor.evidence.bundle import read_bundle, write_bundle
from doctor.evidence.collector import (
    CALLER_VARIABLES,
    CONTAINER_LIBRARY_DIRS,
    DPKG_FORMAT,
    LIBRARY_DIRS,
    PACKAGES,
    RPM_FORMAT,
    TABLE,
    UNIT_PROPERTIES,
    UNITS,
    braces,
)
from tests.cases.machine import Items, host_of

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


def load(path: Path) -> Recorded:
    """A case with the bases that it extends. `ValidationError` on a field that is not one."""
    document = _document(path)
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
        written = _Writer(scope, blobs).all(found, is_whole=bool(machine))
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
    for name in _DOCUMENTS:
        if name in told:
            said = told[name]
            items.documents[name] = merged(items.documents.get(name) or {}, said) if said is not None else None
    if isinstance(told.get("environments"), dict):
        items.documents["environments"] = _environments(told["environments"])
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
        packages = said.pop("packages", {})
        names = [f"{n.replace('-', '_')}-{v}.dist-info" for n, vs in packages.items() for v in _several(vs)]
        for part in ("requires", "tags"):
            asked = said.get(part) or {}
            said[part] = {f"{n.replace('-', '_')}-{_several(packages[n])[0]}.dist-info": v for n, v in asked.items()}
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


# --- writing items --------------------------------------------------------------------------------


class _Writer:
    """Turns what is on a host into the collector's items of one scope."""

    def __init__(self, scope: str, blobs: dict[str, bytes]) -> None:
        self.scope = scope
        self.suffix = scope_suffix(scope)
        self.blobs = blobs
        self.items: dict[str, Item] = {}

    def all(self, found: Items, *, is_whole: bool) -> list[Item]:
        for path, data in found.files.items():
            self.file(path, data)
        for path, fields in found.stats.items():
            self.stat(path, fields)
        for line, said in found.commands.items():
            self.command(tuple(shlex.split(line)), said)
        for name, document in found.documents.items():
            self.document(name, document)
        if is_whole or found.packages:
            self.packages(found)
        if is_whole or found.units:
            self.units(found)
        for name in CALLER_VARIABLES if is_whole else ():
            self.variable(name, found.env.get(name))
        for name, value in found.env.items():
            self.variable(name, value)
        if is_whole:
            self.rest(found)
        return list(self.items.values())

    def put(self, key: str, **fields: Any) -> None:
        self.items.setdefault(key, Item(key=key, scope=self.scope, **fields))

    def bytes(self, place: str, data: str | bytes) -> str:
        self.blobs[place] = data.encode() if isinstance(data, str) else data
        return place

    def file(self, path: str, data: str | bytes | None) -> None:
        if data is None:
            self.put(f"file:{path}", status="missing", detail="No such file or directory")
            return
        place = self.bytes(f"files{self.suffix}{path}", data)
        self.put(f"file:{path}", status="ok", path=place, bytes=len(self.blobs[place]))

    def stat(self, path: str, fields: Mapping[str, Any] | None) -> None:
        if fields is None:
            self.put(f"stat:{path}", status="missing", exists=False, detail="No such file or directory")
            return
        self.put(f"stat:{path}", status="ok", exists=True, **{"owner": "root:root", **fields})

    def command(self, argv: tuple[str, ...], said: Mapping[str, Any] | None) -> None:
        key = f"command:{command_name(argv)}"
        if said is None:
            self.put(key, status="missing", argv=argv, detail="not found")
            return
        status = said.get("status", "ok")
        if status != "ok":
            self.put(key, status=status, argv=argv, detail=said.get("detail"), pid=said.get("pid"), state=said.get("state"))
            return
        argv = argv if argv[0].startswith("/") else (f"/usr/bin/{argv[0]}", *argv[1:])
        place = self.bytes(f"commands/{key[8:]}{self.suffix}", said.get("out", ""))
        if said.get("err"):
            self.bytes(f"{place}.err", said["err"])
        self.put(key, status="ok", argv=argv, path=place, rc=said.get("rc", 0), bytes=len(self.blobs[place]))

    def document(self, name: str, document: Mapping[str, Any] | None) -> None:
        if document is None:
            self.put(name, status="missing")
            return
        status = document.get("status", "ok")
        body = {key: value for key, value in document.items() if key not in ("status", "pid", "wchan", "state")}
        place = self.bytes(f"{name}{self.suffix}.json", msgspec.json.encode(body))
        extra = {key: document[key] for key in ("pid", "wchan", "state") if key in document}
        self.put(name, status=status, path=place, bytes=len(self.blobs[place]), **extra)

    def variable(self, name: str, value: str | None) -> None:
        if value is None:
            self.put(f"env:{name}", status="missing")
        else:
            self.put(f"env:{name}", status="ok", value=value)

    def packages(self, found: Items) -> None:
        is_rpm = found.family == "rpm"
        argv = ("rpm", "-qa", "--qf", RPM_FORMAT, *PACKAGES) if is_rpm else ("dpkg-query", "-W", f"-f={DPKG_FORMAT}", *PACKAGES)
        other = ("dpkg-query", "-W", f"-f={DPKG_FORMAT}", *PACKAGES) if is_rpm else ("rpm", "-qa", "--qf", RPM_FORMAT, *PACKAGES)
        if found.family not in ("rpm", "dpkg"):
            self.command(argv, None)
            self.command(other, None)
            return
        rows = [_package(name, told, is_rpm=is_rpm) for name, told in sorted(found.packages.items())]
        self.command(argv, {"out": "".join(rows)})
        self.command(other, None)
        paths = tuple(sorted(found.owners))
        if not paths:
            return
        if is_rpm:
            out = "".join(f"{found.owners[p] or f'file {p} is not owned by any package'}\n" for p in paths)
            self.command(("rpm", "-qf", "--qf", "%{NAME}\\n", *paths), {"out": out, "rc": 0 if all(found.owners.values()) else 1})
            return
        owned = "".join(f"{owner}: {p}\n" for p, owner in sorted(found.owners.items()) if owner)
        lost = "".join(f"dpkg-query: no path found matching pattern {p}\n" for p, owner in sorted(found.owners.items()) if not owner)
        self.command(("dpkg", "-S", *paths), {"out": owned, "err": lost, "rc": 1 if lost else 0})

    def units(self, found: Items) -> None:
        blocks = []
        for unit in UNITS:
            told = found.units.get(unit, found.units.get(unit.removesuffix(".service")))
            state = told if isinstance(told, dict) else {"ActiveState": told or "inactive"}
            active = state["ActiveState"]
            sub = {"active": "running", "failed": "failed"}.get(active, "dead")
            load = "loaded" if told else "not-found"
            fields = {
                "Result": "success" if active != "failed" else "exit-code",
                "Id": unit,
                "LoadState": load,
                "ActiveState": active,
                "SubState": sub,
                "UnitFileState": ("enabled" if active != "inactive" else "disabled") if told else "",
                **state,
            }
            blocks.append("".join(f"{key}={value}\n" for key, value in fields.items()))
        self.command(("systemctl", "show", *UNITS, UNIT_PROPERTIES), {"out": "\n".join(blocks)})

    def rest(self, found: Items) -> None:
        """What the collector asks for besides: it is not there."""
        for row in TABLE:
            if row.needs and not self.is_there(row.needs):
                self.stat(row.needs, None)
                if row.argv:
                    self.command(row.argv, None)
                continue
            if row.argv:
                if not any("<" in word for word in row.argv):
                    self.command(row.argv, None)
                continue
            kind, _, pattern = row.text.partition(":")
            if kind in ("file", "stat"):
                self.rest_of(kind, pattern)
            elif kind not in self.items and kind not in ("cuinit-caller", "environments"):
                self.document(kind, None)

    def rest_of(self, kind: str, pattern: str) -> None:
        """Paths of one row: what was looked for and is not there, and the directories that were listed."""
        for path in braces(pattern):
            if path.startswith(("<libdir>", "<containerdir>")):
                for folder in LIBRARY_DIRS if path.startswith("<libdir>") else CONTAINER_LIBRARY_DIRS:
                    self.listed(folder)
            elif "<" in path:
                continue
            elif "*" in path:
                self.listed(path.split("*")[0].rsplit("/", 1)[0])
            elif kind == "file":
                self.file(path, None)
            else:
                self.stat(path, None)

    def is_there(self, path: str) -> bool:
        """Whether the path or something below it is on the host."""
        below = (path, f"{path}/")
        return any(
            item.status == "ok" and (key.partition(":")[2] == path or key.partition(":")[2].startswith(below[1]))
            for key, item in self.items.items()
        )

    def listed(self, folder: str) -> None:
        """A directory that was listed; there when something below it is."""
        self.stat(folder, {"kind": "dir", "mode": "0755"} if self.is_there(folder) else None)


_NVIDIA = "NVIDIA <cudatools@nvidia.com>"
_UBUNTU = "Ubuntu Core Developers <ubuntu-devel-discuss@lists.ubuntu.com>"


def _package(name: str, told: Any, *, is_rpm: bool) -> str:
    given = {"version": told} if isinstance(told, str) else dict(told)
    if is_rpm:
        vendor = "NVIDIA" if "nvidia" in name or name.startswith("cuda") else "Rocky Enterprise Software Foundation"
        return f"{name}\t{given['version']}\tx86_64\tinstalled\t{given.get('from', vendor)}\n"
    by = _NVIDIA if ("nvidia" in name or name.startswith("cuda")) and "ubuntu0." not in given["version"] else _UBUNTU
    return f"{name}\t{given['version']}\tamd64\t{given.get('state', 'ii '):<3}\t{given.get('from', by)}\n"


if __name__ == "__main__":
    write_bundle(build(load(Path(sys.argv[1]))), sys.argv[2])
