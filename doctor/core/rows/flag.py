"""The grammar of an engine's command line, release by release, and what it takes when nobody says."""

from __future__ import annotations

from typing import Literal

from doctor.core.rows.base import Row
from doctor.core.versions import Pep440

__all__ = ["EngineBatch", "EngineDtype", "EngineFlag", "EngineGrammar"]

FlagKind = Literal["int", "float", "text", "choice", "switch", "path", "shapes"]


class EngineGrammar(Row, frozen=True, kw_only=True):
    """A command of an engine, how its words are put together, and the releases whose flags were read.

    Of a release between two that were read, a flag counts as known where both have it; of one beyond them,
    nothing is known.
    """

    component: str
    command: str
    """`vllm serve`: the words that it begins with."""
    style: Literal["apart", "equals"]
    """`apart`: `--flag value`. `equals`: `--flag=value`."""
    positional: str = ""
    """What stands behind those words without a flag: `MODEL`; empty for nothing."""
    read: tuple[Pep440, ...]
    """Ascending."""
    until: str = ""
    """The release from which on the command is gone; empty while it is there."""


class EngineFlag(Row, frozen=True, kw_only=True):
    """A flag of a command, in the releases from `first` to `last`; both of those that were read.

    `last` is the newest one read where the flag is still there. A flag whose values or default changed has a
    row for each span.
    """

    component: str
    command: str
    flag: str
    kind: FlagKind
    """`switch` takes no value; `shapes` is `name:1x128,name:1x128`."""
    first: Pep440
    last: Pep440
    default: str = ""
    """What it is when nobody sets it; empty where that depends."""
    choices: tuple[str, ...] = ()
    """Of kind `choice`: every value."""
    choices_of: Literal["", "kv-cache", "quantization"] = ""
    """Of kind `choice`: the table that has its values, release by release."""
    minimum: float | None = None
    maximum: float | None = None
    is_before: bool = False
    """Whether it stands before the last word of the command, as options of a group do."""
    meaning: str = ""


class EngineBatch(Row, frozen=True, kw_only=True):
    """The batch limits that an engine takes by itself for a GPU: those of the first row that fits."""

    component: str
    first: Pep440
    last: Pep440
    min_memory_gib: float
    """Of one device, in GiB as the driver reports it."""
    not_names: tuple[str, ...] = ()
    """Devices whose name has one of these words are not meant, whatever their memory."""
    not_compute_capability: tuple[str, ...] = ()
    max_num_batched_tokens: int
    max_num_seqs: int


class EngineDtype(Row, frozen=True, kw_only=True):
    """A data type that an engine computes in, and where it refuses to."""

    component: str
    dtype: str
    first: Pep440
    last: Pep440
    min_compute_capability: str
    refused_model_types: tuple[str, ...] = ()
    """`model_type` of models that overflow in it."""
