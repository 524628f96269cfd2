"""The grammar of goals, and targets that are only named."""

from __future__ import annotations

import pytest

from doctor.core.goal import PRESENT, Goal, NamedThing, Term, parse_goal, parse_term
from doctor.core.target import find_gpu, make_target, system_of
from doctor.edition.load import load_matrix
from doctor.errors import UsageError

MATRIX = load_matrix()


def test_present_is_the_goal_of_no_words() -> None:
    assert parse_goal("present") is parse_goal("") is PRESENT
    assert Goal() == PRESENT


def test_a_goal_with_everything() -> None:
    goal = parse_goal(
        "vllm>=0.30, <0.33, use=fp8,delivery=venv,policy=harden,flag:--port,metric:vllm:x,cuda==12.9.*"
    )
    assert goal.terms == (
        Term(component="vllm", spec=">=0.30,<0.33"),
        Term(component="cuda", spec="==12.9.*"),
    )
    assert goal.uses == ("fp8",)
    assert (goal.delivery, goal.policy) == ("venv", "harden")
    assert goal.names == (
        NamedThing(kind="flag", name="--port"),
        NamedThing(kind="metric", name="vllm:x"),
    )


def test_a_component_without_a_set_is_any_version_of_it() -> None:
    goal = parse_goal("vllm, use=fp8")
    assert goal.terms == (Term(component="vllm", spec="*"),)
    assert (goal.terms[0].text, goal.uses) == ("vllm", ("fp8",))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Vllm", "`Vllm`"),
        ("vllm=0.33", "`vllm=0.33`"),
        ("use=fp9", "use=fp9"),
        ("delivery=snap", "delivery=snap"),
        ("policy=repair,policy=harden", "twice"),
        ("flag:", "names nothing"),
        ("==0.33", "==0.33"),
    ],
)
def test_what_is_no_goal(text: str, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        parse_goal(text)


@pytest.mark.parametrize(
    ("text", "name", "count", "nvswitch"),
    [
        ("H200", "H200 SXM", 1, False),
        ("H200x8", "H200 SXM", 8, True),
        ("10de:2335 x8", "H200 SXM", 8, True),
        ("10DE:2331", "H100 PCIe", 1, False),
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090", 1, False),
        ("rtx 4060 laptop", "GeForce RTX 4060 Laptop", 1, False),
        ("B200x8", "B200", 8, True),
        ("L4", "L4", 1, False),
        ("A10-24Q", "A10", 1, False),
    ],
)
def test_a_gpu_by_name(text: str, name: str, count: int, nvswitch: bool) -> None:
    kind = find_gpu(MATRIX, text)
    assert (kind.name, kind.count, kind.is_nvswitch, kind.maker) == (name, count, nvswitch, "nvidia")
    assert kind.compute_capability


def test_gpus_that_are_not_ours() -> None:
    assert find_gpu(MATRIX, "Instinct MI300X").maker_name == "AMD"
    assert find_gpu(MATRIX, "1002:74a1").maker == "other"
    assert find_gpu(MATRIX, "8086:56a0").maker_name == "Intel"
    unknown = find_gpu(MATRIX, "10de:ffff")
    assert unknown.maker == "unknown"
    assert len(unknown.nearest) == 2
    assert find_gpu(MATRIX, "Voodoo 5").maker == "unknown"
    with pytest.raises(UsageError, match="names no GPU"):
        find_gpu(MATRIX, "L4x0")


def test_classes_of_cards() -> None:
    classes = {name: find_gpu(MATRIX, name).products for name in ("RTX A6000", "A40", "GTX 1080", "Tesla T4")}
    assert classes == {
        "RTX A6000": "geforce-rtx",
        "A40": "data-center",
        "GTX 1080": "geforce-rtx",
        "Tesla T4": "data-center",
    }


def test_systems_by_the_names_that_hosts_have() -> None:
    for name in ("rocky-9", "rocky-9.6", "Rocky 9.6", "rhel-9", "almalinux_9.4"):
        row = system_of(MATRIX, name)
        assert row is not None
        assert row.system == "rocky-9"
    assert system_of(MATRIX, "ubuntu-24.04") is not None
    assert system_of(MATRIX, "ubuntu-24.05") is None


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ({"gpus": ["Jetson AGX Thor"]}, "jetpack"),
        ({"os": "dgx-os-6", "gpus": ["A100"]}, "dgx-os"),
        ({"os": "ubuntu-24.04", "kernel": "6.6.87.2-microsoft-standard-WSL2"}, "windows"),
        ({"gpus": ["A10-24Q"]}, "vgpu-guest"),
        ({"gpus": ["A10"], "os": "ubuntu-24.04", "kernel": "6.8"}, ""),
    ],
)
def test_whose_driver_it_is(words: dict[str, object], kind: str) -> None:
    assert make_target(MATRIX, **words).driver_kind == kind  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("have", "hold", "word"),
    [
        (("driver>=580",), (), "is not what is installed"),
        (("driver==580.*",), (), "is not what is installed"),
        (("vlm==1",), (), "no component `vlm`"),
        ((), ("drivr",), "no component `drivr`"),
        (("driver==580.65.06", "driver==580.95.05"), (), "two versions"),
    ],
)
def test_what_cannot_be_there(have: tuple[str, ...], hold: tuple[str, ...], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        make_target(MATRIX, have=[parse_term(text) for text in have], hold=hold)
