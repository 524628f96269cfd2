"""Facts of configs in their old and new forms, and what a config says against itself."""

import json
from pathlib import Path
from typing import Any

import pytest

from optimize.config import read_config, read_rope
from optimize.model import Rope

FOLDER = Path(__file__).parent.parent / "data" / "models"


def config(name: str, **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return {**found, **changes}


def test_qwen3_has_its_own_head_width() -> None:
    facts = read_config(config("Qwen3-0.6B"))
    # 1024 / 16 is 64, but the heads are 128 wide; hidden 896 and context 32768 are of other models
    assert (facts.hidden_size, facts.heads, facts.kv_heads, facts.head_dim) == (1024, 16, 8, 128)
    assert facts.context_tokens == 40960
    assert facts.is_tied is True
    assert facts.rope == Rope(theta=1e6)


def test_rope_in_both_forms() -> None:
    old = {
        "rope_theta": 5e5,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192},
    }
    new = {
        "rope_parameters": {
            "rope_theta": 5e5,
            "rope_type": "llama3",
            "factor": 8.0,
            "original_max_position_embeddings": 8192,
        }
    }
    by_kind = {
        "rope_parameters": {
            "full_attention": new["rope_parameters"],
            "sliding_attention": {"rope_theta": 1e4},
        }
    }
    wanted = Rope(theta=5e5, kind="llama3", factor=8.0, original_context_tokens=8192)
    assert read_rope(old) == read_rope(new) == read_rope(by_kind) == wanted
    assert read_rope({"rope_scaling": {"type": "yarn", "factor": 40}, "rope_theta": 1e4}) == Rope(
        theta=1e4, kind="yarn", factor=40
    )
    assert read_rope({}) is None


def test_unknown_family_is_named_and_gives_no_number() -> None:
    facts = read_config({"model_type": "deepseek_v9", "hidden_size": 64, "num_hidden_layers": 2})
    assert facts.parameters is None
    assert facts.family == ""
    assert facts.hidden_size == 64
    assert "no rule for `model_type` `deepseek_v9`" in facts.unknown[0]
    assert "deepseek_v3" in facts.unknown[0]
    assert "does not say `model_type`" in read_config({}).unknown[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": None}, "does not say `hidden_size`"),
        ({"num_hidden_layers": 0}, "`num_hidden_layers` is 0"),
        ({"num_hidden_layers": "28"}, "which is no size"),
        ({"num_hidden_layers": True}, "which is no size"),
        ({"num_hidden_layers": 10**6}, "`num_hidden_layers` is 1000000"),
        ({"vocab_size": -1}, "which is no size"),
        ({"vocab_size": 2**63}, "which is no size"),
        ({"num_key_value_heads": 5}, "no multiple of `num_key_value_heads` 5"),
        ({"num_key_value_heads": 32}, "no multiple of `num_key_value_heads` 32"),
    ],
)
def test_what_cannot_be_meant_is_not_counted(change: dict[str, Any], words: str) -> None:
    facts = read_config(config("Qwen3-0.6B", **change))
    assert facts.parameters is None
    assert words in facts.unknown[0]


def test_a_width_that_does_not_divide() -> None:
    facts = read_config(config("Meta-Llama-3.1-8B", hidden_size=4000))
    assert (
        facts.parameters
        == read_config(config("Meta-Llama-3.1-8B", hidden_size=4000, head_dim=125)).parameters
    )
    facts = read_config(config("Meta-Llama-3.1-8B", hidden_size=4001))
    assert "`hidden_size` 4001 is no multiple of `num_attention_heads` 32" in facts.unknown[0]


def test_layer_types_that_do_not_match_the_layers() -> None:
    facts = read_config(config("gpt-oss-20b", num_hidden_layers=23))
    assert "`layer_types` lists 24 layers, `num_hidden_layers` says 23" in facts.unknown[0]
    facts = read_config(config("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", hybrid_override_pattern="MEX*"))
    assert "layer kind 'X'" in facts.unknown[0]


def test_an_edited_architecture_is_told() -> None:
    facts = read_config(config("Qwen3-0.6B", architectures=["Qwen2ForCausalLM"]))
    assert "`architectures` says Qwen2ForCausalLM, `model_type` says `qwen3`" in facts.problems[0]
    for name in (
        "Qwen3-0.6B",
        "DeepSeek-R1",
        "Qwen3-VL-4B-Instruct",
        "gemma-3-4b-it",
        "GLM-5",
        "Llama-4-Scout-17B-16E-Instruct",
    ):
        assert read_config(config(name)).problems == ()
    kimi = config("DeepSeek-V3", model_type="kimi_k2")
    assert read_config(kimi).problems == ()


def test_two_rotations_that_disagree() -> None:
    facts = read_config(
        config("Qwen3-0.6B", rope_scaling={"factor": 4.0}, rope_parameters={"factor": 2.0, "rope_theta": 1e6})
    )
    assert "disagree" in facts.problems[0]


def test_attention_groups() -> None:
    groups = {g.kind: g for g in read_config(config("gpt-oss-20b")).attention}
    assert (groups["sliding"].layers, groups["sliding"].window_tokens) == (12, 128)
    assert (groups["full"].layers, groups["full"].window_tokens) == (12, 0)
    scout = {g.kind: g for g in read_config(config("Llama-4-Scout-17B-16E-Instruct")).attention}
    assert (scout["chunked"].layers, scout["chunked"].window_tokens, scout["full"].layers) == (36, 8192, 12)
    gemma = {g.kind: g for g in read_config(config("gemma-3-4b-it")).attention}
    assert (gemma["sliding"].layers, gemma["full"].layers) == (29, 5)
    latent = read_config(config("DeepSeek-V3")).attention
    assert [(g.kind, g.latent_dim, g.rope_dim, g.index_dim) for g in latent] == [("mla", 512, 64, 0)]
    shared = read_config(config("GLM-5.2")).attention
    assert [(g.layers, g.index_dim) for g in shared] == [(21, 128), (57, 0)]
    mimo = {g.kind: g for g in read_config(config("MiMo-V2-Flash")).attention}
    assert (mimo["full"].kv_heads, mimo["full"].head_dim, mimo["full"].v_head_dim) == (4, 192, 128)
    bert = read_config(config("bert-base-uncased"))
    assert bert.task == "encoder"
    assert [g.kind for g in bert.attention] == ["bidirectional"]


def test_sliding_window_that_is_switched_off() -> None:
    # Qwen2.5 configs have a window and `use_sliding_window` false
    assert [g.kind for g in read_config(config("Qwen2.5-7B")).attention] == ["full"]
    on = read_config(config("Qwen2.5-7B", use_sliding_window=True, max_window_layers=20))
    assert {g.kind: g.layers for g in on.attention} == {"full": 20, "sliding": 8}


def test_embedding_and_pooling() -> None:
    assert read_config(config("Qwen3-Embedding-0.6B"), is_embedding=True).task == "embed"
    assert read_config(config("Qwen3-0.6B")).task == "generate"
    reward = config("Qwen3-0.6B", architectures=["Qwen3ForSequenceClassification"])
    assert read_config(reward).task == "embed"


def test_parts_and_code() -> None:
    facts = read_config(config("Qwen3.5-35B-A3B"))
    assert facts.parts_left_out == ("the part of `vision_config`", "1 next-token draft layer(s)")
    facts = read_config(config("MiniMax-M2.5"))
    assert facts.remote_code == ("configuration_minimax_m2.py", "modeling_minimax_m2.py")


def test_tying_is_said_by_the_whole() -> None:
    inner = config("Qwen3.5-35B-A3B")
    assert read_config(inner).is_tied is False
    assert read_config({**inner, "tie_word_embeddings": True}).is_tied is True


@pytest.mark.parametrize(
    ("name", "width"),
    [("Qwen3-0.6B", 128), ("Qwen3.5-27B", 256), ("Qwen3-30B-A3B", 64), ("Meta-Llama-3.1-8B", 128)],
)
def test_a_head_width_that_is_left_out_is_the_class_default(name: str, width: int) -> None:
    """In transformers 5.24.0: 128 for Qwen3, 256 for Qwen3.5, hidden / heads for the others."""
    found = config(name)
    text = found.get("text_config", found)
    text.pop("head_dim", None)
    assert read_config(found).head_dim == width


def test_a_query_rank_that_is_null_or_left_out() -> None:
    """Null means a plain projection; left out, transformers would take a rank of 1536."""
    lite = config("DeepSeek-V2-Lite")
    assert lite["q_lora_rank"] is None
    assert read_config(lite).parameters == 15_706_484_224
    del lite["q_lora_rank"]
    assert "does not say `q_lora_rank`" in read_config(lite).unknown[0]


def test_states() -> None:
    (state,) = read_config(config("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")).states
    # conv 64 x 64 + 2 x 8 x 128 channels x 3, recurrent 64 x 64 x 128, in float32 as the config says
    assert (state.layers, state.conv_values, state.recurrent_values, state.recurrent_bytes) == (
        23,
        18432,
        524288,
        4,
    )
    (delta,) = read_config(config("Qwen3-Next-80B-A3B")).states
    # 2 x 16 x 128 + 32 x 128 channels x 3; 32 x 128 x 128
    assert (delta.layers, delta.conv_values, delta.recurrent_values) == (36, 24576, 524288)


@pytest.mark.parametrize("odd", [[], "x", 3, None, {"a": 1}, [None], 1e400])
def test_hostile_values_raise_nothing(odd: Any) -> None:
    for name in (
        "Qwen3-0.6B",
        "DeepSeek-V3.2",
        "gemma-4-26B-A4B",
        "Qwen3.5-27B",
        "Jamba-v0.1",
        "Nemotron-H-56B-Base-8K",
    ):
        whole = config(name)
        for key in whole:
            read_config({**whole, key: odd})


@pytest.mark.parametrize(
    ("model", "architecture", "task"),
    [
        ("Qwen2.5-7B", "InternVLChatModel", "generate"),  # its language model is Qwen2, it is no Qwen2Model
        ("Qwen2.5-7B", "Qwen2Model", "embed"),
        ("Meta-Llama-3.1-8B", "LlamaBidirectionalModel", "embed"),
        ("Meta-Llama-3.1-8B", "LlamaLMHeadModel", "generate"),
        ("Qwen3-0.6B", "Qwen3ForSequenceClassification", "embed"),
    ],
)
def test_a_class_without_a_head_is_for_embeddings(model: str, architecture: str, task: str) -> None:
    assert read_config(config(model, architectures=[architecture])).task == task


@pytest.mark.parametrize(("padding", "tokens"), [(1, 8192), (None, 8192), (0, 8193), ("x", 8192)])
def test_positions_of_roberta_begin_behind_the_padding(padding: Any, tokens: int) -> None:
    # bge-m3 has 8194 rows of positions and takes 8192 tokens
    facts = read_config(config("roberta", max_position_embeddings=8194, pad_token_id=padding))
    assert facts.context_tokens == tokens
