"""The parameters of a host (`machine` of a case) with what follows from them; what is then on the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["BOOTED", "Cards", "Described", "Items", "driver_of", "filled", "gpus_of", "is_rpm", "kernels"]

Described = Mapping[str, Any]
Cards = list[dict[str, Any]]

BOOTED = 1795673524
"""26 Nov 2026 06:12:04 UTC."""


class Items:
    """What is on the host, by path or command line; `None` where it is known not to be there."""

    def __init__(self) -> None:
        self.files: dict[str, str | bytes | None] = {}
        self.stats: dict[str, dict[str, Any] | None] = {}
        self.commands: dict[str, dict[str, Any] | None] = {}
        self.documents: dict[str, dict[str, Any] | None] = {}
        self.env: dict[str, str | None] = {}
        self.packages: dict[str, Any] = {}
        self.units: dict[str, Any] = {}
        self.owners: dict[str, str] = {}
        self.family = "dpkg"

    def link(self, path: str, target: str) -> None:
        self.stats[path] = {"kind": "link", "mode": "0777", "link": target}

    def dir(self, *paths: str) -> None:
        for path in paths:
            self.stats[path] = {"kind": "dir", "mode": "0755"}

    def file(self, path: str, mode: str = "0644") -> None:
        self.stats[path] = {"kind": "file", "mode": mode}

    def char(self, *paths: str, mode: str = "0666") -> None:
        for path in paths:
            self.stats[path] = {"kind": "char", "mode": mode}

    def command(self, line: str, out: str, rc: int = 0, err: str = "") -> None:
        self.commands[line] = {"out": out, "rc": rc, "err": err}


def gpus_of(machine: Described) -> list[Mapping[str, Any]]:
    gpus = machine.get("gpus") or []
    if isinstance(gpus, Mapping):
        rest = {k: v for k, v in gpus.items() if k not in ("at", "each")}
        each = gpus.get("each", {})
        return [
            {**rest, "at": at, **each.get(place, each.get(str(place), {}))}
            for place, at in enumerate(gpus["at"])
        ]
    return list(gpus)


def driver_of(machine: Described) -> dict[str, Any]:
    """The driver's parameters with what follows from them."""
    given = dict(machine.get("driver") or {"version": None})
    version = given["version"]
    given.setdefault("flavour", "open")
    given.setdefault("source", "dkms")
    given.setdefault("loaded", version)
    given.setdefault("libraries", version)
    given.setdefault("cuda", "13.0")
    given.setdefault("uvm", given["loaded"] is not None)
    given.setdefault("bound", "nvidia" if given["loaded"] else None)
    given["branch"] = str(version).split(".")[0]
    running = machine["kernel"]["running"]
    built = {k: version for k, v in kernels(machine).items() if v.get("headers", True)} if version else {}
    given.setdefault("modules", built if running else {})
    return given


def kernels(machine: Described) -> dict[str, dict[str, Any]]:
    kernel = machine["kernel"]
    own = kernel["installed"] if kernel.get("installed") is not None else {kernel["running"]: {}}
    return {release: dict(own[release] or {}) for release in own}


def filled(text: str, machine: Described) -> str:
    """A text of a base with `{driver}`, `{branch}`, `{kernel}`, `{open}` filled in."""
    driver = driver_of(machine)
    values = {
        "{driver}": str(driver.get("libraries") or driver["version"]),
        "{branch}": driver["branch"],
        "{kernel}": machine["kernel"]["running"],
        "{open}": "-open" if driver["flavour"] == "open" else "",
    }
    for word, value in values.items():
        text = text.replace(word, value)
    return text


def is_rpm(machine: Described) -> bool:
    return bool(machine["os"]["packages"] == "rpm")
