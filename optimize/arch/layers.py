"""Which layer is of which kind: what a layer attends to, and which layers have experts."""

from __future__ import annotations

from typing import Literal

from optimize.arch.blocks import Heads
from optimize.arch.reading import NotTold, Reading
from optimize.model import AttentionGroup, AttentionKind

__all__ = ["ExpertRule", "LayerRule", "attention_kinds", "expert_layers", "group"]

LayerRule = Literal["full", "window", "alternate", "every", "late", "chunked", "bidirectional"]
"""Where `layer_types` is not said. `window`: every layer has `sliding_window`, if any. `alternate`: every
other one from the first on (Gemma 2, gpt-oss). `every`: all but each `sliding_window_pattern`-th (Gemma 3,
Cohere 2). `late`: those from `max_window_layers` on, if `use_sliding_window` (Qwen). `chunked`: those that
rotate (Llama 4)."""

ExpertRule = Literal["all", "sparse-step", "first-dense", "interleaved", "period"]

_KINDS: dict[str, AttentionKind] = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
}


def attention_kinds(read: Reading, rule: LayerRule, layers: int) -> list[AttentionKind]:
    """The kind of each layer. Raises `NotTold`."""
    said = read.words("layer_types")
    window = read.raw("sliding_window")
    if said is not None and rule not in ("window", "late"):
        if len(said) != layers:
            raise NotTold(f"`layer_types` lists {len(said)} layers, `num_hidden_layers` says {layers}")
        odd = next((one for one in said if one not in _KINDS), None)
        if odd is not None:
            raise NotTold(f"`layer_types` has the kind `{odd[:40]}`, which this family's rule does not know")
        return [_KINDS[one] for one in said]
    if rule == "window":
        return ["sliding" if window else "full"] * layers
    if rule == "late":
        return _late(read, layers)
    return [_by_rule(read, rule, layer) for layer in range(layers)]


def _late(read: Reading, layers: int) -> list[AttentionKind]:
    if not read.flag("use_sliding_window") or not read.raw("sliding_window"):
        return ["full"] * layers
    first = read.size("max_window_layers", default=28)
    return ["sliding" if layer >= first else "full" for layer in range(layers)]


def _by_rule(read: Reading, rule: LayerRule, layer: int) -> AttentionKind:
    if rule == "alternate":
        return "full" if layer % 2 else "sliding"
    if rule == "every":
        pattern = read.positive("sliding_window_pattern", "_sliding_window_pattern", default=6)
        return "sliding" if (layer + 1) % pattern else "full"
    if rule == "chunked":
        rotates = read.sizes("no_rope_layers")
        interval = read.positive("no_rope_layer_interval", default=4)
        has_rope = bool(rotates[layer]) if rotates and layer < len(rotates) else bool((layer + 1) % interval)
        return "chunked" if has_rope else "full"
    return "bidirectional" if rule == "bidirectional" else "full"


def group(read: Reading, kinds: list[AttentionKind], heads: Heads) -> tuple[AttentionGroup, ...]:
    """Layers of one kind together, in the order in which each kind first comes."""
    windows = {"sliding": ("sliding_window",), "chunked": ("attention_chunk_size",)}
    return tuple(
        AttentionGroup(
            kind=kind,
            layers=kinds.count(kind),
            heads=heads.heads,
            kv_heads=heads.kv_heads,
            head_dim=heads.head_dim,
            v_head_dim=heads.v_head_dim,
            window_tokens=read.positive(*windows[kind]) if kind in windows else 0,
            first_layer=kinds.index(kind),
        )
        for kind in dict.fromkeys(kinds)
    )


def expert_layers(read: Reading, rule: ExpertRule, layers: int) -> list[bool]:
    """Whether each layer has routed experts. Raises `NotTold`."""
    said = read.words("mlp_layer_types")
    if said is not None and len(said) == layers:
        return [one == "sparse" for one in said]
    if rule == "sparse-step":
        step, dense = read.positive("decoder_sparse_step", default=1), read.sizes("mlp_only_layers") or ()
        return [(layer + 1) % step == 0 and layer not in dense for layer in range(layers)]
    if rule == "first-dense":
        first = read.size("first_k_dense_replace", default=0)
        every = read.raw("moe_layer_freq")
        if isinstance(every, list):
            return [bool(one) for one in every[:layers]] + [True] * (layers - len(every))
        step = read.positive("moe_layer_freq", default=1)
        return [layer >= first and layer % step == 0 for layer in range(layers)]
    if rule == "interleaved":
        step, listed = read.positive("interleave_moe_layer_step", default=1), read.sizes("moe_layers")
        chosen = listed if listed is not None else tuple(range(step - 1, layers, step))
        return [layer in chosen for layer in range(layers)]
    if rule == "period":
        period, offset = read.positive("expert_layer_period"), read.size("expert_layer_offset")
        return [layer % period == offset for layer in range(layers)]
    return [True] * layers
