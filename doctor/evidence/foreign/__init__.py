"""Foreign reports: logs and pasted dumps that people attach when they ask for help, as `Evidence`."""

from __future__ import annotations

import os
from typing import BinaryIO

from doctor.core.evidence import Evidence
from doctor.errors import EvidenceError
from doctor.evidence.archive import shown
from doctor.evidence.foreign.unpack import Unpacker

__all__ = ["ACCEPTED", "looks_like_text", "read_foreign"]

#: What this package reads, as an error message lists it.
ACCEPTED = (
    "`nvidia-bug-report.log[.gz]`, the output of `vllm collect-env` or torch's `collect_env`, "
    "`nvidia-smi`, `nvidia-smi -q [-x]`, `dkms status`, `lspci -nn[k]`, `journalctl -k`, `dmesg`, "
    "alone or pasted together"
)

#: The head by which a file is judged to be text, and a report told from a paste.
_HEAD = 64 * 1024


def read_foreign(source: str | os.PathLike[str] | bytes | BinaryIO, origin: str = "") -> Evidence:
    """The evidence in somebody's log or paste; `origin` names it in errors.

    Raises `EvidenceError` when it cannot be read, is no text, or holds nothing that is known. Damage
    and cuts are no error: what could be read is there, and an item says what is missing.
    """
    if isinstance(source, bytes):
        from io import BytesIO

        return _read(BytesIO(source), origin or "the text")
    if not isinstance(source, str | os.PathLike):
        return _read(source, origin or "the text")
    place = os.fspath(source)
    try:
        with open(place, "rb") as raw:  # noqa: PTH123 - pathlib costs 5 ms at import
            return _read(raw, place)
    except OSError as error:
        raise EvidenceError(f"`{shown(place)}` cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a NUL in the path
        raise EvidenceError(f"`{shown(place)}` cannot be read: {error}") from None


def _read(raw: BinaryIO, origin: str) -> Evidence:
    from doctor.evidence.foreign.bugreport import is_bug_report, read_bug_report

    stream = Unpacker(raw)
    head = stream.peek(_HEAD)
    if not looks_like_text(head):
        raise EvidenceError(f"`{shown(origin)}` is no text", hints=(f"accepted are {ACCEPTED}",))
    if is_bug_report(head):
        return read_bug_report(stream)
    from doctor.evidence.foreign.pasted import read_pasted

    return read_pasted(stream, origin)


def looks_like_text(head: bytes) -> bool:
    """Whether bytes are text for a person: few control characters, or UTF-16 with its mark."""
    if not head:
        return False
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return True
    sample = head[:8192]
    odd = len(sample.translate(None, _PRINTABLE))
    return odd * 10 <= len(sample)


#: Tab, line ends, escape, and everything from the space on: UTF-8 and the older 8-bit encodings.
_PRINTABLE = bytes([7, 8, 9, 10, 11, 12, 13, 27, *range(32, 127), *range(128, 256)])
