"""Machine code by compute capability: whether what was compiled for some runs on another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from doctor.core.matrix import Architecture, Matrix
from doctor.core.versions import Dotted

__all__ = ["FIRST_SPECIFIC", "Runs", "architecture_of", "runs"]

#: From here on a toolkit has targets that run on one capability only (sm_90a): rule `arch-specific-targets`.
FIRST_SPECIFIC = 9

Runs = Literal["yes", "no", "unknown"]


def runs(matrix: Matrix, capability: Dotted, codes: Sequence[Dotted], ptx: str, cuda: Dotted | None) -> Runs:
    """Whether a build with code for these capabilities, and perhaps PTX of one, runs on another.

    `cuda` is the toolkit that it was built with.
    """
    if capability in codes:
        return "yes"
    major, minor = capability.parts[0], (*capability.parts, 0)[1]
    if any(code.parts[0] == major and (*code.parts, 0)[1] <= minor for code in codes):
        family = architecture_of(matrix, capability)
        first = family.first_cuda if family else None
        is_older = cuda is None or first is None or first > cuda
        # Whoever built it had no compiler for this GPU, and from 9.0 on a target may be for one GPU only.
        return "unknown" if major >= FIRST_SPECIFIC and is_older else "yes"
    return "unknown" if ptx and capability >= Dotted(ptx) else "no"


def architecture_of(matrix: Matrix, capability: Dotted) -> Architecture | None:
    """The architecture that a compute capability belongs to."""
    rows = matrix.edition.architectures
    return next((row for row in rows if capability.raw in row.compute_capability), None)
