"""The matrix as commands read it: the compiled edition, rebuilt first where its YAML has changed.

An installed copy holds `edition.json` and trusts it. A source tree, known by the `pyproject.toml` beside
the data folder, compares digests, so that an edit of the YAML counts at the next command.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from doctor.config import data_dir
from doctor.core.edition import Edition, layout, read_edition
from doctor.core.matrix import Matrix
from doctor.errors import MatrixError

__all__ = ["decode", "is_source_tree", "load_edition", "load_matrix"]

_EDITION_FILE = "edition.json"

Folder = str | os.PathLike[str]


def load_matrix(folder: Folder | None = None, *, overlays: Sequence[str] = ()) -> Matrix:
    """The matrix of this installation, or of another folder, with site overlays on top.

    Raises MatrixError, with all faults of the overlays at once.
    """
    edition = load_edition(folder or data_dir("matrices"))
    if not overlays:
        return Matrix(edition)
    # 20 ms for PyYAML, and every table is decoded and judged again: only where a site has an overlay.
    from doctor.edition.overlay import compile_overlays

    return compile_overlays(edition, overlays)


def load_edition(folder: Folder) -> Edition:
    """The edition of a folder, up to date with its sources. Raises MatrixError."""
    compiled = os.path.join(folder, _EDITION_FILE)
    if is_source_tree(folder):
        return _current(folder, compiled)
    try:
        return decode(_bytes(compiled), compiled)
    except OSError as error:
        raise MatrixError(
            f"the compiled matrix `{compiled}` cannot be read: {error.strerror}",
            hints=("install mopt-doctor again: its wheel holds the file",),
        ) from error


def _bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def is_source_tree(folder: Folder) -> bool:
    """Whether a matrix folder is one that people edit."""
    parent = os.path.dirname(os.path.abspath(folder))
    return os.path.isfile(os.path.join(parent, "pyproject.toml")) and any(
        name.endswith(".yaml") for name in os.listdir(folder)
    )


def decode(data: bytes, name: str) -> Edition:
    """A compiled edition. Raises MatrixError when it is damaged or of another version."""
    hints = ("remove the file in a source tree; install again elsewhere",)
    try:
        edition = read_edition(data)
    except msgspec.MsgspecError as error:
        raise MatrixError(
            f"`{name}` is not an edition that this version reads: {error}", hints=hints
        ) from error
    if edition.layout != layout():
        raise MatrixError(f"`{name}` was compiled for the rows of another version", hints=hints)
    return edition


def _current(folder: Folder, compiled: str) -> Edition:
    """The edition of a source tree: the compiled one when its digest fits, else a new one."""
    # hashlib and pathlib: 9 ms of CPU at import that an installed copy saves.
    from pathlib import Path

    from doctor.edition.digest import digest, read_sources

    sources = read_sources(Path(folder))
    wanted = digest(sources)
    try:
        edition = decode(_bytes(compiled), compiled)
        if edition.digest == wanted:
            return edition
    except (FileNotFoundError, MatrixError):
        pass  # never built, or by another version: the sources are here to build from
    # PyYAML costs 20 ms at import: only where there is something to compile.
    from doctor.edition.build import write
    from doctor.edition.source import compile_edition

    edition = compile_edition(sources)
    try:
        write(edition, Path(compiled))
    except OSError:
        # A read-only checkout: the answer is the same, the next command compiles again.
        return edition
    return edition
