"""Headers of safetensors files and their index, judged without reading a weight. Pure: bytes in, values out.

A file is an 8-byte little-endian length, that many bytes of JSON, and the tensors, back to back in the order
of their offsets (format description of the safetensors project, 0.8). So the header alone says how long the
file must be: a download that stopped half-way is found without reading it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import msgspec

from doctor.core.model_report import Fault

__all__ = [
    "DTYPE_BITS",
    "HEADER_BYTES_MAX",
    "INDEX_BYTES_MAX",
    "PREFIX_BYTES",
    "Header",
    "Index",
    "TensorInfo",
    "header_bytes",
    "judge_index",
    "read_header",
    "read_index",
]

PREFIX_BYTES = 8
#: The format allows 100 MB. The largest header seen (a single file of 46,000 tensors) has 6 MB.
HEADER_BYTES_MAX = 64 * 1024 * 1024
#: DeepSeek-V3's index names 91,991 tensors in 9 MB.
INDEX_BYTES_MAX = 64 * 1024 * 1024
_TENSORS_MAX = 1_000_000
_NAME_CHARS_MAX = 1024
_DIMENSIONS_MAX = 16
#: Beyond any file: such a number would only make products of shapes grow.
_NUMBER_MAX = 2**53
_METADATA_KEYS_MAX = 1000
_METADATA_CHARS_MAX = 4096
_FAULTS_MAX = 20

#: Bits of one value, by the names of safetensors 0.8.
DTYPE_BITS: dict[str, int] = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E5M2FNUZ": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E8M0": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "I64": 64,
    "U64": 64,
    "F64": 64,
}


class _Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every value here."""


class TensorInfo(_Value, frozen=True, kw_only=True):
    """A tensor as the header has it; offsets in bytes from the end of the header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def values(self) -> int:
        """How many numbers it stores; of packed ones (`I32` of GPTQ) the carriers, not what they carry."""
        return prod(self.shape)


class Header(_Value, frozen=True, kw_only=True):
    """What a file's header says, and what is wrong with it. `tensors` in the order of their offsets."""

    header_bytes: int
    data_bytes: int
    """Where the last tensor ends; the file has `8 + header_bytes + data_bytes` bytes."""
    tensors: tuple[TensorInfo, ...] = ()
    metadata: dict[str, str] = {}
    faults: tuple[Fault, ...] = ()
    faults_in_all: int = 0

    @property
    def file_bytes(self) -> int:
        """How long the file must be."""
        return PREFIX_BYTES + self.header_bytes + self.data_bytes


class _HeaderError(ValueError):
    """The header is no header."""


# --- one file -------------------------------------------------------------------------------------


def header_bytes(prefix: bytes, file_bytes: int) -> int | Fault:
    """The length of the header from a file's first 8 bytes, or what is wrong with it."""
    if file_bytes == 0:
        return Fault(kind="empty", message="the file is empty")
    if prefix.startswith(b"version "):
        return Fault(
            kind="lfs_pointer",
            message="the file is a Git LFS pointer, not the weights: run `git lfs pull` in the repository",
        )
    if len(prefix) < PREFIX_BYTES:
        return Fault(kind="truncated", message=f"the file ends after {file_bytes} bytes, inside its header")
    length = int.from_bytes(prefix[:PREFIX_BYTES], "little")
    if length > HEADER_BYTES_MAX:
        return Fault(
            kind="header",
            message=f"it says that its header has {length} bytes; up to {HEADER_BYTES_MAX} are read:"
            " no safetensors file, or a damaged one",
        )
    if length < 2:
        return Fault(kind="header", message=f"it says that its header has {length} bytes: too few for JSON")
    if PREFIX_BYTES + length > file_bytes:
        short = PREFIX_BYTES + length - file_bytes
        return Fault(kind="truncated", message=f"the file ends {short} bytes before the end of its header")
    return length


def read_header(raw: bytes, file_bytes: int | None = None) -> Header:
    """The header of `raw` JSON, with all that is wrong. `file_bytes` is the file's length, if known."""
    try:
        document = _document(raw)
    except _HeaderError as error:
        fault = Fault(kind="header", message=str(error))
        return Header(header_bytes=len(raw), data_bytes=0, faults=(fault,), faults_in_all=1)
    faults: list[Fault] = []
    metadata = _metadata(document, faults)
    tensors = [_tensor(name, said, faults) for name, said in document if name != "__metadata__"]
    faults += _duplicates(document)
    known = sorted((one for one in tensors if one is not None), key=lambda one: (one.start, one.end))
    faults += _tiling(known)
    data = max((one.end for one in known), default=0)
    if file_bytes is not None:
        faults += _length(PREFIX_BYTES + len(raw) + data, file_bytes)
    return Header(
        header_bytes=len(raw),
        data_bytes=data,
        tensors=tuple(known),
        metadata=metadata,
        faults=tuple(faults[:_FAULTS_MAX]),
        faults_in_all=len(faults),
    )


_Pairs = tuple[tuple[str, Any], ...]


def _document(raw: bytes) -> _Pairs:
    """The top object as pairs: a name that stands twice is seen. Raises `_HeaderError`."""
    if len(raw) > HEADER_BYTES_MAX:
        raise _HeaderError(f"the header has {len(raw)} bytes; up to {HEADER_BYTES_MAX} are read")
    if not raw.startswith(b"{"):
        raise _HeaderError("the header does not begin with `{`")
    try:
        document = json.loads(raw.decode("utf-8"), object_pairs_hook=tuple, parse_constant=_refuse)
    except RecursionError:
        raise _HeaderError("the header is nested too deeply") from None
    except ValueError as error:
        raise _HeaderError(f"the header is no JSON: {_short(error)}") from None
    if len(document) > _TENSORS_MAX:
        raise _HeaderError(f"the header names {len(document)} tensors; up to {_TENSORS_MAX} are read")
    pairs: _Pairs = document
    return pairs


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")


def _short(error: ValueError) -> str:
    """The reason without the text that was read: it may be long, and is not ours."""
    return str(error).partition(": '")[0][:120] if not isinstance(error, UnicodeDecodeError) else "not UTF-8"


def _metadata(document: _Pairs, faults: list[Fault]) -> dict[str, str]:
    """Text by name; the format has no other values."""
    found: dict[str, str] = {}
    for name, said in document:
        if name != "__metadata__":
            continue
        is_text = _is_object(said) and all(isinstance(value, str) for _, value in said)
        if not is_text or len(said) > _METADATA_KEYS_MAX:
            faults.append(Fault(kind="header", message="`__metadata__` is no object of text"))
            continue
        found |= {key[:_NAME_CHARS_MAX]: value[:_METADATA_CHARS_MAX] for key, value in said}
    return found


def _is_object(said: Any) -> bool:
    """Objects come as tuples of pairs, arrays as lists."""
    return isinstance(said, tuple)


def _tensor(name: str, said: Any, faults: list[Fault]) -> TensorInfo | None:
    """One entry, or None with a fault."""
    shown = _shown(name)
    fields = dict(said) if _is_object(said) else {}
    if len(name) > _NAME_CHARS_MAX or set(fields) != {"dtype", "shape", "data_offsets"}:
        faults.append(Fault(kind="header", message=f"the entry of {shown} is not dtype, shape, data_offsets"))
        return None
    shape, offsets, dtype = fields["shape"], fields["data_offsets"], fields["dtype"]
    if not _is_numbers(shape) or len(shape) > _DIMENSIONS_MAX:
        faults.append(Fault(kind="shape", message=f"the shape of {shown} is no list of sizes"))
        return None
    if not _is_numbers(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        faults.append(Fault(kind="header", message=f"the offsets of {shown} are not a start and an end"))
        return None
    bits = DTYPE_BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is None:
        faults.append(Fault(kind="dtype", message=f"{shown} has the dtype {_shown(str(dtype))}: not known"))
    elif prod(shape) * bits != (offsets[1] - offsets[0]) * 8:
        faults.append(
            Fault(
                kind="size",
                message=f"{shown} is {dtype} of {_by(shape)}, which are {prod(shape) * bits / 8:.15g} bytes,"
                f" but takes {offsets[1] - offsets[0]}",
            )
        )
    return TensorInfo(name=name, dtype=str(dtype)[:40], shape=tuple(shape), start=offsets[0], end=offsets[1])


def _is_numbers(said: Any) -> bool:
    return isinstance(said, list) and all(type(one) is int and 0 <= one <= _NUMBER_MAX for one in said)


def _shown(name: str) -> str:
    return f"`{name[:200]}`"


def _by(shape: Iterable[int]) -> str:
    return " x ".join(str(size) for size in shape) or "one value"


def _duplicates(document: _Pairs) -> list[Fault]:
    seen: set[str] = set()
    twice = [name for name, _ in document if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
    return [Fault(kind="duplicate", message=f"{_shown(name)} stands twice in the header") for name in twice]


def _tiling(tensors: list[TensorInfo]) -> list[Fault]:
    """Tensors lie back to back from 0: no two share a byte, and none is unused."""
    faults, end, last = list[Fault](), 0, ""
    for one in tensors:
        if one.start > end:
            where = f"between {_shown(last)} and {_shown(one.name)}" if last else f"before {_shown(one.name)}"
            faults.append(Fault(kind="hole", message=f"{one.start - end} bytes {where} belong to no tensor"))
        elif one.start < end:
            faults.append(
                Fault(
                    kind="overlap",
                    message=f"{_shown(one.name)} begins {end - one.start} bytes before the end of"
                    f" {_shown(last)}",
                )
            )
        if one.end >= end:
            end, last = one.end, one.name
    return faults


def _length(wanted: int, found: int) -> list[Fault]:
    if found < wanted:
        message = f"the file has {found} bytes, its header needs {wanted}: {wanted - found} are missing"
        return [Fault(kind="truncated", message=message)]
    if found > wanted:
        message = f"the file has {found} bytes, its header accounts for {wanted}"
        return [Fault(kind="longer", message=message)]
    return []


# --- the index of a checkpoint in several files ---------------------------------------------------


class Index(_Value, frozen=True, kw_only=True):
    """`model.safetensors.index.json`: which file has which tensor."""

    weight_map: dict[str, str]
    total_bytes: int | None = None
    """`metadata.total_size`: bytes of all tensors."""


def read_index(raw: bytes) -> Index | Fault:
    """The index, or why it is none. File names with a folder in them are refused."""
    try:
        document = msgspec.json.decode(raw, type=dict[str, Any]) if len(raw) <= INDEX_BYTES_MAX else {}
    except (msgspec.DecodeError, RecursionError):
        return Fault(kind="header", message="the index is no JSON object")
    said = document.get("weight_map")
    if not isinstance(said, dict) or not all(isinstance(file, str) for file in said.values()):
        return Fault(kind="header", message="the index has no `weight_map` from tensors to files")
    odd = next(
        (file for file in said.values() if "/" in file or "\0" in file or file in ("", ".", "..")), None
    )
    if odd is not None or len(said) > _TENSORS_MAX:
        return Fault(kind="header", message=f"the index names the file {_shown(odd or '')}, which is refused")
    metadata = document.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, float) and total.is_integer():  # some writers add sizes as floats
        total = int(total)
    return Index(weight_map=said, total_bytes=total if type(total) is int and total >= 0 else None)


def judge_index(index: Index, headers: Mapping[str, Header], present: Iterable[str]) -> tuple[Fault, ...]:
    """What does not agree between an index, the files present, and the headers of those that were read."""
    named, there = set(index.weight_map.values()), set(present)
    faults = [
        Fault(kind="missing_shard", message=f"the index names {_shown(file)}, which is not there")
        for file in sorted(named - there)
    ]
    faults += [
        Fault(kind="extra_shard", message=f"{_shown(file)} is there, but the index does not name it")
        for file in sorted(there - named)
    ]
    held = {file: {one.name for one in header.tensors} for file, header in headers.items() if file in named}
    faults += _absent(index, held)
    listed = set(index.weight_map)
    for file, names in sorted(held.items()):
        more = sorted(names - listed)
        if more:
            message = f"{_shown(file)} holds {_some(more)}, which the index does not name"
            faults.append(Fault(kind="extra_tensor", message=message))
    return (*faults, *_total(index, headers, named))


def _absent(index: Index, held: Mapping[str, set[str]]) -> list[Fault]:
    """Tensors that the index puts into a file whose header lacks them."""
    lacking: dict[str, list[str]] = {}
    for name, file in index.weight_map.items():
        if file in held and name not in held[file]:
            lacking.setdefault(file, []).append(name)
    return [
        Fault(kind="missing_tensor", message=f"the index puts {_some(names)} into {_shown(file)}: not there")
        for file, names in sorted(lacking.items())
    ]


def _some(names: list[str]) -> str:
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(_shown(name) for name in names[:3]) + rest


def _total(index: Index, headers: Mapping[str, Header], named: set[str]) -> tuple[Fault, ...]:
    """`total_size` against the tensors, where every file was read whole.

    Writers disagree about tied tensors and about sizes in values instead of bytes, and no engine reads the
    figure: only a sum that is below it by more than a tenth is worth a word.
    """
    if index.total_bytes is None or not named or not named <= set(headers):
        return ()
    found = sum(headers[file].data_bytes for file in named)
    if found >= 0.9 * index.total_bytes:
        return ()
    message = f"the index counts {index.total_bytes} bytes of tensors, the files hold {found}"
    return (Fault(kind="total_size", message=message),)
