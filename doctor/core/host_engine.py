"""Facts about a Python environment, or a container image, in which an inference engine lies."""

from __future__ import annotations

from typing import Literal

from doctor.core.fact import Value
from doctor.core.versions import Dotted

__all__ = ["Bundled", "Environment", "EnvironmentKind", "Requirement", "TorchBuild"]

EnvironmentKind = Literal["venv", "conda", "system", "image", ""]
TorchBuild = Literal["cuda", "cpu", "rocm", "xpu", ""]


class Requirement(Value, frozen=True, kw_only=True):
    """What an installed package asks for, by its own metadata: `vllm` asks for `torch==2.9.0`."""

    by: str
    name: str
    spec: str
    """A PEP 440 set; empty: any version."""


class Bundled(Value, frozen=True, kw_only=True):
    """A shared library or extension inside an environment, and what it asks of others."""

    path: str
    """Below the site directory: `vllm/_C.abi3.so`."""
    needs: tuple[str, ...] = ()
    """`libcudart.so.12`, …, by its dynamic section."""
    glibc: Dotted | None = None
    """The newest symbol of the C library that it asks for."""
    glibcxx: Dotted | None = None
    """The same of libstdc++: `3.4.30`."""


class Environment(Value, frozen=True, kw_only=True):
    """A Python environment, by `collect_env` from inside or by its files. Empty, None: it did not say."""

    kind: EnvironmentKind = ""
    prefix: str = ""
    is_meant: bool = False
    """Whether it was named, is the caller's own, or is what a report was taken in: not just found."""
    python: Dotted | None = None
    """The interpreter: `3.12.3`."""
    glibc: Dotted | None = None
    """The C library the interpreter runs on: inside a container, the image's."""
    torch: str = ""
    """As the package names itself: `2.9.1+cu129`."""
    torch_cuda: Dotted | None = None
    """The CUDA that torch was built with; None for a build without CUDA, too."""
    torch_build: TorchBuild = ""
    """What torch was built for, by its own `version.py`; empty where that was not read."""
    vllm: str = ""
    tensorrt: str = ""
    tensorrt_llm: str = ""
    wheels: dict[str, str] = {}
    """`nvidia-*` packages and their versions: `nvidia-nccl-cu12`, …"""
    is_cuda_available: bool | None = None
    """What `torch.cuda.is_available()` returned there and then."""
    gpus: tuple[str, ...] = ()
    """Names, by torch's index."""
    packages: dict[str, str] = {}
    """Packages that matter here and their versions, names as the package index spells them."""
    doubled: dict[str, tuple[str, ...]] = {}
    """Packages that are there in several versions; the first is the one that an import finds."""
    is_listed: bool = False
    """Whether its packages were listed from its directories: one that is not among them is not there."""
    requires: tuple[Requirement, ...] = ()
    glibc_tag: Dotted | None = None
    """The newest C library that the names of its wheels claim to need (`manylinux_2_28`)."""
    glibc_tag_of: str = ""
    """The package with that wheel."""
    bundled: tuple[Bundled, ...] = ()
    libraries: tuple[str, ...] = ()
    """CUDA, NCCL and TensorRT libraries that it brings, by path."""
    libcuda: tuple[str, ...] = ()
    """Each libcuda in its own library directories, which shadows the driver's."""
    ptxas: Dotted | None = None
    """The CUDA release of the assembler that triton brings."""
    libstdcxx: Dotted | None = None
    """The newest symbol version of a libstdc++ in the environment's own `lib`: `3.4.29`."""
    has_headers: bool | None = None
    """Whether `Python.h` of its interpreter is there."""
    compilers: tuple[str, ...] = ()
    """Paths of `nvcc`, `gcc`, `cc`, `clang`, … in its own `bin` and in the system's."""
    mpi: str | None = None
    """Where a libmpi lies that it could load; empty: looked for and not found."""
    codes: tuple[str, ...] = ()
    """Compute capabilities that it says it was compiled for (an image's `TORCH_CUDA_ARCH_LIST`)."""
    ptx: str = ""
    """The one of them that it has as PTX, too."""
    has_compat: bool = False
    """Of an image: whether it brings newer driver libraries (`cuda-compat`)."""
    variables: dict[str, str] = {}
    """Of an image: what its configuration sets."""
    architecture: str = ""
    """Of an image: `x86_64`, `aarch64`."""
    demands: tuple[str, ...] = ()
    """Of an image: the alternatives of `NVIDIA_REQUIRE_CUDA`, each a list of conditions joined by commas."""

    @property
    def has_engine(self) -> bool:
        """Whether torch, an engine or TensorRT is in it: without any there is nothing to judge."""
        return bool(
            self.torch or self.vllm or self.tensorrt or self.tensorrt_llm or "sglang" in self.packages
        )
