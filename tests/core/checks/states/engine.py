"""States of the checks of Python environments. Each is a scope of its own; here it is its own machine, too.

Where nothing but the environment itself can stay unread, the usual one does: its directory did not answer.
"""

from __future__ import annotations

from doctor.core.check import Case
from doctor.core.goal import parse_goal
from doctor.core.host import Environment, Host
from doctor.core.host_engine import Bundled
from doctor.core.versions import Dotted
from tests.core.checks.states.base import States
from tests.core.environments import TORCH_PIN, inside
from tests.core.hosts import NOT_THERE, P40, devices, having, healthy, known_of, matrix, put, reports, without
from tests.core.pairs_engine import (
    BESIDE_NCCL,
    CPU,
    GB10,
    H100,
    NO_TOOLKIT,
    OF_12,
    RTX_5090,
    T4,
    flash,
    limited,
    of_llm,
    of_tensorrt,
    of_torch,
    of_vllm,
    on,
    pin,
)

#: A machine of which the driver, the GPUs and the tools were not read.
_UNREAD = without(
    healthy(), ["driver.nvml", "driver.smi", "driver.kernel_version", "cuda.probe", "cuda.toolkits", "pci"]
)
#: A machine whose driver speaks CUDA 12.
_OF_CUDA_12 = having(
    reports(healthy(), driver_version=Dotted("570.86.10"), cuda_driver_version=Dotted("12.8")),
    {"cuda.probe": NOT_THERE},
)
_ASKING = {"requires": (TORCH_PIN, pin("vllm", "transformers", ">=5.16.1,<5.20.0"))}
_GOAL = "vllm==0.33.0"


def _for_goal(host: Host, vllm: str = "0.33.0") -> Case:
    """A host that is to serve a release of vLLM, with an environment that has one beside it."""
    beside = Host(scope="venv:/opt/vllm", environment=known_of(Environment(vllm=vllm)))
    return Case(host=host, matrix=matrix(), goal=parse_goal(_GOAL), others=(beside,))


STATES: dict[str, States] = {
    "engine.torch_build": States(bad=inside(**CPU), unknown=inside(torch_build="", torch_cuda=None)),
    "engine.torch_cuda": States(bad=inside(_OF_CUDA_12), unknown=inside(_UNREAD)),
    "engine.torch_archs": States(
        bad=of_torch("2.6.0", "12.4", on(RTX_5090)), unknown=of_torch("2.16.0", "13.4", on(H100))
    ),
    "engine.ptx": States(bad=of_vllm("0.33.0", "2.15.0", "13.2", on(H100))),
    "engine.torch_pin": States(bad=inside(torch="2.14.0+cu130", packages={"torch": "2.14.0"})),
    "engine.gpu_support": States(bad=of_llm(on(T4)), unknown=of_llm(on(("8.7", "Orin")))),
    "engine.tensorrt_single": States(
        ok=of_tensorrt(), bad=of_tensorrt(tensorrt_cu13="10.13.3", tensorrt_cu13_libs="10.13.3")
    ),
    "engine.tensorrt_libs": States(ok=of_tensorrt(), bad=of_tensorrt(tensorrt_cu12_libs=None)),
    "engine.tensorrt_cuda": States(
        ok=of_tensorrt(),
        bad=of_tensorrt(_OF_CUDA_12, tensorrt_cu12=None, tensorrt_cu12_libs=None, tensorrt_cu13="10.11.0"),
        unknown=of_tensorrt(_UNREAD),
    ),
    "engine.trtllm_pins": States(
        ok=of_llm(), bad=of_llm(torch="2.9.0"), unknown=of_llm(torch="2.7.0a0+7c8ec84dab.nv25.3")
    ),
    "engine.trtllm_mpi": States(ok=of_llm(), bad=of_llm(mpi="")),
    "engine.cuda_libraries": States(
        bad=inside(bundled=(OF_12,)),
        unknown=inside(_UNREAD, bundled=(Bundled(path="x.so", needs=("libcudart.so.12",)),)),
    ),
    "engine.libcuda": States(bad=inside(libcuda=("/opt/vllm/cuda-compat/libcuda.so.1",))),
    "engine.nccl": States(bad=inside(packages=BESIDE_NCCL)),
    "engine.flashinfer": States(
        ok=flash(flashinfer_cubin="0.7.0.post1"), bad=flash(flashinfer_cubin="0.7.2.post1")
    ),
    "engine.requirements": States(
        ok=inside(**_ASKING, packages={"transformers": "5.16.1"}),
        bad=inside(**_ASKING, packages={"transformers": "5.3.0"}),
    ),
    "engine.glibc": States(bad=inside(glibc=Dotted("2.31")), unknown=inside(glibc=None)),
    "engine.libstdcxx": States(ok=inside(libstdcxx=Dotted("3.4.33")), bad=inside(libstdcxx=Dotted("3.4.29"))),
    "engine.ptxas": States(bad=inside(on(GB10), ptxas=Dotted("12.8"))),
    "engine.nvcc": States(ok=flash(), bad=flash(NO_TOOLKIT), unknown=flash(_UNREAD)),
    "engine.compiler": States(
        bad=inside(put(healthy(), "kernel.compiler_on_path", NOT_THERE), compilers=()),
        unknown=inside(without(healthy(), ["kernel.compiler_on_path"]), compilers=()),
    ),
    "engine.headers": States(bad=inside(has_headers=False), unknown=inside(has_headers=None)),
    "engine.open_files": States(ok=inside(limited(1048576)), bad=inside(limited(4096))),
    "engine.goal": States(
        ok=_for_goal(healthy()),
        bad=_for_goal(devices(healthy(), device_id=P40)),
        unknown=_for_goal(without(healthy(), ["system.os"])),
        skip=healthy(),
    ),
}

__all__ = ["STATES"]
