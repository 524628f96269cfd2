"""What is said of one thing in an environment on one machine, with the rows that it rests on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from doctor.core.fit.ground import Ground
from doctor.core.host import Environment
from doctor.core.matrix import Matrix, Row
from doctor.core.rows.package import Release
from doctor.core.versions import Dotted

__all__ = ["Fit", "Question", "local_cuda", "no", "of_some_card", "sources", "unknown", "warn", "yes"]


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

    @property
    def releases(self) -> dict[str, str]:
        """What is in it of the packages whose releases have rows, by component."""
        environment = self.environment
        named = {
            "torch": environment.torch,
            "vllm": environment.vllm,
            "tensorrt": environment.tensorrt,
            "tensorrt-llm": environment.tensorrt_llm,
            "torch-tensorrt": environment.packages.get("torch-tensorrt", ""),
            "sglang": environment.packages.get("sglang", ""),
        }
        return {component: version for component, version in named.items() if version}

    def row(self, component: str) -> Release | None:
        """The row of a release, whoever built it: `2.9.1` of `2.9.1+cu129`."""
        own = self.releases.get(component, "")
        version = own.partition("+")[0]
        found = self.matrix.release(component, own) or self.matrix.release(component, version)
        parts = version.partition(".post")[0].split(".") if component == "tensorrt" else []
        for count in (4, 3):
            found = found or (self.matrix.release(component, ".".join(parts[:count])) if parts else None)
        return found

    @property
    def compat(self) -> Dotted | None:
        """The version of newer driver libraries (`cuda-compat`), where it was told and all GPUs take them."""
        cards = self.ground.cards
        takes = bool(cards) and all(card.takes_compat for card in cards)
        return (self.ground.compat or self._compat_of_image()) if takes else None

    def _compat_of_image(self) -> Dotted | None:
        """As the image says: NVIDIA's name the driver that it comes from, others the package of a toolkit."""
        environment = self.environment
        told = environment.variables.get("CUDA_DRIVER_VERSION", "") if environment.has_compat else ""
        if re.fullmatch(r"\d{3}(?:\.\d{1,3}){1,2}", told):
            return Dotted(told)
        package = environment.variables.get("NV_CUDA_COMPAT_PACKAGE", "")
        found = re.match(r"cuda-compat-(\d{2})-(\d)(?:=|$)", package)
        toolkit = self.matrix.toolkit(Dotted(f"{found.group(1)}.{found.group(2)}")) if found else None
        return toolkit.driver if toolkit else None

    @property
    def tensorrt_majors(self) -> tuple[int, ...]:
        """The CUDA majors that its TensorRT is built for, by the names of its packages."""
        names = [re.match(r"tensorrt-cu(\d{2})(?:-|$)", name) for name in self.environment.packages]
        return tuple(sorted({int(found.group(1)) for found in names if found}))

    @property
    def speaks(self) -> Dotted | None:
        """The highest CUDA that the driver speaks, or the newer libraries that are used in its place."""
        own = self.ground.driver_cuda
        branch = self.matrix.branch(self.compat) if self.compat is not None else None
        theirs = branch.cuda_version if branch else None
        return max(own, theirs) if own is not None and theirs is not None else own

    @property
    def needs_compat(self) -> bool:
        """Whether the driver alone is of an older CUDA than what is there was built with."""
        mine, cuda = self.ground.driver_cuda, self.environment.torch_cuda
        return mine is None or cuda is None or mine.parts[:2] < cuda.parts[:2]


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


def local_cuda(version: str) -> Dotted | None:
    """The CUDA in a version's local part: 12.9 of `0.11.2+cu129`."""
    found = re.fullmatch(r"cu(\d{2})(\d)", version.partition("+")[2])
    return Dotted(f"{found.group(1)}.{found.group(2)}") if found is not None else None


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
