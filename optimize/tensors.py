"""Whether the tensors of a checkpoint are those that its config asks for. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from doctor.core.model_facts import ModelFacts
from doctor.core.model_report import Fault
from optimize.safetensors import DTYPE_BITS, TensorInfo

__all__ = ["compare_tensors", "pattern_of"]

#: Dtypes that hold one value in one place: packed ones (`U8`, `I32`) have other shapes.
_PLAIN = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2")
_NUMBER = re.compile(r"(?<=\.)[0-9]{1,6}(?=\.|$)")
_HEADS = (
    ("model.language_model.", "model."),
    ("language_model.model.", "model."),
    ("language_model.lm_head", "lm_head"),
    ("bert.", ""),
    ("roberta.", ""),
)
_SHOWN_MAX = 5


def pattern_of(name: str) -> str:
    """A tensor's name with `*` for numbers, and without what a wrapper puts before a language model's."""
    for head, instead in _HEADS:
        if name.startswith(head):
            name = instead + name[len(head) :]
            break
    return _NUMBER.sub("*", name)


def compare_tensors(facts: ModelFacts, tensors: Iterable[TensorInfo]) -> tuple[Fault, ...]:
    """Tensors of another shape than the config's, and layers that lack one. Only names that the family's rule
    knows are judged: checkpoints name fused and packed tensors in their own ways.
    """
    wanted: dict[str, list[tuple[tuple[int, ...], int]]] = {}
    for one in facts.weights:
        wanted.setdefault(one.name, []).append((one.shape, one.count))
    counts: dict[str, int] = {}
    odd: dict[str, TensorInfo] = {}
    for tensor in tensors:
        pattern = pattern_of(tensor.name)
        if pattern not in wanted or tensor.dtype not in _PLAIN:
            continue
        counts[pattern] = counts.get(pattern, 0) + 1
        if all(tensor.shape != shape for shape, _ in wanted[pattern]):
            odd.setdefault(pattern, tensor)
    faults = [_shape(tensor, wanted[pattern][0][0]) for pattern, tensor in odd.items()]
    faults += [
        _lacking(pattern, counts[pattern], total)
        for pattern, said in wanted.items()
        if 0 < counts.get(pattern, 0) < (total := sum(count for _, count in said))
    ]
    return tuple(faults[:_SHOWN_MAX])


def _shape(tensor: TensorInfo, wanted: tuple[int, ...]) -> Fault:
    found = " x ".join(map(str, tensor.shape))
    asked = " x ".join(map(str, wanted))
    return Fault(
        kind="shape",
        message=f"`{tensor.name[:200]}` is {found}, the config asks for {asked}: they are not"
        " of one model, or the config was edited",
    )


def _lacking(pattern: str, found: int, wanted: int) -> Fault:
    return Fault(kind="missing_tensor", message=f"`{pattern}`: {found} of {wanted} are there")


def stored_dtypes(tensors: Iterable[TensorInfo]) -> dict[str, int]:
    """Values by dtype, most first."""
    found: dict[str, int] = {}
    for one in tensors:
        if one.dtype in DTYPE_BITS:
            found[one.dtype] = found.get(one.dtype, 0) + one.values
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))
