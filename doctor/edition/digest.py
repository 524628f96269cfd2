"""The YAML files of a matrix folder and their fingerprint, without a YAML parser."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from doctor.errors import MatrixError

__all__ = ["digest", "read_sources"]


def read_sources(folder: Path) -> dict[str, bytes]:
    """The YAML files of a matrix folder by name. Raises MatrixError when there are none."""
    try:
        found = {path.name: path.read_bytes() for path in sorted(folder.glob("*.yaml"))}
    except OSError as error:
        raise MatrixError(f"the matrix in `{folder}` cannot be read: {error.strerror}") from error
    if not found:
        raise MatrixError(f"there is no matrix in `{folder}`: no file there ends in `.yaml`")
    return found


def digest(sources: Mapping[str, bytes]) -> str:
    """SHA-256 over names and bytes, in name order; lengths keep neighbours from running together."""
    total = hashlib.sha256()
    for name in sorted(sources):
        total.update(f"{name}\0{len(sources[name])}\0".encode())
        total.update(sources[name])
    return total.hexdigest()
