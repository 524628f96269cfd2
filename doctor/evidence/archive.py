"""A tar archive read member by member in memory, bounded everywhere, nothing ever unpacked.

The standard library's `tarfile` is not used for reading: it takes a pax header of any size into
memory, follows sparse maps, and hides damage behind an early end. Formats: POSIX.1-2001 (ustar and
pax) and the long names and large sizes of GNU tar, plain or through gzip.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Container, Iterator
from typing import BinaryIO, NamedTuple

from doctor.errors import EvidenceError
from doctor.timeouts import BUNDLE_MEMBER_BYTES_MAX, BUNDLE_MEMBERS_MAX, BUNDLE_UNPACKED_BYTES_MAX

__all__ = ["Member", "clean_name", "not_a_bundle", "read_members", "shown", "unknown_parents"]

_BLOCK = 512
_PIECE = 256 * 1024

#: An extension header holds a name and a few numbers.
_HEADER_BYTES_MAX = 64 * 1024

#: Linux paths end at 4096 bytes, and what is collected lies 12 directories deep at most.
_NAME_BYTES_MAX = 4096
_NAME_PARTS_MAX = 64

#: How a pax record begins: its own length in bytes.
_RECORD = re.compile(rb"(\d{1,6}) ")

_REFUSED_KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"6": "a FIFO",
    b"S": "a sparse file",
}

_FOREIGN_FORMATS = {
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
}


class Member(NamedTuple):
    """A file (`data` set) or a directory (`data` None) of an archive, by its cleaned name."""

    name: str
    data: bytes | None


def shown(name: str) -> str:
    """A name as a message may show it: no control characters, not longer than a line bears."""
    text = ascii(name)[1:-1]
    return text if len(text) <= 160 else f"{text[:157]}..."


def not_a_bundle(origin: str, reason: str) -> EvidenceError:
    """The error for something that is no bundle at all, naming what would be one."""
    return EvidenceError(
        f"`{shown(origin)}` is not a mopt.evidence/1 bundle: {reason}",
        hints=(
            "accepted are a directory, a .tar.gz and a .tar, as `mopt-doctor collect -o FILE` writes them",
        ),
    )


def clean_name(raw: str) -> str:
    """A member's relative path without `.` and doubled slashes; empty for the root itself.

    Raises `ValueError` with the reason when it is absolute, climbs, holds a NUL, is longer than a path
    can be, or lies deeper than any bundle's.
    """
    if len(raw) > _NAME_BYTES_MAX or len(raw.encode("utf-8", "surrogatepass")) > _NAME_BYTES_MAX:
        raise ValueError(f"its path is longer than {_NAME_BYTES_MAX} bytes")
    if raw.startswith("/"):
        raise ValueError("its path is absolute")
    if "\0" in raw:
        raise ValueError("its path holds a NUL")
    parts = [part for part in raw.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError("its path climbs out with `..`")
    if len(parts) > _NAME_PARTS_MAX:
        raise ValueError(f"its path has more than {_NAME_PARTS_MAX} parts")
    return "/".join(parts)


def unknown_parents(name: str, known: Container[str]) -> Iterator[str]:
    """The directories above a path, from the nearest up, until one that is known: its own are, too."""
    end = name.rfind("/")
    while end > 0 and (parent := name[:end]) not in known:
        yield parent
        end = name.rfind("/", 0, end)


def read_members(raw: BinaryIO, origin: str) -> Iterator[Member]:
    """The members of a tar archive, plain or gzipped, in file order.

    Raises `EvidenceError` for what is no tar archive, is damaged or cut, is larger than the caps in
    `doctor.timeouts`, or holds anything but files and directories with relative paths.
    """
    chunks = _compressed_chunks(raw, origin)
    first = next(chunks, b"")
    if not first:
        raise not_a_bundle(origin, "it is empty")
    for magic, name in _FOREIGN_FORMATS.items():
        if first.startswith(magic):
            raise not_a_bundle(origin, f"it is compressed with {name}")
    chunks = _chain(first, chunks)
    stream = _Stream(_gunzip(chunks, origin) if first[:2] == b"\x1f\x8b" else chunks, origin)
    yield from _Tar(stream, origin).members()
    # What follows the end marker is padding; reading it proves the gzip checksum.
    stream.drain()


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _compressed_chunks(raw: BinaryIO, origin: str) -> Iterator[bytes]:
    """The file's own bytes; a file larger than all it may unpack to is refused."""
    total = 0
    while chunk := raw.read(_PIECE):
        total += len(chunk)
        if total > BUNDLE_UNPACKED_BYTES_MAX:
            raise _too_large(origin)
        yield chunk


def _too_large(origin: str) -> EvidenceError:
    limit = BUNDLE_UNPACKED_BYTES_MAX // (1024 * 1024)
    return EvidenceError(f"`{shown(origin)}` unpacks to more than {limit} MiB: refused")


def _cut(origin: str) -> EvidenceError:
    return EvidenceError(
        f"`{shown(origin)}` is truncated: it ends before its archive does",
        hints=("copy it again, or collect again",),
    )


def _gunzip(chunks: Iterator[bytes], origin: str) -> Iterator[bytes]:
    """Unpacked pieces of one or more gzip members, none larger than `_PIECE`."""
    inflate, begun, members = zlib.decompressobj(31), False, 0
    try:
        for chunk in chunks:
            rest = chunk
            while rest:
                if piece := inflate.decompress(rest, _PIECE):
                    yield piece
                rest, begun = inflate.unconsumed_tail, True
                if inflate.eof:
                    rest, members = inflate.unused_data.lstrip(b"\0"), members + 1
                    inflate, begun = zlib.decompressobj(31), False
                    if members > BUNDLE_MEMBERS_MAX:
                        raise EvidenceError(f"`{shown(origin)}` has more than {members - 1} gzip members")
        while begun and (piece := inflate.decompress(b"", _PIECE)):
            yield piece
    except zlib.error as error:
        raise EvidenceError(f"`{shown(origin)}` is damaged: {error}") from None
    if begun and not inflate.eof:
        raise _cut(origin)


class _Stream:
    """Bytes in order from pieces, with the total bounded."""

    __slots__ = ("_buffer", "_origin", "_pieces", "_total")

    def __init__(self, pieces: Iterator[bytes], origin: str) -> None:
        self._pieces = pieces
        self._origin = origin
        self._buffer = bytearray()
        self._total = 0

    def _more(self) -> bool:
        piece = next(self._pieces, b"")
        self._total += len(piece)
        if self._total > BUNDLE_UNPACKED_BYTES_MAX:
            raise _too_large(self._origin)
        self._buffer += piece
        return bool(piece)

    def take(self, count: int) -> bytes:
        """The next `count` bytes, fewer only at the end."""
        while len(self._buffer) < count and self._more():
            pass
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    def drain(self) -> None:
        """Reads to the end and forgets."""
        self._buffer.clear()
        while self._more():
            self._buffer.clear()


class _Tar:
    """The headers and bodies of one tar stream."""

    def __init__(self, stream: _Stream, origin: str) -> None:
        self._stream = stream
        self._origin = origin

    def members(self) -> Iterator[Member]:
        seen: set[str] = set()
        directories: set[str] = set()
        count = 0
        name, size = "", None  # what extension headers say of the member that follows
        while header := self._header():
            kind = header[156:157]
            own_size = _number(header[124:136])
            if own_size is None:
                raise self._bad(_own_name(header), "its size is not a number")
            if kind in b"xgLK":
                fields = self._extension(kind, own_size)
                name, size = fields.get("path", name), _decimal(fields.get("size"), size)
                continue
            raw_name = name or _own_name(header)
            count += 1
            if count > BUNDLE_MEMBERS_MAX:
                raise EvidenceError(
                    f"`{shown(self._origin)}` has more than {BUNDLE_MEMBERS_MAX} members: refused"
                )
            member = self._member(raw_name, kind, own_size if size is None else size)
            name, size = "", None
            self._note(member, seen, directories)
            yield member

    def _header(self) -> bytes:
        """The next header block; empty at the end marker."""
        block = self._stream.take(_BLOCK)
        at_start = not self._started()
        if len(block) < _BLOCK:
            raise not_a_bundle(self._origin, "it is not a tar archive") if at_start else _cut(self._origin)
        if not block.strip(b"\0"):
            if at_start:
                raise not_a_bundle(self._origin, "its archive is empty")
            return b""
        if not _checksum_holds(block):
            if at_start:
                raise not_a_bundle(self._origin, "it is not a tar archive")
            raise EvidenceError(f"`{shown(self._origin)}` is damaged: a member's header fails its checksum")
        return block

    _has_started = False

    def _started(self) -> bool:
        before, self._has_started = self._has_started, True
        return before

    def _body(self, size: int) -> bytes:
        padded = -(-size // _BLOCK) * _BLOCK
        data = self._stream.take(padded)
        if len(data) < padded:
            raise _cut(self._origin)
        return data[:size]

    def _extension(self, kind: bytes, size: int) -> dict[str, str]:
        """What a pax or GNU extension header says: `path`, `size`."""
        if size > _HEADER_BYTES_MAX:
            raise EvidenceError(f"`{shown(self._origin)}` has an extension header of {size} bytes: refused")
        body = self._body(size)
        if kind == b"K":
            return {}
        if kind == b"L":
            return {"path": _text(body.rstrip(b"\0"))}
        fields = self._pax(body)
        if any(key.startswith("GNU.sparse") for key in fields):
            raise self._bad(fields.get("path", ""), "it is a sparse file")
        if kind == b"g":
            if fields.keys() & {"path", "size"}:
                raise EvidenceError(
                    f"`{shown(self._origin)}` has a global header that names members: refused"
                )
            return {}
        return fields

    def _pax(self, body: bytes) -> dict[str, str]:
        """The records of a pax header: `LENGTH KEY=VALUE` and a newline, the length counting itself."""
        fields: dict[str, str] = {}
        position = 0
        while position < len(body) and body[position : position + 1] != b"\0":
            head = _RECORD.match(body, position)
            length = int(head.group(1)) if head else 0
            record = body[position : position + length]
            if head is None or len(record) < length or not record.endswith(b"\n"):
                raise EvidenceError(f"`{shown(self._origin)}` is damaged: a pax header cannot be read")
            key, _, value = record[head.end() - position : -1].partition(b"=")
            fields[_text(key)] = _text(value)
            position += length
        return fields

    def _member(self, raw_name: str, kind: bytes, size: int) -> Member:
        try:
            name = clean_name(raw_name)
        except ValueError as reason:
            raise self._bad(raw_name, str(reason)) from None
        if kind == b"5":
            self._check_size(raw_name, size)
            self._body(size)
            return Member(name, None)
        if kind not in (b"0", b"\0", b"7"):
            what = _REFUSED_KINDS.get(kind, f"of the unknown kind {shown(_text(kind))}")
            raise self._bad(raw_name, f"it is {what}")
        if not name:
            raise self._bad(raw_name, "a file has no name")
        self._check_size(raw_name, size)
        return Member(name, self._body(size))

    def _check_size(self, raw_name: str, size: int) -> None:
        if size > BUNDLE_MEMBER_BYTES_MAX:
            raise self._bad(raw_name, f"it is larger than {BUNDLE_MEMBER_BYTES_MAX // (1024 * 1024)} MiB")

    def _note(self, member: Member, seen: set[str], directories: set[str]) -> None:
        """Refuses a second file of the same name, and a name that is both file and directory."""
        if member.data is None:
            directories.add(member.name)
        else:
            if member.name in seen:
                raise self._bad(member.name, "it is there twice")
            seen.add(member.name)
        fresh = list(unknown_parents(member.name, directories))
        directories.update(fresh)
        if len(directories) > BUNDLE_MEMBERS_MAX:
            raise EvidenceError(
                f"`{shown(self._origin)}` has more than {BUNDLE_MEMBERS_MAX} directories: refused"
            )
        # A known parent was held against the files when it became known.
        above = (member.name, *fresh) if member.data is None else fresh
        is_both = member.data is not None and member.name in directories
        if is_both or not seen.isdisjoint(above):
            raise self._bad(member.name, "a file and a directory share the path")

    def _bad(self, name: str, reason: str) -> EvidenceError:
        return EvidenceError(f"`{shown(self._origin)}`: member `{shown(name)}` refused: {reason}")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _own_name(header: bytes) -> str:
    """The name in a header block; only POSIX headers have a prefix, GNU keeps other things there."""
    name = _text(header[:100].split(b"\0", 1)[0])
    prefix = _text(header[345:500].split(b"\0", 1)[0]) if header[257:263] == b"ustar\0" else ""
    return f"{prefix}/{name}" if prefix else name


def _number(field: bytes) -> int | None:
    """A numeric header field: octal text, or GNU's base 256 for large ones; None when neither."""
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    return int(digits or b"0", 8) if re.fullmatch(rb"[0-7]*", digits) else None


def _decimal(text: str | None, otherwise: int | None) -> int | None:
    """A pax size. One that is no plain number is taken as larger than any cap."""
    if text is None:
        return otherwise
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text) else BUNDLE_MEMBER_BYTES_MAX + 1


def _checksum_holds(block: bytes) -> bool:
    stated = _number(block[148:156])
    return stated == sum(block[:148]) + sum(block[156:]) + 8 * ord(" ")
