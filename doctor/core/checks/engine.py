"""Checks of Python environments: would torch, engine and TensorRT in them run on this machine.

What is true of an environment is told in `doctor.core.fit`, for `matrix why --env` as well. Here it becomes
findings of the environment's own scope: the host is not at fault for what somebody installed in one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from doctor.core.check import Case, Check, Outcome, check, failed, passed, unknown, warned
from doctor.core.fit.of_case import environment_of, fits, ground_of
from doctor.core.host import Absent

if TYPE_CHECKING:
    from doctor.core.fit.verdict import Fit

__all__ = ["CHECKS"]


def _inside(case: Case) -> str:
    """Skip outside of environments: each is a scope of its own."""
    is_other = not case.host.scope.startswith("venv:") and isinstance(case.host.environment, Absent)
    return "environments are scopes of their own" if is_other else ""


def _with_engine(case: Case) -> str:
    """Skip where nothing of the GPU stack is inside."""
    environment = environment_of(case)
    return "" if environment is None or environment.has_engine else "no torch and no engine in it"


def _with_gpu(case: Case) -> str:
    """Skip where the machine has no GPU to run on, and on Jetson, whose torch comes with JetPack."""
    ground = ground_of(case)
    if ground.is_jetson:
        return "on Jetson torch and TensorRT come with JetPack"
    return "no NVIDIA GPU on this host" if ground.has_gpu is False else ""


_SAY: dict[str, Callable[..., Outcome]] = {"no": failed, "warn": warned}


def _outcome(fit: Fit, subject: str) -> Outcome:
    if fit.answer in ("no", "warn"):
        return _SAY[fit.answer](fit.found, wanted=fit.wanted, subject=subject, why=fit.source)
    if fit.answer == "unknown":
        return unknown(fit.found, subject=subject, critical=fit.is_open)
    return passed(fit.found, subject=subject)


def _asks(word: str, title: str, meaning: str, *, critical: bool = False) -> Check:
    """A check that passes on what `doctor.core.fit` says under a word; `meaning` is its page."""

    def run(case: Case) -> Iterator[Outcome]:
        found = fits(case, word)
        good = [fit for fit in found if fit.answer == "yes"]
        other = list(dict.fromkeys(fit for fit in found if fit.answer != "yes"))
        for fit in other or good[:1]:
            yield _outcome(fit, fit.component if len(other) > 1 else "")

    run.__doc__ = meaning
    declare = check(
        f"engine.{word}",
        title,
        needs=("environment",),
        applies=(_inside, _with_engine, _with_gpu),
        critical=critical,
    )
    return declare(run)


CHECKS = (
    _asks(
        "torch_build",
        "torch built with CUDA",
        "A torch without CUDA computes on the processor, whatever the GPU.",
        critical=True,
    ),
    _asks(
        "torch_cuda",
        "driver new enough for torch",
        "The driver is of the CUDA major that torch was built with, or newer; below it CUDA does not start.",
        critical=True,
    ),
    _asks(
        "torch_archs",
        "torch has kernels for the GPU",
        "The build of torch has machine code that runs on each kind of GPU; without it nothing is computed.",
    ),
    _asks(
        "ptx",
        "driver compiles the PTX of what is there",
        "A driver runs machine code of a newer minor CUDA, and refuses its PTX with error 222.",
    ),
    _asks(
        "torch_pin",
        "extensions find the torch they were compiled for",
        "An extension compiled for one release of torch does not load with another.",
    ),
    _asks(
        "gpu_support",
        "engine supports the GPU",
        "vLLM, TensorRT and TensorRT-LLM support the compute capability of each kind of GPU.",
    ),
    _asks(
        "tensorrt_single",
        "one TensorRT",
        "A TensorRT plan is read by the release that built it: there is one release, for one CUDA major.",
    ),
    _asks(
        "tensorrt_libs",
        "TensorRT with its libraries",
        "The bindings find libnvinfer, in a wheel of its own or among the system's libraries.",
    ),
    _asks(
        "tensorrt_cuda",
        "driver new enough for TensorRT",
        "The driver is of the CUDA major that this variant of TensorRT is built for, or newer.",
    ),
    _asks(
        "trtllm_pins",
        "TensorRT-LLM finds its torch and TensorRT",
        "TensorRT-LLM is compiled for one range of torch and TensorRT, and fails with others.",
    ),
    _asks(
        "trtllm_mpi",
        "TensorRT-LLM finds libmpi",
        "TensorRT-LLM loads libmpi when it is imported, and its wheels bring none.",
    ),
    _asks(
        "cuda_libraries",
        "CUDA libraries of the major that is asked for",
        "Each CUDA library that an extension asks for is there, in the major that it was compiled with.",
    ),
    _asks(
        "libcuda",
        "no libcuda beside the driver's",
        "The driver brings libcuda; one inside the environment may be found first and be of another version.",
    ),
    _asks(
        "nccl",
        "one NCCL",
        "There is one NCCL, in the version that torch asks for; wheels of two CUDA majors share their files.",
    ),
    _asks(
        "flashinfer",
        "FlashInfer and its kernels of one release",
        "FlashInfer refuses to start with prebuilt kernels of another release than its own.",
    ),
    _asks(
        "requirements",
        "what engines ask for",
        "What else an engine asks for by its metadata is there in a version that suits it.",
    ),
    _asks(
        "glibc",
        "C library new enough",
        "The C library is as new as the wheels and their machine code ask for.",
    ),
    _asks(
        "libstdcxx",
        "libstdc++ new enough",
        "A libstdc++ in the environment comes before the system's, and is as new as extensions ask for.",
    ),
    _asks(
        "ptxas",
        "triton's assembler knows the GPU",
        "Triton assembles its kernels with the ptxas that it brings, which has to know the GPU.",
    ),
    _asks(
        "nvcc",
        "nvcc for kernels compiled at run time",
        "FlashInfer and DeepGEMM compile kernels on the host where they do not come prebuilt.",
    ),
    _asks(
        "compiler",
        "C compiler for triton",
        "Triton builds a small C module at its first start, and needs a C compiler for it.",
    ),
    _asks(
        "headers",
        "Python.h for triton",
        "The C module that triton builds at its first start needs Python.h of the interpreter in use.",
    ),
    _asks(
        "open_files",
        "enough open files",
        "A server holds a descriptor for each connection; vLLM asks for 65535 of them.",
    ),
)
