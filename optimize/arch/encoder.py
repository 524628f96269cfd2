"""Encoders: every token sees every other, and nothing is cached."""

from __future__ import annotations

from optimize.arch.blocks import Heads, embedding, linear, norms, read_heads
from optimize.arch.layers import group
from optimize.arch.parts import Shape
from optimize.arch.reading import Reading
from optimize.model import AttentionGroup, Weight

__all__ = ["bert", "modern_bert"]


def bert(read: Reading) -> Shape:
    """BERT, RoBERTa and XLM-RoBERTa, with the pooler that transformers gives the bare model."""
    layers, hidden, heads = read.layers, read.positive("hidden_size"), read_heads(read)
    vocab, width = read.positive("vocab_size"), read.positive("intermediate_size")
    found = embedding("embeddings.word_embeddings", vocab, hidden)
    for name, rows in (
        ("position_embeddings", read.positive("max_position_embeddings")),
        ("token_type_embeddings", read.size("type_vocab_size", default=2)),
    ):
        found.append(Weight(name=f"embeddings.{name}.weight", role="position", shape=(rows, hidden)))
    found += norms("layer", hidden, 1, "embeddings.LayerNorm")
    at = "encoder.layer.*"
    for name in ("query", "key", "value"):
        where = f"{at}.attention.self.{name}"
        found += linear(where, hidden, hidden, layers, role="attention", split="column", bias=True)
    for where, out, into, split in (
        ("attention.output.dense", hidden, hidden, "row"),
        ("intermediate.dense", width, hidden, "column"),
        ("output.dense", hidden, width, "row"),
    ):
        role = "attention" if where.startswith("attention") else "mlp"
        found += linear(f"{at}.{where}", out, into, layers, role=role, split=split, bias=True)  # type: ignore[arg-type]
    found += norms("layer", hidden, layers, f"{at}.attention.output.LayerNorm", f"{at}.output.LayerNorm")
    found += linear("pooler.dense", hidden, hidden, role="other", split="none", bias=True)
    return Shape(
        layers=layers,
        weights=tuple(found),
        attention=group(read, ["bidirectional"] * layers, heads),
        heads=heads,
        intermediate=width,
        vocab=vocab,
        is_tied=True,
    )


def modern_bert(read: Reading) -> Shape:
    """ModernBERT: fused projections without biases, a gated MLP, no norm before the first attention."""
    layers, hidden, heads = read.layers, read.positive("hidden_size"), read_heads(read)
    vocab, width = read.positive("vocab_size"), read.positive("intermediate_size")
    found = embedding("embeddings.tok_embeddings", vocab, hidden) + norms("rms", hidden, 1, "embeddings.norm")
    bias = read.flag("attention_bias")
    found += linear(
        "layers.*.attn.Wqkv", 3 * hidden, hidden, layers, role="attention", split="column", bias=bias
    )
    found += linear("layers.*.attn.Wo", hidden, hidden, layers, role="attention", split="row", bias=bias)
    found += linear(
        "layers.*.mlp.Wi", 2 * width, hidden, layers, role="mlp", split="column", bias=read.flag("mlp_bias")
    )
    found += linear(
        "layers.*.mlp.Wo", hidden, width, layers, role="mlp", split="row", bias=read.flag("mlp_bias")
    )
    found += norms("rms", hidden, layers, "layers.*.mlp_norm")
    found += norms("rms", hidden, layers - 1, "layers.*.attn_norm") + norms("rms", hidden, 1, "final_norm")
    return Shape(
        layers=layers,
        weights=tuple(found),
        attention=(_bidirectional(layers, heads),),
        heads=heads,
        intermediate=width,
        vocab=vocab,
        is_tied=True,
    )


def _bidirectional(layers: int, heads: Heads) -> AttentionGroup:
    return AttentionGroup(
        kind="bidirectional",
        layers=layers,
        heads=heads.heads,
        kv_heads=heads.kv_heads,
        head_dim=heads.head_dim,
        v_head_dim=heads.v_head_dim,
    )
