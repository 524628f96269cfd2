"""Names of flags, metrics, routes and methods as questions: what was read of which release, on which GPU."""

from __future__ import annotations

import json
from typing import Any

import pytest

from doctor.cli import main

ANSWERS = {
    # A name that is there today is not known to have been there before.
    "a flag of today": ("flag:--structured-outputs-config vllm==0.33.0", "yes"),
    "a flag of today in an old release": ("flag:--structured-outputs-config vllm==0.4.2", "unknown"),
    "another one": ("flag:--runner vllm==0.5.0", "unknown"),
    "a metric of today in an old release": ("metric:vllm:admission_rejections_total vllm==0.4.2", "unknown"),
    "a metric that took another's place": ("metric:vllm:kv_cache_usage_perc vllm==0.8.5", "unknown"),
    "a route of today in an old release": ("route:/v1/responses vllm==0.6.0", "unknown"),
    "a route of today": ("route:/v1/responses vllm==0.32.0", "yes"),
    "a removed flag in its last minor": ("flag:--swap-space vllm==0.17.0", "yes"),
    "a removed flag before its samples": ("flag:--cuda-graph-sizes vllm==0.5.0", "unknown"),
    "a removed flag afterwards": ("flag:--cuda-graph-sizes vllm==0.33.0", "no"),
    "a source of no release": ("metric:trtllm_num_requests_running tensorrt-llm==1.2.1", "unknown"),
    # What one server has says nothing of another.
    "a route of vLLM asked of TensorRT-LLM": ("route:/health tensorrt-llm==1.2.1", "unknown"),
    "another route": ("route:/v1/models tensorrt-llm==1.2.1", "unknown"),
    "a metric of another engine": ("metric:vllm:num_requests_running tensorrt-llm==1.2.1", "unknown"),
    # A method has a gate by capability.
    "below the gate": ("--gpu T4 quantization:mxfp4 vllm==0.33.0", "no"),
    "far below it": ("--gpu A100 quantization:fp_quant vllm==0.33.0", "no"),
    "below the gate of experts_int8": ("--gpu T4 quantization:experts_int8 vllm==0.33.0", "no"),
    "below the gate of fbgemm_fp8": ("--gpu T4 quantization:fbgemm_fp8 vllm==0.33.0", "no"),
    "Volta and AWQ": ("--gpu V100 quantization:awq vllm==0.19.1", "no"),
    "above the gate": ("--gpu H200 quantization:awq vllm==0.33.0", "yes"),
    "above the gate of mxfp4": ("--gpu A100 quantization:mxfp4 vllm==0.33.0", "yes"),
    "a gate of another release": ("--gpu T4 quantization:mxfp4 vllm==0.20.2", "unknown"),
    "a method without a gate": ("--gpu H200 quantization:gptq_marlin vllm==0.33.0", "unknown"),
    "a KV type without a GPU in its row": ("--gpu T4 kv-cache:nvfp4 vllm==0.33.0", "unknown"),
    "a KV type of the hardware": ("--gpu H200 kv-cache:fp8 vllm==0.33.0", "yes"),
    "one value of two is enough": ("quantization:mxfp4 vllm==0.33.0", "yes"),
    # The values of a flag whose list is a table.
    "no type of the KV cache": ("flag:--kv-cache-dtype=fp16 vllm==0.33.0", "no"),
    "a type of the KV cache": ("flag:--kv-cache-dtype=fp8 vllm==0.33.0", "yes"),
    "a method that left": ("flag:--quantization=bitsandbytes vllm==0.33.0", "no"),
    "a method that is there": ("flag:--quantization=awq vllm==0.33.0", "yes"),
    # Builds that no list of releases names.
    "a build of another index": ("--gpu RTX_5090 torch==2.7.0+cu128", "unknown"),
    "one of an older CUDA": ("--gpu RTX_5090 torch==2.7.0+cu118", "unknown"),
    "one without CUDA": ("torch==2.14.0+cpu", "unknown"),
    "a build of no release": ("torch==2.13.1+cu128", "no"),
    "a toolkit that was left out": ("cuda==12.7", "no"),
    "a toolkit that was not": ("cuda==12.6", "yes"),
}


def asked(argv: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    main(["matrix", "why", "--json", *(word.replace("RTX_", "RTX ") for word in argv.split())])
    out = capsys.readouterr()
    assert out.err == ""
    answer: dict[str, Any] = json.loads(out.out)
    return answer


@pytest.mark.parametrize("name", ANSWERS)
def test_answers(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv, wanted = ANSWERS[name]
    answer = asked(argv, capsys)
    assert answer["compatible"] == wanted, answer["because"]


NEAREST = {
    "quantization:gguf vllm==0.33.0": "vllm 0.23.0",
    "quantization:nvfp4 vllm==0.33.0": "vllm 0.8.5.post1",
    "kv-cache:nvfp4 vllm==0.8.0": "vllm 0.20.2",
    "quantization:bitsandbytes vllm==0.33.0": "vllm 0.27.1",
    "default:--gpu-memory-utilization=0.9 vllm==0.33.0": "0.92",
    "flag:--cuda-graph-sizes vllm==0.5.0": "vllm 0.12.0",
    "torch==2.7.0+cu128": "torch 2.7.0",
}


@pytest.mark.parametrize("argv", NEAREST)
def test_what_is_nearest_is_known_to_hold(argv: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert NEAREST[argv] in asked(argv, capsys)["nearest"].split("; ")


@pytest.mark.parametrize(
    ("argv", "forbidden"),
    [
        ("quantization:gguf vllm==0.33.0", "0.5.0 in its place"),
        ("kv-cache:nvfp4 vllm==0.8.0", "0.20.0"),
        ("driver==580.126.09 driver==570.133.20", "any version"),
        ("driver<1", "any version"),
        ("--os rocky-10 glibc==2.34", "newer"),
        ("--os ubuntu-22.04 --python 3.10 vllm==0.33.0", "from 3.10 to 3.11 to"),
    ],
)
def test_a_hint_is_one(argv: str, forbidden: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = asked(argv, capsys)
    assert answer["compatible"] == "no"
    assert [hint["text"] for hint in answer["hints"] if forbidden in hint["text"]] == []
