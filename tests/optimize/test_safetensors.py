"""Headers of safetensors files: whole ones, damaged ones, and hostile ones."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.core.model_report import Fault
from optimize.safetensors import (
    DTYPE_BITS,
    HEADER_BYTES_MAX,
    Header,
    Index,
    header_bytes,
    judge_index,
    read_header,
    read_index,
)


def raw(tensors: dict[str, Any]) -> bytes:
    return json.dumps(tensors).encode()


def tensor(dtype: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def kinds(header: Header) -> list[str]:
    return [fault.kind for fault in header.faults]


TWO = {"a": tensor("BF16", [2, 3], 0, 12), "b": tensor("F32", [1], 12, 16)}


def test_a_whole_header() -> None:
    text = raw({"__metadata__": {"format": "pt"}, **TWO})
    header = read_header(text, 8 + len(text) + 16)
    assert header.faults == ()
    assert header.metadata == {"format": "pt"}
    assert [(one.name, one.shape, one.values) for one in header.tensors] == [("a", (2, 3), 6), ("b", (1,), 1)]
    assert (header.data_bytes, header.file_bytes) == (16, 8 + len(text) + 16)


def test_padding_of_spaces_is_part_of_it() -> None:
    text = raw(TWO) + b"   "
    assert read_header(text, 8 + len(text) + 16).faults == ()


@pytest.mark.parametrize("dtype", DTYPE_BITS)
def test_sizes_of_each_dtype(dtype: str) -> None:
    size = 16 * DTYPE_BITS[dtype] // 8
    assert read_header(raw({"a": tensor(dtype, [4, 4], 0, size)})).faults == ()
    assert kinds(read_header(raw({"a": tensor(dtype, [4, 4], 0, size + 1)}))) == ["size"]


def test_half_a_byte_is_no_size() -> None:
    assert kinds(read_header(raw({"a": tensor("F4", [3], 0, 1)}))) == ["size"]
    assert "1.5 bytes" in read_header(raw({"a": tensor("F4", [3], 0, 1)})).faults[0].message


def test_empty_and_scalar_tensors() -> None:
    assert read_header(raw({"a": tensor("F32", [0, 7], 0, 0), "b": tensor("F32", [], 0, 4)})).faults == ()


@pytest.mark.parametrize(
    ("tensors", "wanted"),
    [
        ({"a": tensor("U8", [4], 0, 4), "b": tensor("U8", [4], 6, 10)}, ["hole"]),
        ({"a": tensor("U8", [4], 2, 6)}, ["hole"]),
        ({"a": tensor("U8", [4], 0, 4), "b": tensor("U8", [4], 3, 7)}, ["overlap"]),
        ({"a": tensor("U8", [8], 0, 8), "b": tensor("U8", [2], 2, 4)}, ["overlap"]),
        ({"a": tensor("I3", [4], 0, 4)}, ["dtype"]),
        ({"a": tensor("U8", [-4], 0, 4)}, ["shape"]),
        ({"a": tensor("U8", [1] * 17, 0, 1)}, ["shape"]),
        ({"a": {"dtype": "U8", "shape": {}, "data_offsets": [0, 1]}}, ["shape"]),
        ({"a": {"dtype": "U8", "shape": [True], "data_offsets": [0, 1]}}, ["shape"]),
        ({"a": tensor("U8", [2**60, 2**60], 0, 4)}, ["shape"]),
        ({"a": tensor("U8", [2**53] * 16, 0, 4)}, ["size"]),
        ({"a": tensor("U8", [4], 4, 0)}, ["header"]),
        ({"a": {"dtype": "U8", "shape": [4]}}, ["header"]),
        ({"a": {**tensor("U8", [4], 0, 4), "more": 1}}, ["header"]),
        ({"a": 3}, ["header"]),
        ({"x" * 2000: tensor("U8", [4], 0, 4)}, ["header"]),
        ({"__metadata__": {"a": 1}}, ["header"]),
        ({"__metadata__": [1]}, ["header"]),
    ],
)
def test_what_is_wrong_is_named(tensors: dict[str, Any], wanted: list[str]) -> None:
    assert kinds(read_header(raw(tensors))) == wanted


def test_a_name_that_stands_twice() -> None:
    one = json.dumps(tensor("U8", [4], 0, 4))
    assert "duplicate" in kinds(read_header(f'{{"a": {one}, "a": {one}}}'.encode()))


def test_truncation_from_the_header_alone() -> None:
    text = raw(TWO)
    whole = 8 + len(text) + 16
    header = read_header(text, whole - 5)
    assert kinds(header) == ["truncated"]
    assert (
        f"the file has {whole - 5} bytes, its header needs {whole}: 5 are missing" == header.faults[0].message
    )
    assert kinds(read_header(text, whole + 1)) == ["longer"]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{",
        b"{\xff}",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a": ' + b"9" * 5000 + b"}",
        b" {}",
    ],
)
def test_no_header(text: bytes) -> None:
    header = read_header(text)
    assert [fault.kind for fault in header.faults] == ["header"]
    assert header.tensors == ()
    assert len(header.faults[0].message) < 300


def test_many_faults_are_counted_and_few_shown() -> None:
    header = read_header(raw({f"t{n}": tensor("U8", [4], 0, 5) for n in range(300)}))
    assert len(header.faults) == 20
    assert header.faults_in_all >= 300


@pytest.mark.parametrize(
    ("prefix", "size", "kind"),
    [
        (b"", 0, "empty"),
        (b"\x01\x00", 2, "truncated"),
        (b"version ", 130, "lfs_pointer"),
        ((HEADER_BYTES_MAX + 1).to_bytes(8, "little"), 10**12, "header"),
        ((2**64 - 1).to_bytes(8, "little"), 10**12, "header"),
        ((1).to_bytes(8, "little"), 100, "header"),
        ((500).to_bytes(8, "little"), 400, "truncated"),
    ],
)
def test_length_of_a_header(prefix: bytes, size: int, kind: str) -> None:
    found = header_bytes(prefix, size)
    assert isinstance(found, Fault)
    assert found.kind == kind


def test_a_length_that_is_one() -> None:
    assert header_bytes((392).to_bytes(8, "little"), 400) == 392


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_any_bytes_give_an_answer(text: bytes) -> None:
    header = read_header(text, 1000)
    assert isinstance(header, Header)
    assert header.tensors == () or header.data_bytes >= 0


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
_ENTRY = st.fixed_dictionaries(
    {"dtype": st.sampled_from([*DTYPE_BITS, "X"]) | _JSON, "shape": _JSON, "data_offsets": _JSON}
)


@given(st.dictionaries(st.text(max_size=10), _ENTRY | _JSON, max_size=6))
@settings(max_examples=300, deadline=None)
def test_any_object_gives_an_answer(document: dict[str, Any]) -> None:
    header = read_header(json.dumps(document).encode(), 4096)
    assert header.faults_in_all == 0 or header.faults
    # what is called whole tiles the file: sizes add up to where the last tensor ends
    if not header.faults:
        assert (
            sum(one.end - one.start for one in header.tensors)
            == header.data_bytes
            == 4096 - 8 - header.header_bytes
        )


@given(
    st.lists(
        st.tuples(st.sampled_from(["U8", "BF16", "F32"]), st.integers(0, 9), st.integers(0, 9)), max_size=8
    ),
    st.data(),
)
@settings(max_examples=200, deadline=None)
def test_a_whole_file_is_whole_and_every_shift_is_seen(
    parts: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    tensors, end = {}, 0
    for number, (dtype, rows, columns) in enumerate(parts):
        size = rows * columns * DTYPE_BITS[dtype] // 8
        tensors[f"t{number}"] = tensor(dtype, [rows, columns], end, end + size)
        end += size
    text = raw(tensors)
    assert read_header(text, 8 + len(text) + end).faults == ()
    sized = [name for name, one in tensors.items() if one["data_offsets"][1] > one["data_offsets"][0]]
    if sized:
        name = data.draw(st.sampled_from(sized))
        start, stop = tensors[name]["data_offsets"]
        shift = data.draw(st.integers(1, 5))
        tensors[name] = {**tensors[name], "data_offsets": [start + shift, stop + shift]}
        assert read_header(raw(tensors)).faults != ()


# --- index ----------------------------------------------------------------------------------------


def held(*names: str) -> Header:
    tensors = {name: tensor("U8", [4], 4 * n, 4 * n + 4) for n, name in enumerate(names)}
    return read_header(raw(tensors))


INDEX = Index(weight_map={"a": "m-1", "b": "m-1", "c": "m-2"}, total_bytes=12)


def test_a_whole_index() -> None:
    assert judge_index(INDEX, {"m-1": held("a", "b"), "m-2": held("c")}, ["m-1", "m-2"]) == ()


def test_what_an_index_misses() -> None:
    def found(headers: dict[str, Header], present: list[str]) -> list[str]:
        return [fault.kind for fault in judge_index(INDEX, headers, present)]

    assert found({"m-1": held("a", "b")}, ["m-1"]) == ["missing_shard"]
    assert found({"m-1": held("a", "b"), "m-2": held("c")}, ["m-1", "m-2", "m-3"]) == ["extra_shard"]
    assert found({"m-1": held("a"), "m-2": held("c", "b")}, ["m-1", "m-2"]) == ["missing_tensor"]
    assert found({"m-1": held("a", "b", "x"), "m-2": held("c")}, ["m-1", "m-2"]) == ["extra_tensor"]
    assert found({"m-1": held("a"), "m-2": held()}, ["m-1", "m-2"]) == [
        "missing_tensor",
        "missing_tensor",
        "total_size",
    ]


@pytest.mark.parametrize(
    "text",
    [
        b"[]",
        b"{}",
        b'{"weight_map": {"a": 1}}',
        b'{"weight_map": {"a": "../../etc/passwd"}}',
        b'{"weight_map": {"a": ""}}',
        b"[" * 100_000,
    ],
)
def test_no_index(text: bytes) -> None:
    assert isinstance(read_index(text), Fault)


def test_total_size_in_all_its_forms() -> None:
    for said, wanted in ((b"12", 12), (b"12.0", 12), (b'"12"', None), (b"-1", None), (b"null", None)):
        found = read_index(b'{"metadata": {"total_size": ' + said + b'}, "weight_map": {"a": "f"}}')
        assert isinstance(found, Index)
        assert found.total_bytes == wanted
