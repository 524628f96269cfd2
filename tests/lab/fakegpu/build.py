"""Compiles the stand-ins for libnvidia-ml and libcuda, and keeps them."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

from tests.lab.base import digest_of, once, run
from tests.lab.places import CACHE

__all__ = ["ensure_libraries"]

HERE = Path(__file__).resolve().parent
#: The vendor's own nvml.h: types and return codes are taken from it, not from memory.
HEADER = "nvidia-nvml-dev==13.*"


def ensure_libraries() -> Path:
    """A folder with libnvidia-ml.so and libcuda.so."""
    target = CACHE / f"libraries-{digest_of(HERE / 'nvml_stub.c', HERE / 'libcuda_stub.c', text=HEADER)}"
    with once(target) as part:
        if part is not None:
            _compile(part, _header(part / "include"))
    return target


def _header(folder: Path) -> Path:
    folder.mkdir()
    run(
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary",
        ":all:",
        "-d",
        folder,
        HEADER,
    )
    wheel = next(folder.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith("/nvml.h"))
        (folder / "nvml.h").write_bytes(archive.read(name))
    wheel.unlink()
    return folder


def _compile(part: Path, include: Path) -> None:
    for name, source, soname in (
        ("libnvidia-ml.so", "nvml_stub.c", "libnvidia-ml.so.1"),
        ("libcuda.so", "libcuda_stub.c", "libcuda.so.1"),
    ):
        run("gcc", "-O1", "-Wall", "-Werror", "-fPIC", "-shared", f"-Wl,-soname,{soname}", f"-I{include}",
            HERE / source, "-o", part / name, "-ldl", "-lpthread")  # fmt: skip
