"""Properties of GPUs, systems and drivers as questions: what rows say, and what they do not."""

import json

import pytest

from doctor.cli import main

ANSWERS = {
    "words in any case": (["--gpu", "L20", "memory-type==gddr6"], "yes"),
    "a remark behind a word": (["--gpu", "GB10 (DGX Spark)", "memory-type==LPDDR5X"], "yes"),
    "another word": (["--gpu", "L20", "memory-type!=GDDR6"], "no"),
    "sheets differ by little": (["--gpu", "H200", "bandwidth-gb-s==4800"], "yes"),
    "but not by that much": (["--gpu", "H200", "bandwidth-gb-s==4000"], "no"),
    "a bound": (["--gpu", "H200", "memory-gb>=140"], "yes"),
    "a field without a figure": (["--gpu", "B100", "memory-gb>=80"], "unknown"),
    "a card without a row": (["--gpu", "10de:ffff", "memory-gb>=80"], "unknown"),
    "another maker's": (["--gpu", "MI300X", "memory-gb>=80"], "no"),
    "no GPU named": (["memory-gb>=80"], "unknown"),
    "the second GPU counts": (["--gpu", "H100", "--gpu", "RTX 4060 Laptop", "memory-gb>=40"], "no"),
    "both fit": (["--gpu", "H100", "--gpu", "H200", "memory-gb>=80"], "yes"),
    "the only capability that would do": (["--gpu", "RTX 4060 Laptop", "compute-capability==8.6"], "no"),
    "a kernel of an enablement stack": (["--os", "ubuntu-22.04", "kernel==6.8"], "yes"),
    "a system without a row": (["--os", "plan9-4", "kernel==6.8"], "unknown"),
    "a driver at the floor": (["driver==580.178.04", "driver-bulletins==none"], "yes"),
    "a branch without a floor": (["driver==620.70.06", "driver-bulletins==none"], "unknown"),
    "an ended branch": (["driver==535.309.01", "driver-support==ended"], "yes"),
    "a line of an open branch": (["driver==580.126"], "yes"),
    "no line of a whole list": (["driver==535.129"], "no"),
    "installed counts as released": (["--have", "driver==535.161.05", "cuda==12.2"], "yes"),
    "a bare wish": (["--gpu", "L40S", "use=fp8"], "yes"),
    "a name of no engine": (["path:/no/such/path"], "unknown"),
    "a default before it was read": (["default:--gpu-memory-utilization=0.9", "vllm==0.9.2"], "unknown"),
    "what older releases had": (["program:vllm.entrypoints.api_server", "vllm==0.6.0"], "unknown"),
    "a model before the pages begin": (["model:Qwen3ForCausalLM", "tensorrt-llm==0.10.0"], "unknown"),
    "a method that went": (["quantization:squeezellm", "vllm==0.33.0"], "no"),
    "a model that nobody lists": (["model:NoSuchForCausalLM", "vllm==0.33.0"], "unknown"),
    "a value that a list lacks": (["flag:--paged_kv_cache=maybe", "tensorrt-llm==0.12.0"], "no"),
    "a value without a list": (["flag:--max-num-seqs=7", "vllm==0.33.0"], "unknown"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv, wanted = ANSWERS[name]
    main(["matrix", "why", "--json", *argv])
    out = capsys.readouterr()
    assert out.err == ""
    assert json.loads(out.out)["compatible"] == wanted


def test_no_hint_asks_for_open_bulletins(capsys: pytest.CaptureFixture[str]) -> None:
    main(["matrix", "why", "--json", "driver==535.104.05", "driver-bulletins==none"])
    hints = [hint["text"] for hint in json.loads(capsys.readouterr().out)["hints"]]
    assert hints
    assert not any("bulletins" in text for text in hints)


def test_a_yes_shows_the_property(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["matrix", "why", "--gpu", "L20", "memory-gb==48"]) == 0
    assert "L20 has 48 GB of memory" in capsys.readouterr().out


def test_a_set_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["matrix", "why", "--gpu", "L20", "memory-gb==many"]) == 2
    assert "many" in capsys.readouterr().err
