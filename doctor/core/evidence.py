"""Evidence as a value: what was asked for, what came back, nothing interpreted (`mopt.evidence/1`).

The collector, saved bundles and (later) foreign reports all give this type; `doctor.facts` reads
it and nothing else. An item that is not listed was not asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from doctor.core.pattern import pattern

__all__ = [
    "EVIDENCE_SCHEMA",
    "Evidence",
    "Item",
    "ItemStatus",
    "Meta",
    "Reading",
    "command_name",
    "scope_suffix",
]

EVIDENCE_SCHEMA = "mopt.evidence/1"

#: `ok`: it ran and the output is whole, whatever `rc`. `truncated`: capped, newest or first part kept.
ItemStatus = Literal["ok", "missing", "denied", "timeout", "error", "truncated"]


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was asked for. Unknown fields are ignored: a newer collector may say more."""

    key: str
    """`file:/path`, `command:NAME`, `stat:/path`, `env:NAME`, or a witness (`nvml`, `cuinit`, …)."""
    status: ItemStatus
    scope: str = "host"
    """Which side was asked: `host`, `container:ID` or `venv:PATH`. No part of the key."""
    path: str | None = None
    """Where the bytes lie in the bundle, e.g. `files/proc/modules`; absent when there are none."""
    argv: tuple[str, ...] = ()
    rc: int | None = None
    ms: float | None = None
    start_ms: float | None = None
    """When it started, counted from the start of the collection."""
    bytes: int | None = None
    detail: str | None = None
    """Why it has this status, in the system's words (`Permission denied`, `signal 9`, …)."""
    pid: int | None = None
    """The process that was stuck (status `timeout`)."""
    wchan: str | None = None
    """Where in the kernel that process waited, when it could be read."""
    state: str | None = None
    """Its state letter from `/proc/PID/stat`; `D` cannot be killed."""
    value: str | None = None
    """Of an `env:` item."""
    exists: bool | None = None
    """Of a `stat:` item, as are the four below."""
    kind: str | None = None
    """`file`, `dir`, `char`, `block`, `fifo`, `socket`, `link` (of the path itself, not its target)."""
    mode: str | None = None
    """Octal permission bits, e.g. `0666`."""
    owner: str | None = None
    """`USER:GROUP` by name, by number where there is no name."""
    link: str | None = None
    """Where a link points, as written."""


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """The bundle's `meta.json`."""

    schema: str = EVIDENCE_SCHEMA
    tool: str = ""
    collector: str = ""
    taken_at: str = ""
    """UTC, ISO 8601 with `Z`."""
    boot_id: str = ""
    root: bool | None = None
    """Whether the collector ran as root; unknown for hand-made trees."""
    sysroot: str | None = None
    budget_s: float | None = None
    elapsed_s: float | None = None
    redacted: bool = False
    items: tuple[Item, ...] = ()


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What came back for one question. `status` None: it was never asked."""

    origin: str
    status: ItemStatus | None = None
    data: bytes = b""
    rc: int | None = None
    item: Item | None = None

    @property
    def text(self) -> str:
        """The bytes as text; invalid UTF-8 becomes U+FFFD, never an error."""
        return self.data.decode("utf-8", "replace")

    @property
    def has_data(self) -> bool:
        """True when the bytes may be read: whole, or cut at a cap."""
        return self.status in ("ok", "truncated")


_UNSAFE = pattern(r"[^A-Za-z0-9._+@=,:-]+")


def command_name(argv: tuple[str, ...], scope: str = "host") -> str:
    """The file name of a command's output: argv joined with `-` (`nvidia-smi -q -x` → `nvidia-smi-q-x`).

    An argument's own leading dashes count as the joint; a path's slashes become `_`.
    """
    words = [argv[0].rsplit("/", 1)[-1], *(w.lstrip("-") for w in argv[1:])]
    name = _UNSAFE.sub("_", "-".join(w for w in words if w))[:180]
    return name + scope_suffix(scope)


def scope_suffix(scope: str) -> str:
    """What a scope adds to the names of its bytes: `@container:ID`; nothing for the host.

    A path's slashes become `_`: two environments may share a suffix, which only their paths tell apart.
    """
    return "" if scope == "host" else f"@{_UNSAFE.sub('_', scope)}"


class Evidence:
    """A bundle in memory: its items and the bytes they point at, by bundle path.

    `hand_made` is true for a bare tree without `meta.json`: what is there was asked for, the rest
    was not.
    """

    __slots__ = ("_index", "blobs", "hand_made", "meta")

    def __init__(self, meta: Meta, blobs: Mapping[str, bytes], *, hand_made: bool = False) -> None:
        self.meta = meta
        self.blobs = blobs
        self.hand_made = hand_made
        self._index = {(item.key, item.scope): item for item in meta.items}

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes that have items, `host` first, the others by name."""
        return tuple(sorted({item.scope for item in self.meta.items}, key=lambda s: (s != "host", s)))

    def only(self, scope: str) -> Evidence:
        """One scope's items as if nothing else had been asked: they answer in the default scope."""
        if self.scopes in ((scope,), ()) and scope == "host":
            return self
        items = tuple(_unscoped(item) for item in self.meta.items if item.scope == scope)
        meta = msgspec.structs.replace(self.meta, items=items)
        return Evidence(meta, self.blobs, hand_made=self.hand_made)

    def item(self, key: str, scope: str = "host") -> Item | None:
        """The item with this key in this scope; None when it was not asked for."""
        return self._index.get((key, scope))

    def read(self, key: str, scope: str = "host") -> Reading:
        """What came back for an item's key."""
        found = self.item(key, scope)
        if found is None:
            return Reading(origin=key)
        data = self.blobs.get(found.path or "", b"")
        return Reading(origin=key, status=found.status, data=data, rc=found.rc, item=found)

    def file(self, path: str, scope: str = "host") -> Reading:
        """The bytes of a file of the host."""
        return self.read(f"file:{path}", scope)

    def command(self, *argv: str, scope: str = "host") -> Reading:
        """The output of a command, found by its argv; the tool may have been given by its path."""
        for found in self.meta.items:
            if found.scope == scope and found.argv and _same_command(found.argv, argv):
                return self.read(found.key, scope)
        return self.read(f"command:{command_name(argv)}", scope)

    def commands(self, tool: str, scope: str = "host") -> Iterator[Reading]:
        """All runs of one tool, in the order they were asked for."""
        for found in self.meta.items:
            if found.scope == scope and found.argv and _tool(found.argv) == tool:
                yield self.read(found.key, scope)

    def stderr(self, reading: Reading) -> str:
        """What a command wrote to stderr, or the empty string."""
        path = reading.item.path if reading.item else None
        return self.blobs.get(f"{path}.err", b"").decode("utf-8", "replace") if path else ""

    def below(
        self, prefix: str, kind: Literal["file", "stat"] = "file", scope: str = "host"
    ) -> Iterator[Item]:
        """Items of one kind in one scope whose path starts with `prefix`, in path order."""
        start = f"{kind}:{prefix}"
        for key in sorted(k for k in self._index if k[1] == scope and k[0].startswith(start)):
            yield self._index[key]


def _unscoped(item: Item) -> Item:
    """The item in the default scope; a key that repeats its scope as file names do loses it."""
    key = item.key.removesuffix(scope_suffix(item.scope)) if item.scope != "host" else item.key
    return msgspec.structs.replace(item, key=key, scope="host")


def _tool(argv: tuple[str, ...]) -> str:
    return argv[0].rsplit("/", 1)[-1]


def _same_command(ran: tuple[str, ...], asked: tuple[str, ...]) -> bool:
    return _tool(ran) == _tool(asked) and ran[1:] == asked[1:]
