"""Decoders with multi-head latent attention: DeepSeek V2 to V3.2, Kimi K2, GLM-5, GLM-4.7-Flash."""

from __future__ import annotations

from optimize.arch.blocks import Heads, gated_mlp, linear, norms, vector
from optimize.arch.parts import ExpertTraits, Shape, expert_weights, frame, read_experts
from optimize.arch.reading import NotTold, Reading
from optimize.model import AttentionGroup, Weight

__all__ = ["latent_decoder"]

_EXPERTS = ExpertTraits(rule="first-dense", shared="per-expert")


def latent_decoder(read: Reading) -> Shape:
    """One latent row a token is cached, for all heads. Raises `NotTold`."""
    layers, hidden = read.layers, read.positive("hidden_size")
    rope, latent = read.positive("qk_rope_head_dim"), read.positive("kv_lora_rank")
    heads = Heads(
        heads=read.positive("num_attention_heads"),
        kv_heads=0,
        head_dim=read.positive("qk_nope_head_dim") + rope,
        v_head_dim=read.positive("v_head_dim"),
    )
    around, vocab, tied = frame(read, hidden=hidden, tied_default=False)
    at = "model.layers.*"
    found = _attention(read, at, hidden, heads, layers)
    experts = read_experts(read, _EXPERTS, layers)
    dense, width = layers - (experts.layers if experts else 0), read.size("intermediate_size", default=0)
    if dense:
        width = read.positive("intermediate_size")
        found += gated_mlp(f"{at}.mlp", hidden, width, dense, bias=read.flag("mlp_bias"))
    if experts:
        found += expert_weights(read, _EXPERTS, experts, hidden, at)
    found += norms("rms", hidden, layers, f"{at}.input_layernorm", f"{at}.post_attention_layernorm")
    indexed = _indexed(read, layers)
    if indexed:
        found += _indexer(read, at, hidden, indexed)
    next_layers = read.size("num_nextn_predict_layers", default=0)
    return Shape(
        layers=layers,
        weights=(*around, *found),
        attention=_groups(read, layers, heads, latent, rope, indexed),
        experts=experts,
        heads=heads,
        intermediate=width or None,
        vocab=vocab,
        is_tied=tied,
        left_out=(f"{next_layers} next-token draft layer(s)",) if next_layers else (),
    )


def _attention(read: Reading, at: str, hidden: int, heads: Heads, layers: int) -> list[Weight]:
    latent, rope = read.positive("kv_lora_rank"), read.positive("qk_rope_head_dim")
    bias, block = read.flag("attention_bias"), f"{at}.self_attn"
    query = heads.heads * heads.head_dim
    if "q_lora_rank" not in read.config:
        # null says that there is none (V2-Lite); left out, it would be the class's own default.
        raise NotTold("the config does not say `q_lora_rank`")
    low = read.size("q_lora_rank", default=0)
    if low:
        found = linear(f"{block}.q_a_proj", low, hidden, layers, role="attention", split="none", bias=bias)
        found.append(vector(f"{block}.q_a_layernorm.weight", low, layers))
        found += linear(f"{block}.q_b_proj", query, low, layers, role="attention", split="column")
    else:
        found = linear(f"{block}.q_proj", query, hidden, layers, role="attention", split="column")
    down = f"{block}.kv_a_proj_with_mqa"
    found += linear(down, latent + rope, hidden, layers, role="attention", split="none", bias=bias)
    found.append(vector(f"{block}.kv_a_layernorm.weight", latent, layers))
    up = heads.heads * (heads.head_dim - rope + heads.v_head_dim)
    found += linear(f"{block}.kv_b_proj", up, latent, layers, role="attention", split="column")
    into = heads.heads * heads.v_head_dim
    return found + linear(f"{block}.o_proj", hidden, into, layers, role="attention", split="row", bias=bias)


def _indexed(read: Reading, layers: int) -> int:
    """Layers with an indexer of their own (sparse attention); the others share one, or there is none."""
    if read.raw("index_head_dim") is None:
        return 0
    said = read.words("indexer_types")
    if said is not None:
        if len(said) != layers:
            raise NotTold(f"`indexer_types` lists {len(said)} layers, `num_hidden_layers` says {layers}")
        return said.count("full")
    if read.raw("index_topk_pattern") is not None or read.raw("index_topk_freq") not in (None, 1):
        raise NotTold(
            "`index_topk_freq` shares indexers between layers, and `indexer_types` does not say which"
        )
    return layers


def _indexer(read: Reading, at: str, hidden: int, layers: int) -> list[Weight]:
    block, width, heads = (
        f"{at}.self_attn.indexer",
        read.positive("index_head_dim"),
        read.positive("index_n_heads"),
    )
    low = read.positive("q_lora_rank")
    found = linear(f"{block}.wq_b", heads * width, low, layers, role="attention", split="none")
    found += linear(f"{block}.wk", width, hidden, layers, role="attention", split="none")
    found += norms("layer", width, layers, f"{block}.k_norm")
    return found + linear(f"{block}.weights_proj", heads, hidden, layers, role="attention", split="none")


def _groups(  # noqa: PLR0913, PLR0917 - what a group is made of
    read: Reading, layers: int, heads: Heads, latent: int, rope: int, indexed: int
) -> tuple[AttentionGroup, ...]:
    def one(count: int, index_dim: int) -> AttentionGroup:
        return AttentionGroup(
            kind="mla",
            layers=count,
            heads=heads.heads,
            kv_heads=0,
            head_dim=heads.head_dim,
            v_head_dim=heads.v_head_dim,
            latent_dim=latent,
            rope_dim=rope,
            index_dim=index_dim,
        )

    found = (one(indexed, read.positive("index_head_dim")),) if indexed else ()
    return (*found, one(layers - indexed, 0)) if layers > indexed else found
