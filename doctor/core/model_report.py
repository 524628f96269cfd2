"""The answer of `mopt-doctor model`: a model's files and facts, and whether it fits (`mopt.model/1`)."""

from __future__ import annotations

from typing import Literal

import msgspec

from doctor.core.model_facts import ModelFacts

__all__ = [
    "BROKEN",
    "MODEL_SCHEMA",
    "Component",
    "Fault",
    "FaultKind",
    "FileFact",
    "FileKind",
    "Fit",
    "Floor",
    "MemoryPlan",
    "ModelReport",
]

MODEL_SCHEMA = "mopt.model/1"

FaultKind = Literal[
    "empty",
    "lfs_pointer",
    "truncated",
    "longer",
    "header",
    "duplicate",
    "dtype",
    "shape",
    "size",
    "overlap",
    "hole",
    "missing_shard",
    "extra_shard",
    "missing_tensor",
    "extra_tensor",
    "total_size",
    "unreadable",
    "digest",
    "config",
    "unusual",
    "no_weights",
    "pickle",
]

#: Faults with which an engine does not load the model, or loads it wrongly. The others are worth a word.
BROKEN: frozenset[str] = frozenset(
    {
        *("empty", "lfs_pointer", "truncated", "longer", "header", "duplicate", "dtype", "shape", "size"),
        *(
            "overlap",
            "hole",
            "missing_shard",
            "missing_tensor",
            "unreadable",
            "digest",
            "config",
            "no_weights",
        ),
    }
)

FileKind = Literal[
    "safetensors", "index", "pytorch", "gguf", "lfs_pointer", "config", "tokenizer", "code", "other"
]


class _Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every value here."""


class Fault(_Value, frozen=True, kw_only=True):
    """Something wrong with a file: what, with the values."""

    kind: FaultKind
    message: str
    file: str = ""
    """Empty for the model as a whole."""

    @property
    def is_broken(self) -> bool:
        """Whether an engine does not load the model with it."""
        return self.kind in BROKEN


class FileFact(_Value, frozen=True, kw_only=True):
    """A file of a model."""

    name: str
    kind: FileKind
    bytes: int
    tensors: int | None = None
    """By its header."""
    note: str = ""
    sha256: str = ""
    """Empty when it was not computed."""


class Component(_Value, frozen=True, kw_only=True):
    """A part of one GPU's memory: the planned figure, and what it may be."""

    name: Literal["weights", "kv_cache", "state", "activations", "graphs", "context", "communication"]
    bytes: int
    low_bytes: int
    high_bytes: int
    because: str
    source: str = ""


class MemoryPlan(_Value, frozen=True, kw_only=True):
    """One GPU of a deployment: what goes where, and whether it fits."""

    gpu_bytes: int
    """What the GPU has."""
    budget_bytes: int
    """What the engine may take of it: its memory fraction."""
    tensor: int
    pipeline: int
    context_tokens: int
    sequences: int
    kv_dtype: str
    components: tuple[Component, ...]
    needed_bytes: int
    """All components."""
    fits: bool
    """By the planned figures."""
    is_certain: bool
    """Whether it does, or does not, at both ends of every range as well."""
    short_bytes: int
    """How much is lacking; 0 where it fits."""
    free_bytes: int
    """What is left of the budget; 0 where it does not fit."""
    most_sequences: int | None
    """How many sequences of `context_tokens` fit at once; None where nothing is kept for one."""
    longest_tokens: int | None
    """The longest context that fits with `sequences` of it; None where length sets no limit."""


class Floor(_Value, frozen=True, kw_only=True):
    """The least time of a step, and what sets it."""

    time_s: float
    bound: Literal["memory", "arithmetic"]
    read_bytes: int
    operations: int
    tok_per_s: float
    """Of all sequences together."""


class Fit(_Value, frozen=True, kw_only=True):
    """Whether a model fits GPUs of a kind, by how much not, and what would make it."""

    gpu: str
    count: int
    is_here: bool
    """Whether the GPU is one of this host, whose own figure is taken; else that of its datasheet."""
    memory: MemoryPlan
    decode: Floor | None = None
    """At the concurrency and context asked for; None where the matrix has no rates for the GPU."""
    prefill: Floor | None = None
    """Of a prompt as long as the context."""
    crossing_tokens: int | None = None
    """So many tokens at once, and arithmetic sets the time of a step instead of memory."""
    rates_because: tuple[str, ...] = ()
    would_fit: tuple[str, ...] = ()
    """What would make it fit, the smallest change first."""
    source: tuple[str, ...] = ()


class ModelReport(_Value, frozen=True, kw_only=True):
    """What a model is, what is wrong with its files, and whether it fits."""

    schema: str = MODEL_SCHEMA
    path: str
    exit_code: int
    verdict: Literal["whole", "broken", "unknown"]
    facts: ModelFacts | None = None
    """None without a config that can be read."""
    files: tuple[FileFact, ...] = ()
    faults: tuple[Fault, ...] = ()
    stored_bytes: int | None = None
    """Of all tensors, by the headers; None where there are none, or not all were read."""
    stored_dtypes: dict[str, int] = {}
    """Values by dtype, by the headers."""
    kv_bytes_per_token: int | None = None
    """In the model's own dtype, on one GPU."""
    kv_dtype: str = ""
    state_bytes_per_sequence: int | None = None
    fits: tuple[Fit, ...] = ()
    matrix_edition: str = ""
    is_digested: bool = False
