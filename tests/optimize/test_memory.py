"""Memory arithmetic, by hand from the config in the comment at each number."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimize.config import read_config
from optimize.memory import (
    GIB,
    gpu_weight_bytes,
    kv_bytes_per_sequence,
    kv_bytes_per_token,
    plan_memory,
    sequences_that_fit,
    state_bytes_per_sequence,
    usable_bytes,
    weight_bytes,
)
from optimize.model import ModelFacts

FOLDER = Path(__file__).parent.parent / "data" / "models"


def facts(name: str, **changes: Any) -> ModelFacts:
    config = json.loads((FOLDER / f"{name}.json").read_text())
    # defaults of a class do not say a dtype
    dtype = (
        {} if {"dtype", "torch_dtype"} & {*config, *config.get("text_config", {})} else {"dtype": "bfloat16"}
    )
    return read_config({**config, **dtype, **changes})


LLAMA = facts("Meta-Llama-3.1-8B")


def test_kv_by_dtype() -> None:
    # 32 layers x 8 heads x 256 values
    assert kv_bytes_per_token(LLAMA, "bfloat16") == 131072
    assert kv_bytes_per_token(LLAMA, "fp8") == 65536
    assert kv_bytes_per_token(LLAMA, "nvfp4") == 36864  # 4 bits and an eighth of a byte for 16
    with pytest.raises(KeyError):
        kv_bytes_per_token(LLAMA, "int3")


def test_kv_over_gpus_is_replicated_beyond_its_heads() -> None:
    assert [kv_bytes_per_token(LLAMA, tensor=t) for t in (1, 2, 4, 8, 16)] == [
        131072,
        65536,
        32768,
        16384,
        16384,
    ]
    assert kv_bytes_per_token(LLAMA, pipeline=2) == 65536
    glm = facts("glm-4-9b-chat")  # 2 KV heads
    assert [kv_bytes_per_token(glm, tensor=t) for t in (1, 2, 4, 8)] == [40960, 20480, 20480, 20480]


def test_latent_rows_are_on_every_gpu() -> None:
    deepseek = facts("DeepSeek-V3")
    assert [kv_bytes_per_token(deepseek, tensor=t) for t in (1, 8)] == [70272, 70272]
    assert kv_bytes_per_token(deepseek, "fp8") == 35136
    # sparse: rows of 656 bytes (512 in FP8, 4 scales, 64 in 16 bits), and the indexer's own keys, which stay
    # as they are: 61 x (656 + 132)
    assert kv_bytes_per_token(facts("DeepSeek-V3.2"), "fp8") == 48068


def test_kv_of_a_sequence_is_in_blocks() -> None:
    assert kv_bytes_per_sequence(LLAMA, 1) == 16 * 131072
    assert kv_bytes_per_sequence(LLAMA, 16) == 16 * 131072
    assert kv_bytes_per_sequence(LLAMA, 17) == 32 * 131072
    # 40,960 tokens of Qwen3-0.6B are 4.375 GiB
    assert kv_bytes_per_sequence(facts("Qwen3-0.6B"), 40960) == 40960 * 114688


def test_a_window_keeps_its_width() -> None:
    oss = facts("gpt-oss-20b")  # 12 sliding layers of 128, 12 full; 2048 bytes a token and layer
    # 128 tokens are 8 blocks, and a window that begins inside one holds a ninth
    assert kv_bytes_per_sequence(oss, 8192) == 12 * 2048 * 8192 + 12 * 2048 * 144
    assert kv_bytes_per_sequence(oss, 8192, has_window_cache=False) == 24 * 2048 * 8192
    # while a prompt is computed, 2048 at once: 127 + 2048 tokens
    assert kv_bytes_per_sequence(oss, 8192, step_tokens=2048) == 12 * 2048 * 8192 + 12 * 2048 * 2192
    assert kv_bytes_per_sequence(oss, 64) == 24 * 2048 * 80 - 12 * 2048 * 16


def test_states_cost_per_sequence() -> None:
    nano = facts("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
    # 23 x (18,432 conv values x 2 + 524,288 x 4)
    assert state_bytes_per_sequence(nano) == 49_082_368
    assert state_bytes_per_sequence(nano, tensor=2) == 24_541_184
    assert kv_bytes_per_sequence(nano, 1600) == 1600 * 6144
    assert state_bytes_per_sequence(LLAMA) == 0


def test_weights_by_quantization() -> None:
    assert weight_bytes(LLAMA) == 2 * 8_030_261_248
    # FP8 with a scale a tensor: linear layers 1 byte, embedding and head 2
    fp8 = {"quant_method": "fp8", "activation_scheme": "static"}
    head = 128256 * 4096
    norms = 65 * 4096
    linear = 8_030_261_248 - 2 * head - norms
    assert weight_bytes(facts("Meta-Llama-3.1-8B", quantization_config=fp8)) == linear + 2 * (
        2 * head + norms
    )
    # AWQ of 4 bits, group 128: 0.5 byte, and (16 + 4) bits of scale and zero for 128
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128}
    assert weight_bytes(facts("Meta-Llama-3.1-8B", quantization_config=awq)) == linear * (
        4 + 20 / 128
    ) / 8 + 2 * (2 * head + norms)


def test_weights_that_a_config_does_not_tell() -> None:
    mixed = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}
    unknown = facts("Meta-Llama-3.1-8B", quantization_config=mixed)
    assert weight_bytes(unknown) is None
    assert gpu_weight_bytes(unknown) is None
    assert plan_memory(unknown, gpu_bytes=80 * GIB, context_tokens=4096) is None
    # what the files hold is known all the same
    assert gpu_weight_bytes(unknown, stored_bytes=8_000_000_000) == 8_000_000_000
    halves = gpu_weight_bytes(unknown, tensor=2, stored_bytes=8_000_000_000)
    assert halves is not None
    assert 4_000_000_000 <= halves < 4_010_000_000
    # nor is anything counted without a dtype
    assert weight_bytes(facts("Meta-Llama-3.1-8B", torch_dtype=None)) is None


def test_weights_over_gpus() -> None:
    # norms on every GPU (65 x 4096 values), the rest divided
    assert gpu_weight_bytes(LLAMA, tensor=2) == 2 * ((8_030_261_248 - 65 * 4096) // 2 + 65 * 4096)
    # 151,669 rows are padded to 151,680, a multiple of 64
    odd = facts("Qwen3-Embedding-0.6B")
    whole, half = gpu_weight_bytes(odd, tensor=1), gpu_weight_bytes(odd, tensor=2)
    assert whole == 2 * 595_776_512
    norms = 28 * (2 * 1024 + 2 * 128) + 1024
    rest = 595_776_512 - 151_669 * 1024 - norms
    assert half == 2 * (151_680 * 1024 // 2 + rest // 2 + norms)
    # KV projections of 2 heads are whole on each of 4 GPUs
    glm = facts("glm-4-9b-chat")
    quarter = gpu_weight_bytes(glm, tensor=4)
    assert quarter is not None
    assert quarter > 2 * 9_399_951_360 / 4 + 40 * 2 * (2 * 256 * 4096) / 4 - 1


def test_stages_of_a_pipeline() -> None:
    # 16 of 32 layers and the embedding; the last stage has as much: head and norm
    table = 128256 * 4096
    layers = 8_030_261_248 - 2 * table - 4096
    assert gpu_weight_bytes(LLAMA, pipeline=2) == 2 * (layers // 2 + table + 4096)
    # a tied head is on the first stage and on the last
    qwen = facts("Qwen3-0.6B")
    table = 151936 * 1024
    assert gpu_weight_bytes(qwen, pipeline=2) == 2 * ((596_049_920 - table - 1024) // 2 + table + 1024)


@pytest.mark.parametrize(
    ("memory_gb", "kind", "ecc", "mib"),
    [
        (16, "GDDR6", True, 15360),  # T4
        (24, "GDDR6", True, 23034),  # L4
        (48, "GDDR6", True, 46068),  # L40S
        (96, "GDDR7", True, 97887),  # RTX PRO 6000
        (80, "HBM3", True, 81559),  # H100
        (141, "HBM3e", True, 143771),  # H200
        (24, "GDDR6X", False, 24564),  # RTX 4090
    ],
)
def test_what_a_driver_reports(memory_gb: float, kind: str, ecc: bool, mib: int) -> None:
    assert usable_bytes(memory_gb, kind, ecc=ecc) / 1024**2 == pytest.approx(mib, rel=0.006)


def test_a_plan_adds_up() -> None:
    plan = plan_memory(LLAMA, gpu_bytes=80 * GIB, context_tokens=8192, sequences=16)
    assert plan is not None
    assert plan.needed_bytes == sum(one.bytes for one in plan.components)
    assert plan.budget_bytes - plan.needed_bytes == plan.free_bytes
    assert plan.fits
    kv = next(one for one in plan.components if one.name == "kv_cache")
    assert kv.bytes == 16 * GIB  # 16 x 8192 x 131,072
    assert all(one.low_bytes <= one.bytes <= one.high_bytes and one.because for one in plan.components)
    assert plan.most_sequences is not None
    assert plan.most_sequences > 16
    assert sequences_that_fit(LLAMA, plan, 8192) == plan.most_sequences


def test_a_plan_that_does_not_fit_says_by_how_much() -> None:
    plan = plan_memory(LLAMA, gpu_bytes=16 * GIB, context_tokens=131072)
    assert plan is not None
    assert not plan.fits
    assert plan.is_certain
    assert plan.short_bytes == plan.needed_bytes - plan.budget_bytes
    assert (plan.free_bytes, plan.most_sequences, plan.longest_tokens) == (0, 0, 0)


def test_an_encoder_keeps_no_cache() -> None:
    plan = plan_memory(facts("bert-base-uncased"), gpu_bytes=16 * GIB, context_tokens=512, sequences=64)
    assert plan is not None
    assert (plan.most_sequences, plan.longest_tokens) == (None, None)
    assert {one.name for one in plan.components if one.bytes} == {"weights", "activations", "context"}


def test_eager_has_no_graphs_and_several_gpus_talk() -> None:
    def names(**asked: Any) -> set[str]:
        plan = plan_memory(LLAMA, gpu_bytes=80 * GIB, context_tokens=4096, **asked)
        assert plan is not None
        return {one.name for one in plan.components}

    assert "graphs" in names()
    assert "graphs" not in names(is_eager=True)
    assert "communication" not in names()
    assert "communication" in names(tensor=2)


MODELS = [
    facts(name) for name in ("Meta-Llama-3.1-8B", "gpt-oss-20b", "DeepSeek-V3", "Jamba-v0.1", "Qwen3.5-27B")
]


@given(
    st.sampled_from(MODELS),
    st.integers(1, 200_000),
    st.integers(1, 64),
    st.sampled_from([1, 2, 4, 8]),
    st.integers(16, 2000),
)
@settings(max_examples=80, deadline=None)
def test_answers_of_a_plan_agree_with_plans(
    model: ModelFacts, tokens: int, many: int, tensor: int, gib: int
) -> None:
    """The greatest number and length that a plan names fit, and one more or one block more do not."""

    def plan(tokens: int, many: int) -> Any:
        found = plan_memory(
            model, gpu_bytes=gib * GIB, context_tokens=tokens, sequences=many, tensor=tensor, max_sequences=64
        )
        assert found is not None
        return found

    said = plan(tokens, many)
    if said.most_sequences:
        assert plan(tokens, said.most_sequences).fits
        assert not plan(tokens, said.most_sequences + 1).fits
    assert said.fits == (many <= said.most_sequences)
    if said.longest_tokens:
        assert plan(said.longest_tokens, many).fits
        assert not plan(said.longest_tokens + 1, many).fits


@given(
    st.sampled_from(MODELS),
    st.integers(1, 10_000),
    st.integers(0, 5000),
    st.sampled_from(["bfloat16", "fp8"]),
)
@settings(max_examples=60, deadline=None)
def test_more_tokens_never_cost_less(model: ModelFacts, tokens: int, more: int, dtype: str) -> None:
    assert kv_bytes_per_sequence(model, tokens, dtype) <= kv_bytes_per_sequence(model, tokens + more, dtype)
    assert kv_bytes_per_sequence(model, tokens, dtype, tensor=2) <= kv_bytes_per_sequence(
        model, tokens, dtype
    )


def test_facts_without_a_rule_give_no_memory() -> None:
    unknown = read_config({"model_type": "nobody", "hidden_size": 8})
    assert weight_bytes(unknown) is None
    assert plan_memory(unknown, gpu_bytes=GIB, context_tokens=1) is None
    assert msgspec.structs.replace(unknown, layers=3).attention == ()
