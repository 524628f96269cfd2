"""What rows say of an environment on a machine: driver and GPU, kernel, whose build it is, whose driver."""

from __future__ import annotations

from typing import Any

import pytest

from doctor.core.fit.of_target import ground_of_target
from doctor.core.fit.why import why_environment
from doctor.core.goal import parse_term
from doctor.core.host import Environment
from doctor.core.host_engine import Bundled, Requirement
from doctor.core.stack import WhyReport
from doctor.core.target import make_target
from doctor.core.versions import Dotted
from tests.core.hosts import matrix

R580 = "driver==580.178.04"
R595 = "driver==595.91.07"
T211_CU128 = {"torch": "2.11.0+cu128", "torch_cuda": Dotted("12.8")}
V33 = {"vllm": "0.33.0", "torch": "2.14.0+cu130", "torch_cuda": Dotted("13.0")}
CUDA13 = {"kind": "image", "torch_cuda": Dotted("13.0"), "architecture": "x86_64"}


def asked(inside: dict[str, Any], gpu: str, *have: str, **machine: Any) -> WhyReport:
    fields: dict[str, Any] = {"kind": "venv", "is_meant": True, "is_listed": True, **inside}
    named = ("torch", "vllm", "tensorrt")
    packages = {name: fields[name] for name in named if fields.get(name)} | fields.pop("packages", {})
    fields["is_listed"] = fields["kind"] != "image"
    if fields.get("torch"):
        fields.setdefault("torch_build", "cuda")
    fields.setdefault("python", Dotted("3.12.4") if fields["kind"] == "venv" else None)
    environment = Environment(packages=packages if fields["is_listed"] else {}, **fields)
    target = make_target(matrix(), gpus=[gpu], have=[parse_term(text) for text in have], **machine)
    ground = ground_of_target(matrix(), target)
    return why_environment(matrix(), environment, ground, target=target, question="q")


def relations(report: WhyReport) -> set[str]:
    return {link.relation for link in report.because}


@pytest.mark.parametrize(
    ("inside", "gpu", "have", "machine", "answer", "relation"),
    [
        # Between machine and driver, whatever lies in the environment.
        (T211_CU128, "V100", (R595,), {"os": "ubuntu-24.04"}, "no", "gpu-last-driver"),
        (T211_CU128, "B200", ("driver==565.77",), {}, "no", "gpu-first-driver"),
        (T211_CU128, "RTX 5090", (R580, "kernel-modules==proprietary"), {}, "no", "open-required"),
        (T211_CU128, "H200x8", (R580, "fabric-manager==580.159.03"), {}, "no", "fabric-manager-same-version"),
        (T211_CU128, "H200", (R580,), {"os": "dgx os 6"}, "unknown", "dgx-os-managed"),
        (T211_CU128, "H200", ("driver==999.99",), {}, "unknown", "nearest-known-row"),
        (V33, "H200", ("driver==580.126.20",), {"kernel": "7.0"}, "no", "kernel-driver-build"),
        (V33, "H200", (R595,), {"os": "ubuntu-24.04"}, "yes", "torch-compiled-cc"),
        # The engine's own wheel, not its torch alone.
        ({"vllm": "0.33.0"}, "H200", ("driver==470.256.02",), {}, "no", "driver-floor-cuda13"),
        ({"vllm": "0.33.0"}, "H200", (R595,), {}, "unknown", "vllm-torch-pin"),
        (
            {**V33, "torch": "2.14.0+cu126", "torch_cuda": Dotted("12.6")},
            *("H200", ("driver==570.211.01",), {}, "no", "driver-floor-cuda13"),
        ),
        ({**V33, "python": Dotted("3.10.4")}, "H200", (R595,), {}, "no", "vllm-python"),
        ({**V33, "vllm": "0.99.0"}, "H200", (R595,), {}, "unknown", "nearest-known-row"),
        (
            {"tensorrt": "10.14.1.48.post1"},
            *("H200", (R595,), {}, "unknown", "tensorrt-libraries"),
        ),
        # Code is borrowed from no other release: 2.11 leaves out Volta where 2.10 with this CUDA has it.
        (T211_CU128, "V100", (R580,), {}, "unknown", "torch-compiled-cc"),
        (T211_CU128, "H100", (R580,), {}, "yes", "torch-compiled-cc"),
        # Images know first and last CUDA of a GPU, too.
        (CUDA13, "V100", (R580,), {}, "no", "gpu-last-cuda"),
        ({**CUDA13, "torch_cuda": Dotted("12.4")}, "B200", (R580,), {}, "no", "gpu-first-cuda"),
        (CUDA13, "T4", (R580,), {}, "yes", "driver-floor-cuda13"),
        # The processor.
        ({**V33, "architecture": "x86_64"}, "GH200", (R595,), {}, "no", "environment-architecture"),
        ({**V33, "architecture": "x86_64"}, "GH200", (R595,), {"arch": "x86_64"}, "no", "gpu-processor"),
    ],
)
def test_answers(  # noqa: PLR0917 - a row of the table above
    inside: dict[str, Any], gpu: str, have: tuple[str, ...], machine: Any, answer: str, relation: str
) -> None:
    report = asked(inside, gpu, *have, **machine)
    assert report.compatible == answer, report.because
    assert relation in relations(report)


def test_what_was_installed_says_itself_what_it_asks_for() -> None:
    """The row of 0.13.0 wants torch 2.9.0; a build of it that asks for 2.9.1 has it."""
    inside = {"vllm": "0.13.0", "torch": "2.9.1+cu128", "torch_cuda": Dotted("12.8")}
    assert asked(inside, "H100", R580).compatible == "no"
    own = (Requirement(by="vllm", name="torch", spec="==2.9.1"),)
    assert asked({**inside, "requires": own}, "H100", R580).compatible == "yes"


def test_an_extension_tells_the_cuda_it_was_built_for() -> None:
    """A vLLM that asks for libcudart 12 is not the index's build of a release for CUDA 13."""
    own = {**V33, "torch": "2.14.0+cu126", "torch_cuda": Dotted("12.6")}
    linked = (Bundled(path="vllm/_C.abi3.so", needs=("libcudart.so.12",)),)
    report = asked({**own, "bundled": linked}, "H200", "driver==570.211.01")
    assert "driver-floor-cuda13" not in relations(report)
    assert report.compatible == "unknown"


@pytest.mark.parametrize(
    ("have", "variables", "answer"),
    [
        ((), {}, "unknown"),
        (("cuda-compat==580.95.05",), {}, "yes"),
        # Older than what CUDA 13 asks for: no way out.
        (("cuda-compat==575.57.08",), {}, "no"),
        ((), {"CUDA_DRIVER_VERSION": "580.95.05"}, "yes"),
        ((), {"NV_CUDA_COMPAT_PACKAGE": "cuda-compat-13-0"}, "yes"),
    ],
)
@pytest.mark.parametrize("gpu", ["T4", "H200"])
def test_an_image_may_bring_what_its_configuration_does_not_name(
    gpu: str, have: tuple[str, ...], variables: dict[str, str], answer: str
) -> None:
    inside = {**CUDA13, "variables": variables, "has_compat": bool(variables)}
    terms = ("driver==570.211.01", "container-toolkit==1.20.0", *have)
    report = asked(inside, gpu, *terms)
    assert report.compatible == answer, report.because


def test_a_card_that_takes_no_compat_is_a_plain_no() -> None:
    report = asked(CUDA13, "RTX 4090", "driver==570.211.01", "cuda-compat==580.95.05")
    assert report.compatible == "no"


def test_compat_libraries_beside_an_environment() -> None:
    assert asked(V33, "H200", "driver==570.211.01").compatible == "no"
    assert asked(V33, "H200", "driver==570.211.01", "cuda-compat==580.95.05").compatible == "yes"


def test_hints_are_each_enough_by_itself() -> None:
    """On Volta torch and vLLM both fail: a torch alone is no way out."""
    report = asked(V33, "V100", R580)
    assert {"torch-compiled-cc", "vllm-min-cc"} <= relations(report)
    (hint,) = report.hints
    assert "torch" in hint.text
    assert "vllm" in hint.text
    driver = asked(T211_CU128, "B200", "driver==565.77")
    assert any(hint.text.startswith("driver from 565.77") for hint in driver.hints)
