"""The parts that model families are built from, as tensors with their shapes."""

from __future__ import annotations

from typing import Literal

import msgspec

from optimize.arch.reading import NotTold, Reading
from optimize.model import Role, Split, Weight

__all__ = [
    "Heads",
    "attention",
    "embedding",
    "gated_mlp",
    "head",
    "linear",
    "norms",
    "plain_mlp",
    "read_heads",
    "vector",
]

NormKind = Literal["rms", "layer", "layer-no-bias"]


class Heads(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The heads of an attention layer."""

    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int


def read_heads(read: Reading, *, kv_default: int | None = None) -> Heads:
    """The heads of a config. `head_dim` where it is said (Qwen3-0.6B: 128, though 1024 / 16 is 64)."""
    heads = read.positive("num_attention_heads", "n_head")
    hidden = read.positive("hidden_size", "n_embd")
    said = read.raw("head_dim", "attention_head_dim")
    if said is None and hidden % heads:
        raise NotTold(f"`hidden_size` {hidden} is no multiple of `num_attention_heads` {heads}")
    dim = read.positive("head_dim", "attention_head_dim", default=hidden // heads)
    kv_heads = read.positive("num_key_value_heads", default=kv_default or heads)
    if kv_heads > heads or heads % kv_heads:
        raise NotTold(f"`num_attention_heads` {heads} is no multiple of `num_key_value_heads` {kv_heads}")
    return Heads(heads=heads, kv_heads=kv_heads, head_dim=dim, v_head_dim=dim)


def vector(name: str, size: int, count: int = 1, *, role: Role = "norm", split: Split = "none") -> Weight:
    """`count` tensors of one dimension."""
    return Weight(name=name, role=role, shape=(size,), count=count, split=split)


def linear(  # noqa: PLR0913 - a matrix has as many properties
    name: str, out: int, into: int, count: int = 1, *, role: Role, split: Split, bias: bool = False
) -> list[Weight]:
    """A matrix of `out` rows and, where it has one, its bias. A bias of a row-split matrix is replicated."""
    weight = Weight(
        name=f"{name}.weight", role=role, shape=(out, into), count=count, split=split, is_linear=True
    )
    beside: Split = "none" if split == "row" else split
    return [weight, vector(f"{name}.bias", out, count, role=role, split=beside)] if bias else [weight]


def norms(kind: NormKind, size: int, count: int, *names: str) -> list[Weight]:
    """Equal norms: a scale each, and a shift where they are layer norms."""
    found = [vector(f"{name}.weight", size, count) for name in names]
    return found + ([vector(f"{name}.bias", size, count) for name in names] if kind == "layer" else [])


def embedding(name: str, rows: int, width: int) -> list[Weight]:
    """A look-up table with a row for each token."""
    return [Weight(name=f"{name}.weight", role="embedding", shape=(rows, width), split="vocab")]


def head(name: str, rows: int, width: int, *, tied: bool, bias: bool = False) -> list[Weight]:
    """The output head; a tied one is the input embedding again."""
    weight = Weight(
        name=f"{name}.weight", role="head", shape=(rows, width), split="vocab", is_linear=True, is_tied=tied
    )
    return [weight, vector(f"{name}.bias", rows, role="head", split="vocab")] if bias else [weight]


def attention(  # noqa: PLR0913 - the ways in which families differ
    at: str,
    hidden: int,
    heads: Heads,
    count: int,
    *,
    qkv_bias: bool = False,
    out_bias: bool = False,
    qk_norm: Literal["", "head", "whole"] = "",
    is_gated: bool = False,
    is_fused: bool = False,
    has_value: bool = True,
    out: str = "o_proj",
) -> list[Weight]:
    """Projections of `count` layers. `is_gated`: queries come with a gate of their size (Qwen3-Next);
    `has_value` false: values are the keys (Gemma 4).
    """
    query = heads.heads * heads.head_dim
    key, value = heads.kv_heads * heads.head_dim, heads.kv_heads * heads.v_head_dim
    found: list[Weight] = []
    if is_fused:
        found += linear(
            f"{at}.qkv_proj", query + key + value, hidden, count, role="attention", split="kv", bias=qkv_bias
        )
    else:
        rows = query * 2 if is_gated else query
        found += linear(f"{at}.q_proj", rows, hidden, count, role="attention", split="column", bias=qkv_bias)
        found += linear(f"{at}.k_proj", key, hidden, count, role="attention", split="kv", bias=qkv_bias)
        if has_value:
            found += linear(f"{at}.v_proj", value, hidden, count, role="attention", split="kv", bias=qkv_bias)
    into = heads.heads * heads.v_head_dim
    found += linear(f"{at}.{out}", hidden, into, count, role="attention", split="row", bias=out_bias)
    if qk_norm == "head":
        found += [vector(f"{at}.{name}.weight", heads.head_dim, count) for name in ("q_norm", "k_norm")]
    elif qk_norm == "whole":
        found += [vector(f"{at}.q_norm.weight", query, count), vector(f"{at}.k_norm.weight", key, count)]
    return found


def gated_mlp(  # noqa: PLR0913 - as above
    at: str,
    hidden: int,
    width: int,
    count: int,
    *,
    role: Role = "mlp",
    bias: bool = False,
    is_fused: bool = False,
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
) -> list[Weight]:
    """Gate, up and down."""
    gate, up, down = names
    split: Split = "expert" if role == "expert" else "column"
    back: Split = "expert" if role == "expert" else "row"
    if is_fused:
        into = linear(f"{at}.gate_up_proj", 2 * width, hidden, count, role=role, split=split, bias=bias)
    else:
        into = linear(f"{at}.{gate}", width, hidden, count, role=role, split=split, bias=bias)
        into += linear(f"{at}.{up}", width, hidden, count, role=role, split=split, bias=bias)
    return into + linear(f"{at}.{down}", hidden, width, count, role=role, split=back, bias=bias)


def plain_mlp(  # noqa: PLR0913 - as above
    at: str,
    hidden: int,
    width: int,
    count: int,
    *,
    role: Role = "mlp",
    bias: bool = False,
    names: tuple[str, str] = ("up_proj", "down_proj"),
) -> list[Weight]:
    """Up and down, without a gate."""
    split: Split = "expert" if role == "expert" else "column"
    back: Split = "expert" if role == "expert" else "row"
    up = linear(f"{at}.{names[0]}", width, hidden, count, role=role, split=split, bias=bias)
    return up + linear(f"{at}.{names[1]}", hidden, width, count, role=role, split=back, bias=bias)
