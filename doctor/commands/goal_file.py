"""Goal files: the terms of a goal in a file, one a line, or as a mapping in YAML."""

from __future__ import annotations

import os
import stat
from typing import Any

import msgspec

from doctor.config import refuse_untrusted
from doctor.errors import UsageError

__all__ = ["read_goal_file"]

#: A goal names a dozen things; a longer file is none.
_BYTES_MAX = 64 * 1024
_TERMS_MAX = 200
_YAML = (".yaml", ".yml")


class _GoalFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a goal file in YAML may say; each field is optional."""

    components: dict[str, str] = {}
    """Version sets by component; `*` for the newest that fits."""
    use: tuple[str, ...] = ()
    delivery: str | None = None
    policy: str | None = None
    flag: tuple[str, ...] = ()
    metric: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()
    """Any other term, as `--goal` takes it: `quantization:awq`."""


def read_goal_file(path: str) -> str:
    """The terms of a goal file, joined by commas. Raises UsageError with every fault, each with its line.

    As root a file that somebody else could have written is refused (ConfigError).
    """
    text = _text(path)
    if path.endswith(_YAML) and _is_mapping(text):
        terms = _of_yaml(path, text)
    else:
        # A list in YAML is lines of terms with a dash before each.
        lines = (line.partition("#")[0].strip().removeprefix("- ").strip() for line in text.splitlines())
        terms = [line.strip("\"'") for line in lines if line]
    if not 0 < len(terms) <= _TERMS_MAX:
        raise UsageError(
            f"the goal file `{path}` has {len(terms)} terms; 1 to {_TERMS_MAX} are a goal",
            hints=("a line for each: `vllm==0.33.0`, `use=fp8`",),
        )
    return ",".join(terms)


def _text(path: str) -> str:
    try:
        # A FIFO or a device would block.
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - pathlib costs 5 ms at import
            raise UsageError(f"the goal file `{path}` is no regular file")
        refuse_untrusted(path, "the goal file")
        with open(path, "rb") as file:  # noqa: PTH123
            data = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"the goal file `{path}` cannot be read: {error.strerror}") from None
    if len(data) > _BYTES_MAX:
        raise UsageError(f"the goal file `{path}` has more than {_BYTES_MAX} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"the goal file `{path}` is not UTF-8") from None


def _is_mapping(text: str) -> bool:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return bool(lines) and not lines[0].lstrip().startswith(("-", '"', "'"))


def _of_yaml(path: str, text: str) -> list[str]:
    # PyYAML costs 20 ms at import: only where a goal file is written in it.
    from doctor.edition.strict import Faults, Reader, compose

    faults = Faults()
    node = compose(path, text.encode(), faults)
    found: Any = Reader(path, faults).struct(node, _GoalFile, "") if node else None
    if faults or found is None:
        lines = faults.lines()
        word = "fault" if len(lines) == 1 else "faults"
        raise UsageError(f"the goal file `{path}` has {len(lines)} {word}", hints=lines)
    terms = [f"{name}{'' if spec == '*' else spec}" for name, spec in found.components.items()]
    terms += [f"use={word}" for word in found.use]
    terms += [f"{name}={value}" for name in ("delivery", "policy") if (value := getattr(found, name))]
    terms += [f"{kind}:{name}" for kind in ("flag", "metric") for name in getattr(found, kind)]
    return [*terms, *found.terms]
