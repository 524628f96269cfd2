"""Evidence bundles on disk: a directory, a tar archive or a hand-made tree, read and written whole.

Format: `docs/evidence.md`. A bundle may come from anybody: whatever it holds, reading gives an
`Evidence` or an `EvidenceError`.
"""

# pathlib costs 5 ms at import, and `check` reads through this module.
# ruff: noqa: PTH113, PTH116, PTH123

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import BinaryIO

import msgspec

from doctor.core.evidence import EVIDENCE_SCHEMA, Evidence, Item, Meta
from doctor.errors import ConfigError, EvidenceError
from doctor.evidence.archive import (
    Member,
    clean_name,
    not_a_bundle,
    read_members,
    shown,
    unknown_parents,
)
from doctor.timeouts import (
    BUNDLE_MEMBER_BYTES_MAX,
    BUNDLE_MEMBERS_MAX,
    BUNDLE_SCOPES_MAX,
    BUNDLE_UNPACKED_BYTES_MAX,
)

__all__ = ["read_bundle", "read_stream", "write_bundle"]

_META = "meta.json"

#: Twenty times the largest seen; bounds what decoding may allocate.
_META_BYTES_MAX = 8 * 1024 * 1024

_DEPTH_MAX = 64

#: The documents that a hand-made tree may have beside its directories.
_WITNESSES = {"nvml", "cuinit", "cuinit-caller", "distro", "resources", "machine", "docker", "environments"}

#: The scope that a name ends with, as `scope_suffix` writes it; `user@1000.service` is none.
_SCOPE = re.compile(r"@((?:container|venv):[^/]+)\Z")
_FILES = re.compile(r"files(?:@(?:container|venv):[^/]+)?")

#: What belongs to a bundle; anything else that lies in one is left unread.
_PART = re.compile(
    rf"(?:{_FILES.pattern}|commands)/.+|[A-Za-z0-9_.-]+(?:@(?:container|venv):[^/]+)?\.json", re.DOTALL
)


def read_bundle(path: str | os.PathLike[str]) -> Evidence:
    """The evidence in a directory, a `.tar.gz`, a `.tar`, or a bare `files/` + `commands/` tree.

    Raises `EvidenceError` when it is not there, not a bundle, damaged, too large or hostile.
    """
    place = os.fspath(path)
    try:
        mode = os.stat(place).st_mode
        if stat.S_ISDIR(mode):
            return _assemble(_walk(place), place)
        if not stat.S_ISREG(mode):
            raise not_a_bundle(place, f"it is {_kind(mode)}")
        with open(place, "rb") as raw:
            return read_stream(raw, place)
    except OSError as error:
        named = error.filename if isinstance(error.filename, str) else place
        raise EvidenceError(f"`{shown(named)}` cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a NUL in the path
        raise EvidenceError(f"`{shown(place)}` cannot be read: {error}") from None


def read_stream(raw: BinaryIO, origin: str) -> Evidence:
    """The evidence in an open archive; `origin` names it in errors."""
    return _assemble(_unwrapped(read_members(raw, origin)), origin)


def _kind(mode: int) -> str:
    kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFLNK: "a link that leads nowhere"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def _unwrapped(members: Iterable[Member]) -> list[Member]:
    """The members, without the one top directory that `tar czf x.tar.gz DIR` puts around them."""
    found = list(members)
    tops = {member.name.split("/", 1)[0] for member in found if member.name}
    if len(tops) != 1 or _is_folder(*tops):
        return found
    cut = len(tops.pop()) + 1
    return [m._replace(name=m.name[cut:]) for m in found if m.data is None or "/" in m.name] or found


# --- a directory ----------------------------------------------------------------------------------


def _walk(root: str) -> Iterator[Member]:
    """Files and directories of a bundle directory, in name order, with the archive's caps.

    Links are followed only to regular files inside the directory; the others are passed over.
    """
    inside = os.path.realpath(root)
    budget = [BUNDLE_MEMBERS_MAX, BUNDLE_UNPACKED_BYTES_MAX]
    for entry in _listing(root):
        if _is_folder(entry.name) and entry.is_dir(follow_symlinks=False):
            name = _named(entry.name)
            yield Member(name, None)
            yield from _below(entry.path, name, inside, budget)
        elif _PART.fullmatch(entry.name) and not entry.is_dir():
            yield from _file(entry, _named(entry.name), inside, budget)


def _is_folder(name: str) -> bool:
    """True for the directories that a bundle is made of: `files`, `files@SCOPE`, `commands`."""
    return name == "commands" or _FILES.fullmatch(name) is not None


def _below(directory: str, name: str, inside: str, budget: list[int]) -> Iterator[Member]:
    if name.count("/") > _DEPTH_MAX:
        raise EvidenceError(f"`{shown(name)}` lies more than {_DEPTH_MAX} directories deep: refused")
    for entry in _listing(directory):
        inner = f"{name}/{_named(entry.name)}"
        if entry.is_dir(follow_symlinks=False):
            _spend(budget, inner, 0)
            yield Member(inner, None)
            yield from _below(entry.path, inner, inside, budget)
        else:
            yield from _file(entry, inner, inside, budget)


def _listing(directory: str) -> list[os.DirEntry[str]]:
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            found.append(entry)
            if len(found) > BUNDLE_MEMBERS_MAX:
                raise EvidenceError(
                    f"`{shown(directory)}` has more than {BUNDLE_MEMBERS_MAX} entries: refused"
                )
    return sorted(found, key=lambda entry: entry.name)


def _named(name: str) -> str:
    """A file name as text; bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(name).decode("utf-8", "replace")


def _file(entry: os.DirEntry[str], name: str, inside: str, budget: list[int]) -> Iterator[Member]:
    place = entry.path
    if entry.is_symlink():
        place = os.path.realpath(place)
        if not _lies_in(place, inside) or not os.path.isfile(place):
            return
    mode = os.lstat(place).st_mode
    if not stat.S_ISREG(mode):
        raise EvidenceError(f"`{shown(name)}` is {_kind(mode)}: refused")
    # O_NONBLOCK: should a FIFO have taken its place since, opening must not wait for a writer.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
    with open(os.open(place, flags), "rb") as raw:
        size = os.fstat(raw.fileno()).st_size
        _spend(budget, name, size)
        data = raw.read(size + 1)
    if len(data) > size:
        raise EvidenceError(f"`{shown(name)}` grew while it was read: refused")
    yield Member(name, data)


def _lies_in(place: str, inside: str) -> bool:
    return os.path.commonpath([place, inside]) == inside


def _spend(budget: list[int], name: str, size: int) -> None:
    """Takes one member of `size` bytes from the budget (members left, bytes left)."""
    if size > BUNDLE_MEMBER_BYTES_MAX:
        limit = BUNDLE_MEMBER_BYTES_MAX // (1024 * 1024)
        raise EvidenceError(f"`{shown(name)}` is larger than {limit} MiB: refused")
    budget[0] -= 1
    budget[1] -= size
    if budget[0] < 0:
        raise EvidenceError(
            f"the bundle has more than {BUNDLE_MEMBERS_MAX} members: refused at `{shown(name)}`"
        )
    if budget[1] < 0:
        limit = BUNDLE_UNPACKED_BYTES_MAX // (1024 * 1024)
        raise EvidenceError(f"the bundle holds more than {limit} MiB: refused at `{shown(name)}`")


# --- from members to evidence ---------------------------------------------------------------------


def _assemble(members: Iterable[Member], origin: str) -> Evidence:
    blobs: dict[str, bytes] = {}
    directories: list[str] = []
    for name, data in members:
        if data is None:
            directories.append(name)
        elif _PART.fullmatch(name):
            blobs[name] = data
    text = blobs.pop(_META, None)
    if text is not None:
        return _bounded(_described(_read_meta(text, origin), blobs), origin)
    if not any(_is_folder(n.split("/", 1)[0]) for n in (*(b for b in blobs if "/" in b), *directories)):
        raise not_a_bundle(origin, "there is no meta.json, no files/ and no commands/ in it")
    return _bounded(_hand_made(blobs, directories), origin)


def _bounded(evidence: Evidence, origin: str) -> Evidence:
    if len(evidence.scopes) > BUNDLE_SCOPES_MAX:
        raise EvidenceError(f"`{shown(origin)}` has more than {BUNDLE_SCOPES_MAX} scopes: refused")
    return evidence


class _Head(msgspec.Struct):
    schema: str = ""


def _read_meta(text: bytes, origin: str) -> Meta:
    """`meta.json`, its schema checked before anything else of it is believed."""
    where = f"`meta.json` in `{shown(origin)}`"
    if len(text) > _META_BYTES_MAX:
        raise EvidenceError(f"{where} is larger than {_META_BYTES_MAX // (1024 * 1024)} MiB: refused")
    try:
        schema = msgspec.json.decode(text, type=_Head).schema
        _check_schema(schema, where)
        meta = msgspec.json.decode(text, type=Meta)
    except RecursionError:
        raise EvidenceError(f"{where} is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EvidenceError(f"{where} cannot be read: {error}") from None
    if len(meta.items) > BUNDLE_MEMBERS_MAX:
        raise EvidenceError(f"{where} lists more than {BUNDLE_MEMBERS_MAX} items: refused")
    return meta


def _check_schema(schema: str, where: str) -> None:
    if schema == EVIDENCE_SCHEMA:
        return
    if not schema:
        raise EvidenceError(f"{where} names no schema; `{EVIDENCE_SCHEMA}` is expected")
    if re.fullmatch(r"mopt\.evidence/[0-9]{1,4}", schema):
        raise EvidenceError(
            f"{where} has the schema `{schema}`, and this mopt-doctor reads `{EVIDENCE_SCHEMA}`",
            hints=(f"read it with a mopt-doctor that knows `{schema}`",),
        )
    raise EvidenceError(f"{where} has the schema `{shown(schema)}`; `{EVIDENCE_SCHEMA}` is expected")


def _described(meta: Meta, blobs: Mapping[str, bytes]) -> Evidence:
    """Evidence as its meta describes it; members that no item points at were not asked for."""
    items, kept, seen = [], {}, set()
    for listed in meta.items:
        if (listed.key, listed.scope) in seen:
            raise EvidenceError(
                f"`meta.json` lists `{shown(listed.key)}` twice in scope `{shown(listed.scope)}`"
            )
        seen.add((listed.key, listed.scope))
        item = _anchored(listed, blobs)
        items.append(item)
        if item.path is not None:
            for name in (item.path, f"{item.path}.err"):
                if name in blobs:
                    kept[name] = blobs[name]
    return Evidence(msgspec.structs.replace(meta, items=tuple(items)), kept)


def _anchored(item: Item, blobs: Mapping[str, bytes]) -> Item:
    """The item with a path that leads to bytes, or as an error that says why it does not."""
    if item.path is None:
        return item
    try:
        name = clean_name(item.path)
    except ValueError as reason:
        name, problem = "", str(reason)
    else:
        problem = f"the bundle has no `{shown(name)}`"
    if name in blobs:
        return msgspec.structs.replace(item, path=name)
    if item.status not in ("ok", "truncated"):
        return msgspec.structs.replace(item, path=None)
    return msgspec.structs.replace(item, path=None, status="error", detail=problem)


def _hand_made(blobs: dict[str, bytes], directories: Iterable[str]) -> Evidence:
    """Evidence of a bare tree: each file and each directory in it counts as asked for and found."""
    blobs = {name: data for name, data in blobs.items() if "/" in name or _asked(name)[0] in _WITNESSES}
    for name in [n for n in blobs if n.startswith("commands/") and n.endswith(".err")]:
        blobs.setdefault(name[: -len(".err")], b"")
    items = []
    for name in _all_directories(blobs, directories):
        key, scope = _asked(name)
        items.append(
            Item(key=f"stat:{key[len('file:') :]}", status="ok", scope=scope, exists=True, kind="dir")
        )
    for name, data in blobs.items():
        is_stderr = name.startswith("commands/") and name.endswith(".err")
        if not is_stderr:
            key, scope = _asked(name)
            items.append(Item(key=key, status="ok", scope=scope, path=name, bytes=len(data)))
    in_order = sorted(items, key=lambda i: (i.key, i.scope))
    return Evidence(Meta(items=tuple(in_order)), blobs, hand_made=True)


def _all_directories(blobs: Mapping[str, bytes], directories: Iterable[str]) -> set[str]:
    """Directories below `files/`, whether the archive lists them or a file's path implies them."""
    found: set[str] = set()
    for name in (*directories, *blobs):
        found.update(unknown_parents(name, found))
    found.update(directories)
    return {name for name in found if "/" in name and _FILES.fullmatch(name.split("/", 1)[0])}


def _asked(name: str) -> tuple[str, str]:
    """(key, scope) of a hand-made part: `files@SCOPE/PATH`, `commands/NAME@SCOPE`, `nvml@SCOPE.json`."""
    top, _, rest = name.partition("/")
    if top == "commands":
        plain, scope = _parted(rest)
        return f"command:{plain}", scope
    if rest:
        return f"file:/{rest}", _parted(top)[1]
    return _parted(top.removesuffix(".json"))


def _parted(name: str) -> tuple[str, str]:
    found = _SCOPE.search(name)
    return (name[: found.start()], found.group(1)) if found is not None else (name, "host")


# --- writing --------------------------------------------------------------------------------------


def write_bundle(evidence: Evidence, path: str | os.PathLike[str]) -> None:
    """Writes evidence to `path`: an archive or a directory, as `bundle_write.form_of` says.

    The same evidence gives the same bytes. Readable by its owner only: a bundle names hosts and
    users. An existing directory is replaced only when it is a bundle; the new one appears whole or
    not at all. Raises `ConfigError` when it cannot be written.
    """
    # Nothing on the check path writes; tarfile and gzip cost 10 ms.
    from doctor.evidence import bundle_write

    place = os.fspath(path)
    try:
        bundle_write.write(place, _to_write(evidence), evidence.meta.taken_at)
    except OSError as error:
        raise ConfigError(f"`{shown(place)}` cannot be written: {error.strerror or error}") from None


def _to_write(evidence: Evidence) -> dict[str, bytes]:
    """All members by name, `meta.json` first, the rest sorted."""
    # The types leave defaults out, and the schema is one; a document names it always, and first.
    document = {"schema": evidence.meta.schema, **msgspec.to_builtins(evidence.meta)}
    parts = {_META: msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"}
    for name in sorted(evidence.blobs):
        if not _is_part(name):
            raise ConfigError(f"`{shown(name)}` is no name for a part of a bundle")
        parts[name] = evidence.blobs[name]
    return parts


def _is_part(name: str) -> bool:
    try:
        return clean_name(name) == name and _PART.fullmatch(name) is not None and name != _META
    except ValueError:
        return False
