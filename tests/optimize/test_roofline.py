"""Floors of speed by hand, and against what was measured on an H200."""

import json
from pathlib import Path

import pytest

from doctor.edition.load import load_matrix
from optimize.config import read_config
from optimize.model import ModelFacts
from optimize.roofline import (
    Rates,
    crossing_batch,
    decode_floor,
    efficiency,
    prefill_floor,
    rates_of,
)

FOLDER = Path(__file__).parent.parent / "data" / "models"
EDITION = load_matrix().edition
H200 = ("10de:2335", "hopper", "HBM3e")


def facts(name: str) -> ModelFacts:
    return read_config(json.loads((FOLDER / f"{name}.json").read_text()))


def rates(memory: float = 1e12, flops: float = 1e15) -> Rates:
    return Rates(
        gpu="x",
        memory_bytes_per_s=memory,
        flop_per_s=flops,
        precision="bf16",
        is_measured=True,
        because=(),
        source=(),
    )


def test_decode_of_one_sequence_reads_weights_and_cache() -> None:
    qwen = facts("Qwen3-8B")
    found = decode_floor(qwen, rates(), batch=1, context_tokens=1024)
    assert found is not None
    # all weights but the input embedding, and 1024 tokens of cache
    assert found.read_bytes == 16_381_470_720 - 2 * 151936 * 4096 + 1024 * 147456
    assert found.bound == "memory"
    assert found.time_s == pytest.approx(found.read_bytes / 1e12)
    assert found.tok_per_s == pytest.approx(1 / found.time_s)
    # two operations a weight, and 4 H d a token of context and layer
    assert found.operations == 2 * (8_190_735_360 - 151936 * 4096) + 4 * 36 * 32 * 128 * 1024


def test_tied_embeddings_are_read_as_the_head() -> None:
    found = decode_floor(facts("Qwen3-0.6B"), rates(), batch=1, context_tokens=16)
    assert found is not None
    assert found.read_bytes == 2 * 596_049_920 + 16 * 114688


def test_datasheet_figures_of_the_research() -> None:
    """Qwen3-8B in bf16 at a context of 1024, by datasheet bandwidth: H200 314 and L4 20 tokens/s at 1."""
    for bandwidth, one, many in ((4.8e12, 314, 12387), (300e9, 20, 774), (3.35e12, 219, 8645)):
        single = decode_floor(facts("Qwen3-8B"), rates(bandwidth, 1e18), batch=1, context_tokens=1024)
        batch = decode_floor(facts("Qwen3-8B"), rates(bandwidth, 1e18), batch=64, context_tokens=1024)
        assert single is not None
        assert batch is not None
        # those figures count the input embedding as read, 7.6 % of the weights
        assert single.tok_per_s == pytest.approx(one, rel=0.09)
        assert batch.tok_per_s == pytest.approx(many, rel=0.09)


def test_few_tokens_meet_few_experts() -> None:
    mixtral = facts("Mixtral-8x7B-v0.1")  # 8 experts, 2 a token
    one = decode_floor(mixtral, rates(), batch=1, context_tokens=16)
    many = decode_floor(mixtral, rates(), batch=200, context_tokens=16)
    assert one is not None
    assert many is not None
    kept = 16 * 131072
    # one token reads what is active, many read all
    assert one.read_bytes - kept == pytest.approx(2 * mixtral.active_parameters, rel=1e-6)  # type: ignore[operator]
    assert many.read_bytes - 200 * kept == pytest.approx(2 * (46_702_792_704 - 32000 * 4096), rel=1e-6)


def test_gpus_share_the_work() -> None:
    one = decode_floor(facts("Qwen3-8B"), rates(), batch=8, context_tokens=1024)
    two = decode_floor(facts("Qwen3-8B"), rates(), batch=8, context_tokens=1024, gpus=2)
    assert one is not None
    assert two is not None
    assert two.time_s == pytest.approx(one.time_s / 2)


def test_prefill_is_arithmetic() -> None:
    qwen = facts("Qwen3-8B")
    found = prefill_floor(qwen, rates(), prompt_tokens=4096)
    assert found is not None
    assert found.bound == "arithmetic"
    head = 151936 * 4096
    body = 8_190_735_360 - 2 * head
    # the head for one token alone; half of the square is attended: 2 L H d n^2
    assert found.operations == 4096 * 2 * body + 2 * 36 * 32 * 128 * 4096**2 + 2 * head


def test_where_memory_and_arithmetic_cross() -> None:
    # a dense model in 16 bits: F / W for two bytes and two operations a weight
    assert crossing_batch(facts("Qwen3-8B"), rates(1e12, 2.5e14)) == 250
    # of experts each token meets few: it takes more tokens
    dense, sparse = (
        crossing_batch(facts("Qwen3-8B"), rates()),
        crossing_batch(facts("Qwen3-30B-A3B"), rates()),
    )
    assert dense is not None
    assert sparse is not None
    assert sparse > 5 * dense


def test_rates_of_an_h200() -> None:
    low = rates_of(EDITION, *H200)
    assert low is not None
    assert low.memory_bytes_per_s == pytest.approx(0.9 * 4.8e12)
    assert low.flop_per_s == pytest.approx(0.75 * 989e12)
    found = rates_of(EDITION, *H200, end="high")
    assert found is not None
    assert found.memory_bytes_per_s == pytest.approx(0.95 * 4.8e12)
    assert found.flop_per_s == pytest.approx(0.85 * 989e12)
    assert found.source
    fp8 = rates_of(EDITION, *H200, "fp8")
    assert fp8 is not None
    assert (fp8.flop_per_s, fp8.is_measured) == (1453.4e12, True)
    assert rates_of(EDITION, *H200, "fp4") is None
    assert rates_of(EDITION, "10de:ffff", "hopper", "HBM3") is None
    assert rates_of(EDITION, "10de:1eb8", "turing", "GDDR6") is None  # no arithmetic is known of a T4
    # of Ada no share of the datasheet was measured, and that is said
    l4 = rates_of(EDITION, "10de:27b8", "ada", "GDDR6", end="high")
    assert l4 is not None
    assert "the highest of other architectures" in l4.because[1]


def test_measured_speed_is_below_the_floor() -> None:
    """vLLM 0.26 on an H200, 8B in bf16, one sequence: 5.21 ms a token."""
    found = rates_of(EDITION, *H200, end="high")
    assert found is not None
    floor = decode_floor(facts("Qwen3-8B"), found, batch=1, context_tokens=576)
    assert floor is not None
    share, problem = efficiency(floor, 5.21e-3)
    assert 0.6 < share < 0.9
    assert problem == ""


def test_what_an_h200_was_seen_to_reach_is_no_error() -> None:
    """788 TFLOPS in a matrix product, 4.286 TB/s in a copy: neither passes the rates of a floor."""
    found = rates_of(EDITION, *H200, end="high")
    assert found is not None
    assert found.flop_per_s > 798e12
    assert found.memory_bytes_per_s > 4.3e12


def test_faster_than_the_floor_is_an_error() -> None:
    floor = decode_floor(facts("Qwen3-8B"), rates(), batch=1, context_tokens=1024)
    assert floor is not None
    assert efficiency(floor, floor.time_s / 1.04)[1] == ""
    share, problem = efficiency(floor, floor.time_s / 1.2)
    assert share == pytest.approx(1.2)
    assert "1.20 times as fast" in problem
    assert "none" in efficiency(floor, 0)[1]


def test_unknown_gives_no_floor() -> None:
    unknown = read_config({"model_type": "nobody"})
    assert decode_floor(unknown, rates(), batch=1, context_tokens=1) is None
    assert prefill_floor(unknown, rates(), prompt_tokens=1) is None
    assert crossing_batch(unknown, rates()) is None
