"""Answers where the rows end: what no row proves is no `yes`, and what no row refutes is no `no`."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from doctor.cli import main
from doctor.core.chain import components_of
from doctor.core.goal import Goal, Term, parse_goal
from doctor.core.resolve import ask
from doctor.core.solve.model import ABSENT
from doctor.core.solve.universe import Universe
from doctor.core.target import make_target
from doctor.edition.load import load_matrix
from tests.core.naive import Machine, complaints

UNIVERSE = Universe(load_matrix())
JETSON = str(Path(__file__).parents[1] / "hosts" / "jetson-orin")
WORDS = {0: "yes", 1: "no", 3: "unknown"}


def told(capsys: pytest.CaptureFixture[str], verb: str, *arguments: str) -> dict[str, Any]:
    code = main(["matrix", verb, "--json", *arguments])
    out = capsys.readouterr()
    assert out.err == ""
    answer: dict[str, Any] = json.loads(out.out)
    assert answer["compatible"] == WORDS[code]
    return answer


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        # A branch that a row of a kernel does not name.
        ("--kernel 7.2 driver==595.45.04", "unknown"),
        ("--kernel 7.2 driver==590.48.01", "unknown"),
        ("--kernel 7.2 driver==610.43.02", "unknown"),
        ("--kernel 7.2 driver==580.178.04", "yes"),
        ("--kernel 7.0 driver==610.43.02", "unknown"),
        ("--kernel 6.19 driver==610.43.02", "unknown"),
        ("--kernel 6.18 driver==595.44.02", "yes"),  # R590 knew 6.18 from its first release on
        ("--kernel 6.8 driver==595.91.07", "yes"),
        # The one kernel of a system.
        ("--os rocky-10 driver==550.107.02", "no"),
        ("--os ubuntu-26.04 driver==570.211.01", "unknown"),
        ("--os ubuntu-26.04 driver==550.163.01", "unknown"),
        ("--os ubuntu-26.04 driver==535.183.06", "no"),
        ("--os ubuntu-26.04 driver==580.178.04", "yes"),
        # Changes that older stable kernels took as well.
        ("--os debian-12 --kernel 6.1.76 driver==535.154.05", "unknown"),
        ("--os debian-12 --kernel 5.10.210 driver==535.154.05", "unknown"),
        ("--os debian-12 --kernel 5.10.209 driver==535.154.05", "yes"),
        ("--os debian-12 --kernel 5.10.210 driver==580.178.04", "yes"),
        # A floor says nothing upwards.
        ("--gpu RTX_5090 tensorrt==10.7.0", "unknown"),
        ("--gpu B200 tensorrt==10.3.0", "unknown"),
        ("--gpu B300 tensorrt==10.8.0.43", "unknown"),
        ("--gpu B200 tensorrt==11.4.0.106", "yes"),
        ("--gpu H200 tensorrt==10.3.0", "yes"),
        # A candidate is not its final.
        ("--gpu H200 tensorrt-llm==1.3.0", "unknown"),
        ("--gpu H200 tensorrt-llm==1.4.0", "unknown"),
        ("--gpu H200 tensorrt==10.14.1", "yes"),
        # A stub that states no dependencies has some.
        ("--gpu H200 vllm==0.33.0 tensorrt-llm==0.17.0.post1", "unknown"),
        ("--gpu H200 vllm==0.33.0 tensorrt-llm==1.2.1", "no"),
        # The driver that a toolkit came with is enough for it.
        ("driver==450.51.06 cuda==11.0", "unknown"),  # that driver has no row
        ("driver==450.80.02 cuda==11.0", "yes"),
        ("--have driver==450.51.06 --goal cuda==11.0", "yes"),
        ("--have driver==450.51.06 --goal cuda==11.1", "no"),
        ("--have driver==450.51.05 --goal cuda==11.0", "yes"),
        # Compat libraries that nothing needs.
        ("--gpu T4 driver==580.178.04 container-toolkit==1.17.4 cuda-compat==580.95.05 cuda==12.4", "yes"),
        ("--gpu T4 driver==570.211.01 container-toolkit==1.17.4 cuda-compat==580.95.05 cuda==13.0", "no"),
        ("--gpu T4 driver==570.211.01 container-toolkit==1.17.5 cuda-compat==580.95.05 cuda==13.0", "yes"),
        # A release without bindings.
        ("--gpu H200 --python 3.12 tensorrt==10.14.1.48", "unknown"),
        ("--gpu H200 --python 3.12 tensorrt==10.14.1.48.post1", "yes"),
    ],
)
def test_a_set(arguments: str, wanted: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word.replace("_", " ") for word in arguments.split()]
    delivery = ("--goal", "delivery=container") if "container-toolkit" in arguments else ()
    assert told(capsys, "why", *words, *delivery)["compatible"] == wanted


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ("--gpu P100 --os ubuntu-26.04 --goal use=engine-build --have driver==535.183.06", "unknown"),
        ("--gpu GTX_1080 --os ubuntu-22.04 --goal use=engine-build", "unknown"),
        ("--gpu GTX_1080 --os ubuntu-22.04 --goal tensorrt", "unknown"),
        ("--gpu H200 --os ubuntu-24.04 --goal tensorrt-llm==1.3.0", "unknown"),
        ("--gpu H200 --os ubuntu-22.04 --goal tensorrt", "yes"),
        ("--gpu B200 --os ubuntu-22.04 --goal tensorrt", "yes"),
        (
            "--os rocky-10 --gpu L4 --have driver==550.107.02 --hold driver --goal torch==2.6.0",
            "no",
        ),
    ],
)
def test_a_pick(arguments: str, wanted: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word.replace("_", " ") for word in arguments.split()]
    answer = told(capsys, "pick", *words)
    assert answer["compatible"] == wanted


@pytest.mark.parametrize(
    ("gpu", "goal"),
    list(
        itertools.product(
            ("P100", "T4", "A100", "RTX 5090", "B200"),
            ("tensorrt", "torch", "use=engine-build", "torch-tensorrt"),
        )
    ),
)
def test_what_is_picked_is_answered_yes(gpu: str, goal: str) -> None:
    """`pick` once took what `why` refuses: TensorRT 8.6 as a CUDA 13 build on a driver of R535."""
    wanted = parse_goal(goal)
    have = [Term(component="driver", spec="==535.183.06")]
    target = make_target(UNIVERSE.matrix, gpus=[gpu], os="ubuntu-22.04", have=have)
    found = ask(UNIVERSE, target, wanted, mode="pick", policy="repair")
    if found.answer != "yes":
        return
    stack = {name: version for name, version in components_of(found).items() if version != ABSENT}
    parts = [
        Term(component=name, spec=f"=={version}")
        for name, version in stack.items()
        if name not in ("os", "kernel", "glibc", "cuda-repo")
    ]
    goal_of_all = Goal(terms=tuple(parts))
    bare = make_target(UNIVERSE.matrix, gpus=[gpu], os="ubuntu-22.04")
    assert ask(UNIVERSE, bare, goal_of_all, mode="why", policy="repair").answer == "yes"
    machine = Machine(target.gpus[0].pci_id, 1, "ubuntu-22.04")
    assert complaints(UNIVERSE.matrix.edition, machine, stack) == []


def test_two_engines_have_one_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    answer = told(
        capsys, "pick", "--gpu", "H200", "--os", "ubuntu-24.04", "--goal", "vllm==0.33.0,tensorrt-llm==1.2.1"
    )
    assert answer["compatible"] == "no"
    assert [hint["text"].partition(":")[0] for hint in answer["hints"]] == [
        "an environment of its own for each engine"
    ]


def test_a_line_without_a_release_is_no_neighbour(capsys: pytest.CaptureFixture[str]) -> None:
    """8.5 once named 8.6 as the nearest, and 8.6 named 8.5."""
    for line in ("8.5", "8.6", "8.4"):
        answer = told(capsys, "why", "--gpu", "P100", f"tensorrt=={line}")
        assert answer["compatible"] == "unknown"
        assert "8.5" not in answer["nearest"]
        assert "8.6" not in answer["nearest"]


def test_a_kernel_older_than_the_rows_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    answer = told(capsys, "why", "--os", "rocky-9", "driver==550.107.02")
    assert answer["compatible"] == "yes"
    assert any("kernel 5.14" in text for text in answer["advice"])


@pytest.mark.parametrize(
    ("verb", "arguments", "wanted"),
    [
        ("pick", ("--goal", "vllm"), "unknown"),
        ("why", ("vllm==0.33.0",), "unknown"),
        ("why", ("driver==580.178.04",), "no"),
    ],
)
def test_a_jetson_has_the_driver_of_its_maker(
    verb: str, arguments: tuple[str, ...], wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = told(capsys, verb, "--from", JETSON, *arguments)
    assert answer["compatible"] == wanted
    chain = answer["because"] or answer["conflict"]
    assert "jetson-driver-from-jetpack" in {link["relation"] for link in chain}
    changed = [change["component"] for hint in answer["hints"] for change in hint["changes"]]
    assert "driver" not in changed
    assert not any("bulletin" in text for text in answer["advice"])
