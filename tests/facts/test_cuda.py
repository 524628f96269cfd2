"""The CUDA probe and the toolkits on disk."""

from __future__ import annotations

import json

import pytest

from doctor.core.evidence import Evidence, Item, Meta
from doctor.core.host import Absent
from doctor.facts.cuda import cuda_version, read_cuda
from tests.facts.evidence import evidence

TOP = "/usr/local/cuda"
DIR = {"kind": "dir"}
NVCC = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release {}, V{}\nBuild x\n"
GOOD = {
    "result": 0,
    "name": "CUDA_SUCCESS",
    "error": "",
    "library_path": "/usr/lib64/libcuda.so.580.95.05",
    "driver_version": 13000,
    "device_count": 2,
}


def version_json(version: str) -> str:
    return json.dumps({"cuda": {"name": "CUDA SDK", "version": version}})


def test_probe():
    cuda = read_cuda(evidence(cuinit=GOOD))
    probe = cuda.probe.value
    assert (probe.result, probe.name, probe.device_count) == (0, "CUDA_SUCCESS", 2)
    assert (str(probe.library_version), str(probe.driver_version)) == ("580.95.05", "13.0")
    # Not asked a second time: the caller's variables lead to the same file.
    assert cuda.probe_caller.reason == "not_installed"


def test_probe_with_the_variables_of_the_caller():
    other = {**GOOD, "result": 803, "library_path": "/usr/local/cuda-12.9/compat/libcuda.so.575.57.08"}
    cuda = read_cuda(evidence(cuinit=GOOD, documents={"cuinit-caller": other}))
    assert (cuda.probe_caller.value.result, str(cuda.probe_caller.value.library_version)) == (
        803,
        "575.57.08",
    )


@pytest.mark.parametrize(
    ("status", "doc", "reason"),
    [
        ("missing", {"result": None, "error": "libcuda.so.1: cannot open"}, "not_installed"),
        ("timeout", {"at": "cuInit"}, "timeout"),
        ("ok", {"result": None}, "unreadable"),
        ("ok", {"result": "zero"}, "unreadable"),
        ("error", {}, "failed"),
    ],
)
def test_no_probe(status, doc, reason):
    item = Item(key="cuinit", status=status, path="cuinit.json")
    fact = read_cuda(Evidence(Meta(items=(item,)), {"cuinit.json": json.dumps(doc).encode()})).probe
    assert isinstance(fact, Absent)
    assert fact.reason == reason


def test_a_library_that_cannot_be_loaded_is_an_answer():
    doc = {"result": None, "error": "libcuda.so.1: wrong ELF class: ELFCLASS32"}
    item = Item(key="cuinit", status="error", path="cuinit.json")
    fact = read_cuda(Evidence(Meta(items=(item,)), {"cuinit.json": json.dumps(doc).encode()})).probe
    assert (fact.value.result, fact.value.error) == (None, doc["error"])


@pytest.mark.parametrize(
    ("number", "expected"),
    [(13000, "13.0"), (12080, "12.8"), (11040, "11.4"), (0, "None"), (None, "None"), (10**9, "None")],
)
def test_cuda_version(number, expected):
    assert str(cuda_version(number)) == expected


def toolkits(*args, **kwargs):
    rows = read_cuda(evidence(*args, **kwargs)).toolkits.value
    return [(t.path, str(t.version), str(t.nvcc_release), t.is_default) for t in rows]


def test_toolkits():
    files = {
        "/usr/local/cuda-13.0/version.json": version_json("13.0.2"),
        "/usr/local/cuda-10.2/version.txt": "CUDA Version 10.2.89\n",
    }
    commands = {("/usr/local/cuda-13.0/bin/nvcc", "--version"): (0, NVCC.format("13.0", "13.0.88"))}
    stats = {
        TOP: "/usr/local/cuda-13.0/",
        "/usr/local/cuda-13": "/etc/alternatives/cuda-13",
        **{f"/usr/local/cuda-{v}": DIR for v in ("13.0", "10.2", "11.8")},
    }
    assert toolkits(files, commands, stats) == [
        ("/usr/local/cuda-10.2", "10.2.89", "None", False),
        ("/usr/local/cuda-11.8", "11.8", "None", False),
        ("/usr/local/cuda-13.0", "13.0.2", "13.0", True),
    ]


def test_the_default_behind_alternatives_is_told_by_its_files():
    files = {
        f"{TOP}/version.json": version_json("12.8.1"),
        "/usr/local/cuda-12.8/version.json": version_json("12.8.1"),
        "/usr/local/cuda-13.0/version.json": version_json("13.0.2"),
    }
    stats = {TOP: "/etc/alternatives/cuda", "/usr/local/cuda-12.8": DIR, "/usr/local/cuda-13.0": DIR}
    assert [(row[0], row[3]) for row in toolkits(files, stats=stats)] == [
        ("/usr/local/cuda-12.8", True),
        ("/usr/local/cuda-13.0", False),
    ]


def test_a_directory_of_compat_libraries_is_no_toolkit():
    stats = {"/usr/local/cuda-12.9": DIR, "/usr/local/cuda-12.9/compat/libcuda.so.575.57.08": {}, TOP: None}
    assert toolkits(stats=stats) == []


def test_a_toolkit_that_is_a_directory_of_its_own():
    assert toolkits({f"{TOP}/version.json": version_json("12.4.1")}, stats={TOP: DIR}) == [
        (TOP, "12.4.1", "None", True)
    ]


def test_nvcc_of_a_distribution_and_wrappers():
    debian = {("/usr/bin/nvcc", "--version"): (0, NVCC.format("11.8", "11.8.89"))}
    assert toolkits(commands=debian, stats={TOP: None}) == [("/usr", "11.8", "11.8", False)]
    wrapper = {("/usr/local/bin/nvcc", "--version"): (0, NVCC.format("13.0", "13.0.88"))}
    rows = toolkits(commands=wrapper, stats={"/usr/local/cuda-13.0": DIR, TOP: "cuda-13.0"})
    assert [row[0] for row in rows] == ["/usr/local/cuda-13.0"]


def test_toolkits_absent():
    assert toolkits(stats={TOP: None}) == []
    assert read_cuda(evidence()).toolkits.reason == "not_collected"
