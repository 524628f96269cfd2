"""The answer of a family's rule, and what rules share: experts and the frame around the layers."""

from __future__ import annotations

import msgspec

from optimize.arch.blocks import Heads, embedding, gated_mlp, head, linear, norms, plain_mlp, vector
from optimize.arch.layers import ExpertRule, expert_layers
from optimize.arch.reading import NotTold, Reading
from optimize.model import AttentionGroup, Experts, StateGroup, Weight

__all__ = ["ExpertTraits", "Shape", "expert_weights", "frame", "read_experts"]


class Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a rule makes of a config."""

    layers: int
    weights: tuple[Weight, ...]
    attention: tuple[AttentionGroup, ...] = ()
    states: tuple[StateGroup, ...] = ()
    experts: Experts | None = None
    heads: Heads | None = None
    intermediate: int | None = None
    vocab: int
    is_tied: bool
    left_out: tuple[str, ...] = ()


class ExpertTraits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a family has its experts."""

    rule: ExpertRule = "all"
    at: str = "mlp"
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    width: tuple[str, ...] = ("moe_intermediate_size",)
    router: str = "gate"
    router_bias: bool = False
    expert_bias: bool = False
    is_plain: bool = False
    """Experts without a gate (Nemotron-H)."""
    shared: str = ""
    """`per-expert`: `n_shared_experts` of an expert's width in one; `own-width`: one of a width of its own,
    with a gate (Qwen2-MoE); `one`: one of an expert's width (Llama 4)."""


def read_experts(read: Reading, traits: ExpertTraits, layers: int) -> Experts | None:
    """The experts of a config; None where it has none. Raises `NotTold`."""
    count = read.size("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts", default=0)
    if count <= 1:
        return None
    chosen = expert_layers(read, traits.rule, layers)
    if not any(chosen):
        return None
    shared = (
        read.size("n_shared_experts", "num_shared_experts", default=0) if traits.shared == "per-expert" else 0
    )
    per_token = read.positive("num_experts_per_tok", "experts_per_token", "top_k_experts", "moe_topk")
    if per_token > count:
        raise NotTold(f"a token goes to {per_token} experts, and there are {count}")
    return Experts(
        count=count,
        per_token=per_token,
        layers=sum(chosen),
        shared=shared if traits.shared == "per-expert" else int(traits.shared != ""),
    )


def expert_weights(
    read: Reading, traits: ExpertTraits, experts: Experts, hidden: int, at: str
) -> list[Weight]:
    """Router, routed and shared experts. `at` is the layer's prefix. Raises `NotTold`."""
    layers, width = experts.layers, read.positive(*traits.width)
    block = f"{at}.{traits.at}"
    router = linear(
        f"{block}.{traits.router}",
        experts.count,
        hidden,
        layers,
        role="router",
        split="none",
        bias=traits.router_bias,
    )
    found = [msgspec.structs.replace(one, is_linear=False) for one in router]
    latent = read.size("moe_latent_size", default=0)
    count = layers * experts.count
    where, into = f"{block}.experts.*", latent or hidden
    if traits.is_plain:
        found += plain_mlp(where, into, width, count, role="expert", bias=traits.expert_bias)
    else:
        found += gated_mlp(
            where, into, width, count, role="expert", bias=traits.expert_bias, names=traits.names
        )
    if latent:
        found += linear(f"{block}.fc1_latent_proj", latent, hidden, layers, role="mlp", split="none")
        found += linear(f"{block}.fc2_latent_proj", hidden, latent, layers, role="mlp", split="none")
    return found + _shared(read, traits, experts, hidden, block)


def _shared(read: Reading, traits: ExpertTraits, experts: Experts, hidden: int, block: str) -> list[Weight]:
    layers, width = experts.layers, read.positive(*traits.width)
    if traits.shared == "own-width":
        own = read.size("shared_expert_intermediate_size", default=0)
        if own == 0:
            return []
        found = gated_mlp(f"{block}.shared_expert", hidden, own, layers, role="shared_expert")
        gate = linear(f"{block}.shared_expert_gate", 1, hidden, layers, role="shared_expert", split="none")
        return found + [msgspec.structs.replace(one, is_linear=False) for one in gate]
    if traits.shared == "one":
        return gated_mlp(f"{block}.shared_expert", hidden, width, layers, role="shared_expert")
    if traits.shared == "per-expert" and experts.shared:
        own = read.size("moe_shared_expert_intermediate_size", default=width * experts.shared)
        where = f"{block}.shared_experts"
        if traits.is_plain:
            return plain_mlp(where, hidden, own, layers, role="shared_expert")
        return gated_mlp(where, hidden, own, layers, role="shared_expert")
    return []


def frame(  # noqa: PLR0913 - the ways in which families differ
    read: Reading,
    *,
    hidden: int,
    tied_default: bool,
    table: str = "model.embed_tokens",
    last: str = "model.norm",
    norm: str = "rms",
    head_bias: bool = False,
) -> tuple[list[Weight], int, bool]:
    """Input embedding, last norm and output head; the vocabulary, and whether the head is tied."""
    vocab = read.positive("vocab_size")
    tied = read.flag("tie_word_embeddings", default=tied_default)
    found = embedding(table, vocab, hidden)
    found += norms("layer", hidden, 1, last) if norm == "layer" else [vector(f"{last}.weight", hidden)]
    return found + head("lm_head", vocab, hidden, tied=tied, bias=head_bias), vocab, tied
