"""What inference engines can load and compute, and the names of their flags, metrics and programs."""

from __future__ import annotations

from typing import Literal

from doctor.core.rows.base import Row
from doctor.core.versions import Pep440

__all__ = [
    "CommandRow",
    "KvCacheDtype",
    "ModelRow",
    "NameRow",
    "QuantizationGate",
    "QuantizationMethod",
    "QuantizationSupport",
]


class QuantizationMethod(Row, frozen=True, kw_only=True):
    """A quantization method by the name an engine gives it, from one sampled release to another.

    `first` and `last` are sampled releases: the method came and went within one minor of them.
    """

    component: str
    method: str
    first: Pep440
    last: Pep440
    instead: str = ""
    """What serves in its place, where it is gone or renamed."""


class QuantizationGate(Row, frozen=True, kw_only=True):
    """The least compute capability with which an engine loads a scheme at all."""

    component: str
    versions: str
    scheme: str
    methods: tuple[str, ...] = ()
    """The names under which `--quantization` has it, where they differ from the scheme's own."""
    min_compute_capability: str
    native_compute_capability: str = ""
    """From where on the hardware computes in the format; below it, weights only."""


class QuantizationSupport(Row, frozen=True, kw_only=True):
    """An engine's own table of a family of schemes against capabilities."""

    component: str
    versions: str
    family: str
    supported: tuple[str, ...]
    """Compute capabilities."""
    partial: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    on_x86_cpu: bool


class KvCacheDtype(Row, frozen=True, kw_only=True):
    """A data type of the KV cache, and the first sampled release that takes it."""

    component: str
    dtype: str
    first: Pep440
    min_compute_capability: str = ""


class ModelRow(Row, frozen=True, kw_only=True):
    """A model architecture by its name in `config.json`, from one sampled release to another."""

    component: str
    architecture: str
    first: Pep440
    last: Pep440 | None = None
    """None where no release without it was seen."""


class NameRow(Row, frozen=True, kw_only=True):
    """A flag, metric, route, variable or program by name: whether it is there, and what took its place."""

    component: str
    kind: Literal["flag", "metric", "route", "variable", "program", "field", "path"]
    name: str
    command: str = ""
    """The command a flag belongs to: `vllm serve`."""
    versions: str = ""
    """The releases that were read and have it, as a set. Before the first of them nothing was read; empty
    where the page or source that has the name is of no release in particular."""
    status: Literal["current", "changed", "removed", "invented"]
    """`invented`: tutorials name it, no release that was read has it."""
    last: str = ""
    """Removed: the last release that was sampled and has it."""
    removed_in: str = ""
    """Removed: the release that dropped it, where that is known."""
    instead: tuple[str, ...] = ()
    """What to write today."""
    meaning: str = ""
    default: str = ""
    """Of a flag: what it is when nobody sets it."""
    default_since: str = ""
    """The first sampled release with that default; empty where every release that was read has it."""
    choices: tuple[str, ...] = ()
    """Of a flag: every value it takes, where the list is closed."""
    choices_of: Literal["", "kv-cache", "quantization"] = ""
    """Of a flag: the table that has its values, release by release."""


class CommandRow(Row, frozen=True, kw_only=True):
    """A command of an engine, with the flags it took in the releases that were read."""

    component: str
    versions: str
    command: str
    flags: tuple[str, ...] = ()
    is_whole: bool
    """Whether these are all flags there are."""
