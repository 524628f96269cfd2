"""What is on a host, as the collector's items of one scope; what it asks for in vain is *missing*."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from doctor.core.evidence import Item, scope_suffix
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
    command_name,
)
from tests.cases.params import Items

__all__ = ["ItemWriter"]


class ItemWriter:
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
            self.rest()
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
            self.put(
                key,
                status=status,
                argv=argv,
                detail=said.get("detail"),
                pid=said.get("pid"),
                state=said.get("state"),
            )
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
        body = {
            key: value for key, value in document.items() if key not in ("status", "pid", "wchan", "state")
        }
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
        argv = (
            ("rpm", "-qa", "--qf", RPM_FORMAT, *PACKAGES)
            if is_rpm
            else ("dpkg-query", "-W", f"-f={DPKG_FORMAT}", *PACKAGES)
        )
        other = (
            ("dpkg-query", "-W", f"-f={DPKG_FORMAT}", *PACKAGES)
            if is_rpm
            else ("rpm", "-qa", "--qf", RPM_FORMAT, *PACKAGES)
        )
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
            self.command(
                ("rpm", "-qf", "--qf", "%{NAME}\\n", *paths),
                {"out": out, "rc": 0 if all(found.owners.values()) else 1},
            )
            return
        owned = "".join(f"{owner}: {p}\n" for p, owner in sorted(found.owners.items()) if owner)
        lost = "".join(
            f"dpkg-query: no path found matching pattern {p}\n"
            for p, owner in sorted(found.owners.items())
            if not owner
        )
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

    def rest(self) -> None:
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
            item.status == "ok"
            and (key.partition(":")[2] == path or key.partition(":")[2].startswith(below[1]))
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
        vendor = (
            "NVIDIA"
            if "nvidia" in name or name.startswith("cuda")
            else "Rocky Enterprise Software Foundation"
        )
        return f"{name}\t{given['version']}\tx86_64\tinstalled\t{given.get('from', vendor)}\n"
    is_theirs = ("nvidia" in name or name.startswith("cuda")) and not name.startswith("linux-")
    by = _NVIDIA if is_theirs and "ubuntu0." not in given["version"] else _UBUNTU
    return f"{name}\t{given['version']}\tamd64\t{given.get('state', 'ii '):<3}\t{given.get('from', by)}\n"
