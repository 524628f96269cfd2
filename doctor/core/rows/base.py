"""What every row of the matrix carries: its source, the day it was read, how sure it is."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Confidence", "OpenModule", "Row"]

Confidence = Literal["vendor", "measured", "derived", "unverified"]

#: Whether a GPU runs with the open kernel modules.
OpenModule = Literal["required", "supported", "unsupported"]


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What every row carries. `unverified` names the fields no primary source was read for."""

    source: tuple[str, ...]
    as_of: str
    confidence: Confidence
    review_by: str
    unverified: tuple[str, ...] = ()
    note: str = ""
    overlay: str = ""
    """`NAME: FILE:LINE` of the site overlay that a row comes from; empty for the edition's own."""
