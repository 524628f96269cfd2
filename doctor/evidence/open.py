"""Whatever `--from` names, opened by what it holds: a bundle, a bug report, or pasted text."""

from __future__ import annotations

import os
import stat

from doctor.core.evidence import Evidence
from doctor.errors import EvidenceError
from doctor.evidence.bundle import read_bundle

__all__ = ["open_evidence"]

_HEAD = 64 * 1024
#: Where a tar header says `ustar`; GNU and POSIX both do.
_TAR_MAGIC = slice(257, 262)


def open_evidence(path: str | os.PathLike[str]) -> Evidence:
    """The evidence in a directory or tar archive (a bundle), or in text, plain or gzipped (a foreign report).

    Raises `EvidenceError` when it cannot be read or is neither; the message says what is accepted.
    """
    place = os.fspath(path)
    if _is_foreign(place):
        from doctor.evidence.foreign import read_foreign

        return read_foreign(place)
    try:
        return read_bundle(place)
    except EvidenceError as error:
        if "is not a mopt.evidence/1 bundle" not in error.message:
            raise
        from doctor.evidence.foreign import ACCEPTED

        raise EvidenceError(error.message, hints=(*error.hints, f"or text: {ACCEPTED}")) from None


def _is_foreign(place: str) -> bool:
    """Whether a regular file holds text and no archive. What cannot be read is left to `read_bundle`."""
    from doctor.evidence.foreign import looks_like_text
    from doctor.evidence.foreign.unpack import Unpacker

    try:
        # A FIFO or a device would block.
        if not stat.S_ISREG(os.stat(place).st_mode):  # noqa: PTH116 - pathlib costs 5 ms at import
            return False
        with open(place, "rb") as raw:  # noqa: PTH123
            head = Unpacker(raw).peek(_HEAD)
    except (OSError, ValueError):
        return False
    return head[_TAR_MAGIC] != b"ustar" and looks_like_text(head)
