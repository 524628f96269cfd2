"""Values as JSON documents and back: `mopt.check/1` and `mopt.host/1`."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from doctor.core.finding import CheckReport
from doctor.core.host import HOST_SCHEMA, Host
from doctor.core.versions import SCHEMES, Version
from doctor.errors import EvidenceError
from doctor.report.escape import UNSAFE

__all__ = ["from_json", "printable", "to_json"]

CHECK_SCHEMA = "mopt.check/1"


def to_json(value: msgspec.Struct) -> bytes:
    """The document of a value: fields in their declared order, two spaces, a final newline.

    A version is its raw text. The same value gives the same bytes. Nothing in it steers a terminal.
    """
    return printable(msgspec.json.encode(value, enc_hook=_encode, order="deterministic"))


def printable(encoded: bytes) -> bytes:
    r"""A JSON document laid out, with what steers a terminal or hides text as `\uXXXX`: the same values.

    JSON lets these characters stand in strings only, so they may be replaced wherever they occur.
    """
    laid_out = msgspec.json.format(encoded, indent=2) + b"\n"
    if laid_out.isascii() and b"\x7f" not in laid_out:
        return laid_out
    return UNSAFE.sub(_written, laid_out.decode()).encode()


def _written(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


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
