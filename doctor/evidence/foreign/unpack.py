"""Bytes of a report in pieces, unpacked where they are gzip; damage is noted, never raised.

`nvidia-bug-report.sh` appends one gzip member after the other, many of them empty; a reader that stops
after the first sees the prologue only. A member that is damaged is left where it breaks, and reading
goes on with the next one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import BinaryIO

from doctor.timeouts import FOREIGN_UNPACKED_BYTES_MAX

__all__ = ["GZIP_MAGIC", "Unpacker"]

GZIP_MAGIC = b"\x1f\x8b"
_MEMBER_HEAD = b"\x1f\x8b\x08"

_READ = 64 * 1024
_PIECE = 1024 * 1024

#: Real reports have up to 463 members; each costs a new decompressor.
_MEMBERS_MAX = 20_000

#: Each attempt to go on behind damage scans for the next member.
_RESUMES_MAX = 50


class Unpacker:
    """Iterates over unpacked pieces. `notes` says, once the end is reached, what was not readable."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._ready: list[bytes] = []
        self._total = 0
        self.notes: list[str] = []
        self._source = self._pieces()

    def __iter__(self) -> Iterator[bytes]:
        while self._ready:
            yield self._ready.pop(0)
        yield from self._source

    def peek(self, size: int) -> bytes:
        """The first `size` bytes or fewer, which iteration gives again."""
        held = sum(map(len, self._ready))
        while held < size:
            piece = next(self._source, b"")
            if not piece:
                break
            self._ready.append(piece)
            held += len(piece)
        return b"".join(self._ready)[:size]

    def _pieces(self) -> Iterator[bytes]:
        first = self._raw.read(_READ)
        pieces = self._inflated(first) if first[:2] == GZIP_MAGIC else self._plain(first)
        for piece in pieces:
            room = FOREIGN_UNPACKED_BYTES_MAX - self._total
            self._total += len(piece)
            yield piece[:room]
            if len(piece) >= room:
                self.notes.append(f"only the first {FOREIGN_UNPACKED_BYTES_MAX // 1024**2} MiB were read")
                return

    def _plain(self, first: bytes) -> Iterator[bytes]:
        while first:
            yield first
            first = self._raw.read(_READ)

    def _inflated(self, data: bytes) -> Iterator[bytes]:
        inflate, members, resumes = zlib.decompressobj(31), 1, 0
        while data:
            try:
                piece = inflate.decompress(data, _PIECE)
            except zlib.error:
                resumes += 1
                self.notes.append("a gzip member is damaged: the rest of it is lost")
                data = self._next_member(data[1:]) if resumes <= _RESUMES_MAX else b""
                inflate = zlib.decompressobj(31)
                continue
            if piece:
                yield piece
            data = inflate.unconsumed_tail
            if inflate.eof:
                data = inflate.unused_data.lstrip(b"\0") or self._raw.read(_READ).lstrip(b"\0")
                inflate, members = zlib.decompressobj(31), members + 1
                if not data:
                    return
                if members > _MEMBERS_MAX:
                    self.notes.append(f"more than {_MEMBERS_MAX} gzip members: the rest was not read")
                    return
            data = data or self._raw.read(_READ)
        self.notes.append("the gzip stream ends early")

    def _next_member(self, data: bytes) -> bytes:
        """The bytes from the next member's head on; empty when there is none."""
        while data:
            found = data.find(_MEMBER_HEAD)
            if found >= 0:
                return data[found:]
            tail = data[-2:]
            more = self._raw.read(_READ)
            data = tail + more if more else b""
        return b""
