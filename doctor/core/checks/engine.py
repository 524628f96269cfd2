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


def _asks(word: str, title: str, *, critical: bool = False) -> Check:
    """A check that passes on what `doctor.core.fit` says under a word."""

    def run(case: Case) -> Iterator[Outcome]:
        found = fits(case, word)
        good = [fit for fit in found if fit.answer == "yes"]
        other = list(dict.fromkeys(fit for fit in found if fit.answer != "yes"))
        for fit in other or good[:1]:
            yield _outcome(fit, fit.component if len(other) > 1 else "")

    run.__module__ = __name__
    declare = check(
        f"engine.{word}",
        title,
        needs=("environment",),
        applies=(_inside, _with_engine, _with_gpu),
        critical=critical,
    )
    return declare(run)


CHECKS = (
    _asks("torch_build", "torch built with CUDA", critical=True),
    _asks("torch_cuda", "driver new enough for torch", critical=True),
    _asks("torch_archs", "torch has kernels for the GPU"),
    _asks("ptx", "driver compiles the PTX of what is there"),
    _asks("torch_pin", "extensions find the torch they were compiled for"),
    _asks("gpu_support", "engine supports the GPU"),
    _asks("tensorrt_single", "one TensorRT"),
    _asks("tensorrt_libs", "TensorRT with its libraries"),
    _asks("tensorrt_cuda", "driver new enough for TensorRT"),
    _asks("trtllm_pins", "TensorRT-LLM finds its torch and TensorRT"),
    _asks("trtllm_mpi", "TensorRT-LLM finds libmpi"),
    _asks("cuda_libraries", "CUDA libraries of the major that is asked for"),
    _asks("libcuda", "no libcuda beside the driver's"),
    _asks("nccl", "one NCCL"),
    _asks("flashinfer", "FlashInfer and its kernels of one release"),
    _asks("requirements", "what engines ask for"),
    _asks("glibc", "C library new enough"),
    _asks("libstdcxx", "libstdc++ new enough"),
    _asks("ptxas", "triton's assembler knows the GPU"),
    _asks("nvcc", "nvcc for kernels compiled at run time"),
    _asks("compiler", "C compiler for triton"),
    _asks("headers", "Python.h for triton"),
    _asks("open_files", "enough open files"),
)
