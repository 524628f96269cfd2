"""Jamba, and Mamba of both generations without attention."""

from __future__ import annotations

from math import ceil

from optimize.arch.blocks import attention, gated_mlp, linear, norms, read_heads, vector
from optimize.arch.hybrid import Mamba2, mamba2_state, mamba2_weights, state_bytes
from optimize.arch.layers import group
from optimize.arch.parts import ExpertTraits, Shape, expert_weights, frame, read_experts
from optimize.arch.reading import Reading
from optimize.model import StateGroup, Weight

__all__ = ["jamba", "mamba1", "mamba2"]

_JAMBA = ExpertTraits(rule="period", at="feed_forward", width=("intermediate_size",), router="router")


def jamba(read: Reading) -> Shape:
    """Mamba layers, an attention layer each `attn_layer_period`, experts each `expert_layer_period`."""
    layers, hidden, heads, at = read.layers, read.positive("hidden_size"), read_heads(read), "model.layers.*"
    period, offset = read.positive("attn_layer_period"), read.size("attn_layer_offset")
    attended = sum(layer % period == offset for layer in range(layers))
    around, vocab, tied = frame(read, hidden=hidden, tied_default=False, last="model.final_layernorm")
    found, state = _mamba1(read, f"{at}.mamba", hidden, layers - attended, has_inner_norms=True)
    found += attention(f"{at}.self_attn", hidden, heads, attended)
    experts = read_experts(read, _JAMBA, layers)
    if experts:
        found += expert_weights(read, _JAMBA, experts, hidden, at)
    dense = layers - (experts.layers if experts else 0)
    if dense:
        found += gated_mlp(f"{at}.feed_forward", hidden, read.positive("intermediate_size"), dense)
    found += norms("rms", hidden, layers, f"{at}.input_layernorm", f"{at}.pre_ff_layernorm")
    return Shape(
        layers=layers,
        weights=(*around, *found),
        attention=group(read, ["full"] * attended, heads),
        states=(state,),
        experts=experts,
        heads=heads,
        intermediate=read.positive("intermediate_size"),
        vocab=vocab,
        is_tied=tied,
    )


def _mamba1(
    read: Reading, at: str, hidden: int, layers: int, *, has_inner_norms: bool
) -> tuple[list[Weight], StateGroup]:
    inner = read.size(
        "mamba_inner",
        "intermediate_size_mamba",
        default=read.positive("mamba_expand", "expand", default=2) * hidden,
    )
    state, kernel = (
        read.positive("mamba_d_state", "state_size", default=16),
        read.positive("mamba_d_conv", "conv_kernel", default=4),
    )
    said = read.raw("mamba_dt_rank", "time_step_rank")
    rank = ceil(hidden / 16) if said in (None, "auto") else read.positive("mamba_dt_rank", "time_step_rank")
    bias = read.flag("mamba_proj_bias") or read.flag("use_bias")
    found = linear(f"{at}.in_proj", 2 * inner, hidden, layers, role="state", split="column", bias=bias)
    found += linear(f"{at}.x_proj", rank + 2 * state, inner, layers, role="state", split="row")
    found += linear(f"{at}.dt_proj", inner, rank, layers, role="state", split="column", bias=True)
    found += linear(f"{at}.out_proj", hidden, inner, layers, role="state", split="row", bias=bias)
    shape = (inner, 1, kernel)
    found.append(Weight(name=f"{at}.conv1d.weight", role="state", shape=shape, count=layers, split="column"))
    if read.flag("mamba_conv_bias", default=True) and read.flag("use_conv_bias", default=True):
        found.append(vector(f"{at}.conv1d.bias", inner, layers, role="state", split="column"))
    found.append(Weight(name=f"{at}.A_log", role="state", shape=(inner, state), count=layers, split="column"))
    found.append(vector(f"{at}.D", inner, layers, role="state", split="column"))
    if has_inner_norms:
        found += norms("rms", rank, layers, f"{at}.dt_layernorm")
        found += norms("rms", state, layers, f"{at}.b_layernorm", f"{at}.c_layernorm")
    kept = StateGroup(
        kind="mamba",
        layers=layers,
        conv_values=inner * (kernel - 1),
        recurrent_values=inner * state,
        recurrent_bytes=state_bytes(read),
        heads=inner,
    )
    return found, kept


def mamba1(read: Reading) -> Shape:
    """Mamba without attention: nothing is cached per token."""
    layers, hidden, at = read.layers, read.positive("hidden_size"), "backbone.layers.*"
    around, vocab, tied = frame(
        read, hidden=hidden, tied_default=True, table="backbone.embeddings", last="backbone.norm_f"
    )
    found, state = _mamba1(read, f"{at}.mixer", hidden, layers, has_inner_norms=False)
    found += norms("rms", hidden, layers, f"{at}.norm")
    return Shape(layers=layers, weights=(*around, *found), states=(state,), vocab=vocab, is_tied=tied)


def mamba2(read: Reading) -> Shape:
    """Mamba-2 without attention."""
    layers, hidden, at = read.layers, read.positive("hidden_size"), "backbone.layers.*"
    sizes = Mamba2(
        heads=read.positive("num_heads"),
        head_dim=read.positive("head_dim", default=64),
        groups=read.positive("n_groups", default=8),
        state=read.positive("state_size", default=128),
        kernel=read.positive("conv_kernel", default=4),
        has_conv_bias=read.flag("use_conv_bias", default=True),
        has_bias=read.flag("use_bias"),
    )
    around, vocab, tied = frame(
        read, hidden=hidden, tied_default=False, table="backbone.embeddings", last="backbone.norm_f"
    )
    found = mamba2_weights(f"{at}.mixer", hidden, sizes, layers) + norms("rms", hidden, layers, f"{at}.norm")
    return Shape(
        layers=layers,
        weights=(*around, *found),
        states=(mamba2_state(read, sizes, layers),),
        vocab=vocab,
        is_tied=tied,
    )
