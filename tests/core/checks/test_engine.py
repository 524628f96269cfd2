"""Checks of environments: each one that passes, fails, cannot be told, and where it does not apply."""

from __future__ import annotations

from typing import Any

import pytest

from doctor.core.check import Case
from doctor.core.checks import CHECKS
from doctor.core.checks.engine import CHECKS as MINE
from doctor.core.finding import Finding
from doctor.core.host import Absent, Host
from doctor.core.host_engine import Bundled, Requirement
from doctor.core.judge import run_checks
from doctor.core.versions import Dotted
from tests.core.environments import SCOPE, environment, finding, inside, judged, scoped
from tests.core.hosts import NOT_THERE, gpu, having, healthy, jetson, known_of, matrix, put, reports, without
from tests.core.pairs_engine import (
    B200,
    GB10,
    H100,
    PAIRS,
    RTX_5090,
    T4,
    V100,
    flash,
    limited,
    of_llm,
    of_tensorrt,
    of_torch,
    of_vllm,
    on,
    pin,
)

BLIND = Host(scope="host")
#: A machine of which the driver, the GPUs and the tools were not read.
UNREAD = without(
    healthy(), ["driver.nvml", "driver.smi", "driver.kernel_version", "cuda.probe", "cuda.toolkits", "pci"]
)


def found(host: Host, check_id: str, *others: Host) -> list[Finding]:
    one = next(c for c in CHECKS if c.id == check_id)
    return list(run_checks(Case(host=host, matrix=matrix(), others=others), [one]))


def status(host: Host, check_id: str, *others: Host) -> set[str]:
    return {f.status for f in found(host, check_id, *others)}


NO_ENGINE = inside(torch="", vllm="", torch_cuda=None, packages={"torch": None, "vllm": None})
NO_CARD = having(without(healthy(), ["driver.nvml", "driver.smi"]), {"pci": ()})

#: Check -> an environment that passes, one of which it cannot be told.
PASSING: dict[str, tuple[Host, Host]] = {
    "torch_build": (inside(), inside(torch_build="", torch_cuda=None)),
    "torch_cuda": (inside(), inside(UNREAD)),
    "torch_archs": (inside(), of_torch("2.16.0", "13.4", on(H100))),
    "ptx": (inside(), inside(UNREAD)),
    "torch_pin": (inside(), inside(torch="2.13.0a0+1.nv26.01", packages={"torch": "2.13.0a0+1.nv26.01"})),
    "gpu_support": (inside(), of_llm(on(("8.7", "Orin")))),
    "tensorrt_single": (of_tensorrt(), inside()),
    "tensorrt_libs": (of_tensorrt(), inside()),
    "tensorrt_cuda": (of_tensorrt(), of_tensorrt(UNREAD)),
    "trtllm_pins": (of_llm(), of_llm(torch="2.7.0a0+7c8ec84dab.nv25.3")),
    "trtllm_mpi": (of_llm(), of_llm(mpi=None)),
    "cuda_libraries": (inside(), inside(UNREAD, bundled=(Bundled(path="x.so", needs=("libcudart.so.12",)),))),
    "libcuda": (inside(libcuda=("/usr/lib/libcuda.so.1",), prefix="/usr"), inside(is_listed=False)),
    "nccl": (inside(), inside(packages={"nvidia-nccl-cu13": None})),
    "flashinfer": (flash(flashinfer_cubin="0.7.0.post1"), inside()),
    "requirements": (
        inside(requires=(pin("vllm", "xgrammar", ">=0.2"),), packages={"xgrammar": "0.2.8"}),
        inside(requires=(pin("vllm", "xgrammar", ">=0.2"),)),
    ),
    "glibc": (inside(), inside(glibc=None)),
    "libstdcxx": (inside(libstdcxx=Dotted("3.4.33")), inside()),
    "ptxas": (inside(), inside(UNREAD)),
    "nvcc": (flash(), flash(UNREAD)),
    "compiler": (inside(), inside(without(healthy(), ["kernel.compiler_on_path"]), compilers=())),
    "headers": (inside(), inside(has_headers=None)),
    "open_files": (inside(limited(1048576)), inside()),
}
#: Checks with nothing to be said where the fact is missing: they are left out rather than unknown.
SILENT = (
    "libcuda",
    "tensorrt_single",
    "tensorrt_libs",
    "nccl",
    "flashinfer",
    "requirements",
    "libstdcxx",
    "ptx",
    "ptxas",
)
SILENT += ("open_files", "trtllm_mpi")


def test_every_check_is_here() -> None:
    assert {f"engine.{word}" for word in PASSING} == {one.id for one in MINE}


@pytest.mark.parametrize("word", PASSING)
def test_it_passes(word: str) -> None:
    assert status(PASSING[word][0], f"engine.{word}") == {"pass"}


@pytest.mark.parametrize("word", PASSING)
def test_it_cannot_be_told(word: str) -> None:
    told = status(PASSING[word][1], f"engine.{word}")
    assert told == ({"skip"} if word in SILENT else {"unknown"}), found(PASSING[word][1], f"engine.{word}")


@pytest.mark.parametrize("word", PASSING)
@pytest.mark.parametrize("host", [healthy(), NO_ENGINE, put(NO_CARD, "environment", known_of(environment()))])
def test_it_does_not_apply(word: str, host: Host) -> None:
    (one,) = found(host, f"engine.{word}")
    assert (one.status, bool(one.found)) == ("skip", True)


@pytest.mark.parametrize("word", PASSING)
def test_an_environment_that_was_not_read_is_not_told(word: str) -> None:
    unread = Host(scope=SCOPE, environment=Absent(reason="timeout", origin="environments"))
    assert status(unread, f"engine.{word}", healthy()) == {"unknown"}


def test_on_jetson_nothing_is_judged() -> None:
    assert {s for word in PASSING for s in status(scoped(), f"engine.{word}", jetson())} == {"skip"}


# --- that fail ------------------------------------------------------------------------------------

OLD = having(
    reports(healthy(), driver_version=Dotted("570.86.10"), cuda_driver_version=Dotted("12.8")),
    {"cuda.probe": NOT_THERE},
)
FAILING: dict[str, tuple[Host, str, str]] = {
    "CUDA 13 on a driver of CUDA 12": (inside(OLD), "torch_cuda", "which speaks CUDA 12.8"),
    "TensorRT for CUDA 13 on it": (
        of_tensorrt(OLD, tensorrt_cu12=None, tensorrt_cu12_libs=None, tensorrt_cu13="10.11.0"),
        "tensorrt_cuda",
        "CUDA 13",
    ),
    "no machine code for Pascal in CUDA 13": (
        of_torch("2.9.1", "13.0", on(("6.1", "Tesla P40"))),
        "torch_archs",
        "is the last that compiles for Tesla P40",
    ),
    "no compiler for Blackwell in CUDA 12.4": (
        of_torch("2.7.0.dev20250101", "12.4", on(RTX_5090)),
        "torch_archs",
        "is the first that compiles for NVIDIA GeForce RTX 5090",
    ),
    "a wheel of the index without code for Volta": (
        of_torch("2.11.0", "13.0", on(V100)),
        "torch_archs",
        "7.0",
    ),
    "TensorRT-LLM on Turing": (of_llm(on(T4)), "gpu_support", "Tesla T4"),
    "vLLM on Volta": (
        of_vllm("0.33.0", "2.10.0", "12.8", on(V100)),
        "gpu_support",
        "needs compute capability 7.5",
    ),
    "PTX of a newer CUDA for Hopper": (of_vllm("0.33.0", "2.15.0", "13.2", on(H100)), "ptx", "222"),
    "torch exchanged under vLLM": (inside(torch="2.14.1+cu130"), "torch_pin", "asks for torch==2.13.0"),
    "torch exchanged under torchvision": (
        inside(
            requires=(Requirement(by="torchvision", name="torch", spec="==2.12.0"),),
            packages={"torchvision": "0.27.0"},
        ),
        "torch_pin",
        "torchvision",
    ),
    "a relative CUDA_HOME": (
        flash(put(healthy(), "system.environment", {"CUDA_HOME": "cuda"})),
        "nvcc",
        "no directory",
    ),
    "an assembler older than the GPU": (inside(on(GB10), ptxas=Dotted("12.8")), "ptxas", "sm_121"),
}


@pytest.mark.parametrize("name", FAILING)
def test_it_fails(name: str) -> None:
    host, word, words = FAILING[name]
    bad = [f for f in found(host, f"engine.{word}") if f.status == "fail"]
    assert bad, found(host, f"engine.{word}")
    assert words in bad[0].found
    assert bad[0].wanted


@pytest.mark.parametrize("name", [n for n, pair in PAIRS.items() if not pair.is_advice])
def test_what_a_cause_explains_fails_in_earnest(name: str) -> None:
    explained = matrix().cause(name).explains
    assert "fail" in {s for check_id in explained for s in status(PAIRS[name].sick, check_id)}


# --- decoys ---------------------------------------------------------------------------------------

#: Environments that look wrong and are not: whatever else is said of them, nothing fails and nothing warns.
DECOYS: dict[str, Host] = {
    "torch of a newer minor: minor-version compatibility": of_torch("2.15.0", "13.2"),
    "vLLM for CUDA 12 on a driver of CUDA 13": of_vllm("0.11.2", "2.9.0", "12.8"),
    "another build of the release that is pinned": inside(torch="2.13.0+cu129", torch_cuda=Dotted("12.9")),
    "NVIDIA's own build of a coming torch": of_torch(
        "2.9.0a0", "13.0", torch="2.9.0a0+145a3a7bda.nv25.10", packages={"vllm": None}
    ),
    "an old system TensorRT of the same release": of_tensorrt(),
    "FlashInfer without nvcc on Ada": flash(put(healthy(), "cuda.toolkits", NOT_THERE)),
    "a libstdc++ of conda that is newer": inside(libstdcxx=Dotted("3.4.34"), kind="conda"),
    "wheels of CUDA 12 and a toolkit of CUDA 13": of_torch("2.9.0", "12.8"),
    "H100 with torch alone beside an older driver": of_torch("2.15.0", "13.2", on(H100)),
    "a compiled list without 8.9, which 8.6 serves": inside(),
    "headers that nobody looked for": inside(has_headers=None),
    "B200 with prebuilt kernels": flash(
        put(on(B200), "cuda.toolkits", NOT_THERE), flashinfer_cubin="0.7.0.post1"
    ),
}


@pytest.mark.parametrize("name", DECOYS)
def test_a_decoy_is_no_fault(name: str) -> None:
    said = [f for word in PASSING for f in found(DECOYS[name], f"engine.{word}")]
    assert [(f.id, f.found) for f in said if f.status in ("fail", "warn")] == []


#: A display card of Pascal beside a GPU that computes.
MIXED = gpu(healthy(), 1, compute_capability="6.1", name="NVIDIA GeForce GT 1030")


def test_a_display_card_that_nothing_serves_is_worth_a_warning_beside_one_that_is_served() -> None:
    said = {word: status(inside(MIXED), f"engine.{word}") for word in ("torch_archs", "gpu_support", "ptxas")}
    assert said["torch_archs"] == said["gpu_support"] == {"warn"}
    report = judged(MIXED, scoped())
    assert {s.scope: s.verdict for s in report.scopes}[SCOPE] == "ready"
    assert [a.id for a in report.advice if a.scope == SCOPE][:1] == ["torch.arch_not_in_build"]


# --- cases of the field ---------------------------------------------------------------------------


def machine(driver: str, cuda: str, capability: str, name: str) -> Host:
    host: Any = reports(healthy(), driver_version=Dotted(driver), cuda_driver_version=Dotted(cuda))
    for index in (0, 1):
        host = gpu(host, index, compute_capability=capability, name=name)
    return having(host, {"cuda.probe": NOT_THERE})


H100_550 = machine("550.144.03", "12.4", "9.0", "NVIDIA H100 PCIe")
FIELD: dict[str, tuple[Host, Host, str, tuple[str, ...]]] = {
    "OPEN-041": (
        H100_550,
        of_vllm("0.11.2", "2.9.0", "12.8"),
        "cuda.driver_too_old_for_ptx",
        ("torch.arch_not_in_build", "cuda.driver_too_old_for_runtime"),
    ),
    "OPEN-042": (
        machine("570.124.06", "12.8", "12.0", "NVIDIA GeForce RTX 5090"),
        of_torch("2.7.0.dev20250310", "12.4"),
        "torch.arch_not_in_build",
        ("cuda.driver_too_old_for_runtime",),
    ),
    "OPEN-079": (
        machine("570.86.10", "12.8", "9.0", "NVIDIA H100 PCIe"),
        of_torch("2.11.0", "13.0"),
        "cuda.driver_too_old_for_runtime",
        ("cuda.driver_too_old_for_ptx", "torch.cpu_only_build"),
    ),
    "OPEN-047": (
        machine("580.95.05", "13.0", "10.0", "NVIDIA GB200"),
        of_torch("2.9.0", "13.0", torch="2.9.0", torch_cuda=None, torch_build="cpu", ptxas=None),
        "torch.cpu_only_build",
        (),
    ),
    "OPEN-062": (
        machine("580.95.05", "13.0", "12.1", "NVIDIA GB10"),
        of_torch("2.10.0", "13.0", ptxas=Dotted("12.8")),
        "vllm.triton_ptxas_too_old",
        ("torch.arch_not_in_build",),
    ),
    "OPEN-060": (
        healthy(),
        of_vllm("0.3.2", "2.2.1", "12.1", requires=(pin("vllm", "torch", "==2.1.2"),)),
        "torch.abi_mismatch",
        ("cuda.runtime_lib_missing",),
    ),
}


@pytest.mark.parametrize("case", FIELD)
def test_a_case_of_the_field_has_its_cause(case: str) -> None:
    host, place, wanted, not_these = FIELD[case]
    report = judged(host, Host(scope=SCOPE, environment=place.environment))
    mine = [c for c in report.causes if c.scope == SCOPE]
    assert [c.id for c in mine][:1] == [wanted], [
        (f.id, f.status, f.found) for f in report.findings if f.scope == SCOPE
    ]
    assert not {c.id for c in report.causes} & set(not_these)
    assert finding(report, matrix().cause(wanted).explains[-1]) is not None
