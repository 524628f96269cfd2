"""The text that `explain` is asked about: a few lines, a file of any size, stdin, or the logs of a bundle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import BinaryIO

import msgspec

from doctor.core.evidence import Evidence
from doctor.core.logline import LogLine, log_lines
from doctor.core.rows.signature import SignatureRow
from doctor.errors import UsageError
from doctor.evidence.archive import shown
from doctor.timeouts import EXPLAIN_WHOLE_BYTES_MAX

__all__ = ["LogText", "of_bytes", "of_evidence", "of_file", "of_stream"]

_GZIP = b"\x1f\x8b"
#: Items of a bundle in which programs speak. Listings and settings are facts, which the checks read.
_SPEAKING = ("dmesg", "journalctl", "nvidia-smi", "dkms", "modprobe", "systemctl")


class LogText(msgspec.Struct, frozen=True, kw_only=True):
    """Lines to be explained. Of a log that is too large to be read as a whole, those that matter."""

    lines: tuple[LogLine, ...]
    count: int
    """How many lines there are."""
    data: bytes = b""
    """The whole text; empty when it was too large."""
    counts: dict[str, int] = {}
    """Of a large log: matching lines by signature."""
    notes: tuple[str, ...] = ()


def of_bytes(data: bytes) -> LogText:
    """A text that is at hand. UTF-16 is read where its mark says so."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = data.decode("utf-16", "replace")
    else:
        text = data.decode("utf-8-sig", "replace")
    return LogText(lines=log_lines(text), count=text.count("\n") + (not text.endswith("\n")), data=data)


def of_file(path: str, rows: Sequence[SignatureRow]) -> LogText:
    """A file, unpacked where it is gzip. Raises UsageError when it cannot be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib costs 4 ms
            return of_stream(file, rows)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"`{shown(path)}` cannot be read: {reason}") from None


def of_stream(stream: BinaryIO, rows: Sequence[SignatureRow]) -> LogText:
    """All that comes, read as a whole while it is small, scanned in one pass when it is not."""
    notes: list[str] = []
    pieces = _pieces(stream, notes)
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size > EXPLAIN_WHOLE_BYTES_MAX:
            break
    else:
        text = of_bytes(b"".join(held))
        return msgspec.structs.replace(text, notes=tuple(dict.fromkeys(notes)))
    from doctor.evidence.logscan import scan_chunks  # only for large logs: it compiles every pattern

    scan = scan_chunks(chain(held, pieces), rows)
    return LogText(lines=scan.kept(), count=scan.lines, counts=scan.counts, notes=tuple(dict.fromkeys(notes)))


def _pieces(stream: BinaryIO, notes: list[str]) -> Iterator[bytes]:
    from doctor.evidence.logscan import BLOCK

    first = stream.read(BLOCK)
    if first[:2] != _GZIP:
        yield from chain([first] if first else [], iter(lambda: stream.read(BLOCK), b""))
        return
    from doctor.evidence.foreign.unpack import Unpacker

    unpacker = Unpacker(_Again(first, stream))  # type: ignore[arg-type]  # it reads, and does nothing else
    yield from unpacker
    notes += unpacker.notes


class _Again:
    """A stream of which the beginning was read: it is given again."""

    def __init__(self, first: bytes, stream: BinaryIO) -> None:
        self._first = first
        self._stream = stream

    def read(self, size: int) -> bytes:
        if self._first:
            taken, self._first = self._first[:size], self._first[size:]
            return taken
        return self._stream.read(size)


def of_evidence(evidence: Evidence) -> LogText:
    """What programs said in a bundle: kernel logs, and the output and errors of commands."""
    parts: list[bytes] = []
    for item in evidence.meta.items:
        if item.argv and item.argv[0].rpartition("/")[2] in _SPEAKING and item.path:
            parts += [evidence.blobs.get(item.path, b""), evidence.blobs.get(f"{item.path}.err", b"")]
    data = b"\n".join(part for part in parts if part)[:EXPLAIN_WHOLE_BYTES_MAX]
    return of_bytes(data)
