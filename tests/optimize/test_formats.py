"""Which formats a GPU is given, by the rows of the matrix."""

from pathlib import Path

import pytest

from doctor.edition.load import load_matrix
from optimize.formats import dtype_for, kv_dtype_allowed, native, quantization_allowed
from optimize.quantization import read_quantization
from tests.optimize import shelf

EDITION = load_matrix(Path(__file__).parents[2] / "matrices").edition
ARCHITECTURES = {"7.0": "volta", "7.5": "turing", "8.0": "ampere_ga100", "8.9": "ada", "9.0": "hopper"}
ARCHITECTURES |= {"10.0": "blackwell"}


def said(**config):
    return read_quantization({"quantization_config": config})


FP8 = said(**shelf.FP8_BLOCK)
CT_FP8 = said(
    quant_method="compressed-tensors",
    format="float-quantized",
    config_groups={
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
            "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True},
        }
    },
)
AWQ = said(quant_method="awq", bits=4, group_size=128, zero_point=True, version="gemm")
MXFP4 = said(**shelf.GPT_OSS_120B["quantization_config"])


@pytest.mark.parametrize(
    ("quantization", "capability", "verdict"),
    [
        (FP8, "9.0", "native"),
        (FP8, "8.9", "native"),
        (FP8, "8.0", "weights-only"),
        (FP8, "7.5", "weights-only"),
        (FP8, "7.0", "refused"),
        (CT_FP8, "8.9", "native"),
        (CT_FP8, "8.0", "weights-only"),  # W8A16 in its place
        (CT_FP8, "7.0", "refused"),
        (AWQ, "7.5", "native"),
        (AWQ, "7.0", "refused"),
        (MXFP4, "9.0", "weights-only"),
        (MXFP4, "10.0", "native"),
        (MXFP4, "7.5", "refused"),
    ],
)
def test_quantization_by_the_gates_of_vllm(quantization, capability, verdict):
    allowed = quantization_allowed(
        EDITION,
        quantization,
        component="vllm",
        version="0.33.0",
        architecture=ARCHITECTURES[capability],
        capability=capability,
    )
    assert allowed.verdict == verdict, allowed
    assert capability in allowed.because or verdict == "weights-only"


def test_a_release_whose_gates_nobody_read_goes_by_the_hardware():
    asked = {"component": "vllm", "version": "0.20.2"}
    hopper = quantization_allowed(EDITION, FP8, **asked, architecture="hopper", capability="9.0")
    assert hopper.verdict == "native"
    ampere = quantization_allowed(EDITION, FP8, **asked, architecture="ampere_ga100", capability="8.0")
    assert ampere.verdict == "unknown"  # neither allowed nor refused


def test_what_hardware_has():
    assert native(EDITION, "ampere_ga100", "fp8") is False
    assert native(EDITION, "ada", "fp8") is True
    assert native(EDITION, "hopper", "nvfp4") is False
    assert native(EDITION, "blackwell", "nvfp4") is True
    assert native(EDITION, "none-such", "fp8") is None


@pytest.mark.parametrize(
    ("config", "capability", "dtype"),
    [
        (shelf.QWEN3_06B, "8.0", "bfloat16"),
        (shelf.QWEN3_06B, "7.5", "float16"),
        (shelf.GEMMA_3_1B, "7.5", "float32"),
        (shelf.GEMMA_3_1B, "8.0", "bfloat16"),
        (shelf.QWEN25_7B_AWQ, "9.0", "float16"),
        (shelf.BGE_LARGE, "9.0", "float16"),
        ({**shelf.QWEN3_06B, "torch_dtype": "float32"}, "9.0", "bfloat16"),
        ({**shelf.QWEN3_06B, "torch_dtype": "float32"}, "7.5", "float16"),
    ],
)
def test_the_type_to_compute_in(config, capability, dtype):
    found, allowed = dtype_for(EDITION, shelf.facts(config), "0.33.0", capability)
    assert found == dtype
    assert allowed.verdict == "native"


def test_no_row_no_type():
    found, allowed = dtype_for(EDITION, shelf.facts(shelf.QWEN3_06B), "0.6.0", "9.0")
    assert (found, allowed.verdict) == ("", "unknown")


@pytest.mark.parametrize(
    ("dtype", "version", "capability", "verdict"),
    [
        ("fp8", "0.33.0", "8.9", "native"),
        ("fp8", "0.33.0", "8.0", "refused"),
        ("bfloat16", "0.10.2", "9.0", "refused"),
        ("bfloat16", "0.33.0", "9.0", "native"),
        ("int3", "0.33.0", "9.0", "refused"),
    ],
)
def test_the_type_of_the_cache(dtype, version, capability, verdict):
    assert kv_dtype_allowed(EDITION, dtype, version, capability).verdict == verdict
