"""Compile the YAML sources to `edition.json`, byte for byte the same for the same sources."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec

from doctor.core.edition import Edition, enc_version
from doctor.edition.digest import read_sources
from doctor.edition.source import compile_edition

__all__ = ["EDITION_FILE", "build", "encode", "write"]

EDITION_FILE = "edition.json"


def build(folder: Path) -> Edition:
    """The edition of a folder's YAML. Raises MatrixError with every fault."""
    return compile_edition(read_sources(folder))


def encode(edition: Edition) -> bytes:
    """The compiled form: one line of JSON, fields in the order of their types."""
    return msgspec.json.encode(edition, enc_hook=enc_version) + b"\n"


def write(edition: Edition, target: Path) -> None:
    """Put the compiled form in place at once: a reader sees the old file or the new one.

    Raises OSError when the folder cannot be written.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(encode(edition))
        Path(name).chmod(0o644)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
