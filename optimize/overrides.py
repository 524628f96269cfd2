"""What of a model's config may be changed on the command line, and what would be another model. Pure.

Tutorials tell people to edit `rope_theta`, `architectures` or sizes until an error goes away. The weights
were trained with the values in the file: an engine that takes others loads them and answers nonsense.
"""

from __future__ import annotations

from collections.abc import Iterable

from optimize.model import ModelFacts

__all__ = ["refused_overrides"]

_TRAINED = {
    "rope_theta": "positions were rotated with it in training; with another value answers lose their sense",
    "rope_parameters": "positions were rotated with them in training",
    "architectures": "it names the code that the weights were trained with",
    "model_type": "it names the code that the weights were trained with",
}
_SHAPES = (
    *("hidden_size", "intermediate_size", "moe_intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size", "kv_lora_rank"),
    *("num_experts", "n_routed_experts"),
)
_CONTEXT = ("max_position_embeddings", "max_model_len", "model_max_length")


def refused_overrides(facts: ModelFacts, overrides: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Why values must not be changed, one sentence for each that must not."""
    return tuple(text for text in (_refusal(facts, key, value) for key, value in overrides) if text)


def _refusal(facts: ModelFacts, key: str, value: str) -> str:
    name = key.strip().rpartition(".")[2]
    own = _own(facts, name)
    if own and own == value.strip():
        return ""
    is_now = f" (the file says {own})" if own else ""
    if name in _TRAINED:
        return f"`{name}` is not changed to {value}{is_now}: {_TRAINED[name]}"
    if name in _SHAPES:
        return f"`{name}` is not changed to {value}{is_now}: the weights have their shapes"
    if name in _CONTEXT:
        return f"`{name}` is not changed to {value}{is_now}: it is what the positions were made for"
    if name == "rope_scaling":
        return (
            "`rope_scaling` is not changed by a plan: how far a context stretches is what its makers tested,"
            " not what fits"
        )
    return f"`{name}` is not changed by a plan: no rule tells what that does to the model"


def _own(facts: ModelFacts, name: str) -> str:
    """What the file says, where facts hold it."""
    if name == "rope_theta":
        theta = facts.rope.theta if facts.rope else None
        return "" if theta is None else f"{theta:.0f}" if theta == int(theta) else str(theta)
    values = {
        "architectures": facts.architecture,
        "model_type": facts.model_type,
        "hidden_size": facts.hidden_size,
        "intermediate_size": facts.intermediate_size,
        "num_hidden_layers": facts.layers,
        "num_attention_heads": facts.heads,
        "num_key_value_heads": facts.kv_heads,
        "head_dim": facts.head_dim,
        "vocab_size": facts.vocab_size,
        "max_position_embeddings": facts.context_tokens,
    }
    value = values.get(name)
    return str(value) if value is not None else ""
