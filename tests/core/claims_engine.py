"""Claims about environments: for each one an environment where it holds, and one where it does not."""

from __future__ import annotations

from doctor.core.host import Host
from tests.core.environments import inside
from tests.core.pairs_engine import PAIRS, flash

#: Claims that make up one cause alone: its pair is theirs, too.
_OF_CAUSES = {
    "torch_without_cuda": "torch.cpu_only_build",
    "torch_without_kernels": "torch.arch_not_in_build",
    "ptx_beyond_driver": "cuda.driver_too_old_for_ptx",
    "torch_not_as_compiled_for": "torch.abi_mismatch",
    "vllm_refuses_gpu": "vllm.gpu_too_old",
    "trtllm_refuses_gpu": "trtllm.arch_unsupported",
    "tensorrt_refuses_gpu": "trt.gpu_unsupported",
    "tensorrt_mixed": "trt.version_conflict",
    "tensorrt_without_libraries": "trt.lib_missing",
    "trtllm_pin_broken": "trtllm.dependency_pin",
    "trtllm_without_mpi": "trtllm.mpi_missing",
    "cuda_library_missing": "cuda.runtime_lib_missing",
    "libcuda_inside": "cuda.libcuda_in_environment",
    "nccl_mixed": "nccl.version_mixed",
    "flashinfer_mixed": "vllm.flashinfer_mixed",
    "requirement_broken": "vllm.requirement_unmet",
    "glibc_older": "libc.glibc_too_old",
    "libstdcxx_older": "libc.libstdcxx_too_old",
    "ptxas_older": "vllm.triton_ptxas_too_old",
    "nvcc_missing": "vllm.jit_nvcc_missing",
    "cuda_home_broken": "vllm.cuda_home_malformed",
    "triton_build_impossible": "vllm.jit_compiler_missing",
    "open_files_limited": "vllm.open_files_limited",
}
#: Environments that have a sign of none of them; a near miss may leave open whether it holds.
_OTHERWISE = {"nvcc_missing": flash(), "cuda_home_broken": flash()}

CASES: dict[str, tuple[Host, Host]] = {
    claim: (PAIRS[cause].sick, _OTHERWISE.get(claim, inside())) for claim, cause in _OF_CAUSES.items()
}
