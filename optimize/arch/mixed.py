"""Decoders whose layers differ in their heads: Gemma 4 and MiMo-V2."""

from __future__ import annotations

from optimize.arch.blocks import Heads, attention, gated_mlp, norms, read_heads, vector
from optimize.arch.layers import attention_kinds
from optimize.arch.parts import ExpertTraits, Shape, expert_weights, frame, read_experts
from optimize.arch.reading import NotTold, Reading
from optimize.model import AttentionGroup, Weight

__all__ = ["gemma4", "mimo_v2"]

_GEMMA_NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
_GEMMA_EXPERTS = ExpertTraits(at="moe")


def _group(kind: str, layers: int, heads: Heads, window: int, first: int) -> AttentionGroup:
    return AttentionGroup(
        kind="sliding" if kind == "sliding" else "full",
        layers=layers,
        heads=heads.heads,
        kv_heads=heads.kv_heads,
        head_dim=heads.head_dim,
        v_head_dim=heads.v_head_dim,
        window_tokens=window if kind == "sliding" else 0,
        first_layer=first,
    )


def gemma4(read: Reading) -> Shape:
    """Sliding layers, and full ones with wider heads, whose values may be their keys. Raises `NotTold`."""
    if read.size("hidden_size_per_layer_input", default=256) or read.size("num_kv_shared_layers", default=0):
        raise NotTold("per-layer embeddings and shared KV layers (Gemma 4 E models) have no rule here")
    layers, hidden, at = read.layers, read.positive("hidden_size"), "model.layers.*"
    kinds = attention_kinds(read, "every", layers)
    near = read_heads(read)
    is_same = read.flag("attention_k_eq_v")
    far_kv = read.positive("num_global_key_value_heads", default=near.kv_heads) if is_same else near.kv_heads
    dim = read.positive("global_head_dim", default=near.head_dim)
    far = Heads(heads=near.heads, kv_heads=far_kv, head_dim=dim, v_head_dim=dim)
    around, vocab, tied = frame(read, hidden=hidden, tied_default=True)
    sliding, full = kinds.count("sliding"), kinds.count("full")
    found = attention(f"{at}.self_attn", hidden, near, sliding, qk_norm="head")
    found += attention(f"{at}.self_attn", hidden, far, full, qk_norm="head", has_value=not is_same)
    width = read.positive("intermediate_size")
    found += gated_mlp(f"{at}.mlp", hidden, width, layers)
    found += norms("rms", hidden, layers, *(f"{at}.{name}" for name in _GEMMA_NORMS))
    experts = read_experts(read, _GEMMA_EXPERTS, layers) if read.flag("enable_moe_block") else None
    if experts:
        found += _gemma_experts(read, at, hidden, layers)
        found += expert_weights(read, _GEMMA_EXPERTS, experts, hidden, at)
    window = read.positive("sliding_window", default=512)
    return Shape(
        layers=layers,
        weights=(*around, *found),
        attention=(
            _group("sliding", sliding, near, window, kinds.index("sliding") if sliding else 0),
            _group("full", full, far, 0, kinds.index("full") if full else 0),
        ),
        experts=experts,
        heads=near,
        intermediate=width,
        vocab=vocab,
        is_tied=tied,
    )


def _gemma_experts(read: Reading, at: str, hidden: int, layers: int) -> list[Weight]:
    """What stands around the experts: scales of the router, and norms of both paths."""
    names = ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2")
    found = norms("rms", hidden, layers, *(f"{at}.{name}" for name in names))
    found.append(vector(f"{at}.router.scale", hidden, layers, role="router"))
    return [
        *found,
        vector(f"{at}.router.per_expert_scale", read.positive("num_experts"), layers, role="router"),
    ]


_MIMO_EXPERTS = ExpertTraits(rule="first-dense")


def mimo_v2(read: Reading) -> Shape:
    """Full and sliding layers with KV heads of their own, values narrower than keys. Raises `NotTold`."""
    layers, hidden, at = read.layers, read.positive("hidden_size"), "model.layers.*"
    pattern = read.sizes("hybrid_layer_pattern")
    if pattern is None or len(pattern) != layers:
        raise NotTold("`hybrid_layer_pattern` does not say the kind of each layer")
    sliding = sum(bool(one) for one in pattern)
    far = Heads(
        heads=read.positive("num_attention_heads"),
        kv_heads=read.positive("num_key_value_heads"),
        head_dim=read.positive("head_dim"),
        v_head_dim=read.positive("v_head_dim", "head_dim"),
    )
    near = Heads(
        heads=read.positive("swa_num_attention_heads", default=far.heads),
        kv_heads=read.positive("swa_num_key_value_heads", default=far.kv_heads),
        head_dim=read.positive("swa_head_dim", default=far.head_dim),
        v_head_dim=read.positive("swa_v_head_dim", default=far.v_head_dim),
    )
    around, vocab, tied = frame(read, hidden=hidden, tied_default=False)
    found = attention(f"{at}.self_attn", hidden, far, layers - sliding)
    found += attention(f"{at}.self_attn", hidden, near, sliding)
    for heads, count, key in (
        (far, layers - sliding, "add_full_attention_sink_bias"),
        (near, sliding, "add_swa_attention_sink_bias"),
    ):
        if read.flag(key):
            name = f"{at}.self_attn.attention_sink_bias"
            found.append(vector(name, heads.heads, count, role="attention", split="column"))
    experts = read_experts(read, _MIMO_EXPERTS, layers)
    if experts:
        found += expert_weights(read, _MIMO_EXPERTS, experts, hidden, at)
    dense, width = layers - (experts.layers if experts else 0), read.positive("intermediate_size")
    found += gated_mlp(f"{at}.mlp", hidden, width, dense) if dense else []
    found += norms("rms", hidden, layers, f"{at}.input_layernorm", f"{at}.post_attention_layernorm")
    first = next((n for n, one in enumerate(pattern) if one), 0)
    return Shape(
        layers=layers,
        weights=(*around, *found),
        attention=(
            _group("full", layers - sliding, far, 0, 0),
            _group("sliding", sliding, near, read.positive("sliding_window"), first),
        ),
        experts=experts,
        heads=far,
        intermediate=width,
        vocab=vocab,
        is_tied=tied,
        left_out=("next-token draft layers",),
    )
