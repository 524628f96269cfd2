"""Container images by their configuration: what CUDA, torch and engine they say they have."""

from __future__ import annotations

from typing import Any

import pytest

from doctor.core.host import Environment
from doctor.core.versions import Dotted
from doctor.facts.imageconfig import read_image, require_conditions

REQUIRE = "cuda>=12.9 brand=unknown,driver>=535,driver<536 brand=tesla,driver>=550,driver<551"
BASE = {
    "PATH": "/usr/local/cuda/bin:/usr/bin",
    "CUDA_VERSION": "12.9.1",
    "NVIDIA_REQUIRE_CUDA": REQUIRE,
    "NVIDIA_VISIBLE_DEVICES": "all",
    "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    "NV_CUDA_COMPAT_PACKAGE": "cuda-compat-12-9",
    "NV_LIBNCCL_PACKAGE_VERSION": "2.27.3-1",
    "LD_LIBRARY_PATH": "/usr/local/cuda/lib64",
}
NGC = {
    "CUDA_VERSION": "13.0.2.006",
    "PYTORCH_BUILD_VERSION": "2.9.0a0+145a3a7bda.nv25.10",
    "PYTORCH_VERSION": "2.9.0a0+145a3a7bda",
    "TENSORRT_VERSION": "10.13.3.9+cuda13.0",
    "TORCH_CUDA_ARCH_LIST": "7.5 8.0 8.6 9.0 10.0 12.0+PTX",
    "LD_LIBRARY_PATH": "/usr/local/cuda/compat/lib:/usr/local/nvidia/lib",
}


def inspect(
    variables: dict[str, str], *, tags: tuple[str, ...] = (), labels: dict[str, str] | None = None
) -> Any:
    """As `docker inspect IMAGE` prints it."""
    config = {"Env": [f"{n}={v}" for n, v in variables.items()], "Labels": labels}
    return [
        {"Id": "sha256:0", "RepoTags": list(tags), "Architecture": "amd64", "Os": "linux", "Config": config}
    ]


def image(variables: dict[str, str], **more: Any) -> Environment:
    found = read_image(inspect(variables, **more))
    assert found is not None
    return found


def test_vllms_own_image() -> None:
    found = image(
        BASE, tags=("vllm/vllm-openai:v0.11.2",), labels={"org.opencontainers.image.version": "22.04"}
    )
    assert (found.kind, found.vllm, found.torch, found.torch_cuda) == ("image", "0.11.2", "", Dotted("12.9"))
    assert (found.architecture, found.has_compat, found.is_listed) == ("x86_64", True, False)
    assert found.demands == tuple(REQUIRE.split())


def test_nvidias_pytorch_image() -> None:
    found = image(NGC, tags=("nvcr.io/nvidia/pytorch:25.10-py3",))
    assert found.torch == "2.9.0a0+145a3a7bda.nv25.10"
    assert (found.torch_cuda, found.tensorrt) == (Dotted("13.0"), "10.13.3.9")
    assert (found.codes, found.ptx) == (("7.5", "8.0", "8.6", "9.0", "10.0", "12.0"), "12.0")
    assert found.has_compat


@pytest.mark.parametrize(
    ("tag", "engine", "version"),
    [
        ("vllm/vllm-openai:v0.33.0", "vllm", "0.33.0"),
        ("vllm/vllm-openai:v0.12.0-cu130", "vllm", "0.12.0"),
        ("registry:5000/mirror/vllm-openai:0.11.2", "vllm", "0.11.2"),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.0.0", "tensorrt_llm", "1.0.0"),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.2.0rc3", "tensorrt_llm", "1.2.0rc3"),
        # A month is no version, and neither is a word.
        ("nvcr.io/nvidia/vllm:25.09-py3", "vllm", ""),
        ("vllm/vllm-openai:latest", "vllm", ""),
        ("example/app:1.2.3", "vllm", ""),
    ],
)
def test_an_engine_by_the_images_tag(tag: str, engine: str, version: str) -> None:
    assert getattr(image({}, tags=(tag,)), engine) == version


def test_an_engine_by_a_label_only_where_the_image_is_that_engines() -> None:
    labels = {
        "org.opencontainers.image.source": "https://github.com/vllm-project/vllm",
        "org.opencontainers.image.version": "v0.31.0",
    }
    assert image({}, labels=labels).vllm == "0.31.0"
    assert image({}, labels={"org.opencontainers.image.version": "24.04"}).vllm == ""


def test_an_oci_configuration() -> None:
    doc = {
        "architecture": "arm64",
        "os": "linux",
        "config": {"Env": ["CUDA_VERSION=13.0.1", "VLLM_VERSION=0.33.0"]},
    }
    found = read_image(doc)
    assert found is not None
    assert (found.architecture, found.vllm, found.torch_cuda) == ("aarch64", "0.33.0", Dotted("13.0"))


def test_what_may_be_a_secret_is_not_kept() -> None:
    found = image(
        {"NVIDIA_API_KEY": "nvapi-1", "VLLM_API_KEY": "x", "HF_TOKEN": "y", "CUDA_HOME": "/usr/local/cuda"}
    )
    assert found.variables == {"CUDA_HOME": "/usr/local/cuda"}


@pytest.mark.parametrize(
    ("variables", "alternatives"),
    [
        ({"NVIDIA_REQUIRE_CUDA": "cuda>=9.0"}, ("cuda>=9.0",)),
        (
            {"NVIDIA_REQUIRE_CUDA": "cuda>=12.0 brand=tesla,driver>=470,driver<471"},
            ("cuda>=12.0", "brand=tesla,driver>=470,driver<471"),
        ),
        ({"NVIDIA_REQUIRE_CUDA": "cuda>=12.0", "NVIDIA_DISABLE_REQUIRE": "1"}, ()),
        ({"NVIDIA_REQUIRE_CUDA": "cuda>=12.0", "NVIDIA_DISABLE_REQUIRE": "true"}, ()),
        ({"NVIDIA_REQUIRE_CUDA": "cuda>=12.0", "NVIDIA_DISABLE_REQUIRE": "0"}, ("cuda>=12.0",)),
        ({"NVIDIA_REQUIRE_CUDA": ""}, ()),
        ({}, ()),
    ],
)
def test_what_an_image_demands(variables: dict[str, str], alternatives: tuple[str, ...]) -> None:
    assert require_conditions(variables) == alternatives


@pytest.mark.parametrize(
    "doc",
    [None, 3, "x", [], [None], {}, {"config": None}, {"config": []}, {"Config": "x"}, [[{"Config": {}}]]],
)
def test_what_is_no_configuration(doc: object) -> None:
    assert read_image(doc) is None


@pytest.mark.parametrize(
    "config",
    [
        {"Env": None},
        {"Env": "CUDA_VERSION=12"},
        {"Env": [1, None, "", "=", "X"]},
        {"Labels": [1]},
        {"Labels": {"a": 1}},
    ],
)
def test_a_configuration_of_another_shape_says_nothing(config: object) -> None:
    found = read_image({"config": config, "RepoTags": "x", "architecture": 3})
    assert found is not None
    assert (found.torch_cuda, found.vllm, found.demands) == (None, "", ())


def test_a_configuration_of_any_size_is_bounded() -> None:
    found = image({f"NV_X{n}": "1" for n in range(5000)} | {"NVIDIA_REQUIRE_CUDA": "cuda>=1 " * 5000})
    assert len(found.variables) <= 400
    assert len(found.demands) <= 64
