"""`matrix pick` and `matrix why` as commands: exit codes, documents, 80 columns, faults of the asker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from doctor.cli import main
from doctor.report.schemas import schema

HOSTS = Path(__file__).parent / "hosts"
BOX = ("--gpu", "10de:20b5", "--os", "ubuntu-22.04", "--python", "3.12")
PICK = ("matrix", "pick", *BOX, "--kernel", "5.15")
WHY = ("matrix", "why", *BOX)
OLD = ("--have", "driver==570.133.20")


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main(arguments)
        except SystemExit as end:
            code = int(end.code or 0)
        out = capsys.readouterr()
        return code, out.out, out.err

    return run


ANSWERS = [
    ((*PICK, "--goal", "vllm==0.33.0"), 0),
    ((*PICK, *OLD, "--hold", "driver", "--goal", "vllm==0.33.0"), 1),
    ((*PICK, "--goal", "vllm==0.40.0"), 3),
    ((*PICK, *OLD, "--goal", "torch>=2.8,policy=harden", "--alternatives", "2"), 0),
    ((*WHY, *OLD, "vllm==0.33.0"), 1),
    ((*WHY, "vllm==0.33.0", "driver==580.126.09"), 0),
    ((*WHY, "vllm==0.40.0"), 3),
    (("matrix", "why", "flag:--swap-space", "vllm==0.33.0"), 1),
    (("matrix", "why", "flag:--swap-space", "vllm==0.17.0"), 0),
    (("matrix", "why", "metric:vllm:gpu_cache_usage_ratio"), 1),
    (("matrix", "why", "--gpu", "MI300X", "cuda==12.9"), 1),
    (("matrix", "why", "--gpu", "10de:ffff", "driver==580.126.09"), 3),
    (("matrix", "why", "vllm==0.33.0", "tensorrt-llm==1.2.1"), 1),
    (("matrix", "why", "torch==2.13.1"), 1),
    (("matrix", "why", "--have", "driver==595.91.07", "--gpu", "L40", "--goal", "cuda==13.0,use=nvcc"), 1),
    (("matrix", "pick", "--gpu", "B200x8", "--os", "ubuntu-24.04", "--goal", "cuda==12.9,use=nvcc"), 0),
    (("matrix", "pick", "--gpu", "GH200 144G HBM3e", "--os", "ubuntu-24.04", "--goal", "vllm==0.33.0"), 0),
    (("matrix", "pick", "--gpu", "A100", "--gpu", "V100", "--goal", "vllm>=0.10"), 0),
]


@pytest.mark.parametrize(("arguments", "code"), ANSWERS, ids=[" ".join(a[1:])[:60] for a, _code in ANSWERS])
def test_answers_as_text_and_as_documents(ask: Any, arguments: tuple[str, ...], code: int) -> None:
    got, text, complaint = ask(*arguments)
    assert (got, complaint) == (code, "")
    assert [line for line in text.splitlines() if len(line) > 80 or line != line.rstrip()] == []
    word = {0: "YES (", 1: "NO (", 3: "NOT KNOWN ("}[code]
    assert [line for line in text.splitlines() if line.startswith(word)]
    got, data, _ = ask(*arguments, "--json")
    assert got == code
    document = json.loads(data)
    Draft202012Validator(schema(document["schema"])).validate(document)
    assert document["exit_code"] == code
    assert document["compatible"] == {0: "yes", 1: "no", 3: "unknown"}[code]
    chain = document.get("conflict") or document["because"]
    assert all(link["source"] or link["kind"] != "relation" or not link["is_known"] for link in chain), chain
    assert len(document["hints"]) <= 3
    if code == 3:
        assert document["nearest"]
        assert document.get("changes", []) == []


def test_two_kinds_of_gpus_have_to_be_served_by_one_stack(ask: Any) -> None:
    _, data, _ = ask("matrix", "pick", "--gpu", "A100", "--gpu", "V100", "--goal", "vllm>=0.10", "--json")
    answer = json.loads(data)
    assert answer["components"]["vllm"] == "0.19.1"
    assert answer["components"]["kernel-modules"] == "proprietary"
    code, _, _ = ask("matrix", "pick", "--gpu", "B200", "--gpu", "V100", "--goal", "driver>=570")
    assert code == 1


def test_a_container_lifts_what_the_system_lacks(ask: Any) -> None:
    """glibc 2.28 is too old for nothing here; a held interpreter is what a container may not replace."""
    common = ("matrix", "pick", "--gpu", "L4", "--os", "rocky-8", "--python", "3.6", "--goal")
    _, data, _ = ask(*common, "vllm==0.33.0,delivery=container", "--json")
    answer = json.loads(data)
    assert (answer["compatible"], answer["delivery"]) == ("yes", "container")
    assert "python" not in answer["components"]
    assert "container-toolkit" in answer["components"]
    code, _, _ = ask(*common, "vllm==0.33.0,delivery=system")
    assert code == 1
    code, _, _ = ask(*common, "vllm==0.33.0", "--hold", "python")
    assert code == 1


def test_policies_differ_and_both_are_shown(ask: Any) -> None:
    """An ended branch that works stays under `repair`, and goes under `harden`."""
    arguments = (*PICK, *OLD, "--goal", "torch==2.10.0", "--json")
    answer = json.loads(ask(*arguments)[1])
    assert answer["changes"] == []
    assert answer["components"]["driver"] == "570.133.20"
    assert [c["component"] for c in answer["other_policy"]["changes"]] == ["driver"]
    assert answer["other_policy"]["components"]["driver"] == "580.178.04"
    assert any("open bulletins" in text for text in answer["advice"])


def test_a_stack_is_saved_as_a_lock(ask: Any, tmp_path: Path) -> None:
    target = tmp_path / "stack.json"
    code, text, _ = ask(*PICK, "--goal", "vllm==0.33.0", "-o", str(target))
    assert code == 0
    assert "stack, in a virtual environment" in text
    assert json.loads(target.read_text())["components"]["vllm"] == "0.33.0"
    code, _, complaint = ask(*PICK, "--goal", "vllm==0.33.0", "-o", str(tmp_path / "no" / "x"))
    assert code == 2
    assert "cannot be written" in complaint


def test_a_recorded_host_is_a_target(ask: Any) -> None:
    code, data, _ = ask(
        "matrix", "pick", "--from", str(HOSTS / "h200-ubuntu-24.04"), "--goal", "vllm==0.33.0", "--json"
    )
    answer = json.loads(data)
    target = answer["target"]
    assert code == {"yes": 0, "no": 1, "unknown": 3}[answer["compatible"]]
    assert target["gpus"][0]["name"] == "H200 SXM"
    assert any(term["component"] == "driver" for term in target["have"])


@pytest.mark.parametrize("host", ["pascal-on-595", "volta-open", "secureboot-rejected", "wsl2-healthy"])
def test_what_is_there_on_recorded_hosts(ask: Any, host: str) -> None:
    code, data, _ = ask("matrix", "why", "--from", str(HOSTS / host), "--json")
    answer = json.loads(data)
    relations = {link["relation"] for link in answer["because"]}
    wanted = {
        "pascal-on-595": (1, "gpu-last-driver"),
        "volta-open": (1, "proprietary-required"),
        "secureboot-rejected": (0, ""),
        "wsl2-healthy": (3, "wsl-driver-on-windows"),
    }[host]
    assert code == wanted[0], answer["because"]
    assert not wanted[1] or wanted[1] in relations


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("matrix", "pick", "--gpu", "H200", "--goal", "vlm==1"), "nearest: `vllm`"),
        (("matrix", "pick", "--gpu", "H200", "--goal", "vllm=1"), "no term of a goal"),
        (("matrix", "pick", "--gpu", "H200", "--goal", "driver==abc"), "`driver==abc`"),
        (("matrix", "pick", "--gpu", "H200", "--kernel", "new", "--goal", "driver>=580"), "no kernel"),
        (
            ("matrix", "pick", "--gpu", "H200", "--have", "driver>=1", "--goal", "driver>=580"),
            "not what is installed",
        ),
        (("matrix", "pick", "--gpu", "H200", "--from", "x", "--goal", "driver>=580"), "two machines"),
        (("matrix", "pick", "--gpu", "H200", "--alternatives", "99", "--goal", "driver>=580"), "0 to 20"),
        (("matrix", "pick", "--gpu", "H200", "--hold", "driver", "--goal", "torch>=2"), "holds nothing"),
        (("matrix", "why", "--gpu", "H200"), "wants a combination"),
        (("matrix", "why", "driver"), "no term of a goal"),
        (("matrix", "why", "--from", str(HOSTS / "no-gpu-debian-12")), "nothing that the matrix knows"),
    ],
)
def test_faults_of_the_asker(ask: Any, arguments: tuple[str, ...], word: str) -> None:
    code, out, complaint = ask(*arguments)
    assert (code, out) == (2, "")
    assert word in complaint
