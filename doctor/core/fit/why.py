"""`matrix why` of an environment or an image: the answer, the proof, and what would change it."""

from __future__ import annotations

import msgspec

from doctor.core.fit.all import fits_of
from doctor.core.fit.ground import Ground
from doctor.core.fit.verdict import Fit, Question
from doctor.core.host import Environment
from doctor.core.link import Answer, Because
from doctor.core.matrix import Matrix
from doctor.core.stack import Hint, WhyReport
from doctor.core.target import Target

__all__ = ["elsewhere", "why_environment"]

_EXIT: dict[Answer, int] = {"yes": 0, "no": 1, "unknown": 3}
_HINTS_MAX = 3


def why_environment(
    matrix: Matrix, environment: Environment, ground: Ground, *, target: Target, question: str
) -> WhyReport:
    """Whether what lies there would run on that machine, told without starting any of it."""
    fits = [fit for _word, fit in fits_of(Question(environment=environment, ground=ground, matrix=matrix))]
    answer = _answer(fits, environment)
    shown = {"no": ("no",), "unknown": ("unknown",), "yes": ("yes", "warn")}[answer]
    chain = tuple(_because(fit) for fit in fits if fit.answer in shown)
    hints = tuple(dict.fromkeys(hint for fit in fits if fit.answer == "no" for hint in fit.hints))
    return WhyReport(
        matrix_edition=matrix.edition.name,
        question=question,
        compatible=answer,
        exit_code=_EXIT[answer],
        target=target,
        because=chain or (_nothing(environment),),
        hints=tuple(Hint(text=text) for text in hints[:_HINTS_MAX]),
        nearest="",
        components=_components(environment),
        advice=tuple(_advice(fits, answer)),
        overlays=matrix.overlay_names,
        environment=environment,
    )


def elsewhere(environment: Environment) -> Environment:
    """The same files on another machine: what was read of this one does not count there."""
    return msgspec.structs.replace(environment, glibc=None, mpi=None, has_headers=None, compilers=())


def _answer(fits: list[Fit], environment: Environment) -> Answer:
    if any(fit.answer == "no" for fit in fits):
        return "no"
    has_subject = environment.has_engine or (environment.kind == "image" and bool(fits))
    open_ones = [
        f for f in fits if f.answer == "unknown" and (f.is_open or f.relation.endswith("-compiled-cc"))
    ]
    return "unknown" if open_ones or not has_subject else "yes"


def _because(fit: Fit) -> Because:
    return Because(
        component=fit.component,
        relation=fit.relation,
        text=f"{fit.found} (wanted: {fit.wanted})" if fit.wanted else fit.found,
        kind="note" if fit.answer == "warn" else "relation",
        source=fit.source,
        confidence=fit.confidence,
        is_known=fit.answer != "unknown",
    )


def _nothing(environment: Environment) -> Because:
    what = "the image's configuration names" if environment.kind == "image" else "there is"
    text = f"{what} no torch, no TensorRT and no engine whose needs are known"
    return Because(component="environment", relation="nothing-to-judge", text=text, is_known=False)


def _components(environment: Environment) -> dict[str, str]:
    named = {
        "torch": environment.torch,
        "cuda": environment.torch_cuda.raw if environment.torch_cuda else "",
        "vllm": environment.vllm,
        "tensorrt": environment.tensorrt,
        "tensorrt-llm": environment.tensorrt_llm,
        "python": environment.python.raw if environment.python else "",
    }
    return {name: version for name, version in named.items() if version}


def _advice(fits: list[Fit], answer: Answer) -> list[str]:
    """Warnings beside a no; what is not known beside either."""
    kinds = {"no": ("warn", "unknown"), "unknown": ("warn",), "yes": ("unknown",)}[answer]
    return [
        f"{fit.found}{f' (wanted: {fit.wanted})' if fit.wanted else ''}"
        for fit in fits
        if fit.answer in kinds
    ]
