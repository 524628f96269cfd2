"""Models some or all of whose layers keep a state per sequence instead of a cache per token."""

from __future__ import annotations

import msgspec

from optimize.arch.blocks import attention, gated_mlp, linear, norms, plain_mlp, read_heads, vector
from optimize.arch.layers import group
from optimize.arch.parts import ExpertTraits, Shape, expert_weights, frame, read_experts
from optimize.arch.reading import NotTold, Reading
from optimize.model import StateGroup, Weight

__all__ = [
    "Mamba2",
    "bamba",
    "falcon_h1",
    "granite_hybrid",
    "mamba2_state",
    "mamba2_weights",
    "nemotron_h",
    "qwen_next",
    "state_bytes",
]

_LINEAR = ("linear_attention", "mamba")
_SHORT = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}


class Mamba2(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sizes of a Mamba-2 layer."""

    heads: int
    head_dim: int
    groups: int
    state: int
    kernel: int
    has_conv_bias: bool = True
    has_bias: bool = False
    has_norm: bool = True

    @property
    def inner(self) -> int:
        return self.heads * self.head_dim

    @property
    def conv(self) -> int:
        """Channels of the convolution."""
        return self.inner + 2 * self.groups * self.state


def mamba2_weights(at: str, hidden: int, sizes: Mamba2, layers: int) -> list[Weight]:
    """The tensors of so many Mamba-2 layers."""
    project = sizes.inner + sizes.conv + sizes.heads
    found = linear(
        f"{at}.in_proj", project, hidden, layers, role="state", split="column", bias=sizes.has_bias
    )
    found += linear(
        f"{at}.out_proj", hidden, sizes.inner, layers, role="state", split="row", bias=sizes.has_bias
    )
    shape = (sizes.conv, 1, sizes.kernel)
    found.append(Weight(name=f"{at}.conv1d.weight", role="state", shape=shape, count=layers, split="column"))
    if sizes.has_conv_bias:
        found.append(vector(f"{at}.conv1d.bias", sizes.conv, layers, role="state", split="column"))
    names = ("dt_bias", "A_log", "D")
    found += [vector(f"{at}.{name}", sizes.heads, layers, role="state", split="column") for name in names]
    if sizes.has_norm:
        found.append(vector(f"{at}.norm.weight", sizes.inner, layers, role="state", split="column"))
    return found


def state_bytes(read: Reading) -> int:
    """Of a value of the recurrent state: float32, as transformers keeps it, unless the config says other."""
    said = read.text("mamba_ssm_cache_dtype", "mamba_ssm_dtype", "mamba_ssm_state_dtype")
    return 2 if said in ("bfloat16", "float16") else 4


def mamba2_state(read: Reading, sizes: Mamba2, layers: int) -> StateGroup:
    """What they keep of a sequence."""
    return StateGroup(
        kind="mamba2",
        layers=layers,
        conv_values=sizes.conv * (sizes.kernel - 1),
        recurrent_values=sizes.inner * sizes.state,
        recurrent_bytes=state_bytes(read),
        heads=sizes.heads,
    )


def _read_mamba_d(read: Reading, hidden: int, *, has_norm: bool = True) -> Mamba2:
    """Sizes by the keys of Granite, Bamba and Falcon-H1."""
    inner = read.size("mamba_d_ssm", default=read.positive("mamba_expand", default=2) * hidden)
    heads = read.positive("mamba_n_heads")
    said = read.raw("mamba_d_head")
    dim = inner // heads if said in (None, "auto") else read.positive("mamba_d_head")
    if heads * dim != inner:
        raise NotTold(f"`mamba_n_heads` {heads} of `mamba_d_head` {dim} are not the inner width {inner}")
    return Mamba2(
        heads=heads,
        head_dim=dim,
        groups=read.positive("mamba_n_groups", default=1),
        state=read.positive("mamba_d_state"),
        kernel=read.positive("mamba_d_conv", default=4),
        has_conv_bias=read.flag("mamba_conv_bias", default=True),
        has_bias=read.flag("mamba_proj_bias"),
        has_norm=has_norm,
    )


# --- Nemotron-H -----------------------------------------------------------------------------------

_NEMOTRON_EXPERTS = ExpertTraits(at="mixer", is_plain=True, shared="per-expert")


def nemotron_h(read: Reading) -> Shape:
    """Every layer is one of Mamba-2, attention, experts or a plain MLP. Raises `NotTold`."""
    kinds = _nemotron_kinds(read)
    hidden, heads, at = read.positive("hidden_size"), read_heads(read), "backbone.layers.*"
    count = {kind: kinds.count(kind) for kind in ("mamba", "attention", "moe", "mlp")}
    sizes = Mamba2(
        heads=read.positive("mamba_num_heads"),
        head_dim=read.positive("mamba_head_dim"),
        groups=read.positive("n_groups", default=8),
        state=read.positive("ssm_state_size"),
        kernel=read.positive("conv_kernel", default=4),
        has_conv_bias=read.flag("use_conv_bias", default=True),
        has_bias=read.flag("use_bias"),
    )
    around, vocab, tied = frame(
        read, hidden=hidden, tied_default=False, table="backbone.embeddings", last="backbone.norm_f"
    )
    found = mamba2_weights(f"{at}.mixer", hidden, sizes, count["mamba"]) if count["mamba"] else []
    bias = read.flag("attention_bias")
    if count["attention"]:
        found += attention(f"{at}.mixer", hidden, heads, count["attention"], qkv_bias=bias, out_bias=bias)
    experts = read_experts(read, _NEMOTRON_EXPERTS, count["moe"]) if count["moe"] else None
    if experts:
        found += expert_weights(read, _NEMOTRON_EXPERTS, experts, hidden, at)
    if count["mlp"]:
        width, mlp_bias = read.positive("intermediate_size"), read.flag("mlp_bias")
        found += plain_mlp(f"{at}.mixer", hidden, width, count["mlp"], bias=mlp_bias)
    found += norms("rms", hidden, len(kinds), f"{at}.norm")
    return Shape(
        layers=len(kinds),
        weights=(*around, *found),
        attention=group(read, ["full"] * count["attention"], heads),
        states=(mamba2_state(read, sizes, count["mamba"]),) if count["mamba"] else (),
        experts=experts,
        heads=heads,
        intermediate=read.size("intermediate_size", default=0) or None,
        vocab=vocab,
        is_tied=tied,
        left_out=("next-token draft layers",) if read.size("num_nextn_predict_layers", default=0) else (),
    )


def _nemotron_kinds(read: Reading) -> list[str]:
    said = read.words("layer_types") or read.words("layers_block_type")
    if said is not None:
        named = {"linear_attention": "mamba", "full_attention": "attention"}
        kinds = [named.get(one, one) for one in said]
    else:
        kinds = [_SHORT.get(char, char) for char in read.text("hybrid_override_pattern")]
    odd = next((kind for kind in kinds if kind not in _SHORT.values()), None)
    if not kinds or odd is not None:
        raise NotTold(f"`hybrid_override_pattern` has the layer kind {odd!r}" if odd else "no layer kinds")
    if read.raw("num_hidden_layers") is not None and read.layers != len(kinds):
        raise NotTold(f"the pattern has {len(kinds)} layers, `num_hidden_layers` says {read.layers}")
    return kinds


# --- Qwen3-Next, Qwen3.5 --------------------------------------------------------------------------

_QWEN_NEXT = ExpertTraits(rule="sparse-step", shared="own-width")


def qwen_next(read: Reading) -> Shape:
    """Three gated delta layers to one of gated full attention. Raises `NotTold`."""
    layers, hidden, heads, at = read.layers, read.positive("hidden_size"), read_heads(read), "model.layers.*"
    kinds = read.words("layer_types") or _every(read, layers)
    if len(kinds) != layers or not set(kinds) <= {"linear_attention", "full_attention"}:
        raise NotTold("`layer_types` is not `linear_attention` or `full_attention` for each layer")
    linear_layers = kinds.count("linear_attention")
    around, vocab, tied = frame(read, hidden=hidden, tied_default=False)
    found, state = _gated_delta(read, f"{at}.linear_attn", hidden, linear_layers)
    found += attention(
        f"{at}.self_attn",
        hidden,
        heads,
        layers - linear_layers,
        qkv_bias=read.flag("attention_bias"),
        out_bias=read.flag("attention_bias"),
        qk_norm="head",
        is_gated=read.flag("attn_output_gate", default=True),
    )
    experts = read_experts(read, _QWEN_NEXT, layers)
    if experts:
        found += expert_weights(read, _QWEN_NEXT, experts, hidden, at)
    dense = layers - (experts.layers if experts else 0)
    if dense:
        found += gated_mlp(f"{at}.mlp", hidden, read.positive("intermediate_size"), dense)
    found += norms("rms", hidden, layers, f"{at}.input_layernorm", f"{at}.post_attention_layernorm")
    draft = read.size("mtp_num_hidden_layers", default=0)
    return Shape(
        layers=layers,
        weights=(*around, *found),
        attention=group(read, ["full"] * (layers - linear_layers), heads),
        states=(state,) if linear_layers else (),
        experts=experts,
        heads=heads,
        intermediate=read.size("intermediate_size", default=0) or None,
        vocab=vocab,
        is_tied=tied,
        left_out=(f"{draft} next-token draft layer(s)",) if draft else (),
    )


def _every(read: Reading, layers: int) -> tuple[str, ...]:
    step = read.positive("full_attention_interval", default=4)
    return tuple("linear_attention" if (layer + 1) % step else "full_attention" for layer in range(layers))


def _gated_delta(read: Reading, at: str, hidden: int, layers: int) -> tuple[list[Weight], StateGroup]:
    """Weights and state of gated delta layers: the projections are named by Qwen3.5, Qwen3-Next has them
    as `in_proj_qkvz` and `in_proj_ba`, of the same size together.
    """
    key_heads, heads = read.positive("linear_num_key_heads"), read.positive("linear_num_value_heads")
    key, value = read.positive("linear_key_head_dim"), read.positive("linear_value_head_dim")
    kernel = read.positive("linear_conv_kernel_dim", default=4)
    conv, inner = 2 * key_heads * key + heads * value, heads * value
    found = linear(f"{at}.in_proj_qkv", conv, hidden, layers, role="state", split="column")
    found += linear(f"{at}.in_proj_z", inner, hidden, layers, role="state", split="column")
    for name in ("in_proj_b", "in_proj_a"):
        found += linear(f"{at}.{name}", heads, hidden, layers, role="state", split="column")
    found += linear(f"{at}.out_proj", hidden, inner, layers, role="state", split="row")
    shape = (conv, 1, kernel)
    found.append(Weight(name=f"{at}.conv1d.weight", role="state", shape=shape, count=layers, split="column"))
    found += [
        vector(f"{at}.{name}", heads, layers, role="state", split="column") for name in ("dt_bias", "A_log")
    ]
    found.append(vector(f"{at}.norm.weight", value, layers))
    state = StateGroup(
        kind="gated_delta",
        layers=layers,
        conv_values=conv * (kernel - 1),
        recurrent_values=heads * key * value,
        recurrent_bytes=state_bytes(read),
        heads=heads,
    )
    return found, state


# --- Granite 4, Bamba, Falcon-H1 ------------------------------------------------------------------

_GRANITE = ExpertTraits(at="block_sparse_moe", width=("intermediate_size",), router="router")


def granite_hybrid(read: Reading) -> Shape:
    """Mamba-2 or attention by `layer_types`; a shared MLP, and experts where there are any."""
    layers, hidden, heads, at = read.layers, read.positive("hidden_size"), read_heads(read), "model.layers.*"
    kinds = read.words("layer_types") or read.words("layers_block_type") or ("mamba",) * layers
    if len(kinds) != layers or not set(kinds) <= {*_LINEAR, "attention", "full_attention"}:
        raise NotTold("`layer_types` is not `mamba` or `attention` for each layer")
    states = sum(kind in _LINEAR for kind in kinds)
    sizes = _read_mamba_d(read, hidden) if states else None
    around, vocab, tied = frame(read, hidden=hidden, tied_default=False)
    found = mamba2_weights(f"{at}.mamba", hidden, sizes, states) if sizes else []
    bias = read.flag("attention_bias")
    if states < layers:
        found += attention(f"{at}.self_attn", hidden, heads, layers - states, qkv_bias=bias, out_bias=bias)
    experts = read_experts(read, _GRANITE, layers)
    if experts:
        found += expert_weights(read, _GRANITE, experts, hidden, at)
    shared = read.positive("shared_intermediate_size")
    found += linear(f"{at}.shared_mlp.input_linear", 2 * shared, hidden, layers, role="mlp", split="column")
    found += linear(f"{at}.shared_mlp.output_linear", hidden, shared, layers, role="mlp", split="row")
    found += norms("rms", hidden, layers, f"{at}.input_layernorm", f"{at}.post_attention_layernorm")
    return Shape(
        layers=layers,
        weights=(*around, *found),
        attention=group(read, ["full"] * (layers - states), heads),
        states=(mamba2_state(read, sizes, states),) if sizes else (),
        experts=experts,
        heads=heads,
        intermediate=shared,
        vocab=vocab,
        is_tied=tied,
    )


def bamba(read: Reading) -> Shape:
    """Mamba-2, attention at `attn_layer_indices`, a dense MLP."""
    layers, attended = read.layers, set(read.sizes("attn_layer_indices") or ())
    return _mamba_and_mlp(read, [layer not in attended for layer in range(layers)], is_parallel=False)


def falcon_h1(read: Reading) -> Shape:
    """Mamba-2 and attention side by side in every layer."""
    return _mamba_and_mlp(read, [True] * read.layers, is_parallel=True)


def _mamba_and_mlp(read: Reading, has_state: list[bool], *, is_parallel: bool) -> Shape:
    layers, hidden, heads, at = read.layers, read.positive("hidden_size"), read_heads(read), "model.layers.*"
    states = sum(has_state)
    attended = layers if is_parallel else layers - states
    sizes = _read_mamba_d(read, hidden, has_norm=not is_parallel or read.flag("mamba_rms_norm"))
    around, vocab, tied = frame(read, hidden=hidden, tied_default=False, last="model.final_layernorm")
    found = mamba2_weights(f"{at}.mamba", hidden, sizes, states) if states else []
    bias, width = read.flag("attention_bias"), read.positive("intermediate_size")
    if attended:
        found += attention(f"{at}.self_attn", hidden, heads, attended, qkv_bias=bias, out_bias=bias)
    found += gated_mlp(f"{at}.feed_forward", hidden, width, layers, bias=read.flag("mlp_bias"))
    found += norms("rms", hidden, layers, f"{at}.input_layernorm", f"{at}.pre_ff_layernorm")
    return Shape(
        layers=layers,
        weights=(*around, *found),
        attention=group(read, ["full"] * attended, heads),
        states=(mamba2_state(read, sizes, states),) if states else (),
        heads=heads,
        intermediate=width,
        vocab=vocab,
        is_tied=tied,
    )
