"""Over how many GPUs a model can be spread, and how: what divides evenly, and what an engine refuses.

Pure. Tensor parallelism divides query heads and the width of every layer, which must come out even, and KV
heads, which are divided or repeated (vLLM: verify_with_parallel_config, QKVParallelLinear). Scales that
values share must not be cut: an expert of 1536 columns over 8 GPUs leaves 192, no multiple of an FP8 block
of 128, and vLLM refuses it (validate_fp8_block_shape_moe). Whole experts on each GPU cut none.
"""

from __future__ import annotations

from doctor.core.serving import Split
from optimize.model import ModelFacts, Weight

__all__ = ["PER_NODE", "splits", "tensor_problem"]

#: GPUs of one board. Tensor parallelism stays inside: its all-reduces want NVLink, or at least one PCIe root.
PER_NODE = 8
#: Schemes whose values share scales along the rows that a row-parallel matrix cuts. vLLM pads MXFP4 itself.
_GROUPED = ("int4", "w8a16", "nvfp4", "fp8-block")
_BLOCK = 128


def splits(facts: ModelFacts, gpus: int) -> tuple[Split, ...]:
    """The ways to lay one copy on `gpus` GPUs or fewer: fewest GPUs first, most tensor parallelism first.

    Counts are powers of two, and `gpus` itself. Expert parallelism stands where tensor parallelism alone
    would cut scales.
    """
    counts = {1 << power for power in range(gpus.bit_length())} | {gpus}
    found = []
    for count in sorted(counts):
        for tensor in range(min(count, PER_NODE), 0, -1):
            if count % tensor == 0 and count // tensor <= max(facts.layers, 1):
                found += _ways(facts, tensor, count // tensor)
    return tuple(found)


def _ways(facts: ModelFacts, tensor: int, pipeline: int) -> list[Split]:
    if not tensor_problem(facts, tensor):
        return [Split(tensor=tensor, pipeline=pipeline)]
    divides = facts.experts is not None and facts.experts.count % tensor == 0
    if divides and not tensor_problem(facts, tensor, is_expert_parallel=True):
        return [Split(tensor=tensor, pipeline=pipeline, is_expert_parallel=True)]
    return []


def tensor_problem(facts: ModelFacts, tensor: int, *, is_expert_parallel: bool = False) -> str:
    """Why a model cannot be divided over so many GPUs by tensor parallelism; empty where it can."""
    if tensor == 1:
        return ""
    problem = _head_problem(facts, tensor)
    if problem:
        return problem
    for weight in facts.weights:
        if weight.split == "expert" and is_expert_parallel:
            continue
        problem = _weight_problem(facts, weight, tensor)
        if problem:
            return problem
    return ""


def _head_problem(facts: ModelFacts, tensor: int) -> str:
    for group in facts.attention:
        if group.heads % tensor:
            return f"{group.heads} query heads do not divide over {tensor} GPUs"
        if group.kv_heads and group.kv_heads % tensor and tensor % group.kv_heads:
            return f"{group.kv_heads} KV heads neither divide over {tensor} GPUs nor repeat evenly"
    for state in facts.states:
        if state.heads % tensor:
            return f"{state.heads} heads of the {state.kind} layers do not divide over {tensor} GPUs"
    return ""


def _weight_problem(facts: ModelFacts, weight: Weight, tensor: int) -> str:
    """Why a matrix cannot be cut; those that hold queries, keys and values together are cut by heads."""
    if weight.split not in ("column", "row", "expert") or len(weight.shape) < 2 or "qkv" in weight.name:
        return ""
    is_row = _is_row(weight)
    size = weight.shape[-1] if is_row else weight.shape[-2]
    side = "columns" if is_row else "rows"
    if size % tensor:
        return f"the {size} {side} of `{weight.name}` do not divide over {tensor} GPUs"
    quantization = facts.quantization
    if quantization is None or not weight.is_linear or quantization.scheme not in _GROUPED:
        return ""
    block = quantization.group_size or _BLOCK
    part = size // tensor
    is_cut = part % block and (is_row or quantization.scheme == "fp8-block")
    if not is_cut:
        return ""
    what = f"the {size} {side} of `{weight.name}` over {tensor} GPUs leave {part} each"
    return f"{what}: no multiple of the {block} values that share a scale"


def _is_row(weight: Weight) -> bool:
    """Whether a matrix is cut along its inputs, as the last one of a block is."""
    is_down = "down_proj" in weight.name or ".w2." in weight.name or "output_linear" in weight.name
    return weight.split == "row" or (weight.split == "expert" and is_down)
