"""Which share of a weight's tensors a checkpoint converted: lists name layers by number, or by patterns.

Pure. Patterns come from a file that is not ours: only regular expressions without nested repetition, and with
few wildcards, are tried; another one makes the share unknown.
"""

from __future__ import annotations

import re
from fnmatch import translate
from fractions import Fraction
from functools import lru_cache

from optimize.model import Quantization, Weight

__all__ = ["converted_share"]

_PLAIN = re.compile(r"[A-Za-z0-9_.\\()|^$*?:\[\]-]{1,300}")
_NESTED = re.compile(r"\)[*+{?]|[*+}][*+{]|\[")
_WILDCARDS_MAX = 3


@lru_cache(maxsize=4096)  # a plan asks for the same weights at every split that it tries
def converted_share(
    quantization: Quantization, weight: Weight, experts: int = 1, layers: int = 10_000
) -> Fraction | None:
    """The share of its tensors that is stored in the scheme: 0 to 1. None where a pattern cannot be tried.

    Embeddings, heads, norms, routers and vision towers are never converted unless they are linear layers
    that nothing leaves out; every family's head is left out by convention of the tools. `experts` is how many
    a layer has: no list names one expert of one layer alone. `layers`: a number beyond them is a draft
    layer's, behind the model (`model.layers.61*` of DeepSeek-R1-FP4, which has 0 to 60).
    """
    if not weight.is_linear or weight.role in ("head", "router", "vision", "embedding"):
        return Fraction(0)
    if quantization.converts == "experts":
        return Fraction(int(weight.role == "expert"))
    name = weight.name.removesuffix(".weight")
    left_out, whole = set[int](), False
    for pattern in dict.fromkeys(quantization.skips):
        found = _matches(pattern, name)
        if found is None:
            return None
        whole = whole or found is True
        if found is not True and found is not False and found < layers:
            left_out.add(found)
    if whole:
        return Fraction(0)
    if not left_out or "*" not in name:
        return Fraction(1)
    in_all = max(1, weight.count // experts if weight.role == "expert" else weight.count)
    return Fraction(max(0, in_all - len(left_out)), in_all)


_LAYER = re.compile(r"(?<=\.)(\d{1,4})(?=[.*]|$)")


def _matches(pattern: str, name: str) -> bool | int | None:
    """Whether a pattern leaves out the module: wholly, in one layer (its number), not, or not told."""
    if pattern.startswith("re:"):
        return _by_expression(pattern[3:], name)
    numbered = _LAYER.search(pattern)
    layer = int(numbered.group(1)) if numbered else None
    if numbered:
        pattern = pattern[: numbered.start()] + "*" + pattern[numbered.end() :]
    is_hit = _by_name(pattern, name)
    if not is_hit:
        return False
    return True if layer is None else layer


def _by_name(pattern: str, name: str) -> bool:
    """Names in lists are prefixes, last parts, or globs; with and without what stands before `layers`."""
    tail, own = _from_layers(pattern), _from_layers(name)
    if tail == own or own.startswith(tail + ".") or own.endswith("." + tail):
        return True
    if "*" in pattern or "?" in pattern:
        is_short = len(tail) <= 300 and tail.count("*") <= _WILDCARDS_MAX + 1
        return is_short and re.match(translate(tail), own) is not None
    return "." not in pattern and pattern in own.split(".")


def _from_layers(name: str) -> str:
    at = name.find("layers.")
    return name[at:] if at >= 0 else name


def _by_expression(expression: str, name: str) -> bool | None:
    if (
        not _PLAIN.fullmatch(expression)
        or _NESTED.search(expression)
        or expression.count("*") + expression.count("+") > _WILDCARDS_MAX
    ):
        return None
    try:
        return re.match(expression, name.replace("*", "0")) is not None
    except re.error:
        return None
