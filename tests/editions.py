"""The matrix of the tree, decoded once a process: half the time of a test that judges a hundred hosts."""

from __future__ import annotations

from functools import cache

from doctor.core.matrix import Matrix
from doctor.edition.load import load_matrix


@cache
def tree_matrix() -> Matrix:
    return load_matrix()
