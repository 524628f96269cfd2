"""Decoders that are Llama with differences: one row a family says which."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from optimize.arch.blocks import NormKind, attention, gated_mlp, norms, plain_mlp, read_heads, vector
from optimize.arch.layers import LayerRule, attention_kinds, group
from optimize.arch.parts import ExpertTraits, Shape, expert_weights, frame, read_experts
from optimize.arch.reading import Reading
from optimize.model import Weight

__all__ = ["DECODERS", "DecoderTraits", "decoder"]

_LLAMA_NORMS = ("input_layernorm", "post_attention_layernorm")
_GEMMA_NORMS = (*_LLAMA_NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")


class DecoderTraits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a family differs from Llama. A bias is said by a config key with its default, or always there."""

    layers: LayerRule = "full"
    norm: NormKind = "rms"
    norms: tuple[str, ...] = _LLAMA_NORMS
    last_norm: str = "model.norm"
    qk_norm: Literal["", "head", "whole"] = ""
    qk_norm_key: str = ""
    """The config key that switches it on; without one it is always there."""
    qkv_bias: bool | None = None
    """None: by `attention_bias`, which is false where it is not said."""
    out_bias: bool | None = False
    out: str = "o_proj"
    has_fused_qkv: bool = False
    has_fused_gate: bool = False
    mlp: Literal["gated", "plain"] = "gated"
    mlp_names: tuple[str, str] = ("up_proj", "down_proj")
    mlp_bias: bool | None = None
    """None: by `mlp_bias`."""
    mlp_at: str = "mlp"
    dense_width: tuple[str, ...] = ("intermediate_size",)
    kv_default: int | None = None
    has_sinks: bool = False
    has_head_bias: bool = False
    is_tied: bool = False
    """Where the config does not say: the class's default."""
    experts: ExpertTraits | None = None
    defaults: dict[str, Any] = {}
    """Of the class in transformers, for keys that published configs leave out."""


def decoder(read: Reading, traits: DecoderTraits) -> Shape:
    """The shapes of such a decoder. Raises `NotTold`."""
    layers, hidden, heads = (
        read.layers,
        read.positive("hidden_size"),
        read_heads(read, kv_default=traits.kv_default),
    )
    kinds = attention_kinds(read, traits.layers, layers)
    experts = read_experts(read, traits.experts, layers) if traits.experts else None
    around, vocab, tied = frame(
        read,
        hidden=hidden,
        tied_default=traits.is_tied,
        last=traits.last_norm,
        norm=traits.norm,
        head_bias=traits.has_head_bias or read.flag("lm_head_bias"),
    )
    at = "model.layers.*"
    found = _attention(read, traits, at, layers)
    if experts and traits.experts:
        found += expert_weights(read, traits.experts, experts, hidden, at)
    dense = layers - (experts.layers if experts else 0)
    width = read.size(*traits.dense_width, default=0) if dense == 0 else read.positive(*traits.dense_width)
    if dense:
        found += _mlp(read, traits, at, width, dense)
    found += norms(traits.norm, hidden, layers, *(f"{at}.{name}" for name in traits.norms))
    return Shape(
        layers=layers,
        weights=(*around, *found),
        attention=group(read, kinds, heads),
        experts=experts,
        heads=heads,
        intermediate=width or None,
        vocab=vocab,
        is_tied=tied,
    )


def _said(read: Reading, fixed: bool | None, key: str) -> bool:
    return read.flag(key) if fixed is None else fixed


def _attention(read: Reading, traits: DecoderTraits, at: str, layers: int) -> list[Weight]:
    heads = read_heads(read, kv_default=traits.kv_default)
    has_norm = not traits.qk_norm_key or read.flag(traits.qk_norm_key)
    found = attention(
        f"{at}.self_attn",
        read.positive("hidden_size"),
        heads,
        layers,
        qkv_bias=_said(read, traits.qkv_bias, "attention_bias"),
        out_bias=_said(read, traits.out_bias, "attention_bias"),
        qk_norm=traits.qk_norm if has_norm else "",
        is_fused=traits.has_fused_qkv,
        out=traits.out,
    )
    if traits.has_sinks:
        found.append(vector(f"{at}.self_attn.sinks", heads.heads, layers, role="attention", split="column"))
    return found


def _mlp(read: Reading, traits: DecoderTraits, at: str, width: int, dense: int) -> list[Weight]:
    hidden = read.positive("hidden_size")
    bias, where = _said(read, traits.mlp_bias, "mlp_bias"), f"{at}.{traits.mlp_at}"
    if traits.mlp == "plain":
        return plain_mlp(where, hidden, width, dense, bias=bias, names=traits.mlp_names)
    return gated_mlp(where, hidden, width, dense, bias=bias, is_fused=traits.has_fused_gate)


_MIXTRAL = ExpertTraits(at="block_sparse_moe", names=("w1", "w3", "w2"), width=("intermediate_size",))
_QWEN_EXPERTS = ExpertTraits(rule="sparse-step")

#: By `model_type`. Shapes as transformers 5.24.0 builds them; `tests/optimize` compares its counts.
DECODERS: dict[str, DecoderTraits] = {
    "llama": DecoderTraits(out_bias=None),
    "mistral": DecoderTraits(layers="window", kv_default=8),
    "ministral": DecoderTraits(layers="window", kv_default=8),
    "ministral3": DecoderTraits(layers="window", kv_default=8, defaults={"head_dim": 128}),
    "mixtral": DecoderTraits(layers="window", kv_default=8, experts=_MIXTRAL),
    "qwen2": DecoderTraits(layers="late", qkv_bias=True),
    "qwen3": DecoderTraits(layers="late", qk_norm="head", out_bias=None, defaults={"head_dim": 128}),
    "qwen2_moe": DecoderTraits(
        layers="late", qkv_bias=True, experts=ExpertTraits(rule="sparse-step", shared="own-width")
    ),
    "qwen3_moe": DecoderTraits(layers="late", qk_norm="head", out_bias=None, experts=_QWEN_EXPERTS),
    "qwen3_vl_text": DecoderTraits(qk_norm="head", out_bias=None, defaults={"head_dim": 128}),
    "qwen3_vl_moe_text": DecoderTraits(qk_norm="head", out_bias=None, experts=_QWEN_EXPERTS),
    "gemma": DecoderTraits(is_tied=True, out_bias=None, defaults={"head_dim": 256}),
    "gemma2": DecoderTraits(
        layers="alternate",
        norms=_GEMMA_NORMS,
        is_tied=True,
        out_bias=None,
        defaults={"head_dim": 256, "sliding_window": 4096},
    ),
    "gemma3_text": DecoderTraits(
        layers="every",
        norms=_GEMMA_NORMS,
        qk_norm="head",
        is_tied=True,
        out_bias=None,
        defaults={
            "head_dim": 256,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "vocab_size": 262_208,
            "sliding_window": 4096,
            "max_position_embeddings": 131_072,
        },
    ),
    "phi": DecoderTraits(
        norm="layer",
        norms=("input_layernorm",),
        last_norm="model.final_layernorm",
        qkv_bias=True,
        out_bias=True,
        out="dense",
        mlp="plain",
        mlp_names=("fc1", "fc2"),
        mlp_bias=True,
        has_head_bias=True,
    ),
    "phi3": DecoderTraits(layers="window", has_fused_qkv=True, has_fused_gate=True),
    "phimoe": DecoderTraits(
        layers="window",
        norm="layer",
        out_bias=None,
        experts=_MIXTRAL,
        kv_default=8,
    ),
    "glm": DecoderTraits(has_fused_gate=True, defaults={"attention_bias": True, "head_dim": 128}),
    "glm4": DecoderTraits(
        has_fused_gate=True,
        norms=(*_LLAMA_NORMS, "post_self_attn_layernorm", "post_mlp_layernorm"),
        defaults={"attention_bias": True, "head_dim": 128},
    ),
    "glm4_moe": DecoderTraits(
        qk_norm="head",
        qk_norm_key="use_qk_norm",
        experts=ExpertTraits(rule="first-dense", shared="per-expert"),
    ),
    "gpt_oss": DecoderTraits(
        layers="alternate",
        qkv_bias=True,
        out_bias=True,
        has_sinks=True,
        defaults={"head_dim": 64, "sliding_window": 128},
        experts=ExpertTraits(
            width=("intermediate_size",), router="router", router_bias=True, expert_bias=True
        ),
    ),
    "llama4_text": DecoderTraits(
        layers="chunked",
        out_bias=None,
        mlp_at="feed_forward",
        dense_width=("intermediate_size_mlp",),
        experts=ExpertTraits(
            rule="interleaved",
            at="feed_forward",
            width=("intermediate_size",),
            router="router",
            shared="one",
        ),
        defaults={"attention_chunk_size": 8192, "head_dim": 128},
    ),
    "minimax_m2": DecoderTraits(qk_norm="whole", experts=_MIXTRAL, defaults={"head_dim": 128}),
    "granite": DecoderTraits(out_bias=None),
    "granitemoe": DecoderTraits(
        out_bias=None, experts=ExpertTraits(at="block_sparse_moe", width=("intermediate_size",))
    ),
    "olmo2": DecoderTraits(
        norms=("post_attention_layernorm", "post_feedforward_layernorm"), qk_norm="whole", out_bias=None
    ),
    "olmo3": DecoderTraits(
        layers="every",
        norms=("post_attention_layernorm", "post_feedforward_layernorm"),
        qk_norm="whole",
        out_bias=None,
        defaults={"sliding_window": 4096, "sliding_window_pattern": 4},
    ),
    "olmoe": DecoderTraits(
        qk_norm="whole", out_bias=None, experts=ExpertTraits(width=("intermediate_size",))
    ),
    "exaone4": DecoderTraits(
        layers="every",
        norms=("post_attention_layernorm", "post_feedforward_layernorm"),
        qkv_bias=False,
        qk_norm="head",
        defaults={"sliding_window_pattern": 4},
    ),
    "cohere2": DecoderTraits(
        layers="every",
        norm="layer-no-bias",
        norms=("input_layernorm",),
        out_bias=None,
        is_tied=True,
        defaults={"sliding_window": 4096, "sliding_window_pattern": 4},
    ),
    "nemotron": DecoderTraits(norm="layer", out_bias=None, mlp="plain"),
    "smollm3": DecoderTraits(is_tied=True, out_bias=None),
    "starcoder2": DecoderTraits(
        layers="window",
        norm="layer",
        qkv_bias=True,
        out_bias=True,
        mlp="plain",
        mlp_names=("c_fc", "c_proj"),
        mlp_bias=True,
        is_tied=True,
    ),
    "seed_oss": DecoderTraits(qkv_bias=True, out_bias=False, defaults={"head_dim": 128}),
}
