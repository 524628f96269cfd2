"""Values as JSON documents and back: `mopt.check/1` and `mopt.host/1`."""

from __future__ import annotations

from typing import Any

import msgspec

from doctor.core.finding import CheckReport
from doctor.core.host import HOST_SCHEMA, Host
from doctor.core.versions import SCHEMES, Version
from doctor.errors import EvidenceError

__all__ = ["from_json", "to_json"]

CHECK_SCHEMA = "mopt.check/1"


def to_json(value: msgspec.Struct) -> bytes:
    """The document of a value: fields in their declared order, two spaces, a final newline.

    A version is its raw text. The same value gives the same bytes.
    """
    text = msgspec.json.encode(value, enc_hook=_encode, order="deterministic")
    return msgspec.json.format(text, indent=2) + b"\n"


def from_json(data: bytes) -> CheckReport | Host:
    """The value of a document, by the schema it names. Raises `EvidenceError` when it cannot be read."""
    try:
        schema = msgspec.json.decode(data, type=_Head).schema
        if schema == CHECK_SCHEMA:
            return msgspec.json.decode(data, type=CheckReport, dec_hook=_decode)
        if schema == HOST_SCHEMA:
            return msgspec.json.decode(data, type=Host, dec_hook=_decode)
    except RecursionError:
        raise EvidenceError("the document is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EvidenceError(f"the document cannot be read: {error}") from None
    named = ascii(schema[:80])[1:-1]
    raise EvidenceError(
        f"the document has the schema `{named}`; `{CHECK_SCHEMA}` and `{HOST_SCHEMA}` are read"
        if named
        else f"the document names no schema; `{CHECK_SCHEMA}` and `{HOST_SCHEMA}` are read"
    )


class _Head(msgspec.Struct):
    schema: str = ""


def _encode(value: Any) -> str:
    if isinstance(value, Version):
        return value.raw
    raise NotImplementedError(f"no JSON form for {type(value).__name__}")


def _decode(kind: type, value: Any) -> Version:
    for scheme in SCHEMES.values():
        if kind is scheme:
            if not isinstance(value, str):
                raise ValueError(f"a version is text, not `{type(value).__name__}`")
            return scheme(value)
    raise NotImplementedError(f"no reader for {kind.__name__}")
