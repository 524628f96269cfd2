"""Models as their makers publish them: the numbers that a copy of them must have."""

from __future__ import annotations

from doctor.core.rows.base import Row

__all__ = ["PublishedModel"]


class PublishedModel(Row, frozen=True, kw_only=True):
    """A published model by the numbers of its config. A field that is left out was not told."""

    model: str
    """`Qwen/Qwen3-0.6B`; a folder is named after its last part."""
    model_type: str
    hidden_size: int
    layers: int
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    intermediate_size: int | None = None
    vocab_size: int | None = None
    contexts: tuple[int, ...] = ()
    """`max_position_embeddings`, of each release under the name."""
    rope_thetas: tuple[float, ...] = ()
    """Bases of the rotation; more than one where models of the same shapes differ."""
    parameters: int | None = None
    """As transformers counts them."""
