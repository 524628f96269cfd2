"""What a model is, as far as serving it is concerned: shapes, weights, attention, quantization. Values only.

`optimize.config.read_config` makes them from a `config.json`.
A number that no rule covers is None, and `unknown` says why: never a guess.
"""

from __future__ import annotations

from math import prod
from typing import Literal

import msgspec

__all__ = [
    "AttentionGroup",
    "AttentionKind",
    "Experts",
    "ModelFacts",
    "Quantization",
    "Role",
    "Rope",
    "Split",
    "StateGroup",
    "Task",
    "Weight",
]

Task = Literal["generate", "embed", "encoder"]
"""`generate`: tokens from tokens. `embed`: a decoder whose last hidden state is the answer (told by the
directory, not by the architecture). `encoder`: every token sees every other, nothing is cached."""

AttentionKind = Literal["full", "sliding", "chunked", "mla", "bidirectional"]
StateKind = Literal["mamba", "mamba2", "gated_delta"]
Split = Literal["column", "row", "kv", "vocab", "expert", "none"]
Role = Literal[
    "embedding",
    "position",
    "head",
    "norm",
    "attention",
    "mlp",
    "expert",
    "shared_expert",
    "router",
    "state",
    "vision",
    "draft",
    "other",
]


class _Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every value here."""


class Rope(_Value, frozen=True, kw_only=True):
    """How positions are rotated, in either form that configs have it (`rope_theta`, `rope_parameters`)."""

    theta: float | None = None
    kind: str = "default"
    """`default`, `llama3`, `yarn`, `linear`, `dynamic`, `longrope`, …"""
    factor: float | None = None
    original_context_tokens: int | None = None


class AttentionGroup(_Value, frozen=True, kw_only=True):
    """Layers that cache the same per token. `full`, `sliding` and `chunked` keep keys and values per head,
    `mla` one latent row for all heads, `bidirectional` nothing.
    """

    kind: AttentionKind
    layers: int
    heads: int
    kv_heads: int
    """0 for `mla`: the latent row belongs to no head."""
    head_dim: int
    """Of queries and keys."""
    v_head_dim: int
    window_tokens: int = 0
    """`sliding` and `chunked`: how far back a token looks."""
    latent_dim: int = 0
    """`mla`: kv_lora_rank."""
    rope_dim: int = 0
    """`mla`: qk_rope_head_dim, kept beside the latent row."""
    index_dim: int = 0
    """Sparse MLA: values a token of the indexer's own key cache (one byte each, and a scale)."""
    first_layer: int = 0
    """The first such layer, for pipeline stages."""

    @property
    def values_per_token(self) -> int:
        """Cached values per token and layer before any split over GPUs."""
        if self.kind == "bidirectional":
            return 0
        if self.kind == "mla":
            return self.latent_dim + self.rope_dim
        return self.kv_heads * (self.head_dim + self.v_head_dim)


class StateGroup(_Value, frozen=True, kw_only=True):
    """Layers that keep a state per sequence, whatever its length: Mamba, linear attention."""

    kind: StateKind
    layers: int
    conv_values: int
    """Per layer and sequence, in the model's dtype."""
    recurrent_values: int
    """Per layer and sequence, in `recurrent_bytes` each."""
    recurrent_bytes: int = 4
    heads: int = 1
    """What tensor parallelism divides."""


class Experts(_Value, frozen=True, kw_only=True):
    """A mixture of experts."""

    count: int
    per_token: int
    layers: int
    """Layers that have them; the others are dense."""
    shared: int = 0
    """Experts that every token goes through."""


class Weight(_Value, frozen=True, kw_only=True):
    """Equal tensors of a model: `count` of them, each of `shape`."""

    name: str
    """As in the checkpoint, with `*` for the layer or expert: `model.layers.*.mlp.gate_proj.weight`."""
    role: Role
    shape: tuple[int, ...]
    count: int = 1
    split: Split = "none"
    """How tensor parallelism divides it: `column` and `row` evenly, `vocab` evenly after padding, `kv` by
    KV heads (replicated beyond their number), `expert` by experts or inside each, `none` on every GPU."""
    is_linear: bool = False
    """A matrix that quantization schemes convert, unless they name it among what they leave."""
    is_tied: bool = False
    """Listed for its shape; it is the same storage as another tensor and counts nothing."""

    @property
    def values(self) -> int:
        """Parameters in all of them."""
        return 0 if self.is_tied else prod(self.shape) * self.count


class Quantization(_Value, frozen=True, kw_only=True):
    """How a checkpoint's weights are stored, from `quantization_config` or `hf_quant_config.json`."""

    method: Literal[
        "fp8",
        "compressed-tensors",
        "gptq",
        "awq",
        "bitsandbytes",
        "modelopt",
        "mxfp4",
        "mxfp8",
        "nvfp4",
        "quark",
        "other",
    ]
    said: str
    """The method as the file names it."""
    scheme: Literal[
        "fp8",
        "fp8-block",
        "int8",
        "w8a16",
        "int4",
        "nvfp4",
        "mxfp4",
        "mxfp8",
        "nf4",
        "mixed",
        "unknown",
    ]
    weight_bits: float | None
    """Of a converted value, without scales."""
    overhead_bits: float = 0.0
    """Scales and zero points per converted value."""
    group_size: int | None = None
    """Values that share a scale; None for one a tensor or channel."""
    has_quantized_activations: bool | None = None
    kv_cache_dtype: str = ""
    """What the checkpoint brings scales for; empty for none."""
    converts: Literal["linear", "experts"] = "linear"
    """Every linear layer but `skips`, or the routed experts alone (gpt-oss)."""
    skips: tuple[str, ...] = ()
    """Modules left as they are, as the file names them."""


class ModelFacts(_Value, frozen=True, kw_only=True):
    """What serving needs to know of a model. None is *not known*; `unknown` has the reasons."""

    model_type: str
    """Of `config.json`: `qwen3`."""
    architecture: str
    """The first of `architectures`: `Qwen3ForCausalLM`; empty where it is not said."""
    family: str
    """The rule that its shapes were read by; empty for an unknown family."""
    task: Task
    layers: int
    hidden_size: int
    intermediate_size: int | None = None
    """Of dense layers."""
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    vocab_size: int | None = None
    context_tokens: int | None = None
    """What the position encoding was made for (`max_position_embeddings`)."""
    rope: Rope | None = None
    dtype: str = ""
    """Of unconverted weights: `bfloat16`; empty where it is not said."""
    is_tied: bool | None = None
    """Whether the output head is the input embedding."""
    experts: Experts | None = None
    quantization: Quantization | None = None
    attention: tuple[AttentionGroup, ...] = ()
    states: tuple[StateGroup, ...] = ()
    weights: tuple[Weight, ...] = ()
    parameters: int | None = None
    """As transformers counts them: tied tensors once, quantized ones by what they stand for."""
    active_parameters: int | None = None
    """Those that one token passes through: routed experts by `per_token`; no input embedding unless tied."""
    parts_left_out: tuple[str, ...] = ()
    """Parts of the checkpoint that `parameters` does not count: `vision tower`, `draft layers`."""
    unknown: tuple[str, ...] = ()
    """What is not known, and why."""
    problems: tuple[str, ...] = ()
    """What in the config contradicts itself."""
    remote_code: tuple[str, ...] = ()
    """Python files that the config wants to run (`auto_map`); they are never read."""
