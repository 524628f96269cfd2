"""What is said of one thing in an environment on one machine, with the rows that it rests on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from doctor.core.fit.ground import Ground
from doctor.core.host import Environment
from doctor.core.matrix import Matrix, Row

__all__ = ["Fit", "Question", "no", "of_some_card", "sources", "unknown", "warn", "yes"]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """An environment on a machine."""

    environment: Environment
    ground: Ground
    matrix: Matrix

    @property
    def is_tooled(self) -> bool:
        """Whether compilers, headers and limits are the machine's, and were told: an image has its own."""
        return self.ground.tooled and self.environment.kind != "image"

    @property
    def engine(self) -> str:
        """The inference engine in it, as sentences name it; empty where there is none."""
        names = {
            "vLLM": self.environment.vllm,
            "TensorRT-LLM": self.environment.tensorrt_llm,
            "SGLang": self.environment.packages.get("sglang", ""),
        }
        return next((name for name, version in names.items() if version), "")


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """`warn`: it starts, and costs or bites later. `unknown`: the facts at hand do not say."""

    answer: Literal["yes", "warn", "no", "unknown"]
    component: str
    relation: str
    """`driver-floor-cuda13`, as relations of the matrix are called."""
    found: str
    wanted: str = ""
    source: tuple[str, ...] = ()
    confidence: str = "vendor"
    hints: tuple[str, ...] = ()
    """Changes each of which would make it true."""
    is_open: bool = False
    """Of `unknown`: whether the environment may not run at all because of it."""


def sources(question: Question, *rows: Row | None, rules: Iterable[str] = ()) -> tuple[str, ...]:
    """The sources of rows and of rules by id, each once."""
    named = [question.matrix.rule(rule) for rule in rules]
    return tuple(dict.fromkeys(text for row in (*rows, *named) if row is not None for text in row.source))


def yes(
    relation: str, component: str, found: str, source: tuple[str, ...] = (), confidence: str = "vendor"
) -> Fit:
    """It holds."""
    return Fit(
        answer="yes",
        component=component,
        relation=relation,
        found=found,
        source=source,
        confidence=confidence,
    )


def no(  # noqa: PLR0913 - what a proof needs
    relation: str,
    component: str,
    found: str,
    *,
    wanted: str,
    source: tuple[str, ...],
    hints: tuple[str, ...] = (),
    confidence: str = "vendor",
) -> Fit:
    """The environment, or what it is for, cannot run like this."""
    return Fit(
        answer="no",
        component=component,
        relation=relation,
        found=found,
        wanted=wanted,
        source=source,
        hints=hints,
        confidence=confidence,
    )


def warn(relation: str, component: str, found: str, *, wanted: str, source: tuple[str, ...]) -> Fit:
    """It runs, and something of it will not."""
    return Fit(
        answer="warn", component=component, relation=relation, found=found, wanted=wanted, source=source
    )


def unknown(
    relation: str, component: str, found: str, source: tuple[str, ...] = (), *, is_open: bool = False
) -> Fit:
    """Not told."""
    return Fit(
        answer="unknown", component=component, relation=relation, found=found, source=source, is_open=is_open
    )


def of_some_card(by_card: Sequence[Sequence[Fit]]) -> Iterator[Fit]:
    """What is said of each kind of GPU: where one kind is served, another that is not is worth a warning.

    A display card beside the ones that compute does not make an environment useless.
    """
    is_served = any(not any(fit.answer == "no" for fit in fits) for fits in by_card)
    for fits in by_card:
        for fit in fits:
            if fit.answer == "no" and is_served:
                yield msgspec.structs.replace(fit, answer="warn", found=f"{fit.found}; other GPUs are served")
            else:
                yield fit
