"""What an image demands of its host, the compat libraries it brings, and what is handed in."""

from __future__ import annotations

from typing import Any

import pytest

from doctor.core.fit.all import fits_of
from doctor.core.fit.ground import Card, Ground
from doctor.core.fit.verdict import Fit, Question
from doctor.core.fit.why import why_environment
from doctor.core.host import Environment
from doctor.core.target import Target
from doctor.core.versions import Dotted
from tests.core.hosts import matrix

H100 = Card(name="H100 PCIe", capability=Dotted("9.0"), takes_compat=True)
RTX = Card(name="GeForce RTX 4090", capability=Dotted("8.9"), takes_compat=False)
R550 = Ground(
    driver=Dotted("550.144.03"),
    driver_cuda=Dotted("12.4"),
    cards=(H100,),
    has_gpu=True,
    architecture="x86_64",
)
R550_RTX = Ground(driver=R550.driver, driver_cuda=R550.driver_cuda, cards=(RTX,), has_gpu=True)
R470 = Ground(driver=Dotted("470.82.01"), driver_cuda=Dotted("11.4"), cards=(H100,), has_gpu=True)
UNKNOWN = Ground(cards=(H100,), has_gpu=True)


def image(**fields: Any) -> Environment:
    values: dict[str, Any] = {"kind": "image", "is_meant": True, "torch_cuda": Dotted("12.4"), **fields}
    return Environment(**values)


def said(environment: Environment, ground: Ground, relation: str) -> list[Fit]:
    question = Question(environment=environment, ground=ground, matrix=matrix())
    return [fit for _word, fit in fits_of(question) if fit.relation == relation]


@pytest.mark.parametrize(
    ("demands", "ground", "answer"),
    [
        (("cuda>=12.4",), R550, "yes"),
        (("cuda>=12.8",), R550, "no"),
        (("cuda>=9.0",), R470, "yes"),
        # One alternative that holds is enough, and one that is not known leaves it open.
        (("cuda>=12.8", "driver>=550,driver<551"), R550, "yes"),
        (("cuda>=12.8", "brand=tesla,driver>=550,driver<551"), R550, "unknown"),
        (("cuda>=12.8", "brand=tesla,driver>=535,driver<536"), R550, "no"),
        (("cuda>=12.8", "brand=geforce,driver>=550,driver<551"), R550, "no"),
        # 470.82.01 lies below `471`, and not below `470`.
        (("driver>=470,driver<471",), R470, "yes"),
        (("driver<470",), R470, "no"),
        (("arch>=9.0",), R550, "yes"),
        (("arch>=10.0",), R550, "no"),
        (("cuda>=12.8",), UNKNOWN, "unknown"),
        (("moon>=3",), R550, "unknown"),
        (("cuda>=x",), R550, "unknown"),
        ((",",), R550, "unknown"),
    ],
)
def test_what_is_demanded(demands: tuple[str, ...], ground: Ground, answer: str) -> None:
    (fit,) = said(image(demands=demands), ground, "image-demands")
    assert fit.answer == answer, fit
    assert fit.source


def test_without_demands_nothing_is_said() -> None:
    assert said(image(), R550, "image-demands") == []


@pytest.mark.parametrize(
    ("card", "has_compat", "answer"),
    # An image whose configuration does not speak of compat libraries may bring them: NVIDIA's base images do.
    [(H100, True, "yes"), (H100, False, "unknown"), (RTX, True, "no"), (RTX, False, "no")],
)
def test_forward_compatibility_is_for_cards_that_take_it(card: Card, has_compat: bool, answer: str) -> None:
    ground = Ground(driver=R550.driver, driver_cuda=R550.driver_cuda, cards=(card,), has_gpu=True)
    environment = image(torch_cuda=Dotted("13.0"), has_compat=has_compat)
    (fit,) = said(environment, ground, "driver-floor-cuda13")
    assert fit.answer == answer
    assert "forward" in " ".join(fit.source) if answer != "no" else fit.hints


def test_a_compat_folder_first_on_a_card_that_refuses_it() -> None:
    path = {"LD_LIBRARY_PATH": "/usr/local/cuda/compat/lib:/usr/local/nvidia/lib"}
    ground = Ground(driver=R550.driver, driver_cuda=R550.driver_cuda, cards=(RTX,), has_gpu=True)
    (fit,) = said(image(torch_cuda=Dotted("12.8"), variables=path), ground, "fwd-compat")
    assert (fit.answer, "804" in fit.found) == ("no", True)
    # The driver speaks that CUDA: the container toolkit leaves the older compat libraries out.
    assert said(image(torch_cuda=Dotted("12.4"), variables=path), ground, "fwd-compat") == []
    assert said(image(torch_cuda=Dotted("12.8"), variables=path), R550, "fwd-compat") == []


@pytest.mark.parametrize(
    ("variables", "answers"),
    [
        ({"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}, ["yes"]),
        ({"NVIDIA_DRIVER_CAPABILITIES": "all"}, ["yes"]),
        ({"NVIDIA_DRIVER_CAPABILITIES": "graphics,utility"}, ["no"]),
        ({}, []),
    ],
)
def test_libcuda_comes_with_compute(variables: dict[str, str], answers: list[str]) -> None:
    assert [f.answer for f in said(image(variables=variables), R550, "image-capabilities")] == answers


def test_an_image_that_asks_for_no_gpu_is_a_note() -> None:
    (fit,) = said(image(variables={"NVIDIA_VISIBLE_DEVICES": "void"}), R550, "image-devices")
    assert fit.answer == "warn"


def test_an_image_for_another_processor() -> None:
    assert [f.answer for f in said(image(architecture="aarch64"), R550, "image-architecture")] == ["no"]
    assert [f.answer for f in said(image(architecture="x86_64"), R550, "image-architecture")] == ["yes"]


def test_what_an_image_brings_itself_is_not_asked_of_the_machine() -> None:
    environment = image(torch="2.9.0", vllm="0.11.2", tensorrt_llm="", is_listed=False)
    machine = Ground(
        driver=Dotted("580.95.05"),
        driver_cuda=Dotted("13.0"),
        cards=(H100,),
        has_gpu=True,
        glibc=Dotted("2.17"),
        tooled=True,
        has_compiler=False,
    )
    relations = {
        fit.relation
        for _w, fit in fits_of(Question(environment=environment, ground=machine, matrix=matrix()))
    }
    assert not relations & {"glibc-floor", "triton-compiler", "triton-headers", "open-files", "jit-nvcc"}


# --- the whole answer -----------------------------------------------------------------------------


def answer(environment: Environment, ground: Ground) -> Any:
    return why_environment(matrix(), environment, ground, target=Target(), question="q")


def test_yes_no_and_not_known() -> None:
    assert (answer(image(), R550).compatible, answer(image(), R550).exit_code) == ("yes", 0)
    report = answer(image(torch_cuda=Dotted("13.0")), R550_RTX)
    assert (report.compatible, report.exit_code) == ("no", 1)
    assert [link.relation for link in report.because] == ["driver-floor-cuda13"]
    assert report.because[0].source
    assert 1 <= len(report.hints) <= 3
    open_one = answer(image(torch="2.9.0"), UNKNOWN)
    assert (open_one.compatible, open_one.exit_code) == ("unknown", 3)
    assert not any(link.is_known for link in open_one.because)


def test_an_image_of_which_nothing_is_known_is_not_called_fit() -> None:
    report = answer(Environment(kind="image"), R550)
    assert report.compatible == "unknown"
    assert [link.relation for link in report.because] == ["nothing-to-judge"]


def test_a_machine_without_a_gpu() -> None:
    report = answer(image(), Ground(has_gpu=False))
    assert (report.compatible, report.because[0].relation) == ("no", "gpu")


def test_the_answer_holds_what_was_read() -> None:
    environment = image(torch="2.9.0", vllm="0.11.2")
    report = answer(environment, R550)
    assert report.environment == environment
    assert report.components == {"torch": "2.9.0", "cuda": "12.4", "vllm": "0.11.2"}
