"""GPUs by the names that people write: counts, missing spaces, missing generations."""

from __future__ import annotations

import pytest

from doctor.core.matrix import Matrix
from doctor.core.target import find_gpu
from doctor.edition.load import load_matrix


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return load_matrix()


NAMES = {
    # The x of a name is no count.
    "MX450": ("NVIDIA GeForce MX450", 1, "7.5"),
    "MX150": ("GeForce MX150", 1, "6.1"),
    "MX450x2": ("NVIDIA GeForce MX450", 2, "7.5"),
    "RTX4090": ("GeForce RTX 4090", 1, "8.9"),
    "RTX4090x8": ("GeForce RTX 4090", 8, "8.9"),
    "RTX5090": ("GeForce RTX 5090", 1, "12.0"),
    "GTX1080": ("GeForce GTX 1080", 1, "6.1"),
    "A100X": ("A100X", 1, "8.0"),
    # A count is one.
    "H200x8": ("H200 SXM", 8, "9.0"),
    "B200 x8": ("B200", 8, "10.0"),
    "10de:2335x8": ("H200 SXM", 8, "9.0"),
    "TITAN Vx2": ("TITAN V", 2, "7.0"),
    # Forms without their generation.
    "H100 SXM": ("H100 SXM5 80GB", 1, "9.0"),
    "A100 SXM": ("A100-SXM4-40GB", 1, "8.0"),
    "A100-SXM-64GB": ("NVIDIA A100-SXM-64GB", 1, "8.0"),
    "K80": ("Tesla K80", 1, "3.7"),
    "Jetson AGX Orin": ("Jetson AGX Orin", 1, "8.7"),
}


@pytest.mark.parametrize("text", NAMES)
def test_a_name_and_its_count(text: str, matrix: Matrix) -> None:
    kind = find_gpu(matrix, text)
    assert (kind.name, kind.count, kind.compute_capability) == NAMES[text]
    assert kind.maker == "nvidia"


@pytest.mark.parametrize("text", ["RTX9990", "DXx400", "RTX8990"])
def test_a_name_without_a_row_is_unknown_and_no_count(text: str, matrix: Matrix) -> None:
    kind = find_gpu(matrix, text)
    assert (kind.name, kind.count, kind.maker) == (text, 1, "unknown")
