"""Environments by their files: what the witness's document says, and what of it is believed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from doctor.core.evidence import Evidence
from doctor.core.host import Environment, known
from doctor.core.host_engine import Requirement
from doctor.core.versions import Dotted
from doctor.facts.read import read_scopes
from doctor.facts.sitepackages import cuda_of, read_environments, torch_build
from tests.facts.evidence import evidence

PREFIX = "/opt/vllm"
SITE = f"{PREFIX}/lib/python3.12/site-packages"
TORCH, VLLM = "torch-2.9.0+cu128.dist-info", "vllm-0.11.2.dist-info"


def told(**changes: Any) -> dict[str, Any]:
    """What the witness says of a venv with vLLM, with other fields."""
    said: dict[str, Any] = {
        "kind": "venv",
        "named": False,
        "config": {"home": "/usr/bin", "version": "3.12.3", "include-system-site-packages": "false"},
        "sites": [SITE],
        "distributions": [TORCH, VLLM, "nvidia_nccl_cu12-2.27.5.dist-info", "triton-3.5.0.dist-info"],
        "programs": ["/usr/bin/gcc"],
        "headers": {"3.12": True},
        "mpi": "",
        "standard_library": "",
        "torch": {"__version__": "2.9.0+cu128", "cuda": "12.8", "hip": "None", "xpu": "None"},
        "requires": {VLLM: ["torch==2.9.0"]},
        "tags": {TORCH: ["cp312-cp312-manylinux_2_28_x86_64"], VLLM: ["cp38-abi3-manylinux1_x86_64"]},
        "ptxas": {
            "triton/backends/nvidia/bin/ptxas": "12.8",
            "triton/backends/nvidia/bin/ptxas-blackwell": "12.9",
        },
        "libraries": [f"{SITE}/nvidia/nccl/lib/libnccl.so.2"],
        "linked": {"vllm/_C.abi3.so": {"needs": ["libcudart.so.12"], "glibc": "2.34", "glibcxx": "3.4.30"}},
    }
    return {**said, **changes}


def document(said: object, **top: object) -> Evidence:
    return evidence(documents={"environments": {"environments": said, "glibc": "2.39", **top}})


def one(**changes: Any) -> Environment:
    return read_environments(document({PREFIX: told(**changes)}))[PREFIX].value


def test_all_that_is_told() -> None:
    inside = one()
    assert (inside.kind, inside.prefix, inside.is_meant, inside.is_listed) == ("venv", PREFIX, False, True)
    assert (inside.torch, inside.torch_cuda, inside.torch_build) == ("2.9.0+cu128", Dotted("12.8"), "cuda")
    assert (inside.vllm, inside.tensorrt, inside.tensorrt_llm) == ("0.11.2", "", "")
    assert (inside.python, inside.glibc, inside.ptxas) == (Dotted("3.12.3"), Dotted("2.39"), Dotted("12.9"))
    assert inside.wheels == {"nvidia-nccl-cu12": "2.27.5"}
    assert inside.packages["nvidia-nccl-cu12"] == "2.27.5"
    assert inside.requires == (Requirement(by="vllm", name="torch", spec="==2.9.0"),)
    # Of its two wheels torch's asks for the newer C library; what the code asks for is told beside it.
    assert (inside.glibc_tag, inside.glibc_tag_of) == (Dotted("2.28"), "torch")
    (library,) = inside.bundled
    assert (library.needs, library.glibc, library.glibcxx) == (
        ("libcudart.so.12",),
        Dotted("2.34"),
        Dotted("3.4.30"),
    )
    assert (inside.has_headers, inside.mpi, inside.architecture) == (True, "", "x86_64")


def test_the_environment_of_the_h200_node() -> None:
    """As the witness described it there: torch 2.11.0 with triton 3.6.0, which brings two assemblers."""
    data = (Path(__file__).parent.parent / "data" / "h200" / "environments.json").read_bytes()
    (inside,) = (
        fact.value for fact in read_environments(evidence(documents={"environments": data})).values()
    )
    assert (inside.prefix, inside.kind) == ("/opt/torch/.venv", "venv")
    assert (inside.torch, inside.torch_cuda, inside.torch_build) == ("2.11.0+cu130", Dotted("13.0"), "cuda")
    assert (inside.python, inside.glibc, inside.ptxas) == (Dotted("3.12.3"), Dotted("2.39"), Dotted("12.9"))
    assert (inside.packages["nvidia-nccl-cu13"], inside.packages["triton"]) == ("2.28.9", "3.6.0")
    assert [(r.by, r.name, r.spec) for r in inside.requires if r.name == "torch"] == [
        ("torchvision", "torch", "==2.11.0")
    ]
    cuda = next(one for one in inside.bundled if one.path == "torch/lib/libtorch_cuda.so")
    assert {"libcudart.so.13", "libcublas.so.13"} <= set(cuda.needs)
    assert max(one.glibc for one in inside.bundled if one.glibc) == Dotted("2.28")
    assert (inside.has_headers, inside.mpi is not None and inside.mpi.endswith("libmpi.so.40.30.6")) == (
        True,
        True,
    )


def test_each_becomes_a_scope_behind_the_others() -> None:
    host, inside = read_scopes(document({PREFIX: told()}))
    assert (host.scope, inside.scope) == ("host", f"venv:{PREFIX}")
    assert known(inside.environment).vllm == "0.11.2"
    assert known(host.environment) is None


def test_a_collect_env_of_the_same_environment_knows_it_better() -> None:
    both = evidence(
        commands={
            ("collect-env",): (
                0,
                f"PyTorch version: 2.9.0+cu128\nIs CUDA available: True\nVIRTUAL_ENV={PREFIX}\n",
            )
        },
        documents={"environments": {"environments": {PREFIX: told()}}},
    )
    _, inside = read_scopes(both)
    assert known(inside.environment).is_cuda_available is True


@pytest.mark.parametrize(
    ("fields", "build"),
    [
        ({"cuda": "13.0", "hip": "None"}, "cuda"),
        ({"cuda": "None", "hip": "None", "xpu": "None"}, "cpu"),
        ({"cuda": "None", "hip": "7.0.1", "xpu": "None"}, "rocm"),
        ({"cuda": "None", "hip": "None", "xpu": "20250201"}, "xpu"),
        # An old version.py has no word of other makers.
        ({"cuda": "None"}, "cpu"),
        ({"__version__": "2.9.0"}, ""),
        ({}, ""),
    ],
)
def test_what_torch_was_built_for(fields: dict[str, str], build: str) -> None:
    assert torch_build(fields) == build


@pytest.mark.parametrize(
    ("version", "cuda"),
    [
        ("2.9.1+cu129", "12.9"),
        ("2.9.1+cu130", "13.0"),
        ("2.5.1+cu118", "11.8"),
        ("2.9.1", None),
        ("2.9.1+cpu", None),
    ],
)
def test_the_cuda_in_a_versions_local_part(version: str, cuda: str | None) -> None:
    assert cuda_of(version) == (Dotted(cuda) if cuda else None)


@pytest.mark.parametrize(
    ("folder", "name", "version"),
    [
        ("nvidia_cuda_nvrtc_cu12-12.8.93.dist-info", "nvidia-cuda-nvrtc-cu12", "12.8.93"),
        ("torch-2.9.0a0+145a3a7bda.nv25.10-py3.12.egg-info", "torch", "2.9.0a0+145a3a7bda.nv25.10"),
        ("tensorrt_llm-1.0.0rc4.dist-info", "tensorrt-llm", "1.0.0rc4"),
        ("flashinfer_python-0.7.0.post1.dist-info", "flashinfer-python", "0.7.0.post1"),
    ],
)
def test_names_of_distributions(folder: str, name: str, version: str) -> None:
    assert one(distributions=[folder]).packages == {name: version}


def test_of_two_versions_the_first_on_the_path_is_the_one() -> None:
    inside = one(distributions=["torch-2.9.0.dist-info", "torch-2.6.0.dist-info", "triton-3.5.0.dist-info"])
    assert inside.packages["torch"] == "2.9.0"
    assert inside.doubled == {"torch": ("2.9.0", "2.6.0")}


@pytest.mark.parametrize(
    ("text", "requirement"),
    [
        ("torch==2.9.0", ("torch", "==2.9.0")),
        ("torch (==2.9.0)", ("torch", "==2.9.0")),
        ("torch <=2.8.0a0,>=2.7.0", ("torch", "<=2.8.0a0,>=2.7.0")),
        ("flashinfer_python[cu12]==0.5.2", ("flashinfer-python", "==0.5.2")),
        ('nvidia-nccl-cu12==2.27.5; platform_system == "Linux"', ("nvidia-nccl-cu12", "==2.27.5")),
        (
            'nvidia-nccl-cu12==2.27.5; platform_system == "Linux" and platform_machine == "x86_64"',
            ("nvidia-nccl-cu12", "==2.27.5"),
        ),
        ("torch", ("torch", "")),
        # What cannot be told is left out, and so is what is for others.
        ('torch==2.9.0; extra == "gpu"', None),
        ('torch==2.9.0; platform_machine == "aarch64"', None),
        ('torch==2.9.0; python_version < "3.10"', None),
        ('torch==2.9.0; sys_platform == "darwin"', None),
        ("torch @ https://example.org/torch.whl", None),
        ("", None),
    ],
)
def test_requirements(text: str, requirement: tuple[str, str] | None) -> None:
    found = [(r.name, r.spec) for r in one(requires={VLLM: [text]}).requires]
    assert found == ([requirement] if requirement else [])


def test_of_several_tags_of_a_wheel_the_oldest_will_do() -> None:
    tags = {TORCH: ["cp312-cp312-manylinux_2_17_x86_64", "cp312-cp312-manylinux2014_x86_64"]}
    assert one(tags=tags).glibc_tag == Dotted("2.17")
    assert one(tags={TORCH: ["py3-none-any"]}).glibc_tag is None


def test_a_python_without_a_configuration_is_known_by_its_folder() -> None:
    assert one(config={}).python == Dotted("3.12")
    assert one(config={"version_info": "3.13.1.final.0"}).python == Dotted("3.13.1")


@pytest.mark.parametrize(
    "said",
    [
        None,
        [],
        {"": told()},
        {"relative": told()},
        {PREFIX: None},
        {PREFIX: []},
        {
            PREFIX: {
                "distributions": "torch",
                "torch": [],
                "requires": {"x": 1},
                "tags": {1: 2},
                "linked": {"a": []},
            }
        },
        {
            PREFIX: {
                "headers": {"3.12": "yes"},
                "config": {"version": "x" * 99},
                "ptxas": {"a": "b"},
                "sites": [1],
            }
        },
        {
            PREFIX: {
                "linked": {"a": {"needs": [1, None], "glibc": 2, "glibcxx": "x"}},
                "mpi": 7,
                "kind": "pod",
            }
        },
    ],
)
def test_a_document_of_another_shape_is_no_error(said: object) -> None:
    for fact in read_environments(document(said)).values():
        assert fact.value.prefix == PREFIX
        assert not fact.value.has_engine


def test_bytes_that_are_no_document_say_nothing() -> None:
    assert read_environments(evidence(documents={"environments": b"\xff{"})) == {}
    assert read_environments(evidence(absent={"environments": "timeout"})) == {}
    assert read_environments(evidence()) == {}


def test_a_document_of_any_size_is_bounded() -> None:
    many = {f"/opt/{n}": told() for n in range(200)}
    assert len(read_environments(document(many))) == 16
    wide = one(distributions=[f"nvidia_x{n}-1.0.dist-info" for n in range(5000)])
    assert len(wide.packages) == 400
