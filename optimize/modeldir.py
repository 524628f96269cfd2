"""EDGE: reads the folder of a model: its config, the headers of its weights, and their digests. No weight is
loaded, no pickle opened, no code of the checkpoint run.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Mapping
from typing import Any

import msgspec

from doctor.core.model_facts import ModelFacts
from doctor.core.model_report import Fault, FileFact, FileKind
from doctor.errors import UsageError
from optimize.config import read_config
from optimize.safetensors import (
    INDEX_BYTES_MAX,
    PREFIX_BYTES,
    Header,
    header_bytes,
    judge_index,
    read_header,
    read_index,
)
from optimize.tensors import compare_tensors, stored_dtypes

__all__ = ["ModelFolder", "read_folder"]

#: MiniMax-M3's config, with a quantization list of every module, has 2.4 MB.
_CONFIG_BYTES_MAX = 16 * 1024 * 1024
_FILES_MAX = 20_000
_LFS = b"version https://git-lfs"
_SHARD = re.compile(r"(.{1,200})-([0-9]{5})-of-([0-9]{5})\.safetensors")
_TAIL_BYTES = 66_000
"""A zip ends with its directory, behind which a comment of 65,535 bytes may stand."""

_KINDS: tuple[tuple[tuple[str, ...], FileKind], ...] = (
    ((".safetensors",), "safetensors"),
    ((".safetensors.index.json", ".bin.index.json"), "index"),
    ((".bin", ".pt", ".pth", ".ckpt"), "pytorch"),
    ((".gguf",), "gguf"),
    ((".py",), "code"),
)
_NAMES: dict[str, FileKind] = {
    "config.json": "config",
    "hf_quant_config.json": "config",
    "generation_config.json": "config",
    "tokenizer.json": "tokenizer",
    "tokenizer_config.json": "tokenizer",
    "tokenizer.model": "tokenizer",
    "tekken.json": "tokenizer",
    "vocab.json": "tokenizer",
    "vocab.txt": "tokenizer",
    "sentencepiece.bpe.model": "tokenizer",
}


class ModelFolder(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of a folder."""

    path: str
    files: tuple[FileFact, ...]
    faults: tuple[Fault, ...]
    config: dict[str, Any] | None
    facts: ModelFacts | None
    stored_bytes: int | None
    stored_dtypes: dict[str, int]


def read_folder(path: str) -> ModelFolder:
    """What a folder, or a single file of weights, holds. Raises UsageError where there is nothing to read."""
    folder, names = _listed(path)
    is_folder = os.path.isdir(path)  # noqa: PTH112 - a string is all that is needed
    files: list[FileFact] = []
    faults: list[Fault] = []
    headers: dict[str, Header] = {}
    for name in names:
        fact, found, header = _file(folder, name)
        files.append(fact)
        faults += found
        if header is not None:
            headers[name] = header
    config = _json(folder, "config.json", faults) if "config.json" in names else None
    beside = _json(folder, "hf_quant_config.json", faults) if "hf_quant_config.json" in names else None
    facts = None
    if config is not None:
        facts = read_config(config, quantization=beside, is_embedding=_is_embedding(folder))
        faults += [Fault(kind="config", file="config.json", message=text) for text in facts.problems]
    # Somebody who names a single file asks about that file.
    faults += _whole(folder, files, headers) if is_folder else []
    if config is None and "adapter_config.json" in names:
        faults += _adapter(folder)
    read_all = _is_whole(files, headers)
    tensors = [one for header in headers.values() for one in header.tensors]
    if facts is not None and read_all and not any(fault.is_broken for fault in faults):
        faults += compare_tensors(facts, tensors)
    return ModelFolder(
        path=path,
        files=tuple(files),
        faults=tuple(faults),
        config=config,
        facts=facts,
        stored_bytes=sum(header.data_bytes for header in headers.values()) if read_all else None,
        stored_dtypes=stored_dtypes(tensors),
    )


def _listed(path: str) -> tuple[str, list[str]]:
    """The folder and the names in it, sorted; of a file, just its own."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - one call tells all
        if not stat.S_ISDIR(mode):
            if not stat.S_ISREG(mode):
                raise UsageError(f"`{path}` is neither a folder nor a regular file")
            return os.path.split(path)[0] or ".", [os.path.split(path)[1]]
        with os.scandir(path) as entries:
            names = [one.name for one in entries if not one.is_dir()]
    except OSError as error:
        hint = "the folder of a model, with its config.json; names of a hub are not looked up"
        raise UsageError(f"`{path}` cannot be read: {error.strerror}", hints=(hint,)) from None
    if len(names) > _FILES_MAX:
        raise UsageError(f"`{path}` has {len(names)} files: no folder of a model")
    return path, sorted(names)


def kind_of(name: str) -> FileKind:
    """The kind of a file by its name."""
    if name in _NAMES:
        return _NAMES[name]
    found = [(len(end), kind) for ends, kind in _KINDS for end in ends if name.endswith(end)]
    return max(found)[1] if found else "other"


def open_regular(path: str) -> int:
    """A descriptor of a regular file; links are followed: hubs keep snapshots as links. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "no regular file")
    return descriptor


def _file(folder: str, name: str) -> tuple[FileFact, list[Fault], Header | None]:
    """What a file is, by its name and first bytes."""
    kind, path = kind_of(name), os.path.join(folder, name)  # noqa: PTH118
    if name.endswith(".incomplete"):
        fault = Fault(kind="missing_shard", file=name, message="a download that did not end: start it again")
        return FileFact(name=name, kind="other", bytes=0), [fault], None
    try:
        descriptor = open_regular(path)
    except OSError as error:
        return FileFact(name=name, kind=kind, bytes=0), _unreadable(path, name, kind, error), None
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        if kind not in ("safetensors", "pytorch", "gguf"):
            return FileFact(name=name, kind=kind, bytes=size), [], None
        start = file.read(64)
        if start.startswith(_LFS):
            message = "the file is a Git LFS pointer, not the weights: run `git lfs pull` in the repository"
            return (
                FileFact(name=name, kind="lfs_pointer", bytes=size),
                [Fault(kind="lfs_pointer", file=name, message=message)],
                None,
            )
        if kind == "safetensors":
            return _safetensors(file, name, size, start)
        if kind == "gguf":
            return (*_gguf(name, size, start), None)
        return (*_pytorch(file, name, size, start), None)


def _unreadable(path: str, name: str, kind: FileKind, error: OSError) -> list[Fault]:
    if kind == "other":
        return []
    why = error.strerror or str(error)
    if error.errno in (errno.EACCES, errno.EPERM):
        why = f"{why}: the user who asks may not read it; the one who runs the engine must"
    if os.path.islink(path) and not os.path.exists(path):  # noqa: PTH110, PTH114
        why = "a link to a file that is not there: an interrupted download, or a cleaned cache"
    return [Fault(kind="unreadable", file=name, message=why)]


def _safetensors(
    file: Any, name: str, size: int, start: bytes
) -> tuple[FileFact, list[Fault], Header | None]:
    length = header_bytes(start[:PREFIX_BYTES], size)
    if isinstance(length, Fault):
        fault = msgspec.structs.replace(length, file=name)
        return FileFact(name=name, kind="safetensors", bytes=size), [fault], None
    file.seek(PREFIX_BYTES)
    header = read_header(file.read(length), size)
    faults = [msgspec.structs.replace(one, file=name) for one in header.faults]
    return (
        FileFact(name=name, kind="safetensors", bytes=size, tensors=len(header.tensors)),
        faults,
        header,
    )


def _gguf(name: str, size: int, start: bytes) -> tuple[FileFact, list[Fault]]:
    """`GGUF`, version, number of tensors, number of metadata entries (24 bytes, little-endian)."""
    if size == 0:
        return FileFact(name=name, kind="gguf", bytes=0), [
            Fault(kind="empty", file=name, message="it is empty")
        ]
    if start[:4] != b"GGUF" or len(start) < 24:
        fault = Fault(kind="header", file=name, message="it does not begin as a GGUF file does")
        return FileFact(name=name, kind="gguf", bytes=size), [fault]
    version = int.from_bytes(start[4:8], "little")
    tensors, entries = int.from_bytes(start[8:16], "little"), int.from_bytes(start[16:24], "little")
    if not 1 <= version <= 3 or tensors > 1_000_000 or entries > 1_000_000:
        message = (
            f"GGUF version {version} with {tensors} tensors and {entries} entries: not one that is known"
        )
        return FileFact(name=name, kind="gguf", bytes=size), [
            Fault(kind="header", file=name, message=message)
        ]
    note = f"GGUF version {version}; its tensors are not looked into"
    return FileFact(name=name, kind="gguf", bytes=size, tensors=tensors, note=note), []


def _pytorch(file: Any, name: str, size: int, start: bytes) -> tuple[FileFact, list[Fault]]:
    """A zip or a bare pickle: named, never opened. A zip without its directory at the end is cut off."""
    if size == 0:
        return FileFact(name=name, kind="pytorch", bytes=0), [
            Fault(kind="empty", file=name, message="it is empty")
        ]
    pickle = Fault(
        kind="pickle",
        file=name,
        message="a pickle: loading it can run code of its maker; safetensors files cannot",
    )
    if start[:4] != b"PK\x03\x04":
        is_pickle = start[:1] == b"\x80"
        note = "a pickle of the form before PyTorch 1.6" if is_pickle else "neither a zip nor a pickle"
        return FileFact(name=name, kind="pytorch", bytes=size, note=note), [pickle] if is_pickle else []
    file.seek(max(0, size - _TAIL_BYTES))
    if b"PK\x05\x06" not in file.read(_TAIL_BYTES):
        message = "a zip without its directory at the end: the file is cut off"
        return FileFact(name=name, kind="pytorch", bytes=size), [
            Fault(kind="truncated", file=name, message=message)
        ]
    return FileFact(name=name, kind="pytorch", bytes=size, note="a PyTorch archive (zip)"), [pickle]


# --- the folder as a whole ------------------------------------------------------------------------


def _json(folder: str, name: str, faults: list[Fault]) -> dict[str, Any] | None:
    """A small JSON object. Configs write `Infinity`, which JSON has not, but every engine reads."""
    try:
        with os.fdopen(open_regular(os.path.join(folder, name)), "rb") as file:  # noqa: PTH118
            raw = file.read(_CONFIG_BYTES_MAX + 1)
    except OSError:
        return None  # told already, with the file
    why = ""
    if raw.startswith(_LFS):
        why = "a Git LFS pointer: run `git lfs pull`"
    elif len(raw) > _CONFIG_BYTES_MAX:
        why = f"larger than {_CONFIG_BYTES_MAX} bytes"
    else:
        try:
            found = json.loads(raw)
        except RecursionError:
            why = "nested too deeply"
        except ValueError as error:
            why = f"no JSON: {str(error)[:120]}"
        else:
            if isinstance(found, dict):
                return found
            why = "no JSON object"
    faults.append(Fault(kind="config", file=name, message=why))
    return None


def _adapter(folder: str) -> list[Fault]:
    """What PEFT's file beside weights without a config of their own says: they change another model."""
    faults: list[Fault] = []
    said = _json(folder, "adapter_config.json", faults)
    if said is None:
        return faults
    kind, base = said.get("peft_type"), said.get("base_model_name_or_path")
    kind = kind[:40] if isinstance(kind, str) else "of a kind that is not said"
    base = base[:200] if isinstance(base, str) and base else "a model that is not named"
    message = f"an adapter ({kind}) of {base}, and no model: ask about that one; an engine loads both"
    return [*faults, Fault(kind="unusual", file="adapter_config.json", message=message)]


def _is_embedding(folder: str) -> bool:
    """Whether sentence-transformers has told how to pool: the model is for embeddings."""
    return any(os.path.exists(os.path.join(folder, name)) for name in ("modules.json", "1_Pooling"))  # noqa: PTH110, PTH118


def _whole(folder: str, files: list[FileFact], headers: Mapping[str, Header]) -> list[Fault]:
    """Whether all the weights are there: by the index, or by the numbers in the names."""
    present = [one.name for one in files if one.kind in ("safetensors", "lfs_pointer")]
    index = next((one for one in files if one.name == "model.safetensors.index.json"), None)
    if index is not None:
        return _by_index(folder, index.name, present, headers)
    faults = [
        Fault(kind="missing_shard", message=f"`{name}` is not there, of {total} that its neighbours count")
        for name, total in _unseen(present)
    ]
    if not any(one.kind in ("safetensors", "pytorch", "gguf", "lfs_pointer") for one in files):
        faults.append(
            Fault(kind="no_weights", message="the folder has no weights: the download did not get there")
        )
    return faults


def _unseen(present: list[str]) -> list[tuple[str, int]]:
    """Files of a series such as `model-00001-of-00004` that are not there."""
    series: dict[tuple[str, int], set[int]] = {}
    for name in present:
        match = _SHARD.fullmatch(name)
        if match and 0 < int(match[3]) <= _FILES_MAX:
            series.setdefault((match[1], int(match[3])), set()).add(int(match[2]))
    return [
        (f"{stem}-{number:05}-of-{total:05}.safetensors", total)
        for (stem, total), seen in series.items()
        for number in range(1, total + 1)
        if number not in seen
    ][:50]


def _by_index(folder: str, name: str, present: list[str], headers: Mapping[str, Header]) -> list[Fault]:
    try:
        with os.fdopen(open_regular(os.path.join(folder, name)), "rb") as file:  # noqa: PTH118
            index = read_index(file.read(INDEX_BYTES_MAX + 1))
    except OSError:
        return []  # told already, with the file
    if isinstance(index, Fault):
        return [msgspec.structs.replace(index, file=name)]
    named = set(index.weight_map.values())
    # `consolidated.safetensors` and adapters lie beside the shards on purpose; only another shard is odd.
    shards = [one for one in present if one in named or _SHARD.fullmatch(one)]
    return [msgspec.structs.replace(one, file=name) for one in judge_index(index, headers, shards)]


def _is_whole(files: list[FileFact], headers: Mapping[str, Header]) -> bool:
    """Whether every file of weights is a safetensors file whose header was read without fault."""
    weights = [one.name for one in files if one.kind in ("safetensors", "lfs_pointer")]
    return bool(weights) and all(name in headers and not headers[name].faults for name in weights)
