"""Values as JSON documents; `doctor.report.saved` reads them back."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from doctor.core.versions import Version
from doctor.report.escape import UNSAFE

__all__ = ["printable", "to_json", "written"]


def to_json(value: msgspec.Struct) -> bytes:
    """The document of a value: fields in their declared order, two spaces, a final newline.

    A version is its raw text. The same value gives the same bytes. Nothing in it steers a terminal.
    """
    try:
        encoded = msgspec.json.encode(value, enc_hook=_encode, order="deterministic")
    except UnicodeEncodeError:
        # Half a surrogate pair, as Python has bytes of a file name that are no UTF-8: JSON cannot carry it.
        plain = msgspec.to_builtins(value, enc_hook=_encode, order="deterministic")
        encoded = msgspec.json.encode(_whole(plain))
    return printable(encoded)


def _whole(value: Any) -> Any:
    r"""Plain values with halves of surrogate pairs written out, as `\udcff`."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_whole(key): _whole(one) for key, one in value.items()}
    return [_whole(one) for one in value] if isinstance(value, list | tuple) else value


def printable(encoded: bytes) -> bytes:
    r"""A JSON document laid out, with what steers a terminal or hides text as `\uXXXX`: the same values.

    JSON lets these characters stand in strings only, so they may be replaced wherever they occur.
    """
    laid_out = msgspec.json.format(encoded, indent=2) + b"\n"
    if laid_out.isascii() and b"\x7f" not in laid_out:
        return laid_out
    return UNSAFE.sub(written, laid_out.decode()).encode()


def written(match: re.Match[str]) -> str:
    r"""A character as JSON writes it in ASCII: `\uXXXX`, a pair of them beyond the first plane."""
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _encode(value: Any) -> str:
    if isinstance(value, Version):
        return value.raw
    raise NotImplementedError(f"no JSON form for {type(value).__name__}")
