"""Every question about an environment on a machine, in the order in which they are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from doctor.core.fit import build, code, cuda, engine, image, pins
from doctor.core.fit.verdict import Fit, Question

__all__ = ["ASKED", "Asks", "fits_by_word", "fits_of"]

Asks = Callable[[Question], Iterator[Fit]]

#: By the last word of the check that asks it.
ASKED: dict[str, Asks] = {
    "torch_build": cuda.torch_build,
    "torch_cuda": cuda.driver_floor,
    "torch_archs": code.torch_archs,
    "ptx": code.ptx,
    "torch_pin": pins.torch_pin,
    "gpu_support": code.engine_gpu,
    "tensorrt_single": pins.tensorrt_single,
    "tensorrt_libs": pins.tensorrt_libraries,
    "tensorrt_cuda": cuda.tensorrt_driver,
    "trtllm_pins": pins.trtllm_pins,
    "trtllm_mpi": build.mpi,
    "cuda_libraries": cuda.cuda_libraries,
    "libcuda": cuda.libcuda,
    "nccl": cuda.nccl,
    "flashinfer": pins.flashinfer,
    "requirements": pins.requirements,
    "glibc": build.glibc,
    "libstdcxx": build.libstdcxx,
    "ptxas": build.ptxas,
    "nvcc": build.nvcc,
    "compiler": build.compiler,
    "headers": build.headers,
    "open_files": build.open_files,
}


#: Asked besides where a person asks: checks say them of the host, or of a container that runs.
_OF_QUESTION: dict[str, Asks] = {
    "gpu": image.gpu,
    "image_architecture": image.architecture,
    "fabric": image.fabric,
    "rows": engine.rows,
    "engine_build": engine.other_build,
    "engine_torch": engine.torch_beside,
    "image_demands": image.demands,
    "image_parts": image.handed_in,
}


def fits_of(question: Question) -> tuple[tuple[str, Fit], ...]:
    """All that can be said, with the word of the check that says it."""
    return tuple((word, fit) for word, ask in {**_OF_QUESTION, **ASKED}.items() for fit in ask(question))


def fits_by_word(question: Question) -> dict[str, tuple[Fit, ...]]:
    """What the checks say, by the last word of each."""
    return {word: tuple(ask(question)) for word, ask in ASKED.items()}
