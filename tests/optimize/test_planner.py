"""Plans for real models on real GPUs. What each expects is derived by hand in its comment.

Sizes in GiB (2**30). A device: what is sold, less 1/16 for inline ECC of GDDR6, else half a percent; vLLM
0.33 takes 0.92 of it. Besides weights: 0.65 for the context, 0.6 for graphs, 0.38 for NCCL with several GPUs.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.core.serving import Ask, Beside, Gpu, Load, ServingPlan, Slo
from doctor.core.target import find_gpu
from doctor.core.versions import Pep440
from doctor.edition.load import load_matrix
from optimize.fit import room_of_card
from optimize.load_shape import parse_lengths
from optimize.planner import plan_serving
from optimize.split import tensor_problem
from tests.optimize import shelf

MATRIX = load_matrix(Path(__file__).parents[2] / "matrices")
GIB = 2**30


def gpu(text: str, **changes: Any) -> Gpu:
    kind = find_gpu(MATRIX, text)
    room = room_of_card(MATRIX.edition, kind.name, kind.pci_id, kind.architecture, kind.count)
    assert room is not None
    card = Gpu(
        name=kind.name,
        count=kind.count,
        architecture=kind.architecture,
        compute_capability=kind.compute_capability,
        pci_id=kind.pci_id,
        memory_type=room.memory_type,
        memory_bytes=room.bytes,
        memory_because="as sold",
    )
    return msgspec.structs.replace(card, **changes)


def load(prompt: str = "512", output: str = "128", **rest: Any) -> Load:
    return Load(prompt=parse_lengths(prompt), output=parse_lengths(output), **rest)


def plan(
    config: dict[str, Any], card: Gpu | str, asked: Load | None = None, *, embeds: bool = False, **ask: Any
):
    facts = shelf.facts(config, is_embedding=embeds)
    card = gpu(card) if isinstance(card, str) else card
    return plan_serving(MATRIX.edition, facts, card, Ask(path="/models/m", load=asked, **ask))


def value(one: ServingPlan, name: str) -> str:
    return next((s.value for s in one.settings if s.name == name), "")


def why(one: ServingPlan, name: str) -> str:
    return next(s.because for s in one.settings if s.name == name)


def argv(one: ServingPlan) -> str:
    return " ".join(one.commands[0].argv)


# --- it fits --------------------------------------------------------------------------------------


def test_llama_8b_on_an_l4():
    # 24 GiB less 1/16 are 22.5, of which 0.92 are 20.70. Weights 8,030,261,248 x 2 B = 14.957. A step of 2048
    # tokens: 2048 x 2 B x (2 x 14336 + 4096) = 0.125, logits 16 x 128256 x 10 B = 0.019. Left for the cache:
    # 20.70 - 14.957 - 0.144 - 0.65 - 0.6 = 4.349. A request: 640 x 131,072 B = 0.078125; 55 fit.
    one = plan(shelf.LLAMA_31_8B, "L4", load(concurrency=16))
    assert (one.verdict, one.exit_code) == ("fits", 0)
    assert (one.split.gpus, one.replicas, one.sequences) == (1, 1, 55)
    assert argv(one) == (
        "vllm serve /models/m --max-model-len 640 --max-num-seqs 16 --max-num-batched-tokens 2048"
    )
    assert one.commands[0].certainty == "read"
    assert value(one, "gpu-memory-utilization") == "0.92"


def test_llama_8b_on_an_l4_holds_no_hundred_at_once():
    # 55 fit, 100 are asked: two copies of 50 each on two GPUs; on one it is short.
    alone = plan(shelf.LLAMA_31_8B, "L4", load(concurrency=100))
    assert (alone.verdict, alone.exit_code) == ("does not fit", 1)
    assert "100 requests at once" in alone.short[0]
    assert any("KV cache in FP8" in text for text in alone.would)  # 110 at half the size
    assert any(text.startswith("2 such GPUs") for text in alone.would)
    both = plan(shelf.LLAMA_31_8B, "L4x2", load(concurrency=100))
    assert (both.verdict, both.replicas, both.split.gpus) == ("fits", 2, 1)
    assert value(both, "max-num-seqs") == "50"


def test_llama_8b_on_an_h100_takes_larger_steps():
    # 80 x 0.995 = 79.6 GiB are 70 and more, and it is no A100: 8192 tokens a step.
    one = plan(shelf.LLAMA_31_8B, "H100 SXM", load("128-4096", "256", concurrency=64))
    assert one.verdict == "fits"
    assert value(one, "max-model-len") == "4352"
    assert value(one, "max-num-batched-tokens") == "8192"
    assert value(one, "max-num-seqs") == "64"


def test_an_a100_with_as_much_memory_keeps_small_steps():
    one = plan(shelf.LLAMA_31_8B, "A100-SXM4-80GB", load(concurrency=64))
    assert value(one, "max-num-batched-tokens") == "2048"


def test_a_promise_for_each_token_cuts_the_steps():
    # L40S: 0.73 of 362 = 264 TFLOPS. A prompt token costs 2 x 6.98e9 operations and its attention: 8192 need
    # 430 ms and more, 512 about 28 ms, within the 50 ms that a token may take.
    one = plan(shelf.LLAMA_31_8B, "L40S", load("1024", "256", concurrency=8, slo=Slo(tpot_ms=50)))
    assert one.verdict == "fits"
    assert value(one, "max-num-batched-tokens") == "512"
    assert "50 ms" in why(one, "max-num-batched-tokens")
    assert value(one, "max-num-seqs") == "8"


def test_qwen3_06b_on_a_t4_computes_in_float16():
    # bfloat16 begins with 8.0; a T4 has 7.5. 596,049,920 x 2 B = 1.11, not 4.2 GB.
    one = plan(shelf.QWEN3_06B, "T4", load(concurrency=8))
    assert one.verdict == "fits"
    assert "--dtype float16" in argv(one)
    weights = next(part.bytes for part in one.memory.components if part.name == "weights")
    assert weights == 596_049_920 * 2
    assert [e.component for e in one.engines if e.standing == "not possible"] == ["tensorrt-llm", "tensorrt"]


def test_gemma_3_on_a_t4_computes_in_float32():
    # float16 overflows in it, and bfloat16 is not there: 999,885,952 x 4 B = 3.72.
    one = plan(shelf.GEMMA_3_1B, "T4", load(concurrency=8))
    assert "--dtype float32" in argv(one)
    weights = next(part.bytes for part in one.memory.components if part.name == "weights")
    assert weights == 999_885_952 * 4


def test_qwen3_235b_in_fp8_on_eight_h100():
    # 235.1e9 values, nearly all of one byte: 219 GiB and their scales. Four GPUs of 73.2 hold 55 each, and 8
    # would cut experts of 1536 into 192 rows, no multiple of 128. 1536 tokens a request: 94 layers x 2 x 1
    # KV head x 128 x 2 B = 48,128 B a token, 0.0689; (73.2 - 57.6) / 0.0689 is more than 200.
    one = plan(shelf.QWEN3_235B_FP8, "H100 SXMx8", load("1024", "512", concurrency=64))
    assert one.verdict == "fits"
    assert (one.split.tensor, one.split.pipeline, one.split.is_expert_parallel) == (4, 1, False)
    assert 200 < one.sequences < 240
    assert any("4 GPUs are left over" in note for note in one.notes)
    assert "--quantization" not in argv(one)


def test_qwen3_235b_over_eight_keeps_experts_whole():
    # At 64 GiB a device four do not hold it; over 8 the experts must not be cut.
    one = plan(shelf.QWEN3_235B_FP8, gpu("H100 SXMx8", memory_bytes=48 * GIB), load("1024", "512"))
    assert (one.split.tensor, one.split.is_expert_parallel) == (8, True)
    assert "--tensor-parallel-size 8 --enable-expert-parallel" in argv(one)


def test_deepseek_v3_on_eight_h200_but_not_h100():
    # 671.0e9 values, nearly all of one byte: 634 GiB over 8 are 79.3 each. H200: 141 x 0.995 x 0.92 = 129.1;
    # H100: 73.2. The latent row is kept whole on each GPU: 61 x 576 x 2 B = 70,272 B a token.
    asked = load("4096", "1024", concurrency=32)
    fits = plan(shelf.DEEPSEEK_V3, "H200 SXMx8", asked)
    assert (fits.verdict, fits.split.tensor, fits.split.is_expert_parallel) == ("fits", 8, False)
    # (129.07 - 79.29 - 1.12 - 0.65 - 0.6 - 0.38) GiB / (5120 x 70,272 B) = 140.2
    assert fits.sequences == 140
    less = plan(shelf.DEEPSEEK_V3, "H100 SXMx8", asked)
    assert less.verdict == "does not fit"
    # 79.29 + 1.12 + 0.65 + 0.6 + 0.38 + 0.34 - 73.23 = 9.1
    assert less.short[0].startswith("9.1 GiB are lacking")
    assert any(text.startswith("16 such GPUs") for text in less.would)
    assert any("H200" in text for text in less.would)


def test_gpt_oss_120b_on_one_h100():
    # MXFP4 experts at 4.25 bits: 60.8 GiB. Hopper has no FP4: weights only.
    one = plan(shelf.GPT_OSS_120B, "H100 SXM", load("1024", "512", concurrency=16))
    assert (one.verdict, one.split.gpus) == ("fits", 1)
    assert "weights only" in why(one, "quantization")
    weights = next(part.bytes for part in one.memory.components if part.name == "weights")
    assert 60 < weights / GIB < 62


def test_llama_70b_needs_more_than_one_a100():
    # 70,553,706,496 x 2 B = 131.4, twice 80: two hold 65.7 each of 73.2, and 1280 tokens cost 0.2 on each.
    alone = plan(shelf.LLAMA_31_70B, "A100-SXM4-80GB", load("1024", "256", concurrency=8))
    assert alone.verdict == "does not fit"
    assert any(text.startswith("2 such GPUs") for text in alone.would)
    two = plan(shelf.LLAMA_31_70B, "A100-SXM4-80GBx2", load("1024", "256", concurrency=8))
    assert (two.verdict, two.split.tensor) == ("fits", 2)
    assert "--tensor-parallel-size 2" in argv(two)


def test_awq_on_a_t4():
    # AWQ loads from 7.5 on; the model's own type is float16.
    one = plan(shelf.QWEN25_7B_AWQ, "T4", load(concurrency=8))
    assert one.verdict == "fits"
    assert "--dtype" not in argv(one)
    assert "7.5" in why(one, "quantization")


def test_an_embedding_model_is_pooled():
    one = plan(shelf.QWEN3_EMBEDDING_06B, "L4", load("256", "1", concurrency=64), embeds=True)
    assert one.verdict == "fits"
    assert argv(one).startswith("vllm serve /models/m --runner pooling")
    assert value(one, "max-model-len") == "256"
    assert "TensorRT only builds" in one.engines[0].because[0]


def test_an_encoder_has_no_cache_and_loads_in_half_precision():
    # 335,141,888 x 2 B = 0.62 where the file has float32: what vLLM makes of it by itself.
    one = plan(shelf.BGE_LARGE, "L4", load("256", "1", concurrency=32))
    assert "--runner pooling --dtype float16" in argv(one)
    assert one.sequences is None
    assert value(one, "kv-cache-dtype") == ""


def test_an_encoder_as_a_tensorrt_engine():
    one = plan(shelf.BGE_LARGE, "L4", load("256", "1", concurrency=8), engine="tensorrt")
    assert one.verdict == "fits"
    line = one.commands[0]
    assert line.argv[:2] == ("trtexec", "--onnx=/models/m/model.onnx")
    shapes = "input_ids:8x256,attention_mask:8x256,token_type_ids:8x256"
    assert f"--maxShapes={shapes}" in line.argv
    assert not any(word.startswith(("--fp16", "--best")) for word in line.argv)
    generating = plan(shelf.LLAMA_31_8B, "L4", engine="tensorrt")
    assert generating.verdict == "refused"


def test_tensorrt_llm_in_its_own_words():
    one = plan(shelf.LLAMA_31_8B, "H100 SXMx2", load(concurrency=16), engine="tensorrt-llm")
    assert argv(one) == (
        "trtllm-serve /models/m --backend pytorch --max_seq_len 640 --max_batch_size 16 --max_num_tokens 2048"
    )
    assert one.commands[0].certainty == "derived"
    assert "no row tells" in why(one, "max-num-batched-tokens")
    # It has no flag to go without graphs: what fits only so does not fit.
    assert value(one, "enforce-eager") == ""
    tight = gpu("H100 SXM", memory_bytes=int(17.6 * GIB))
    assert (
        plan(shelf.LLAMA_31_8B, tight, load(concurrency=1), engine="tensorrt-llm").verdict == "does not fit"
    )


# --- which engine, which release ------------------------------------------------------------------


def test_steady_lengths_alone_do_not_make_it_tensorrt_llm():
    steady = plan(shelf.LLAMA_31_8B, "H100 SXM", load("512", "128", concurrency=64))
    assert steady.engines[0].component == "vllm"


def test_steady_lengths_past_the_balance_do():
    # 794.5 TFLOPS, 0.9 x 3350 GB/s, 2 bytes a weight: 264 tokens at once are the balance.
    many = plan(shelf.LLAMA_31_8B, "H100 SXM", load("512", "128", concurrency=400))
    assert many.engines[0].component == "tensorrt-llm"
    assert "bench" in many.engines[0].because[0]
    mixed = plan(shelf.LLAMA_31_8B, "H100 SXM", load("64-2048", "128", concurrency=400))
    assert mixed.engines[0].component == "vllm"


def test_volta_gets_the_last_release_that_has_it():
    one = plan(shelf.QWEN3_06B, "Tesla V100 SXM2 32GB", load(concurrency=8))
    assert one.engines[0].version == "0.19.1"
    assert one.commands[0].certainty == "between"
    # The default of that release was not read (0.9 before, 0.92 after): the plan says a share.
    assert "--gpu-memory-utilization 0.9" in argv(one)


def test_pascal_gets_none():
    one = plan(shelf.QWEN3_06B, "Tesla P100 PCIe 16GB", load(concurrency=8))
    assert one.verdict == "refused"
    assert "6.0" in one.refused[0]


@pytest.mark.parametrize(
    "version", [v.raw for g in MATRIX.edition.engine_grammars for v in g.read if g.component == "vllm"]
)
def test_every_flag_is_one_of_its_release(version):
    release = Pep440(version)
    known = {
        r.flag for r in MATRIX.edition.engine_flags if r.component == "vllm" and r.first <= release <= r.last
    }
    for config, card, embeds in (
        (shelf.LLAMA_31_8B, "L4x2", False),
        (shelf.QWEN3_06B, "T4", False),
        (shelf.QWEN3_EMBEDDING_06B, "L4", True),
        (shelf.QWEN3_235B_FP8, "H200 SXMx8", False),
    ):
        one = plan(config, card, load(concurrency=16), embeds=embeds, engine="vllm", version=version)
        assert one.verdict == "fits", (version, one.refused)
        assert {word for word in one.commands[0].argv if word.startswith("--")} <= known


def test_a_release_that_nobody_read_has_no_command():
    one = plan(shelf.QWEN3_06B, "L4", load(concurrency=8), engine="vllm", version="0.40.0")
    assert (one.verdict, one.exit_code, one.commands) == ("unknown", 3, ())
    assert one.not_printed.nearest == "0.33.0"
    assert one.memory.fits


def test_a_version_is_written_as_pip_takes_it():
    one = plan(shelf.QWEN3_06B, "L4", load(), engine="vllm", version="0.33")
    assert (one.verdict, one.commands[0].version) == ("fits", "0.33.0")


def test_a_release_before_the_model_is_refused():
    one = plan(shelf.GPT_OSS_120B, "H100 SXM", load(), engine="tensorrt-llm", version="1.1.0")
    assert one.verdict == "refused"
    assert "1.2.0" in one.refused[0]


# --- what people say, and what is the case --------------------------------------------------------


@pytest.mark.parametrize(
    ("card", "capability"),
    [("L20", "8.9"), ("GeForce RTX 4060", "8.9"), ("GeForce RTX 5090", "12.0"), ("A100-SXM4-80GB", "8.0")],
)
def test_cards_are_what_they_are(card, capability):
    assert plan(shelf.QWEN3_06B, card, load(concurrency=4)).gpu.compute_capability == capability


def test_fp8_on_an_a100_is_for_memory_alone():
    one = plan(shelf.LLAMA_31_8B, "A100-SXM4-80GB", load(concurrency=4), quantization="fp8")
    assert "weights only" in why(one, "quantization")
    assert any("compare them" in note for note in one.notes)
    assert "--quantization fp8" in argv(one)
    ada = plan(shelf.LLAMA_31_8B, "GeForce RTX 4060", load(concurrency=4), quantization="fp8")
    assert "weights only" not in why(ada, "quantization")  # 8.9 computes in FP8


def test_an_fp8_cache_wants_the_hardware():
    one = plan(shelf.LLAMA_31_8B, "A100-SXM4-80GB", load(concurrency=4), kv_dtype="fp8")
    assert one.verdict == "refused"
    assert "8.9" in one.refused[0]
    hopper = plan(shelf.LLAMA_31_8B, "H100 SXM", load(concurrency=4), kv_dtype="fp8")
    assert "--kv-cache-dtype fp8" in argv(hopper)


@pytest.mark.parametrize("context", [131072, 40961])
def test_a_context_beyond_the_models_own_is_refused(context):
    one = plan(shelf.QWEN3_06B, "L4", context_tokens=context)
    assert one.verdict == "refused"
    assert "40960" in one.refused[0]


@pytest.mark.parametrize(
    ("key", "text"),
    [("rope_theta", "10000"), ("architectures", "Qwen2ForCausalLM"), ("hidden_size", "896")],
)
def test_a_config_is_never_edited(key, text):
    one = plan(shelf.QWEN3_06B, "L4", load(), overrides=((key, text),))
    assert (one.verdict, one.exit_code, one.commands) == ("refused", 1, ())
    assert key in one.refused[0]


def test_what_the_file_says_anyway_is_no_edit():
    own = (("rope_theta", "1000000"), ("hidden_size", "1024"), ("architectures", "Qwen3ForCausalLM"))
    assert plan(shelf.QWEN3_06B, "L4", load(), overrides=own).verdict == "fits"


def test_sequences_follow_from_the_cache():
    # The formula of tutorials, total x share / (block x 2 x hidden): 24e9 x 0.9 / (16 x 2 x 1024) = 659,179.
    # The truth for 640 tokens of Qwen3-0.6B: 640 x 114,688 B = 0.0684 each of 18.3: 267.
    one = plan(shelf.QWEN3_06B, "L4", load(rate_per_s=1))
    assert 250 < one.sequences < 280
    assert int(value(one, "max-num-seqs")) <= one.sequences


def test_a_fifth_of_the_device_is_told_for_what_it_is():
    # 14.957 + 0.144 + 0.65 + 0.6 = 16.351, and 16 requests of 0.078125: 17.601, of 0.2 x 79.6 = 15.9. That is
    # 0.2211 of the device; 0.22 holds 14 of them.
    one = plan(shelf.LLAMA_31_8B, "A100-SXM4-80GB", load(concurrency=16), memory_fraction=0.2)
    assert one.verdict == "does not fit"
    assert one.would[0] == "a memory share of 0.23 or more, in place of 0.2"


def test_users_who_think_cannot_ask_faster():
    # 100 users who wait 1 to 3 s: at most 50 a second, not 482, on any hardware.
    one = plan(shelf.QWEN3_06B, "L20", load(rate_per_s=482, concurrency=100, think_s=2))
    assert one.verdict == "refused"
    assert "50 a second at most" in one.refused[0]


def test_rate_and_concurrency_obey_little():
    # A token of Llama 8B takes 16.06 GB / (0.85 x 300 GB/s) = 59 ms and more on an L4: 128 of them 7.6 s.
    one = plan(shelf.LLAMA_31_8B, "L4", load(rate_per_s=10, concurrency=16))
    assert one.verdict == "refused"
    assert "Little" in one.refused[0]
    assert plan(shelf.LLAMA_31_8B, "L4", load(rate_per_s=1, concurrency=16)).verdict == "fits"


def test_a_promise_below_the_floor_is_not_made():
    # 59 ms a token on one L4 cannot be 20; over 4 of them 15 can.
    asked = load(concurrency=1, slo=Slo(tpot_ms=20))
    one = plan(shelf.LLAMA_31_8B, "L4", asked)
    assert one.verdict == "does not fit"
    assert "20 ms were promised" in one.short[0]
    assert any(text.startswith("4 such GPUs") for text in one.would)
    assert plan(shelf.LLAMA_31_8B, "L4x4", asked).split.tensor == 4


# --- several on one device, and the unknown -------------------------------------------------------


def test_a_neighbour_leaves_less():
    # 79.6 GiB, 40 of them taken: 1 - 40/79.6 - 0.03 = 0.467.
    beside = (Beside(name="/models/other", bytes=40 * GIB),)
    one = plan(shelf.LLAMA_31_8B, "H100 SXM", load(concurrency=8), beside=beside)
    assert one.verdict == "fits"
    assert "--gpu-memory-utilization 0.46" in argv(one)
    assert any("/models/other" in note and "0.51" in note for note in one.notes)
    full = plan(shelf.LLAMA_31_8B, "H100 SXM", load(concurrency=8), beside=(*beside, *beside))
    assert full.verdict in ("does not fit", "refused")


def test_a_family_without_a_rule_is_unknown():
    config = {"architectures": ["NewForCausalLM"], "model_type": "brand_new", "hidden_size": 1024}
    one = plan(config, "L4", load())
    assert (one.verdict, one.exit_code, one.commands) == ("unknown", 3, ())
    assert any("brand_new" in note for note in one.notes)


def test_a_gpu_without_rates_has_no_speed():
    one = plan(shelf.LLAMA_31_8B, "L20", load(rate_per_s=2))
    assert one.verdict == "fits"
    assert one.speed is None
    assert any("no row has the speed" in note for note in one.notes)


def test_graphs_are_given_up_only_where_nothing_else_fits():
    # 14.957 + 0.144 + 0.65 + 0.08 = 15.83 without graphs; with them 16.43. 0.92 x 17.6 = 16.19.
    one = plan(shelf.LLAMA_31_8B, gpu("L4", memory_bytes=int(17.6 * GIB)), load(concurrency=1))
    assert one.verdict == "fits"
    assert "--enforce-eager" in argv(one)
    assert "--enforce-eager" not in argv(plan(shelf.LLAMA_31_8B, "L4", load(concurrency=1)))


# --- whatever is asked ----------------------------------------------------------------------------

CONFIGS = (shelf.LLAMA_31_8B, shelf.QWEN3_06B, shelf.QWEN3_235B_FP8, shelf.GPT_OSS_120B, shelf.QWEN25_7B_AWQ)
CARDS = ("T4", "L4", "L40S", "A100-SXM4-80GB", "H100 SXM", "H200 SXM", "B200")


@settings(max_examples=40, deadline=None)
@given(
    config=st.sampled_from(CONFIGS),
    card=st.sampled_from(CARDS),
    count=st.sampled_from([1, 2, 3, 4, 8, 16]),
    prompt=st.integers(1, 8000),
    output=st.integers(1, 4000),
    concurrency=st.one_of(st.none(), st.integers(1, 3000)),
    rate=st.one_of(st.none(), st.floats(0.01, 1000)),
)
def test_a_plan_that_fits_keeps_its_word(  # noqa: PLR0917 - one for each part of the question
    config, card, count, prompt, output, concurrency, rate
):
    asked = load(str(prompt), str(output), concurrency=concurrency, rate_per_s=rate)
    one = plan(config, gpu(card, count=count), asked)
    assert (one.verdict == "fits") == bool(one.commands)
    assert bool(one.short) == (one.verdict == "does not fit") == bool(one.would)
    if one.verdict != "fits":
        assert one.short or one.refused or one.notes
        return
    assert one.memory.fits
    assert one.memory.needed_bytes <= one.memory.budget_bytes <= one.gpu.memory_bytes
    assert one.split.gpus * one.replicas <= count
    assert (
        tensor_problem(shelf.facts(config), one.split.tensor, is_expert_parallel=one.split.is_expert_parallel)
        == ""
    )
    sequences, step = int(value(one, "max-num-seqs")), int(value(one, "max-num-batched-tokens"))
    assert 1 <= sequences <= step  # vLLM refuses a step smaller than its sequences
    assert int(value(one, "max-model-len")) == prompt + output
    if concurrency is not None:
        assert min(one.sequences, sequences) * one.replicas >= concurrency


def test_a_thousand_gpus_take_no_longer():
    one = plan(shelf.LLAMA_31_8B, gpu("H100 SXM", count=1024), load(concurrency=100_000))
    # Each holds some 700 requests of 640 tokens: about 140 copies do, and no more are taken.
    assert one.verdict == "fits"
    assert one.replicas * one.sequences >= 100_000 > (one.replicas - 1) * one.sequences


# --- promises and remedies ------------------------------------------------------------------------


def test_a_promise_is_refused_only_below_the_floor_of_the_best_card() -> None:
    # (8,030,261,248 - 525,336,576) x 2 bytes and 576 tokens x 131,072: 15.085 GB a step. Of 4.8 TB/s good
    # cards reach 0.9 to 0.95: 3.49 to 3.31 ms. 3.4 ms is kept by some of them, 3.3 ms by none.
    kept = plan(shelf.LLAMA_31_8B, "H200", load(concurrency=1, slo=Slo(tpot_ms=3.4)))
    assert kept.verdict == "fits"
    assert kept.speed is not None
    assert kept.speed.tpot_ms == pytest.approx(3.308, abs=0.002)
    none = plan(shelf.LLAMA_31_8B, "H200", load(concurrency=1, slo=Slo(tpot_ms=3.3)))
    assert none.verdict == "does not fit"
    assert none.short == ("each token takes 3.31 ms at the least, 3.3 ms were promised",)


def test_every_remedy_of_a_rate_keeps_it() -> None:
    # 1000 prompts of 4000 tokens a second are 60 PFLOPS: no other single card does, however large its memory.
    asked = load("4000", "200", rate_per_s=1000)
    one = plan(shelf.LLAMA_31_8B, "H200", asked)
    assert one.verdict == "does not fit"
    assert "prompts of 1000 requests takes" in one.short[0]
    (only,) = one.would
    rate = float(only.split(" requests/s")[0])
    slower = msgspec.structs.replace(asked, rate_per_s=rate)
    assert plan(shelf.LLAMA_31_8B, "H200", slower).verdict == "fits"
    assert plan(shelf.LLAMA_31_8B, "H200", msgspec.structs.replace(asked, rate_per_s=rate * 1.2)).short


def test_every_remedy_of_a_concurrency_keeps_its_promises() -> None:
    # 110 requests of 4200 tokens fit into an H100; at 110 at once a token takes longer than 20 ms.
    asked = load("4000", "200", concurrency=256, slo=Slo(tpot_ms=20))
    one = plan(shelf.LLAMA_31_8B, "H100 PCIe", asked)
    fewer = next(text for text in one.would if "at once in place of 256" in text)
    count = int(fewer.split()[0])
    assert (
        plan(shelf.LLAMA_31_8B, "H100 PCIe", msgspec.structs.replace(asked, concurrency=count)).verdict
        == "fits"
    )
    assert plan(shelf.LLAMA_31_8B, "H100 PCIe", msgspec.structs.replace(asked, concurrency=count + 1)).short
    # a larger card that is no faster by its row is no remedy; one that is proposed is fast enough
    for text in one.would:
        if text.endswith(" in its place"):
            other = plan(shelf.LLAMA_31_8B, text.removesuffix(" in its place"), asked)
            assert other.verdict == "fits"


def test_the_limit_of_sequences_is_the_engines_where_no_load_was_said() -> None:
    # 131,072 tokens x 131,072 bytes: 16 GiB a sequence of the greatest length, of which an H200 has room for
    # six; short ones are more, and the engine decides at each step.
    one = plan(shelf.LLAMA_31_8B, "H200")
    assert value(one, "max-num-seqs") == "1024"
    assert one.sequences == 6
    because = next(s.because for s in one.settings if s.name == "max-num-seqs")
    assert "6 of the greatest length fit" in because


def test_a_vision_tower_that_is_not_counted_is_told() -> None:
    config = {**shelf.LLAMA_31_8B, "vision_config": {"hidden_size": 1280}}
    assert any("not counted: the part of `vision_config`" in text for text in plan(config, "H200").notes)
    assert not any("not counted" in text for text in plan(shelf.LLAMA_31_8B, "H200").notes)


def test_a_checkpoint_with_scales_for_its_cache() -> None:
    config = {
        **shelf.LLAMA_31_8B,
        "quantization_config": {
            "quant_method": "modelopt",
            "quant_algo": "FP8",
            "kv_cache_quant_algo": "FP8",
        },
    }
    because = next(s.because for s in plan(config, "H200").settings if s.name == "kv-cache-dtype")
    assert because.startswith("counted in bfloat16; the checkpoint has scales for a cache in fp8")


def test_nothing_is_said_to_be_the_engines_own_where_nothing_fits() -> None:
    one = plan(shelf.LLAMA_31_70B, "L4", load(concurrency=4))
    because = next(s.because for s in one.settings if s.name == "max-num-seqs")
    assert because == "not even one request fits"


def test_a_copy_over_two_machines_is_told() -> None:
    config = {**shelf.LLAMA_31_70B, "num_hidden_layers": 640}
    one = plan(config, "H200x16", load(concurrency=1))
    assert (one.verdict, one.split.gpus if one.split else 0) == ("fits", 16)
    assert any("spread over 2 machines" in text for text in one.notes)
    assert not any("machines" in text for text in plan(shelf.LLAMA_31_70B, "H200x8").notes)
