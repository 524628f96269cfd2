"""The writing half of `bundle`: members to a directory or an archive, by temporary name and rename."""

from __future__ import annotations

import calendar
import gzip
import io
import os
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Literal, cast

import msgspec

from doctor.errors import ConfigError
from doctor.evidence.archive import shown

__all__ = ["form_of", "write"]

Form = Literal["tar.gz", "tar", "directory"]

#: In small letters.
_ENDINGS: dict[str, Form] = {".tar.gz": "tar.gz", ".tgz": "tar.gz", ".tar": "tar"}

#: What ends like this was meant to be a file of that kind, never a directory.
_OTHER_FILES = re.compile(
    r"(?:\.tar)?\.(?:zip|7z|rar|gz|xz|bz2?|lzma|lz4?|zst|br|Z|txz|tbz2?|tzst|tlz|cpio|json|txt|log)\Z",
    re.IGNORECASE,
)

_ACCEPTED = "a name ending in .tar.gz, .tgz or .tar is an archive, one with no such ending a directory"


def form_of(place: str) -> Form:
    """What a bundle at `place` would be, by its ending, in capitals too.

    Raises `ConfigError` for stdout, a link, an archive of another kind, and one that ends in a slash.
    """
    plain = place.rstrip("/")
    if place == "-":
        raise ConfigError("`-`: a bundle is not written to stdout", hints=(_ACCEPTED,))
    if Path(plain).is_symlink():
        raise ConfigError(f"`{shown(place)}` is a link: not followed")
    form = next((form for end, form in _ENDINGS.items() if plain.lower().endswith(end)), None)
    other = _OTHER_FILES.search(plain)
    if (form or other) and plain != place:
        raise ConfigError(f"`{shown(place)}` has a file's ending and a slash behind it", hints=(_ACCEPTED,))
    if other and form is None:
        raise ConfigError(f"`{shown(place)}`: no bundle is written as `{other[0]}`", hints=(_ACCEPTED,))
    return form or "directory"


def write(place: str, parts: Mapping[str, bytes], taken_at: str) -> None:
    """Writes the members to `place` as what `form_of` says. `OSError` when the system refuses."""
    target, form = Path(place), form_of(place)
    if form != "directory":
        _write_archive(target, parts, _epoch(taken_at), is_packed=form == "tar.gz")
    else:
        _write_directory(target, parts)


def _epoch(taken_at: str) -> int:
    """Seconds since 1970 of `2026-11-30T08:01:41Z`, fractions dropped; 0 when it is no such time."""
    try:
        return max(0, calendar.timegm(time.strptime(taken_at[:19], "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return 0


def _write_archive(target: Path, parts: Mapping[str, bytes], mtime: int, *, is_packed: bool) -> None:
    if target.exists() and not target.is_file():
        raise ConfigError(f"`{target}` exists and is not a file: not overwritten")
    # mkstemp makes it 0600.
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as raw:
            if not is_packed:
                _write_tar(raw, parts, mtime)
            else:
                with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=mtime) as packed:
                    _write_tar(cast("IO[bytes]", packed), parts, mtime)
            raw.flush()
            os.fsync(raw.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _write_tar(out: IO[bytes], parts: Mapping[str, bytes], mtime: int) -> None:
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in parts.items():
            header = tarfile.TarInfo(name)
            header.size, header.mtime, header.mode = len(data), mtime, 0o600
            archive.addfile(header, io.BytesIO(data))


def _write_directory(target: Path, parts: Mapping[str, bytes]) -> None:
    occupied = target.exists()
    if occupied and not _may_replace(target):
        raise ConfigError(
            f"`{target}` exists and is not an evidence bundle: not overwritten",
            hints=("name a new directory, or a file ending in .tar.gz",),
        )
    # mkdtemp makes it 0700.
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        for name, data in parts.items():
            part = fresh / name
            part.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            part.touch(mode=0o600)
            part.write_bytes(data)
        _swap(fresh, target, occupied=occupied)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def _swap(fresh: Path, target: Path, *, occupied: bool) -> None:
    if not occupied:
        fresh.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    kept = target.rename(old / "bundle")
    try:
        fresh.rename(target)
    except BaseException:
        kept.rename(target)
        raise
    finally:
        shutil.rmtree(old)


class _Head(msgspec.Struct):
    schema: str = ""


def _may_replace(target: Path) -> bool:
    """True for an empty directory, and for one that holds a bundle and nothing of anybody else's."""
    if target.is_symlink() or not target.is_dir():
        return False
    names = {entry.name for entry in target.iterdir()}
    if not names:
        return True
    if "meta.json" not in names or any(
        n not in ("files", "commands") and not n.startswith("files@") and not n.endswith(".json")
        for n in names
    ):
        return False
    try:
        head = msgspec.json.decode((target / "meta.json").read_bytes(), type=_Head)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return head.schema.startswith("mopt.evidence/")
