"""`check --goal`, goal files and plain goals, through the public command line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from doctor.cli import main
from doctor.report.schemas import schema

HOSTS = Path(__file__).parent / "hosts"
FOREIGN = Path(__file__).parent / "data" / "foreign"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main(arguments)
        except SystemExit as end:
            code = int(end.code or 0)
        out = capsys.readouterr()
        return code, out.out, out.err

    return call


def check(host: str, *more: str) -> tuple[str, ...]:
    return ("check", "--from", str(HOSTS / host), *more)


@pytest.mark.parametrize(
    ("host", "goal", "code", "field"),
    [
        ("healthy-rocky9-proprietary", "present", 0, ""),
        ("healthy-rocky9-proprietary", "driver>=580", 0, "stack"),
        ("healthy-rocky9-proprietary", "driver>=595", 1, "stack"),
        ("healthy-rocky9-proprietary", "vllm==0.33.0", 3, "stack"),
        ("healthy-rocky9-proprietary", "vllm==0.99.0", 3, "conflict"),
        ("healthy-debian-12", "vllm==0.33.0", 1, "stack"),
        ("healthy-debian-12", "torch==2.6.0,use=fp8", 1, "conflict"),
        ("no-gpu-debian-12", "vllm", 1, ""),
    ],
)
def test_check_judges_for_a_goal(run: Any, host: str, goal: str, code: int, field: str) -> None:
    got, data, complaint = run(*check(host, "--goal", goal, "--json"))
    report = json.loads(data)
    Draft202012Validator(schema("mopt.check/1")).validate(report)
    assert (got, report["exit_code"], complaint) == (code, code, "")
    assert report["goal"] == goal
    assert bool(report["stack"]) is (field == "stack")
    assert bool(report["conflict"]) is (field == "conflict")
    text = run(*check(host, "--goal", goal))[1]
    assert [line for line in text.splitlines() if len(line) > 80 and "mopt-doctor " not in line] == []
    assert (f"goal: {goal}" in text) is bool(field)


def test_a_bad_goal_is_refused_before_anything_is_collected(run: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(
        "doctor.evidence.live.start_collecting", lambda **_: pytest.fail("collected for a goal that is none")
    )
    for goal, word in (
        ("vlm==1", "no component `vlm`"),
        ("vllm=1", "no term of a goal"),
        ("use=fp9", "use=fp9"),
        ("", "names nothing"),
        ("driver==abc", "`driver==abc`"),
        ("@/none/such.yaml", "cannot be read"),
    ):
        code, out, complaint = run("check", "--goal", goal)
        assert (code, out) == (2, "")
        assert word in complaint, complaint


def test_a_plain_component_is_its_newest_that_fits(run: Any) -> None:
    """An interpreter of its own beside the system's 3.9 stops nothing: it is no reason for an older vLLM."""
    code, data, _ = run(
        "matrix", "pick", "--from", str(FOREIGN / "safe-mode-2026.log"), "--goal", "vllm", "--json"
    )
    answer = json.loads(data)
    assert (code, answer["goal"]) == (0, "vllm")
    assert answer["components"]["vllm"] == "0.33.0"
    assert answer["components"]["driver"] == "580.95.05"
    assert "driver" in answer["keeps"]


def test_several_components_in_one_goal(run: Any) -> None:
    arguments = ("--gpu", "H200", "--os", "ubuntu-24.04", "--kernel", "6.8", "--json")
    code, data, _ = run(
        "matrix",
        "pick",
        *arguments,
        "--goal",
        "vllm,driver<590",
        "--goal",
        "container-toolkit,use=fp8,delivery=container",
    )
    answer = json.loads(data)
    assert code == 0
    assert answer["goal"] == "vllm,driver<590,container-toolkit,use=fp8,delivery=container"
    assert answer["delivery"] == "container"
    assert {"vllm", "driver", "container-toolkit"} <= set(answer["components"])


def test_a_fresh_host_gets_a_branch_that_has_had_its_corrections(run: Any) -> None:
    """R620 is long-term and the latest, and one release of it is known: its first corrections are to come."""
    arguments = ("--gpu", "H200", "--os", "ubuntu-24.04", "--kernel", "6.8", "--json")
    answer = json.loads(run("matrix", "pick", *arguments, "--goal", "vllm==0.33.0")[1])
    assert answer["components"]["driver"].startswith("580.")


@pytest.mark.parametrize("report", ["safe-mode-2026.log", "nvidia-smi.txt", "collect-env-vllm.txt"])
def test_reports_of_others_are_targets(run: Any, report: str) -> None:
    code, data, complaint = run("matrix", "pick", "--from", str(FOREIGN / report), "--goal", "vllm", "--json")
    assert code in (0, 1, 3), complaint
    target = json.loads(data)["target"]
    assert target["gpus"]
    assert any(term["component"] == "driver" for term in target["have"])


# --- goal files -----------------------------------------------------------------------------------

PLAIN = "# what this node serves\nvllm==0.33.0\nuse=fp8   # on Hopper\n\npolicy=harden\n"
LISTED = "- vllm==0.33.0\n- use=fp8\n- policy=harden\n"
MAPPED = 'components: {vllm: "==0.33.0"}\nuse: [fp8]\npolicy: harden\n'
WANTED = "vllm==0.33.0,use=fp8,policy=harden"


@pytest.mark.parametrize(
    ("name", "text"),
    [("node.goal", PLAIN), ("node.txt", PLAIN), ("node.yaml", LISTED), ("node.yml", MAPPED), ("node", PLAIN)],
)
def test_goal_files_hold_the_same_terms(run: Any, tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    arguments = ("matrix", "pick", "--gpu", "H200", "--json", "--goal")
    for written in (f"@{path}", str(path)):
        answer = json.loads(run(*arguments, written)[1])
        assert (answer["goal"], answer["policy"]) == (WANTED, "harden")
    code, data, _ = run(*check("healthy-rocky9-proprietary", "--goal", f"@{path}", "--json"))
    assert json.loads(data)["goal"] == WANTED
    assert code in (1, 3)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "x.yaml",
            'component: {vllm: "==1"}\nuse: fp8\n',
            ("x.yaml:1: component: unknown field", "x.yaml:2: use: a list"),
        ),
        ("x.yaml", "components: {vllm: 0.33}\n", ("`0.33` reads as a number here",)),
        ("x.goal", "# nothing\n", ("has 0 terms",)),
        ("x.goal", "vllm==1\n" * 300, ("has 300 terms",)),
        ("x.goal", "vllm=1\n", ("no term of a goal",)),
        ("x.goal", "#" * 70_000, ("more than 65536 bytes",)),
    ],
)
def test_faults_of_goal_files(run: Any, tmp_path: Path, name: str, text: str, words: tuple[str, ...]) -> None:
    (tmp_path / name).write_text(text)
    code, out, complaint = run("matrix", "pick", "--gpu", "H200", "--goal", f"@{tmp_path / name}")
    assert (code, out) == (2, "")
    for word in words:
        assert word in complaint


def test_a_goal_file_is_a_regular_file_of_utf8(run: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "latin").write_bytes(b"\xff\xfe")
    for name, word in (("fifo", "no regular file"), ("latin", "not UTF-8"), ("none", "cannot be read")):
        code, _, complaint = run("matrix", "pick", "--gpu", "H200", "--goal", f"@{tmp_path / name}")
        assert code == 2
        assert word in complaint


def test_root_reads_no_goal_file_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from doctor.commands.goal_file import read_goal_file
    from doctor.errors import ConfigError

    path = tmp_path / "node.goal"
    path.write_text(PLAIN)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("doctor.config.ownership_faults", lambda _path: iter(("`x` is owned by uid 1000",)))
    with pytest.raises(ConfigError, match="root would believe the goal file"):
        read_goal_file(str(path))


def test_the_other_policy_is_shown_whichever_was_asked_for(run: Any) -> None:
    """With its price: repair keeps a driver of an ended branch that harden replaces."""
    arguments = ("matrix", "pick", "--from", str(HOSTS / "healthy-debian-12"), "--goal")
    asked = json.loads(run(*arguments, "torch==2.6.0,policy=harden", "--json")[1])
    plain = json.loads(run(*arguments, "torch==2.6.0", "--json")[1])
    assert (asked["policy"], asked["other_policy"]["policy"]) == ("harden", "repair")
    assert (plain["policy"], plain["other_policy"]["policy"]) == ("repair", "harden")
    assert asked["other_policy"]["components"]["driver"] == plain["components"]["driver"] == "535.247.01"
    assert plain["other_policy"]["components"]["driver"] == asked["components"]["driver"]
    text = " ".join(run(*arguments, "torch==2.6.0")[1].split())
    assert "policy harden: driver 580.178.04" in text
    assert "min, reboot)" in text
