"""Forms in which checkpoints say how their weights are stored."""

from fractions import Fraction
from typing import Any

import pytest

from optimize.left_out import converted_share
from optimize.model import Quantization, Weight
from optimize.quantization import read_quantization


def scheme(said: dict[str, Any], beside: dict[str, Any] | None = None) -> tuple[Any, ...]:
    found = read_quantization({"quantization_config": said} if said else {}, beside)
    assert found is not None
    return (
        found.method,
        found.scheme,
        found.weight_bits,
        round(found.overhead_bits, 4),
        found.has_quantized_activations,
    )


def test_none() -> None:
    assert read_quantization({}) is None
    assert read_quantization({"quantization_config": {}}) is None
    assert read_quantization({"quantization_config": None}) is None


INT4 = {"weights": {"num_bits": 4, "type": "int", "group_size": 128, "symmetric": True}}


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ({"quant_method": "fp8"}, ("fp8", "fp8", 8, 0, True)),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, ("fp8", "fp8-block", 8, 0.002, True)),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, ("gptq", "int4", 4, 0.1562, False)),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, ("gptq", "w8a16", 8, 0.1875, False)),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, ("awq", "int4", 4, 0.3125, False)),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 128}, ("awq", "int4", 4, 0.1562, False)),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, ("bitsandbytes", "nf4", 4, 0.5, False)),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, ("bitsandbytes", "w8a16", 8, 0, True)),
        ({"quant_method": "mxfp4"}, ("mxfp4", "mxfp4", 4, 0.25, False)),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, ("modelopt", "nvfp4", 4, 0.5, True)),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, ("modelopt", "fp8", 8, 0, True)),
        ({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"}, ("modelopt", "int4", 4, 0.125, False)),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, ("modelopt", "mixed", None, 0, None)),
        ({"quant_method": "modelopt", "quant_algo": "NEW"}, ("modelopt", "unknown", None, 0, None)),
        ({"quant_algo": "FP8", "kv_cache_scheme": "FP8"}, ("modelopt", "fp8", 8, 0, True)),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"a": INT4}},
            ("compressed-tensors", "int4", 4, 0.125, False),
        ),
        (
            {"quant_method": "compressed-tensors", "config_groups": {}},
            ("compressed-tensors", "unknown", None, 0, None),
        ),
        ({"quant_method": "new-thing"}, ("other", "unknown", None, 0, None)),
        ({"bits": 4}, ("other", "unknown", None, 0, None)),
    ],
)
def test_forms(said: dict[str, Any], wanted: tuple[Any, ...]) -> None:
    assert scheme(said) == wanted


def compressed(weights: dict[str, Any], acts: dict[str, Any] | None) -> tuple[Any, ...]:
    group = {"weights": weights, "input_activations": acts}
    return scheme({"quant_method": "compressed-tensors", "config_groups": {"group_0": group}})[1:4]


def test_compressed_tensors() -> None:
    dynamic = {"num_bits": 8, "type": "float", "dynamic": True}
    assert compressed({"num_bits": 8, "type": "float", "strategy": "channel"}, dynamic) == ("fp8", 8, 0)
    assert compressed({"num_bits": 8, "type": "float", "strategy": "block"}, dynamic) == (
        "fp8-block",
        8,
        0.002,
    )
    assert compressed({"num_bits": 8, "type": "int"}, dynamic) == ("int8", 8, 0)
    assert compressed({"num_bits": 4, "type": "float", "group_size": 16}, {"num_bits": 4}) == (
        "nvfp4",
        4,
        0.5,
    )
    assert compressed({"num_bits": 4, "type": "int", "group_size": 128, "symmetric": False}, None) == (
        "int4",
        4,
        0.1562,
    )
    two = {"a": INT4, "b": {"weights": {"num_bits": 8, "type": "float"}, "input_activations": dynamic}}
    assert scheme({"quant_method": "compressed-tensors", "config_groups": two})[1] == "mixed"


def test_modelopt_in_a_file_of_its_own() -> None:
    beside = {
        "producer": {"name": "modelopt"},
        "quantization": {
            "quant_algo": "NVFP4",
            "kv_cache_quant_algo": "FP8",
            "group_size": 16,
            "exclude_modules": ["lm_head"],
        },
    }
    found = read_quantization({}, beside)
    assert found is not None
    assert (found.scheme, found.kv_cache_dtype, found.group_size, found.skips) == (
        "nvfp4",
        "fp8",
        16,
        ("lm_head",),
    )
    # config.json, where it says something, comes first
    assert scheme({"quant_method": "fp8"}, beside)[1] == "fp8"


@pytest.mark.parametrize("odd", [[], "x", 3, {"a": 1}, [1], None, True, 1e400])
def test_hostile_values_raise_nothing(odd: Any) -> None:
    keys = (
        "quant_method",
        "bits",
        "group_size",
        "weight_block_size",
        "config_groups",
        "ignore",
        "quant_algo",
        "kv_cache_scheme",
    )
    for method in ("fp8", "gptq", "awq", "bitsandbytes", "modelopt", "mxfp4", "compressed-tensors"):
        for key in keys:
            read_quantization({"quantization_config": {"quant_method": method, key: odd}})
            groups = {
                "a": {
                    "weights": {
                        "num_bits": odd,
                        "type": odd,
                        "group_size": odd,
                        "strategy": "block",
                        "block_structure": odd,
                    }
                }
            }
            read_quantization({"quantization_config": {"quant_method": method, "config_groups": groups}})
    read_quantization({"quantization_config": odd}, {"quantization": odd})


# --- what is left out -----------------------------------------------------------------------------

UP = Weight(
    name="model.layers.*.mlp.up_proj.weight",
    role="mlp",
    shape=(4, 4),
    count=10,
    split="column",
    is_linear=True,
)
HEAD = Weight(name="lm_head.weight", role="head", shape=(4, 4), split="vocab", is_linear=True)
EXPERT = Weight(
    name="model.layers.*.mlp.experts.*.up_proj.weight",
    role="expert",
    shape=(4, 4),
    count=80,
    split="expert",
    is_linear=True,
)


def quantization(*skips: str, converts: Any = "linear") -> Quantization:
    return Quantization(method="fp8", said="fp8", scheme="fp8", weight_bits=8, skips=skips, converts=converts)


@pytest.mark.parametrize(
    ("skips", "share"),
    [
        ((), 1),
        (("lm_head",), 1),
        (("model.layers.3.mlp.up_proj",), Fraction(9, 10)),
        (("model.layers.3.mlp", "model.layers.4.mlp"), Fraction(8, 10)),
        (("model.language_model.layers.3.mlp*",), Fraction(9, 10)),
        (("model.layers.*.mlp",), 0),
        (("up_proj",), 0),
        (("gate",), 1),
        (("re:.*mlp.*",), 0),
        (("re:.*self_attn.*",), 1),
        ((r"re:.*mlp\.(gate|up)_proj",), 0),
        (("re:(a+)+$",), None),
        (("re:.*.*.*.*x",), None),
        (("re:[",), None),
    ],
)
def test_shares(skips: tuple[str, ...], share: Any) -> None:
    assert converted_share(quantization(*skips), UP) == share


def test_heads_are_left_out_and_experts_counted_by_layer() -> None:
    assert converted_share(quantization(), HEAD) == 0
    assert converted_share(quantization("model.layers.0.mlp"), EXPERT, 8) == Fraction(9, 10)
    assert converted_share(quantization(converts="experts"), UP) == 0
    assert converted_share(quantization(converts="experts"), EXPERT, 8) == 1


def test_a_draft_layer_behind_the_model_leaves_nothing_out() -> None:
    # DeepSeek-R1-FP4 excludes `model.layers.61*`; its model has the layers 0 to 60
    assert converted_share(quantization("model.layers.10*"), UP, 1, 10) == 1
    assert converted_share(quantization("model.layers.9*"), UP, 1, 10) == Fraction(9, 10)
