"""The journal of a run: one file, append-only, each entry on disk before what it announces happens."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from doctor.core.run import Entry, decode_entry, encode_entry
from doctor.errors import ApplyError

__all__ = ["JOURNAL", "JOURNAL_BYTES_MAX", "Journal", "entries_in", "entries_of", "follow", "now"]

JOURNAL = "journal.jsonl"
#: A run of fourteen stages writes some 40 kB.
JOURNAL_BYTES_MAX = 16 * 1024 * 1024
_LINE_BYTES_MAX = 256 * 1024


def now() -> str:
    """UTC, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Journal:
    """Writes. A disk that is full ends the run at once: what cannot be told must not be done."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / JOURNAL
        self._is_cut = False
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._file = os.open(self.path, flags, 0o600)
            self._end_cut_line()
            directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise self._unwritable(error) from None

    def _end_cut_line(self) -> None:
        """A crash may have cut the last line; what follows must not be glued to it."""
        size = os.fstat(self._file).st_size
        if size:
            with self.path.open("rb") as told:
                told.seek(size - 1)
                if told.read(1) != b"\n":
                    os.write(self._file, b"\n")

    def write(self, entry: Entry) -> None:
        """One entry, whole and on disk when this returns. Raises ApplyError where it could not be."""
        line = (b"\n" if self._is_cut else b"") + encode_entry(entry)
        try:
            # One write a line: two writers never mix, and a reader sees a line or its beginning.
            written = os.write(self._file, line)
            # A line that did not fit is ended before the next one; cutting it off would confuse readers.
            self._is_cut = written != len(line)
            if self._is_cut:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301
            os.fsync(self._file)
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> ApplyError:
        return ApplyError(
            f"the journal `{self.path}` cannot be written: {error.strerror}. Nothing more is done: what"
            " cannot be told must not happen",
            end="half_way",
            hints=("make room on that file system, then `mopt-doctor resume` the run",),
        )

    def close(self) -> None:
        os.close(self._file)


def entries_of(folder: Path) -> Iterator[Entry]:
    """All entries; lines that a crash cut are passed over."""
    try:
        with (folder / JOURNAL).open("rb") as told:
            yield from entries_in(told.read(JOURNAL_BYTES_MAX))
    except OSError:
        return


def entries_in(data: bytes) -> Iterator[Entry]:
    """Entries of a journal's bytes, whatever lies between them."""
    for line in data.split(b"\n"):
        if line and len(line) <= _LINE_BYTES_MAX and (entry := decode_entry(line)) is not None:
            yield entry


def follow(folder: Path, *, pause_s: float = 0.2) -> Iterator[Entry | None]:
    """Entries as they come, and None at each pause, so that a watcher may look whether the run lives."""
    path, offset, rest = folder / JOURNAL, 0, b""
    while True:
        try:
            with path.open("rb") as told:
                told.seek(offset)
                data = told.read(JOURNAL_BYTES_MAX)
        except OSError:
            data = b""
        offset += len(data)
        *lines, rest = (rest + data).split(b"\n")
        yield from entries_in(b"\n".join(lines))
        if not data:
            yield None
            time.sleep(pause_s)
