"""Causes inside environments: for each one that has it, and one that is merely like it."""

from __future__ import annotations

from typing import Any

from doctor.core.host import Host, Limit
from doctor.core.host_engine import Bundled, Requirement
from doctor.core.versions import Dotted
from tests.core.environments import TORCH_PIN, inside
from tests.core.hosts import NOT_THERE, at, gpu, healthy, put
from tests.core.pair import Pair

V100, T4, H100 = ("7.0", "Tesla V100-SXM2-16GB"), ("7.5", "Tesla T4"), ("9.0", "NVIDIA H100 PCIe")
B200, RTX_5090, GB10 = ("10.0", "NVIDIA B200"), ("12.0", "NVIDIA GeForce RTX 5090"), ("12.1", "NVIDIA GB10")


def on(card: tuple[str, str]) -> Host:
    """The healthy machine with two of these as the driver names them."""
    host = healthy()
    for index in (0, 1):
        host = gpu(host, index, compute_capability=card[0], name=card[1])
    return host


def pin(by: str, name: str, spec: str) -> Requirement:
    return Requirement(by=by, name=name, spec=spec)


def of_torch(version: str, cuda: str, host: Host | None = None, **fields: Any) -> Host:
    """An environment with torch alone."""
    values: dict[str, Any] = {
        "torch": f"{version}+cu{cuda.replace('.', '')}",
        "torch_cuda": Dotted(cuda),
        "vllm": "",
        "requires": (),
        "bundled": (),
        "ptxas": Dotted(cuda),
        "packages": {"torch": version, "vllm": None, "nvidia-nccl-cu13": None, **fields.pop("packages", {})},
    }
    return inside(host, **{**values, **fields})


def of_vllm(version: str, torch: str, cuda: str, host: Host | None = None, **fields: Any) -> Host:
    """An environment with another vLLM and the torch that it asks for."""
    packages = {"torch": torch, "vllm": version, "nvidia-nccl-cu13": None, **fields.pop("packages", {})}
    values: dict[str, Any] = {"vllm": version, "requires": (pin("vllm", "torch", f"=={torch}"),)}
    return of_torch(torch, cuda, host, packages=packages, **{**values, **fields})


LLM_PIN = pin("tensorrt-llm", "torch", ">=2.7.0,<=2.8.0a0")
LLM = {
    "tensorrt-llm": "1.0.0",
    "tensorrt": "10.11.0",
    "tensorrt-cu12": "10.11.0",
    "tensorrt-cu12-libs": "10.11.0",
}


def of_llm(host: Host | None = None, torch: str = "2.7.1", **fields: Any) -> Host:
    """An environment with TensorRT-LLM 1.0.0."""
    values: dict[str, Any] = {
        "tensorrt": "10.11.0",
        "tensorrt_llm": "1.0.0",
        "requires": (LLM_PIN,),
        "mpi": "/usr/lib/x86_64-linux-gnu/libmpi.so.40",
        "packages": {**LLM, **fields.pop("packages", {})},
    }
    return of_torch(torch, "12.6", host, **{**values, **fields})


def of_tensorrt(host: Host | None = None, **packages: str | None) -> Host:
    """An environment with TensorRT 10.11 for CUDA 12 beside torch."""
    mine = {"tensorrt": "10.11.0", "tensorrt-cu12": "10.11.0", "tensorrt-cu12-libs": "10.11.0"}
    given = {**mine, **{name.replace("_", "-"): version for name, version in packages.items()}}
    return of_torch("2.7.1", "12.6", host, tensorrt="10.11.0", packages=given)


def limited(files: int) -> Host:
    resources = at(healthy(), "system.resources").value
    limits = (Limit(name="nofile", soft=1024, hard=files),)
    return put(healthy(), "system.resources", type(resources)(**{**fields_of(resources), "limits": limits}))


def fields_of(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}


def flash(host: Host | None = None, **more: str) -> Host:
    packages = {"flashinfer-python": "0.7.0.post1", **{n.replace("_", "-"): v for n, v in more.items()}}
    return inside(host, packages=packages)


CPU = {"torch": "2.13.0", "torch_cuda": None, "torch_build": "cpu"}
OF_12 = Bundled(path="vllm/_C.abi3.so", needs=("libcudart.so.12", "libc.so.6"))
NO_TOOLKIT = put(on(B200), "cuda.toolkits", NOT_THERE)
HOME = put(healthy(), "system.environment", {"CUDA_HOME": "/usr/local/cuda:/usr/local/cuda-13.0"})
BESIDE_NCCL = {"nvidia-nccl-cu12": "2.27.5"}

PAIRS = {
    "torch.cpu_only_build": Pair(
        inside(**CPU),
        # Beside no engine, and named by nobody, it may well be meant: a warning.
        inside(**CPU, vllm="", is_meant=False, requires=(), bundled=(), packages={"vllm": None}),
    ),
    "torch.arch_not_in_build": Pair(
        of_torch("2.6.0", "12.4", on(RTX_5090)), of_torch("2.8.0", "12.8", on(RTX_5090))
    ),
    "cuda.driver_too_old_for_ptx": Pair(
        of_vllm("0.33.0", "2.15.0", "13.2", on(H100)), of_torch("2.15.0", "13.2", on(H100))
    ),
    "torch.abi_mismatch": Pair(
        inside(torch="2.14.0+cu130", packages={"torch": "2.14.0"}),
        inside(requires=(TORCH_PIN,), torch="2.13.0+cu129", torch_cuda=Dotted("12.9")),
    ),
    "vllm.gpu_too_old": Pair(
        of_vllm("0.20.0", "2.10.0", "12.8", on(V100)), of_vllm("0.20.0", "2.10.0", "12.8", on(T4))
    ),
    "trtllm.arch_unsupported": Pair(of_llm(on(T4)), of_llm()),
    "trt.gpu_unsupported": Pair(of_tensorrt(on(V100)), of_tensorrt(on(T4))),
    "trt.version_conflict": Pair(
        of_tensorrt(tensorrt_cu13="10.13.3", tensorrt_cu13_libs="10.13.3"), of_tensorrt()
    ),
    "trt.lib_missing": Pair(of_tensorrt(tensorrt_cu12_libs=None), of_tensorrt()),
    "trtllm.dependency_pin": Pair(of_llm(torch="2.9.0"), of_llm()),
    "trtllm.mpi_missing": Pair(of_llm(mpi=""), of_llm(mpi=None)),
    "cuda.runtime_lib_missing": Pair(
        inside(bundled=(OF_12,)),
        inside(bundled=(OF_12,), packages={"nvidia-cuda-runtime-cu12": "12.8.90"}),
    ),
    "cuda.libcuda_in_environment": Pair(
        inside(libcuda=("/opt/vllm/cuda-compat/libcuda.so.1",)), inside(), is_advice=True
    ),
    "nccl.version_mixed": Pair(inside(packages=BESIDE_NCCL), inside(), is_advice=True),
    "vllm.flashinfer_mixed": Pair(
        flash(flashinfer_cubin="0.7.2.post1"), flash(flashinfer_cubin="0.7.0.post1")
    ),
    "vllm.requirement_unmet": Pair(
        inside(
            requires=(TORCH_PIN, pin("vllm", "transformers", ">=5.16.1,<5.20.0")),
            packages={"transformers": "5.3.0"},
        ),
        inside(
            requires=(TORCH_PIN, pin("vllm", "transformers", ">=5.16.1,<5.20.0")),
            packages={"transformers": "5.16.1"},
        ),
        is_advice=True,
    ),
    "libc.glibc_too_old": Pair(inside(glibc=Dotted("2.31")), inside(glibc=Dotted("2.34"))),
    "libc.libstdcxx_too_old": Pair(inside(libstdcxx=Dotted("3.4.29")), inside(libstdcxx=Dotted("3.4.30"))),
    "vllm.triton_ptxas_too_old": Pair(inside(on(GB10), ptxas=Dotted("12.8")), inside(on(GB10))),
    "vllm.jit_nvcc_missing": Pair(
        flash(NO_TOOLKIT), flash(NO_TOOLKIT, flashinfer_cubin="0.7.0.post1"), is_advice=True
    ),
    "vllm.cuda_home_malformed": Pair(
        flash(HOME), flash(put(HOME, "system.environment", {"CUDA_HOME": "/usr/local/cuda"}))
    ),
    "vllm.jit_compiler_missing": Pair(inside(has_headers=False), inside(has_headers=None)),
    "vllm.open_files_limited": Pair(inside(limited(4096)), inside(limited(-1)), is_advice=True),
}
