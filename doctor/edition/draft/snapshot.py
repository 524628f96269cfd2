"""What an index said of a component, as a value that can be saved and drafted from again: `mopt.index/1`."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from doctor.errors import UsageError

__all__ = ["SNAPSHOT_SCHEMA", "IndexFile", "Snapshot", "read_snapshot"]

SNAPSHOT_SCHEMA = "mopt.index/1"


class IndexFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A file of a project. Neither its address nor its hash: a person who wants them asks pip."""

    filename: str
    size: int | None = None
    uploaded: str = ""
    """Day, `2026-11-02`; empty where the index does not tell."""
    requires_python: str = ""
    yanked: bool = False
    has_metadata: bool = False
    """Whether the index keeps METADATA beside the file (PEP 658)."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Everything that a draft rests on."""

    schema: Literal["mopt.index/1"]
    component: str
    read_on: str
    """Day on which the index was asked."""
    pip: str
    """Version of the pip that asked."""
    projects: dict[str, tuple[IndexFile, ...]]
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    """METADATA by the name of its file."""
    unread: dict[str, str] = msgspec.field(default_factory=dict)
    """Why a project or a file's METADATA could not be read."""


def read_snapshot(data: bytes, name: str) -> Snapshot:
    """A saved answer. Raises `UsageError` when it is none."""
    try:
        found = msgspec.json.decode(data, type=Snapshot)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"`{name}` is no answer of an index (`{SNAPSHOT_SCHEMA}`): {error}",
            hints=("`mopt-doctor matrix import COMPONENT --save FILE` writes one",),
        ) from None
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", found.read_on) or not re.fullmatch(r"[\w.+-]{1,40}", found.pip):
        raise UsageError(f"`{name}` does not say when, or with which pip, the index was asked")
    return found
