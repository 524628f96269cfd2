"""`mopt-doctor model PATH --plan` as it is typed: the command it prints, its refusals, its document."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from doctor.cli import main
from doctor.report.escape import UNSAFE
from doctor.report.schemas import schema
from tests.optimize import shelf

HOSTS = Path(__file__).parent / "hosts"
LOAD = ("--prompt-tokens", "512", "--output-tokens", "128")


@pytest.fixture
def model(tmp_path: Path) -> Any:
    """A function: a folder with that config, and weights that nobody has fetched yet."""

    def make(config: dict[str, Any], name: str = "m") -> str:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        return str(folder)

    return make


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(["model", *argv])
    out, err = capsys.readouterr()
    return code, out, err


def document(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    code, out, err = run(capsys, *argv, "--plan", "--json")
    assert err == ""
    found: dict[str, Any] = json.loads(out)
    jsonschema.validate(found, schema("mopt.serving-plan/1"))
    assert found["exit_code"] == code
    return found


def test_the_command_stands_on_a_line_of_its_own(capsys, model) -> None:
    path = model(shelf.QWEN3_06B)
    code, out, _ = run(capsys, path, "--plan", "--gpu", "T4", *LOAD, "--concurrency", "8")
    assert code == 0
    assert out.startswith("FITS: Qwen3ForCausalLM on Tesla T4: 512 in, 128 out, 8 at once\n")
    wanted = f"  vllm serve {path} --dtype float16 --max-model-len 640 --max-num-seqs 8"
    assert any(line.startswith(wanted) for line in out.splitlines())
    assert "bfloat16 begins with 8.0, and this GPU has 7.5" in " ".join(out.split())
    others = [line for line in out.splitlines() if "vllm serve" not in line]
    assert max(map(len, others)) <= 80


def test_the_document_has_every_because(capsys, model) -> None:
    found = document(capsys, model(shelf.LLAMA_31_8B), "--gpu", "L4", *LOAD, "--concurrency", "16")
    assert (found["verdict"], found["sequences"]) == ("fits", 55)
    assert all(setting["because"] for setting in found["settings"])
    assert all(argument["because"] for argument in found["commands"][0]["arguments"])
    assert found["commands"][0]["source"]


def test_what_does_not_fit_says_what_would(capsys, model) -> None:
    code, out, _ = run(capsys, model(shelf.LLAMA_31_70B), "--plan", "--gpu", "A100-SXM4-80GB", *LOAD)
    assert code == 1
    said = " ".join(out.split())
    assert said.startswith("DOES NOT FIT")
    assert "GiB are lacking on each GPU" in said
    assert "2 such GPUs" in said
    assert "vllm serve" not in said


def test_gpus_counts_those_of_a_kind(capsys, model) -> None:
    path = model(shelf.LLAMA_31_70B)
    found = document(capsys, path, "--gpu", "A100-SXM4-80GB", "--gpus", "2", *LOAD)
    assert found["split"]["tensor"] == found["gpu"]["count"] == 2


def test_a_recorded_host(capsys, model) -> None:
    path = model(shelf.QWEN3_06B)
    found = document(capsys, path, "--from", str(HOSTS / "h200-ubuntu-24.04"), *LOAD)
    assert found["gpu"]["memory_bytes"] == 143771 * 2**20
    assert found["gpu"]["compute_capability"] == "9.0"
    assert found["gpu"]["memory_because"] == "as the driver reports it"


def test_a_model_beside_takes_its_share(capsys, model) -> None:
    # 70.6e9 values of one byte, with their head of two: 66.7 GiB of an H200's 140.3 and its buffers.
    other = model({**shelf.LLAMA_31_70B, "quantization_config": shelf.FP8_BLOCK}, "other")
    own = model(shelf.LLAMA_31_8B, "own")
    found = document(capsys, own, "--gpu", "H200 SXM", "--beside", other, *LOAD, "--concurrency", "8")
    share = next(s for s in found["settings"] if s["name"] == "gpu-memory-utilization")
    assert 0.4 < float(share["value"]) < 0.5
    assert any("one engine after the other" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--plan", "--gpu", "MI50"), "a GPU of AMD"),
        (("--plan", "--gpu", "L4", "--gpu", "T4"), "several"),
        (("--gpu", "L4", "--rate", "4"), "`--rate` belongs to a plan"),
        (("--plan", "--gpu", "L4", "--rate", "4"), "needs the length of its prompts"),
        (("--plan", "--gpu", "L4", "--prompt-tokens", "512"), "needs the length of its answers"),
        (("--plan", "--gpu", "L4", "--prompt-tokens", "0", "--output-tokens", "1"), "length"),
        (("--plan", "--gpu", "L4", "--memory-fraction", "1.5"), "at most 1"),
        (("--plan", "--gpu", "L4", "--rate", "nan", *LOAD), "above 0"),
        (("--plan", "--gpu", "L4", "--gpus", "0"), "1 to 1024"),
        (("--plan", "--gpu", "L4", "--engine", "vllm-entrypoint"), "no engine"),
        (("--plan", "--gpu", "L4", "--engine", "vllm=="), "names no version"),
        (("--plan", "--gpu", "L4", "--engine", "vllm==new"), "not a PEP 440 version"),
        (("--plan", "--gpu", "L4", "--override", "rope_theta"), "KEY=VALUE"),
    ],
)
def test_questions_that_cannot_be_meant(capsys, model, argv: tuple[str, ...], words: str) -> None:
    code, out, err = run(capsys, model(shelf.QWEN3_06B), *argv)
    assert (code, out) == (2, "")
    assert words in err


def test_every_refusal_is_told_at_once(capsys, model) -> None:
    argv = ("--context", "131072", "--override", "rope_theta=10000", "--override", "hidden_size=896")
    found = document(capsys, model(shelf.QWEN3_06B), "--gpu", "L20", *argv)
    assert (found["verdict"], found["exit_code"], found["commands"]) == ("refused", 1, [])
    assert len(found["refused"]) == 3


def test_no_command_for_a_release_that_nobody_read(capsys, model) -> None:
    code, out, _ = run(capsys, model(shelf.QWEN3_06B), "--plan", "--gpu", "L4", "--engine", "vllm==0.40.0")
    assert code == 3
    said = " ".join(out.split())
    assert "no command: the flags of vllm 0.40.0 were not read" in said
    assert "`--engine vllm==0.33.0`" in said
    assert "vllm serve /" not in said


def test_an_unknown_family_is_named(capsys, model) -> None:
    path = model({"architectures": ["NewForCausalLM"], "model_type": "brand_new", "hidden_size": 64})
    code, out, _ = run(capsys, path, "--plan", "--gpu", "L4")
    assert code == 3
    assert "brand_new" in out


def test_nothing_from_the_config_steers_a_terminal(capsys, model) -> None:
    config = {**shelf.QWEN3_06B, "architectures": ["x\u202e\u009b2J"], "auto_map": {"a": "evil\x1b[2J.py"}}
    path = model(config)
    for form in ((), ("--json",)):
        _, out, err = run(capsys, path, "--plan", "--gpu", "L4", *LOAD, *form)
        assert not UNSAFE.search(out + err)


def test_the_plan_goes_to_a_file(capsys, model, tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    code, out, _ = run(capsys, model(shelf.QWEN3_06B), "--plan", "--gpu", "L4", *LOAD, "-o", str(target))
    assert code == 0
    assert out.startswith("FITS")
    jsonschema.validate(json.loads(target.read_text()), schema("mopt.serving-plan/1"))


def test_what_a_checkpoint_says_steers_no_terminal(capsys, model) -> None:
    odd = "g\x1b[31mptq\u2028\u202e"
    config = {
        **shelf.LLAMA_31_8B,
        "architectures": [odd],
        "torch_dtype": odd,
        "quantization_config": {"quant_method": odd},
        "auto_map": {"AutoModel": f"{odd}.X"},
        "vision_config": {"x": odd},
    }
    _, out, err = run(capsys, model(config), "--plan", "--gpu", "L4", *LOAD)
    assert not UNSAFE.search(out + err)
    assert "\\x1b[31mptq" in out


def test_a_plan_for_an_adapter_asks_for_its_base(capsys, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(
        '{"base_model_name_or_path": "org/base", "peft_type": "LORA"}'
    )
    code, _, err = run(capsys, str(tmp_path), "--plan", "--gpu", "L4")
    assert code == 2
    assert "is an adapter (LORA) of org/base" in err
