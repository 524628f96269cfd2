"""A model's facts from its `config.json`, in the forms of transformers 4 and 5. Pure; nothing is executed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimize.arch.parts import Shape
from optimize.arch.reading import NotTold, Reading
from optimize.arch.table import FAMILIES
from optimize.model import ModelFacts, Rope, Task
from optimize.quantization import read_quantization

__all__ = ["read_config", "read_rope", "text_config"]

#: Where a model of several parts keeps its language model.
_TEXT = ("text_config", "llm_config", "language_config", "thinker_config")
#: Types whose language model is another family's, flat in the same file.
_SAME_AS = {
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_omni_moe_text": "qwen3_moe",
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
}
#: What an `architectures` of another family than `model_type` may still be: the code is shared.
_SHARED_CODE = {("kimik2", "deepseekv3"), ("glm4moelite", "deepseekv3"), ("xlmroberta", "roberta")}
_POOLING = ("ForSequenceClassification", "ForRewardModel", "ForTokenClassification")
#: Types whose table of positions begins behind the padding token's: fewer tokens than it has rows.
_PADDED_POSITIONS = ("roberta", "xlm-roberta")
_OTHER_PARTS = ("vision_config", "audio_config", "visual", "vision_tower")


def read_config(
    config: Mapping[str, Any],
    *,
    quantization: Mapping[str, Any] | None = None,
    is_embedding: bool = False,
) -> ModelFacts:
    """What a config says, and what follows from it by its family's rule.

    `quantization` is the document of `hf_quant_config.json`; `is_embedding` says that the directory has the
    pooling files of sentence-transformers. A family without a rule is named in `unknown`.
    """
    text = text_config(config)
    named = _text(text.get("model_type"))
    family = FAMILIES.get(_SAME_AS.get(named, named))
    read = Reading(text, family.defaults if family else {})
    shape, unknown = None, list[str]()
    if family is None:
        unknown.append(_unknown_family(named))
    else:
        try:
            shape = family.build(read)
        except NotTold as error:
            unknown.append(f"shapes: {error}")
    architectures = config.get("architectures")
    architecture = _text(architectures[0]) if isinstance(architectures, list) and architectures else ""
    task: Task = family.task if family else "generate"
    if task == "generate" and (is_embedding or _is_pooling(architecture, named)):
        task = "embed"
    return _facts(
        read,
        shape,
        model_type=named,
        architecture=architecture,
        family=family.name if family else "",
        task=task,
        dtype=_dtype(config, text),
        quantization=read_quantization(config, quantization),
        parts=tuple(f"the part of `{name}`" for name in _OTHER_PARTS if isinstance(config.get(name), dict)),
        unknown=tuple(unknown),
        problems=tuple(_problems(text, architecture, named)),
        remote_code=_remote_code(config),
    )


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's own part. Tying is said by the whole where both say it (transformers 5)."""
    for name in _TEXT:
        inner = config.get(name)
        if isinstance(inner, dict) and inner:
            found = text_config(inner) if name == "thinker_config" else inner
            beside = {k: config[k] for k in ("tie_word_embeddings",) if isinstance(config.get(k), bool)}
            return {"model_type": config.get("model_type"), **found, **beside}
    return config


def _is_pooling(architecture: str, named: str) -> bool:
    """Whether the class has no head for tokens: `Qwen3Model`, but neither InternVLChatModel nor
    GPT2LMHeadModel.
    """
    if architecture.endswith(_POOLING):
        return True
    is_bare = architecture.endswith("Model") and not architecture.endswith("LMHeadModel")
    return is_bare and _folded(architecture).startswith(_folded(named.removesuffix("_text")))


def _context_tokens(read: Reading, named: str) -> int | None:
    """The longest sequence: rows of the table of positions, or what rotation was trained for."""
    rows = _size(read, "max_position_embeddings", "n_positions", "n_ctx", "max_seq_len")
    if rows is None or named not in _PADDED_POSITIONS:
        return rows
    padding = read.raw("pad_token_id")
    return rows - (padding if type(padding) is int and 0 <= padding < rows - 1 else 1) - 1 or None


def _unknown_family(named: str) -> str:
    if not named:
        return "unknown family: the config does not say `model_type`"
    near = [name for name in FAMILIES if name.partition("_")[0] == named.partition("_")[0]]
    hint = f"; of its kin there are rules for {', '.join(near)}" if near else ""
    return f"unknown family: no rule for `model_type` `{named}`{hint}"


def _facts(read: Reading, shape: Shape | None, **said: Any) -> ModelFacts:
    """Facts with what the rule gave, or with what the config says by itself."""
    parts: tuple[str, ...] = said.pop("parts")
    unknown: tuple[str, ...] = said.pop("unknown")
    common = {
        **said,
        "hidden_size": _size(read, "hidden_size", "n_embd") or 0,
        "context_tokens": _context_tokens(read, said["model_type"]),
        "rope": read_rope(read.config),
    }
    if shape is None:
        return ModelFacts(
            layers=_size(read, "num_hidden_layers", "n_layer") or 0,
            heads=_size(read, "num_attention_heads", "n_head"),
            kv_heads=_size(read, "num_key_value_heads"),
            head_dim=_size(read, "head_dim"),
            vocab_size=_size(read, "vocab_size"),
            intermediate_size=_size(read, "intermediate_size"),
            parts_left_out=parts,
            unknown=(*unknown, "parameters, KV cache and memory: they follow from the shapes"),
            **common,
        )
    heads = shape.heads
    return ModelFacts(
        layers=shape.layers,
        intermediate_size=shape.intermediate,
        heads=heads.heads if heads else None,
        kv_heads=(heads.kv_heads or None) if heads else None,
        head_dim=heads.head_dim if heads else None,
        vocab_size=shape.vocab,
        is_tied=shape.is_tied,
        experts=shape.experts,
        attention=tuple(one for one in shape.attention if one.layers),
        states=tuple(one for one in shape.states if one.layers),
        weights=tuple(one for one in shape.weights if one.count),
        parameters=sum(one.values for one in shape.weights),
        active_parameters=_active(shape),
        parts_left_out=(*parts, *shape.left_out),
        unknown=unknown,
        **common,
    )


def _size(read: Reading, *names: str) -> int | None:
    try:
        return read.size(*names, default=0) or None
    except NotTold:
        return None


def _active(shape: Shape) -> int:
    """Parameters that one token is multiplied with: a share of the experts, and no look-up table."""
    active = 0
    for one in shape.weights:
        if one.role in ("embedding", "position") and not (one.role == "embedding" and _is_head(shape)):
            continue
        if one.role == "expert" and shape.experts:
            active += one.values * shape.experts.per_token // shape.experts.count
        else:
            active += one.values
    return active


def _is_head(shape: Shape) -> bool:
    """Whether the input embedding is the output head as well."""
    return shape.is_tied and any(one.role == "head" for one in shape.weights)


def _text(said: Any) -> str:
    return said[:120] if isinstance(said, str) else ""


def _dtype(config: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    for source in (text, config):
        for key in ("dtype", "torch_dtype"):
            found = _text(source.get(key)).removeprefix("torch.")
            if found:
                return found
    return ""


def read_rope(config: Mapping[str, Any]) -> Rope | None:
    """The rotation of positions: `rope_parameters` of transformers 5, for all layers or for each kind of
    layer (that of full attention counts), or `rope_theta` with `rope_scaling` of 4.
    """
    new = config.get("rope_parameters")
    if isinstance(new, dict) and isinstance(new.get("full_attention"), dict):
        new = new["full_attention"]
    new = new if isinstance(new, dict) else {}
    old = config.get("rope_scaling")
    old = old if isinstance(old, dict) else {}
    said = Reading({**old, **new})
    theta = said.number("rope_theta") or Reading(config).number("rope_theta", "rotary_emb_base")
    if theta is None and not old and not new:
        return None
    original = said.raw("original_max_position_embeddings")
    return Rope(
        theta=theta,
        kind=said.text("rope_type", "type") or "default",
        factor=said.number("factor"),
        original_context_tokens=original if type(original) is int and original > 0 else None,
    )


def _remote_code(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Modules that `auto_map` names: code of the checkpoint, run only with `--trust-remote-code`."""
    said = config.get("auto_map")
    if not isinstance(said, dict):
        return ()
    named = {
        one.rpartition(".")[0][:120] + ".py" for one in said.values() if isinstance(one, str) and "." in one
    }
    return tuple(sorted(named)[:20])


def _problems(text: Mapping[str, Any], architecture: str, named: str) -> list[str]:
    """What a config says against itself. A head of another width than hidden / heads is none (Qwen3)."""
    found: list[str] = []
    folded = {_folded(name): name for name in FAMILIES}
    arch = _folded(architecture.partition("For")[0]) if "For" in architecture else ""
    own = _folded(named.removesuffix("_text"))
    if arch in folded and arch != own and own in folded and (own, arch) not in _SHARED_CODE:
        found.append(
            f"`architectures` says {architecture}, `model_type` says `{named}`: one of them was edited;"
            " the weights decide, and an engine picks its code by `architectures`"
        )
    scaling, parameters = text.get("rope_scaling"), text.get("rope_parameters")
    if isinstance(scaling, dict) and isinstance(parameters, dict) and _differ(scaling, parameters):
        found.append("`rope_scaling` and `rope_parameters` disagree: which one counts depends on the engine")
    return found


def _differ(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return any(key in new and new[key] != value for key, value in old.items() if not isinstance(value, dict))


def _folded(name: str) -> str:
    return "".join(char for char in name.casefold() if char.isalnum())
