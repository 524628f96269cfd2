"""Whether a model and its sequences fit a GPU's memory, and how many do. Pure, on `ModelFacts`.

What no formula gives (graphs, library contexts) is a range with its source, and the answer says whether it
holds at both ends of them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypedDict

from doctor.core.model_report import Component, MemoryPlan
from optimize.footprint import (
    DTYPE_BYTES,
    KV_BYTES,
    gpu_weight_bytes,
    kv_bytes_per_sequence,
    kv_bytes_per_token,
    state_bytes_per_sequence,
    weight_bytes,
)
from optimize.model import ModelFacts

__all__ = [
    "DTYPE_BYTES",
    "GIB",
    "KV_BYTES",
    "Component",
    "MemoryPlan",
    "gpu_weight_bytes",
    "kv_bytes_per_sequence",
    "kv_bytes_per_token",
    "plan_memory",
    "sequences_that_fit",
    "state_bytes_per_sequence",
    "usable_bytes",
    "weight_bytes",
]

GIB = 1024**3
_NOTES = "AIConfigurator 0.12.0 memory model; vLLM 0.32.0 profile run (research of 2026-11)"


class _Place(TypedDict):
    """How a copy of the model lies on GPUs."""

    tensor: int
    pipeline: int


# --- the GPU --------------------------------------------------------------------------------------


def usable_bytes(memory_gb: float, memory_type: str, *, ecc: bool | None) -> int:
    """What a driver reports of a card that is sold with so much.

    The figure of a datasheet is meant in GiB. Inline ECC of GDDR6 takes a sixteenth (L4: 23034 MiB of 24576,
    L40S: 46068 of 49152, T4: 15360 of 16384); others lose about half a percent (H100: 81559 of 81920, H200:
    143771 of 144384, RTX PRO 6000: 97887 of 98304).
    """
    is_inline = memory_type.upper() in ("GDDR6", "GDDR5") and ecc is True
    return int(memory_gb * GIB * (15 / 16 if is_inline else 0.995))


def plan_memory(  # noqa: PLR0913 - the question of a plan
    facts: ModelFacts,
    *,
    gpu_bytes: int,
    utilisation: float = 0.92,
    tensor: int = 1,
    pipeline: int = 1,
    context_tokens: int,
    sequences: int = 1,
    kv_dtype: str = "bfloat16",
    batched_tokens: int = 8192,
    max_sequences: int | None = None,
    is_eager: bool = False,
    stored_bytes: int | None = None,
    block_tokens: int = 16,
) -> MemoryPlan | None:
    """One GPU's memory for so many sequences of a length at once; None where the weights are not known.

    `utilisation` is the engine's memory fraction (vLLM 0.32: 0.92). `max_sequences` sizes the sampler's
    buffers (`max-num-seqs`), by default `sequences`.
    """
    weights = gpu_weight_bytes(facts, tensor=tensor, pipeline=pipeline, stored_bytes=stored_bytes)
    if weights is None:
        return None
    place: _Place = {"tensor": tensor, "pipeline": pipeline}
    budget = int(gpu_bytes * utilisation)
    fixed = _fixed(facts, weights, place, batched_tokens, max_sequences or sequences, is_eager, stored_bytes)
    state = state_bytes_per_sequence(facts, **place)

    def kept(tokens: int) -> int:
        return state + kv_bytes_per_sequence(facts, tokens, kv_dtype, block_tokens=block_tokens, **place)

    kv = kept(context_tokens) - state
    parts = [*fixed, _cache(facts, kv * sequences, context_tokens, sequences, kv_dtype)]
    if state:
        parts.append(_states(state * sequences, sequences))
    rest = budget - sum(one.bytes for one in fixed)
    needed = sum(one.bytes for one in parts)
    fits = needed <= budget
    return MemoryPlan(
        gpu_bytes=gpu_bytes,
        budget_bytes=budget,
        tensor=tensor,
        pipeline=pipeline,
        context_tokens=context_tokens,
        sequences=sequences,
        kv_dtype=kv_dtype,
        components=tuple(parts),
        needed_bytes=needed,
        fits=fits,
        is_certain=fits == (sum(one.high_bytes for one in parts) <= budget)
        and fits == (sum(one.low_bytes for one in parts) <= budget),
        short_bytes=max(0, needed - budget),
        free_bytes=max(0, budget - needed),
        most_sequences=max(0, rest) // kept(context_tokens) if kept(context_tokens) else None,
        longest_tokens=_longest(kept, rest, sequences, block_tokens, facts),
    )


def sequences_that_fit(
    facts: ModelFacts, plan: MemoryPlan, tokens: int, *, block_tokens: int = 16
) -> int | None:
    """How many sequences of another length fit beside what a plan has fixed; None where one costs nothing."""
    place: _Place = {"tensor": plan.tensor, "pipeline": plan.pipeline}
    one = state_bytes_per_sequence(facts, **place)
    one += kv_bytes_per_sequence(facts, tokens, plan.kv_dtype, block_tokens=block_tokens, **place)
    fixed = sum(part.bytes for part in plan.components if part.name not in ("kv_cache", "state"))
    return max(0, plan.budget_bytes - fixed) // one if one else None


def _longest(
    kept: Callable[[int], int], rest: int, sequences: int, block: int, facts: ModelFacts
) -> int | None:
    """The longest context of `sequences` at once in `rest` bytes: more tokens never take less."""
    if all(one.kind == "bidirectional" for one in facts.attention):
        return None
    low, high = 0, 2**27 // block
    if kept(high * block) * sequences <= rest:
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if kept(middle * block) * sequences <= rest else (low, middle - 1)
    return low * block


def _fixed(  # noqa: PLR0913, PLR0917 - what a plan is asked for
    facts: ModelFacts,
    weights: int,
    place: _Place,
    batched: int,
    max_sequences: int,
    is_eager: bool,
    stored: int | None,
) -> list[Component]:
    """What does not grow with sequences that are kept."""
    tensor, gpus = place["tensor"], place["tensor"] * place["pipeline"]
    activations = _activation_bytes(facts, batched, max_sequences, tensor)
    how = "the tensors in the files" if stored is not None else "shapes and dtype of the config"
    share = f", the share of one of {gpus} GPUs" if gpus > 1 else ""
    spread = 0.01 if stored is not None else 0.03
    found = [
        Component(
            name="weights",
            bytes=weights,
            low_bytes=int(weights * (1 - spread)),
            high_bytes=int(weights * (1 + spread)),
            because=how + share,
        ),
        Component(
            name="activations",
            bytes=activations,
            low_bytes=activations // 2,
            high_bytes=activations * 2,
            because=f"a step of {batched} tokens, and logits of {_sequences(max_sequences)} in float32",
            source=_NOTES,
        ),
        _range("context", 0.5, 0.65, 0.8, "CUDA context and libraries of a process"),
    ]
    if not is_eager and facts.task == "generate":
        found.append(_range("graphs", 0.3, 0.6, 2.0, "captured CUDA graphs"))
    if gpus > 1:
        found.append(_range("communication", 0.35, 0.38, 0.4, "NCCL buffers"))
    return found


def _range(
    name: Literal["context", "graphs", "communication"], low: float, planned: float, high: float, why: str
) -> Component:
    return Component(
        name=name,
        bytes=int(planned * GIB),
        low_bytes=int(low * GIB),
        high_bytes=int(high * GIB),
        because=f"{why}: {low:g} to {high:g} GiB seen",
        source=_NOTES,
    )


def _activation_bytes(facts: ModelFacts, batched: int, sequences: int, tensor: int) -> int:
    """The peak of a prompt step: the widest block's intermediates, and the sampler's logits (2.5 copies)."""
    hidden, size = facts.hidden_size, DTYPE_BYTES.get(facts.dtype, 2)
    wide = 2 * (facts.intermediate_size or 4 * hidden) / tensor + hidden
    if facts.experts:
        width = next((one.shape[0] for one in facts.weights if one.role == "expert"), hidden)
        # Each token is copied for each of its experts, before and after.
        wide = max(wide, facts.experts.per_token * (3 * width / tensor + hidden) + hidden)
    heads, dim = facts.heads or 0, facts.head_dim or 0
    attended = (heads + 2 * (facts.kv_heads or heads)) * dim / tensor + 2 * hidden
    logits = sequences * (facts.vocab_size or 0) * 4 * 2.5 if facts.task == "generate" else 0
    return int(batched * size * max(wide, attended) + logits)


def _cache(facts: ModelFacts, size: int, tokens: int, sequences: int, dtype: str) -> Component:
    windows = sorted({one.window_tokens for one in facts.attention if one.window_tokens})
    note = f"; layers with a window keep {windows[0]}" if windows else ""
    if any(one.kind == "mla" for one in facts.attention):
        note = "; latent rows are kept whole on every GPU"
    note = note if len(windows) < 2 else f"; layers with windows keep {windows[0]} to {windows[-1]}"
    # Engines pad the pages of attention and state layers to one size: up to a tenth more.
    high = 1.1 if facts.states else 1.0
    if facts.task == "encoder":
        return Component(name="kv_cache", bytes=0, low_bytes=0, high_bytes=0, because="an encoder keeps none")
    return Component(
        name="kv_cache",
        bytes=size,
        low_bytes=size,
        high_bytes=int(size * high),
        because=f"{_sequences(sequences)} of {tokens} tokens in {dtype}{note}",
    )


def _sequences(count: int) -> str:
    return f"{count} sequence{'' if count == 1 else 's'}"


def _states(size: int, sequences: int) -> Component:
    return Component(
        name="state",
        bytes=size,
        low_bytes=size // 2,
        high_bytes=int(size * 1.1),
        because=f"recurrent state of {_sequences(sequences)}, whatever the length",
    )
