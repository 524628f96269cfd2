"""Claims about a Python environment on its machine; untold outside of environments."""

from __future__ import annotations

from doctor.core.check import Case
from doctor.core.claims.claimed import UNTOLD, Claim, Claimed, no, yes
from doctor.core.claims.stack import toolkit_needs_newer_driver
from doctor.core.fit.of_case import environment_of, fits


def wrong(*words: str, about: str = "") -> Claim:
    """A claim that one of these questions about the environment has a bad answer, or one about a relation."""

    def claim(case: Case) -> Claimed:
        if environment_of(case) is None:
            return UNTOLD
        found = [
            fit for word in words for fit in fits(case, word) if not about or fit.relation.startswith(about)
        ]
        bad = [fit for fit in found if fit.answer in ("no", "warn")]
        if bad:
            return yes("; ".join(dict.fromkeys(fit.found for fit in bad)))
        good = next((fit.found for fit in found if fit.answer == "yes"), "")
        return UNTOLD if any(fit.answer == "unknown" for fit in found) else no(good)

    return claim


_beyond = wrong("torch_cuda", "tensorrt_cuda")


def runtime_needs_newer_driver(case: Case) -> Claimed:
    """The CUDA major of the default toolkit, or of what an environment holds, is newer than the driver's."""
    return toolkit_needs_newer_driver(case) if environment_of(case) is None else _beyond(case)


ENGINE_CLAIMS: dict[str, Claim] = {
    "runtime_needs_newer_driver": runtime_needs_newer_driver,
    "torch_without_cuda": wrong("torch_build"),
    "torch_without_kernels": wrong("torch_archs"),
    "ptx_beyond_driver": wrong("ptx"),
    "torch_not_as_compiled_for": wrong("torch_pin"),
    "vllm_refuses_gpu": wrong("gpu_support", about="vllm-"),
    "trtllm_refuses_gpu": wrong("gpu_support", about="tensorrt-llm-"),
    "tensorrt_refuses_gpu": wrong("gpu_support", about="tensorrt-min-cc"),
    "tensorrt_mixed": wrong("tensorrt_single"),
    "tensorrt_without_libraries": wrong("tensorrt_libs"),
    "trtllm_pin_broken": wrong("trtllm_pins"),
    "trtllm_without_mpi": wrong("trtllm_mpi"),
    "cuda_library_missing": wrong("cuda_libraries"),
    "libcuda_inside": wrong("libcuda"),
    "nccl_mixed": wrong("nccl"),
    "flashinfer_mixed": wrong("flashinfer"),
    "requirement_broken": wrong("requirements"),
    "glibc_older": wrong("glibc"),
    "libstdcxx_older": wrong("libstdcxx"),
    "ptxas_older": wrong("ptxas"),
    "nvcc_missing": wrong("nvcc", about="jit-nvcc"),
    "cuda_home_broken": wrong("nvcc", about="cuda-home"),
    "triton_build_impossible": wrong("compiler", "headers"),
    "open_files_limited": wrong("open_files"),
}
#: Those that a host and a container have nothing to say about.
OF_ENVIRONMENTS = frozenset(ENGINE_CLAIMS) - {"runtime_needs_newer_driver"}
