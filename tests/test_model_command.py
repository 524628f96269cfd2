"""`mopt-doctor model` as it is typed: facts, faults, fit; its document and exit codes."""

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from doctor.cli import main
from doctor.report.escape import UNSAFE
from doctor.report.schemas import schema
from tests.optimize.checkpoints import NANO, write_model

DATA = Path(__file__).parent / "data" / "models"
HOSTS = Path(__file__).parent / "hosts"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(["model", *argv])
    out, err = capsys.readouterr()
    return code, out, err


def document(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    code, out, err = run(capsys, "--json", *argv)
    assert err == ""
    found: dict[str, Any] = json.loads(out)
    jsonschema.validate(found, schema("mopt.model/1"))
    assert found["exit_code"] == code
    return found


def named(folder: Path, name: str, **changes: Any) -> str:
    """The config of a published model, in a folder of its name."""
    (folder / name).mkdir(parents=True)
    config = {**json.loads((DATA / f"{name}.json").read_text()), **changes}
    (folder / name / "config.json").write_text(json.dumps(config))
    return str(folder / name / "config.json")


def test_a_whole_model_that_fits(capsys, tmp_path: Path) -> None:
    found = document(capsys, str(write_model(tmp_path / "nano", shards=2)), "--gpu", "L4")
    assert (found["verdict"], found["exit_code"], found["faults"]) == ("whole", 0, [])
    assert found["facts"]["parameters"] * 2 == found["stored_bytes"]
    assert found["kv_bytes_per_token"] == 3 * 2 * 64 * 2
    (fit,) = found["fits"]
    assert fit["memory"]["fits"]
    assert fit["memory"]["context_tokens"] == 512
    assert not fit["is_here"]


def test_the_text_says_what_counts(capsys, tmp_path: Path) -> None:
    code, out, err = run(capsys, named(tmp_path, "Qwen3-0.6B"), "--gpu", "H200")
    assert (code, err) == (0, "")
    for words in (
        "WHOLE:",
        "596,049,920 parameters",
        "28 layers: full, 16 heads of 128 over 8 KV heads",
        "40,960 tokens, rope_theta 1,000,000",
        "114,688 bytes a token in bfloat16",
        "FITS H200 SXM, 1 sequence of 40,960 tokens",
        "kv cache          4.38 GiB",
        "exit code 0: whole, and it fits",
    ):
        assert words in out
    # a path is not cut
    assert max(len(line) for line in out.splitlines() if "/" not in line) <= 80


def test_too_large_says_by_how_much_and_what_would_fit(capsys, tmp_path: Path) -> None:
    path = named(tmp_path, "Meta-Llama-3.1-70B")
    found = document(capsys, path, "--gpu", "H100 SXM5 80GB", "--context", "8192")
    assert found["exit_code"] == 1
    (fit,) = found["fits"]
    # 141 GB of weights against 92 % of 79.6 GiB
    assert 60 * 1024**3 < fit["memory"]["short_bytes"] < 64 * 1024**3
    assert fit["memory"]["is_certain"]
    ways = " | ".join(fit["would_fit"])
    assert "FP8 weights" in ways
    assert "4-bit weights" in ways
    assert "2 such GPUs" in ways
    # each way is true: 65.7 GiB of weights on each of two
    assert document(capsys, path, "--gpu", "H100 SXM5 80GBx2", "--context", "8192")["exit_code"] == 0
    code, out, _ = run(capsys, path, "--gpu", "H100 SXM5 80GB", "--context", "8192")
    assert code == 1
    assert "DOES NOT FIT H100 SXM5 80GB, 1 sequence of 8,192 tokens" in out
    assert "what would fit:" in out


def test_several_gpus_side_by_side(capsys, tmp_path: Path) -> None:
    found = document(
        capsys, named(tmp_path, "Qwen3-8B"), "--gpu", "T4", "--gpu", "H200x2", "--context", "4096"
    )
    assert [(fit["gpu"], fit["count"], fit["memory"]["fits"]) for fit in found["fits"]] == [
        ("Tesla T4", 1, False),
        ("H200 SXM", 2, True),
    ]
    assert found["exit_code"] == 1


def test_concurrency_and_cache_type(capsys, tmp_path: Path) -> None:
    path = named(tmp_path, "Meta-Llama-3.1-8B")

    def kv(*argv: str) -> int:
        parts = document(capsys, path, "--gpu", "H200", "--context", "8192", *argv)["fits"][0]["memory"][
            "components"
        ]
        return next(one["bytes"] for one in parts if one["name"] == "kv_cache")

    assert kv() == 1024**3
    assert kv("--concurrency", "32") == 32 * 1024**3
    assert kv("--concurrency", "32", "--kv-dtype", "fp8") == 16 * 1024**3


def test_the_gpus_of_a_recorded_host(capsys, tmp_path: Path) -> None:
    found = document(capsys, named(tmp_path, "Qwen3-0.6B"), "--from", str(HOSTS / "h200-ubuntu-24.04"))
    (fit,) = found["fits"]
    assert fit["memory"]["gpu_bytes"] > 139 * 1024**3
    assert fit["memory"]["fits"]


def test_a_broken_folder(capsys, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "nano", shards=2)
    shard = folder / "model-00001-of-00002.safetensors"
    os.truncate(shard, shard.stat().st_size - 10)
    found = document(capsys, str(folder), "--gpu", "L4")
    assert (found["verdict"], found["exit_code"]) == ("broken", 1)
    assert [fault["kind"] for fault in found["faults"]] == ["truncated"]
    code, out, _ = run(capsys, str(folder), "--gpu", "L4")
    assert code == 1
    assert out.startswith("BROKEN: ")
    assert "10 are missing" in " ".join(out.split())


def test_impossible_numbers_are_refused(capsys, tmp_path: Path) -> None:
    found = document(capsys, named(tmp_path, "Qwen3-0.6B", hidden_size=896), "--gpu", "L4")
    assert (found["verdict"], found["exit_code"]) == ("broken", 1)
    assert any("has 1024; 896 is that of Qwen/Qwen2.5-0.5B" in fault["message"] for fault in found["faults"])


def test_an_edited_rotation_is_refused(capsys, tmp_path: Path) -> None:
    found = document(capsys, named(tmp_path, "Qwen3-0.6B", rope_theta=10000.0), "--gpu", "L4")
    assert (found["verdict"], found["exit_code"]) == ("broken", 1)


def test_a_family_without_a_rule(capsys, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**NANO, "model_type": "qwen17"}))
    found = document(capsys, str(tmp_path / "config.json"), "--gpu", "L4")
    assert (found["verdict"], found["exit_code"], found["fits"]) == ("unknown", 3, [])
    assert found["facts"]["parameters"] is None
    code, out, _ = run(capsys, str(tmp_path / "config.json"), "--gpu", "L4")
    assert code == 3
    assert "unknown family: no rule for `model_type` `qwen17`" in " ".join(out.split())


def test_digests(capsys, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "nano")
    found = document(capsys, str(folder), "--gpu", "L4", "--digest")
    assert found["is_digested"]
    assert all(len(one["sha256"]) == 64 for one in found["files"])
    code, out, err = run(capsys, str(folder), "--gpu", "L4", "--digest")
    assert (code, err) == (0, "")
    assert all(f"{one['sha256']}  {one['name']}" in out for one in found["files"])


def test_the_answer_goes_to_a_file_and_comes_back(capsys, tmp_path: Path) -> None:
    path, saved = named(tmp_path, "gpt-oss-20b"), tmp_path / "model.json"
    _, text, _ = run(capsys, path, "--gpu", "H200", "-o", str(saved))
    assert main(["report", str(saved)]) == 0
    assert capsys.readouterr().out == text
    assert main(["report", str(saved), "--json"]) == 0
    assert capsys.readouterr().out.encode() == saved.read_bytes()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--context", "0"), "`--context` takes 1 to"),
        (("--concurrency", "-3"), "`--concurrency` takes 1 to"),
        (("--gpu", "Voodoo 2"), "does not know the memory of `Voodoo 2`"),
    ],
)
def test_what_cannot_be_asked(capsys, tmp_path: Path, argv: tuple[str, ...], words: str) -> None:
    code, out, err = run(capsys, str(write_model(tmp_path)), *argv)
    assert (code, out) == (2, "")
    assert words in err


def test_a_path_that_is_none(capsys, tmp_path: Path) -> None:
    code, out, err = run(capsys, str(tmp_path / "Qwen3-0.6B"))
    assert (code, out) == (2, "")
    assert "cannot be read" in err
    assert "names of a hub are not looked up" in err


def test_nothing_of_a_config_steers_the_terminal(capsys, tmp_path: Path) -> None:
    evil = "\x1b[31m\u202eevil"
    folder = write_model(tmp_path / "nano")
    config = {**NANO, "model_type": f"qwen3{evil}", "architectures": [evil], "auto_map": {"a": f"{evil}.b"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / f"{evil}.safetensors").write_bytes(b"x")
    for argv in ((), ("--json",)):
        _, out, _ = run(capsys, str(folder), "--gpu", "L4", *argv)
        assert not UNSAFE.search(out)


def test_a_snapshot_of_a_hub_is_known_by_its_repository(capsys, tmp_path: Path) -> None:
    snapshot = tmp_path / "models--Qwen--Qwen3-0.6B" / "snapshots" / ("a" * 40)
    config = json.loads((DATA / "Qwen3-0.6B.json").read_text())
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 27}))
    found = document(capsys, str(snapshot / "config.json"), "--gpu", "L4")
    assert [fault["message"] for fault in found["faults"]] == ["`layers` is 27; Qwen/Qwen3-0.6B has 28"]


def test_names_that_are_no_utf8_reach_the_document(capsys, tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.safetensors")).write_bytes(b"xx")
    (tmp_path / "config.json").write_text('{"model_type": "lla\\ud800ma", "architectures": ["\\udfffX"]}')
    found = document(capsys, str(tmp_path))
    assert [one["name"] for one in found["files"]] == ["config.json", "\\udcff.safetensors"]
    assert found["facts"]["model_type"] == "lla\\ud800ma"
    assert run(capsys, str(tmp_path))[0] == 1


def test_a_name_of_several_cards_is_told(capsys, tmp_path: Path) -> None:
    path = named(tmp_path, "Qwen3-0.6B")
    _, _, err = run(capsys, path, "--gpu", "A100")
    assert err.startswith("mopt-doctor: `A100` is taken for A100-SXM4-40GB; of its name are A100-SXM4-80GB, ")
    assert run(capsys, path, "--gpu", "A100", "--quiet")[2] == ""
    for one in ("A100-SXM4-80GB", "10de:2330", "L4", "H100 SXM5 80GBx8", "H100x8"):
        assert run(capsys, path, "--gpu", one)[2] == ""


def test_a_context_beyond_the_model_is_told(capsys, tmp_path: Path) -> None:
    path = named(tmp_path, "Meta-Llama-3.1-8B")
    _, out, _ = run(capsys, path, "--gpu", "L4x2", "--context", "1000000")
    assert "but the model was made for 131,072 tokens" in out
    assert "a context of 131072 tokens instead of 1000000" in out
    assert "was made for" not in run(capsys, path, "--gpu", "L4x2", "--context", "131072")[1]
