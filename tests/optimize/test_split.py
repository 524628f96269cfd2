"""What divides over GPUs, and what an engine would refuse."""

import pytest

from doctor.core.serving import Split
from optimize.split import splits, tensor_problem
from tests.optimize import shelf


@pytest.mark.parametrize(
    ("config", "tensor", "words"),
    [
        (shelf.LLAMA_31_8B, 8, ""),
        (shelf.LLAMA_31_8B, 16, ""),  # 8 KV heads, each on two
        (shelf.LLAMA_31_8B, 3, "32 query heads do not divide over 3"),
        # vLLM: The output_size of gate's and up's weight = 192 is not divisible by …
        (shelf.QWEN3_235B_FP8, 8, "leave 192 each: no multiple of the 128"),
        (shelf.QWEN3_235B_FP8, 4, ""),
        (shelf.QWEN3_235B, 8, ""),  # without scales 192 is a width like any other
        (shelf.DEEPSEEK_V3, 8, ""),  # 2048 / 8 = 256, two blocks
        (shelf.DEEPSEEK_V3, 16, ""),  # 128, one
        (shelf.DEEPSEEK_V3, 32, "leave 576 each"),
        (shelf.QWEN25_7B_AWQ, 4, ""),  # 18944 / 4 = 4736 = 37 x 128
        (shelf.QWEN25_7B_AWQ, 7, "4 KV heads neither divide over 7 GPUs nor repeat evenly"),
        (shelf.QWEN25_7B_AWQ, 8, "28 query heads"),
        (shelf.GEMMA_3_1B, 8, "4 query heads"),
        (shelf.GPT_OSS_120B, 8, ""),  # vLLM pads 360 itself
    ],
)
def test_tensor_problem(config, tensor, words):
    problem = tensor_problem(shelf.facts(config), tensor)
    assert words in problem
    assert bool(problem) == bool(words)


def test_groups_of_int4_are_not_cut():
    # Qwen2.5-72B-AWQ: 29568 columns of `down_proj` over 8 are 3696, 28.875 groups of 128.
    config = {**shelf.QWEN25_7B_AWQ, "num_attention_heads": 64, "num_key_value_heads": 8}
    config |= {"hidden_size": 8192, "intermediate_size": 29568}
    problem = tensor_problem(shelf.facts(config), 8)
    assert "3696" in problem
    assert "down_proj" in problem


def test_whole_experts_cut_no_scales():
    facts = shelf.facts(shelf.QWEN3_235B_FP8)
    assert tensor_problem(facts, 8, is_expert_parallel=True) == ""
    assert Split(tensor=8, is_expert_parallel=True) in splits(facts, 8)


def test_fewest_gpus_come_first_and_tensor_before_pipeline():
    found = splits(shelf.facts(shelf.LLAMA_31_8B), 16)
    assert [one.gpus for one in found] == sorted(one.gpus for one in found)
    assert found[:3] == (Split(tensor=1), Split(tensor=2), Split(tensor=1, pipeline=2))
    assert Split(tensor=8, pipeline=2) in found
    assert max(one.tensor for one in found) == 8  # a board


def test_a_count_of_its_own_is_tried_too():
    assert Split(tensor=1, pipeline=3) in splits(shelf.facts(shelf.LLAMA_31_8B), 3)
    assert {one.gpus for one in splits(shelf.facts(shelf.LLAMA_31_8B), 7)} == {1, 2, 4, 7}
