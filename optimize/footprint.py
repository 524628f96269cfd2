"""What a model's weights, cache and states take, byte by byte. Pure arithmetic on `ModelFacts`.

Keys and values are 2 K d b bytes a token and layer, over the GPUs that divide the heads. A latent row (MLA)
is kept whole on every GPU, a window keeps its width, a state is per sequence.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, lcm, prod

import msgspec

from optimize.left_out import converted_share
from optimize.model import AttentionGroup, ModelFacts, StateGroup, Weight

__all__ = [
    "DTYPE_BYTES",
    "KV_BYTES",
    "gpu_weight_bytes",
    "kv_bytes_per_sequence",
    "kv_bytes_per_token",
    "prod_of",
    "state_bytes_per_sequence",
    "stored_bits",
    "weight_bytes",
]

#: Bytes of a value by a config's dtype.
DTYPE_BYTES: dict[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1}

#: Bytes of a cached value. nvfp4 has an FP8 scale for 16 values.
KV_BYTES: dict[str, Fraction] = {
    "bfloat16": Fraction(2),
    "float16": Fraction(2),
    "float32": Fraction(4),
    "fp8": Fraction(1),
    "fp8_e4m3": Fraction(1),
    "fp8_e5m2": Fraction(1),
    "nvfp4": Fraction(9, 16),
}

#: vLLM pads the vocabulary to this (DEFAULT_VOCAB_PADDING_SIZE in its vocab_parallel_embedding.py).
_VOCAB_PADDING = 64
#: The sparse indexer keeps its keys in FP8 with a float32 scale for 128 values, whatever the cache's type.
_INDEX_SCALE = 128


# --- weights --------------------------------------------------------------------------------------


def stored_bits(facts: ModelFacts, weight: Weight) -> Fraction | None:
    """Stored bits of a value; None where the config does not tell."""
    plain = DTYPE_BYTES.get(facts.dtype)
    quantization = facts.quantization
    own = Fraction(plain * 8) if plain else (Fraction(16) if quantization else None)
    if quantization is None or own is None:
        return own
    experts = facts.experts.count if facts.experts else 1
    share = converted_share(quantization, weight, experts, facts.layers)
    if share == 0:
        return own
    if share is None or quantization.weight_bits is None:
        return None
    stored = Fraction(quantization.weight_bits) + Fraction(quantization.overhead_bits)
    return own * (1 - share) + stored * share


def weight_bytes(facts: ModelFacts) -> int | None:
    """Bytes of all weights as the config tells; None where it does not. Scales are counted."""
    total = Fraction(0)
    for one in facts.weights:
        bits = stored_bits(facts, one)
        if bits is None:
            return None
        total += one.values * bits / 8
    return ceil(total) if facts.weights else None


def gpu_weight_bytes(
    facts: ModelFacts, *, tensor: int = 1, pipeline: int = 1, stored_bytes: int | None = None
) -> int | None:
    """Bytes of weights on the fullest GPU. `stored_bytes` is what the files hold, where they were read: it
    outranks the config's figure, and is divided as that one is. None where neither is known.
    """
    whole, part = Fraction(0), Fraction(0)
    first, last = Fraction(0), Fraction(0)
    for one in facts.weights:
        bits = stored_bits(facts, one)
        if bits is None:
            if stored_bytes is None:
                return None
            bits = Fraction(16)
        size = prod_of(one) * bits / 8
        share = size * gpu_share(facts, one, tensor)
        whole += 0 if one.is_tied else size
        if one.role in ("embedding", "position"):
            first += share
        elif one.role == "head":
            last += share if not one.is_tied or pipeline > 1 else 0
        elif "*" in one.name:
            part += share * Fraction(ceil(facts.layers / pipeline), facts.layers)
        else:
            last += share
    if not whole:
        return ceil(Fraction(stored_bytes, tensor * pipeline)) if stored_bytes else None
    fullest = part + (first + last if pipeline == 1 else max(first, last))
    return ceil(fullest * stored_bytes / whole) if stored_bytes is not None else ceil(fullest)


def prod_of(weight: Weight) -> int:
    """Values of a weight whether tied or not."""
    return weight.count * prod(weight.shape)


def gpu_share(facts: ModelFacts, weight: Weight, tensor: int) -> Fraction:
    """The share of a weight that one of `tensor` GPUs holds."""
    if tensor == 1 or weight.split == "none":
        return Fraction(1)
    if weight.split == "vocab":
        rows = weight.shape[0]
        padding = lcm(_VOCAB_PADDING, tensor)
        return Fraction(ceil(rows / padding) * padding, rows * tensor)
    if weight.split == "kv":
        kv, heads = facts.kv_heads or 1, facts.heads or 1
        share = Fraction(max(1, ceil(kv / tensor)), kv)
        if "qkv_proj" not in weight.name:
            return share
        return (Fraction(heads, tensor) + 2 * kv * share) / (heads + 2 * kv)
    return Fraction(1, tensor)


# --- cache ----------------------------------------------------------------------------------------


def kv_bytes_per_token(
    facts: ModelFacts, dtype: str = "bfloat16", *, tensor: int = 1, pipeline: int = 1
) -> int:
    """Bytes that one GPU keeps for one token, all layers counted as if they kept it (the head of a long
    context; layers with a window let go of old ones). Raises KeyError on a dtype that is not known.
    """
    total = sum(
        (_layer_bytes(facts, one, dtype, tensor) * _stage(one.layers, pipeline) for one in facts.attention),
        Fraction(0),
    )
    return ceil(total)


def _stage(layers: int, pipeline: int) -> int:
    return ceil(layers / pipeline)


def _layer_bytes(facts: ModelFacts, group: AttentionGroup, dtype: str, tensor: int) -> Fraction:
    """Bytes of one token in one layer on one GPU."""
    size = KV_BYTES[dtype]
    if group.kind == "bidirectional":
        return Fraction(0)
    if group.kind == "mla":
        index = group.index_dim + 4 * ceil(group.index_dim / _INDEX_SCALE)
        if size == 1 and any(one.index_dim for one in facts.attention):
            # vLLM's fp8_ds_mla of sparse models: the latent row in FP8 with a float32 scale for 128 values,
            # the rotated part in 16 bits: 512 + 16 + 128 bytes.
            return Fraction(
                group.latent_dim + 4 * ceil(group.latent_dim / _INDEX_SCALE) + 2 * group.rope_dim + index
            )
        return (group.latent_dim + group.rope_dim) * size + index
    heads = max(1, ceil(group.kv_heads / tensor))
    return heads * (group.head_dim + group.v_head_dim) * size


def _kept_tokens(group: AttentionGroup, tokens: int, block: int, step_tokens: int) -> int:
    """Tokens that a layer keeps of a sequence: all, or its window and the step that is being computed."""
    if group.window_tokens:
        tokens = min(tokens, group.window_tokens - 1 + max(step_tokens, 1))
        # A window begins inside a block: one more is held than its width fills.
        return min(ceil(tokens / block) + 1, ceil(tokens / block) + (tokens % block != 1)) * block
    return ceil(tokens / block) * block


def kv_bytes_per_sequence(  # noqa: PLR0913 - a sequence and where it lies
    facts: ModelFacts,
    tokens: int,
    dtype: str = "bfloat16",
    *,
    tensor: int = 1,
    pipeline: int = 1,
    block_tokens: int = 16,
    step_tokens: int = 1,
    has_window_cache: bool = True,
) -> int:
    """Bytes that one GPU keeps for a sequence of so many tokens, in whole blocks.

    `has_window_cache`: whether the engine lets go of what a window has passed (vLLM's hybrid cache manager);
    without it every layer keeps everything. `step_tokens`: prompt tokens computed at once.
    """
    total = Fraction(0)
    for one in facts.attention:
        group = one if has_window_cache else msgspec.structs.replace(one, window_tokens=0)
        kept = _kept_tokens(group, tokens, block_tokens, step_tokens)
        total += _layer_bytes(facts, group, dtype, tensor) * kept * _stage(one.layers, pipeline)
    return ceil(total)


def state_bytes_per_sequence(facts: ModelFacts, *, tensor: int = 1, pipeline: int = 1) -> int:
    """Bytes of state that one GPU keeps for a sequence, whatever its length."""
    size = DTYPE_BYTES.get(facts.dtype, 2)
    return sum(_state(one, size, tensor) * _stage(one.layers, pipeline) for one in facts.states)


def _state(group: StateGroup, size: int, tensor: int) -> int:
    return ceil((group.conv_values * size + group.recurrent_values * group.recurrent_bytes) / tensor)
