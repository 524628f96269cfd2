"""`matrix why --env` and `--image` as commands: what they answer, and what they refuse."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from doctor.cli import main
from tests.evidence.test_environments import plant
from tests.facts.test_imageconfig import BASE, inspect

H200 = ["--gpu", "H200", "--os", "ubuntu-24.04", "--have", "driver==580.159.04"]
HOST = Path(__file__).parent / "hosts" / "h200-ubuntu-24.04"


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*words: str) -> tuple[int, str, str]:
        code = main(["matrix", "why", *words])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def venv(tmp_path: Path) -> str:
    plant(tmp_path / "v")
    return str(tmp_path / "v")


def test_an_environment_that_would_run(ask: Any, venv: str) -> None:
    code, out, err = ask("--env", venv, *H200)
    assert (code, err) == (0, "")
    assert " ".join(out.split()).startswith(f"would the environment `{venv}` run on H200 SXM, ubuntu-24.04")
    assert "\nYES (matrix" in out
    assert "read: venv with vllm 0.11.2, torch 2.9.0+cu128 (CUDA 12.8)" in out


def test_one_that_would_not_with_the_proof_and_what_would_help(ask: Any, venv: str) -> None:
    code, out, _ = ask("--env", f"{venv}/bin/python", "--gpu", "H100", "--have", "driver==550.144.03")
    assert code == 1
    assert "\nNO (matrix" in out
    assert "222" in out
    assert "driver 570.26 or newer" in out
    assert "sources:" in out


def test_as_json(ask: Any, venv: str) -> None:
    code, out, _ = ask("--env", venv, "--gpu", "P40", "--have", "driver==580.159.04", "--json")
    said = json.loads(out)
    assert (code, said["schema"], said["compatible"], said["exit_code"]) == (1, "mopt.why/1", "no", 1)
    assert {link["relation"] for link in said["because"]} == {"torch-compiled-cc", "vllm-min-cc"}
    assert all(link["source"] for link in said["because"])
    assert 1 <= len(said["hints"]) <= 3
    assert said["environment"]["torch"] == "2.9.0+cu128"
    assert said["components"]["vllm"] == "0.11.2"


def test_without_a_driver_it_is_not_known(ask: Any, venv: str) -> None:
    code, out, _ = ask("--env", venv, "--gpu", "H200", "--json")
    assert (code, json.loads(out)["compatible"]) == (3, "unknown")


def test_on_a_recorded_host(ask: Any, venv: str) -> None:
    code, out, _ = ask("--env", venv, "--from", str(HOST), "--json")
    said = json.loads(out)
    assert (code, said["compatible"]) == (0, "yes")
    # What lies on this machine's disk says nothing about that machine's compilers.
    assert said["environment"]["compilers"] == []
    older = ask("--env", venv, "--from", str(HOST), "--have", "driver==550.144.03")
    assert older[0] == 1


HOSTS = Path(__file__).parent / "hosts"


@pytest.mark.parametrize(
    ("host", "answer", "relation"),
    [
        # `check` says NOT READY of the first, and of Jetson's own driver no row tells.
        ("hgx-h100-no-fabric-manager", 1, "fabric-manager"),
        ("jetson-orin", 3, "jetson-driver-from-jetpack"),
    ],
)
def test_the_machine_has_a_say(ask: Any, venv: str, host: str, answer: int, relation: str) -> None:
    (triton,) = Path(venv).glob("lib/*/site-packages/triton-*")
    triton.rmdir()  # it would ask for a compiler, which neither machine has
    code, out, _ = ask("--env", venv, "--from", str(HOSTS / host), "--json")
    said = json.loads(out)
    assert code == answer, said["because"]
    assert relation in {link["relation"] for link in said["because"]}


def test_a_pipe_that_nobody_writes_to_is_no_image(ask: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    code, _, err = ask("--image", str(tmp_path / "pipe"), *H200)
    assert code == 2
    assert "no image's configuration" in err


BESIDE = Path(__file__).parent / "hosts" / "environments-beside-a-healthy-host"


@pytest.mark.parametrize(
    ("path", "answer"), [("/opt/vllm", 0), ("/home/ann/exchanged", 1), ("/srv/tools/.venv", 0)]
)
def test_an_environment_of_the_bundle_itself(ask: Any, path: str, answer: int) -> None:
    code, out, _ = ask("--env", path, "--from", str(BESIDE))
    assert code == answer, out


def test_a_named_environment_without_cuda_is_no_environment_for_a_gpu(ask: Any, tmp_path: Path) -> None:
    plant(tmp_path / "cpu", torch="2.9.0+cpu", cuda="None")
    code, out, _ = ask("--env", str(tmp_path / "cpu"), *H200)
    assert code == 1
    assert "is a build without CUDA" in out


def test_an_image(ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = json.dumps(inspect(BASE, tags=("vllm/vllm-openai:v0.11.2",)))
    (tmp_path / "image.json").write_text(config)
    code, out, _ = ask(
        "--image", str(tmp_path / "image.json"), "--gpu", "RTX 5090", "--have", "driver==570.124.04"
    )
    assert code == 1
    assert "NVIDIA_REQUIRE_CUDA demands cuda>=12.9" in out
    assert "read: image with vllm 0.11.2, CUDA 12.9" in out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(config.encode())))
    assert ask("--image", "-", *H200)[0] == 0


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--env", "/no/such/place"], 2, "`/no/such/place` does not exist"),
        (["--env", "/no/such/place", *H200], 2, "`/no/such/place` does not exist"),
        (["--env", "/etc", *H200], 2, "holds no Python environment"),
        (["--env", "", *H200], 2, "names no environment"),
        (["--env", "/etc", "--image", "x"], 2, "two questions"),
        (["--env", "/etc", "vllm==0.33.0"], 2, "take no combination"),
        (["--env", "/etc", "--goal", "vllm==0.33.0"], 2, "take no combination"),
        (["--env", "/etc", "--from", str(HOST), "--gpu", "H200"], 2, "two machines"),
        (["--image", "/no/such/file", *H200], 2, "cannot be read"),
        (["--image", "/etc/hostname", *H200], 2, "is no image's configuration"),
        (["--image", "/dev/zero", *H200], 2, "no image's configuration"),
    ],
)
def test_what_cannot_be_meant(ask: Any, words: list[str], code: int, says: str) -> None:
    got, out, err = ask(*words)
    assert (got, out) == (code, ""), err
    assert says in err


def test_check_takes_an_environment_and_refuses_one_beside_a_bundle(venv: str, capsys: Any) -> None:
    assert main(["check", "--from", str(HOST), "--env", venv]) == 2
    assert "matrix why --env" in capsys.readouterr().err
    main(["check", "--env", venv, "--json"])
    said = json.loads(capsys.readouterr().out)
    mine = [f for f in said["findings"] if f["scope"] == f"venv:{venv}"]
    # On a machine without a GPU each of its checks says so; with one, it is judged.
    assert {f["area"] for f in mine} in ({"engine"}, set())


def test_control_characters_of_a_folder_never_reach_the_terminal(ask: Any, tmp_path: Path) -> None:
    plant(tmp_path / "a\x1b[2Jb", torch="2.9.0")
    _, out, _ = ask("--env", str(tmp_path / "a\x1b[2Jb"), *H200)
    assert "\x1b" not in out
