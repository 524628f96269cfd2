"""What is compiled or loaded at run time: C libraries, assembler, compilers, headers, MPI, limits."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.core.codes import architecture_of
from doctor.core.fit.code import public
from doctor.core.fit.ground import Card
from doctor.core.fit.verdict import Fit, Question, no, of_some_card, sources, unknown, warn, yes
from doctor.core.matrix import ToolkitRow
from doctor.core.versions import Dotted

__all__ = ["compiler", "glibc", "headers", "libstdcxx", "mpi", "nvcc", "open_files", "ptxas"]

#: vLLM raises its own soft limit to this, and warns where it cannot.
_OPEN_FILES = 65535
_UNLIMITED = -1


def glibc(question: Question) -> Iterator[Fit]:
    """The C library is as new as the wheels and their machine code ask for."""
    environment = question.environment
    if environment.kind == "image":
        return  # it brings its own
    own = environment.glibc or question.ground.glibc
    floors = [(one.glibc, f"`{one.path}`") for one in environment.bundled if one.glibc is not None]
    if environment.glibc_tag is not None:
        floors.append((environment.glibc_tag, f"the wheel of {environment.glibc_tag_of}"))
    rows = [
        question.matrix.release(name, public(v))
        for name, v in (("torch", environment.torch), ("vllm", environment.vllm))
        if v
    ]
    for row in rows:
        match = re.fullmatch(r">=(\d+\.\d+)", row.requires.get("glibc", "")) if row else None
        if row and match and not environment.bundled:
            floors.append((Dotted(match.group(1)), f"{row.component} {row.version}"))
    if not floors:
        return
    floor, whose = max(floors)
    source = sources(question, *rows) + question.ground.glibc_source
    if own is None:
        yield unknown(
            "glibc-floor", "glibc", f"{whose} needs glibc {floor}; that of the machine is not known", source
        )
    elif own < floor:
        hint = (
            "a container whose image has a newer C library, or a newer system; glibc itself is never replaced"
        )
        yield no(
            "glibc-floor",
            "glibc",
            f"{whose} needs glibc {floor}; it is {own}",
            wanted=f"glibc {floor} or newer",
            source=source,
            hints=(hint,),
        )
    else:
        yield yes("glibc-floor", "glibc", f"{whose} needs glibc {floor}; it is {own}", source)


def libstdcxx(question: Question) -> Iterator[Fit]:
    """A libstdc++ in the environment's own `lib` comes first, and is as new as the extensions ask for."""
    environment = question.environment
    floors = [(one.glibcxx, one.path) for one in environment.bundled if one.glibcxx is not None]
    if environment.libstdcxx is None or not floors:
        return
    floor, path = max(floors)
    own = environment.libstdcxx
    there = f"the environment's own libstdc++ has GLIBCXX_{own}; `{path}` asks for GLIBCXX_{floor}"
    if own >= floor:
        yield yes("libstdcxx-first", "libstdc++", there)
        return
    hint = "a newer libstdcxx in that environment (conda: package `libstdcxx`)"
    source = sources(question, rules=("libstdcxx-first",))
    yield no("libstdcxx-first", "libstdc++", there, wanted=f"GLIBCXX_{floor}", source=source, hints=(hint,))


# --- compiled at run time -------------------------------------------------------------------------


def ptxas(question: Question) -> Iterator[Fit]:
    """Triton's own assembler knows the GPU."""
    release = question.environment.ptxas
    row = question.matrix.toolkit(release) if release is not None else None
    if row is None or not row.sm_targets:
        return
    fits = [_assembles(question, card, row) for card in question.ground.cards]
    yield from of_some_card([[fit] for fit in fits if fit is not None])


def _assembles(question: Question, card: Card, row: ToolkitRow) -> Fit | None:
    family = architecture_of(question.matrix, card.capability) if card.capability else None
    if card.capability is None or family is None:
        return None
    own = card.capability.raw.replace(".", "")
    # Thor is sm_101 to one toolkit and sm_110 to the next.
    numbers = {own, *(family.sm if len(family.compute_capability) == 1 else ())}
    found = f"triton brings ptxas of CUDA {row.cuda}; {card.name} is sm_{own}"
    if numbers & set(row.sm_targets):
        return yes("triton-ptxas", "triton", found, row.source)
    since = f" (CUDA {family.first_cuda} and newer)" if family.first_cuda else ""
    hints = (f"TRITON_PTXAS_PATH set to the ptxas of a toolkit that knows it{since}, or a newer triton",)
    source = sources(question, row, rules=("triton-ptxas",))
    wanted = "an assembler that knows the GPU"
    return no("triton-ptxas", "triton", found, wanted=wanted, source=source, hints=hints)


def _uses_triton(question: Question) -> bool:
    return bool(question.engine) and (
        bool(question.environment.packages.get("triton")) or not question.environment.is_listed
    )


def compiler(question: Question) -> Iterator[Fit]:
    """Triton builds a small C module at the first start, and needs a C compiler for it."""
    if not _uses_triton(question) or not question.is_tooled:
        return
    mine = [
        p for p in question.environment.compilers if re.search(r"/(gcc|cc|clang|[\w-]+-linux-gnu-cc)$", p)
    ]
    if mine or question.ground.has_compiler:
        yield yes("triton-compiler", "gcc", f"a C compiler is there: `{mine[0] if mine else 'gcc'}`")
    elif question.environment.is_listed and question.ground.has_compiler is False:
        source = sources(question, rules=("triton-build",))
        hint = "gcc from the system's packages"
        yield no(
            "triton-compiler",
            "gcc",
            "no C compiler on the machine or in the environment",
            wanted="gcc, cc or clang",
            source=source,
            hints=(hint,),
        )
    else:
        yield unknown("triton-compiler", "gcc", "whether a C compiler is there was not read")


def headers(question: Question) -> Iterator[Fit]:
    """The same build needs `Python.h` of the interpreter in use."""
    environment = question.environment
    if not _uses_triton(question) or not question.is_tooled:
        return
    minor = ".".join(map(str, environment.python.parts[:2])) if environment.python else "3"
    if environment.has_headers is None:
        yield unknown("triton-headers", "python", f"whether Python.h of Python {minor} is there was not read")
    elif environment.has_headers:
        yield yes("triton-headers", "python", f"Python.h of Python {minor} is there")
    else:
        source = sources(question, rules=("triton-build",))
        hint = f"python{minor}-dev (python{minor}-devel on Rocky), or an interpreter that comes with headers"
        yield no(
            "triton-headers",
            "python",
            f"Python.h of Python {minor} is missing",
            wanted=f"headers of Python {minor}",
            source=source,
            hints=(hint,),
        )


def nvcc(question: Question) -> Iterator[Fit]:
    """FlashInfer and DeepGEMM compile kernels on the host, unless they come prebuilt."""
    packages, ground = question.environment.packages, question.ground
    builds = [n for n in ("flashinfer-python", "deep-gemm") if n in packages]
    if "flashinfer-cubin" in packages or "flashinfer-jit-cache" in packages:
        builds = [n for n in builds if n != "flashinfer-python"]
    if not builds or not ground.tooled:
        return
    name, home = " and ".join(builds), ground.cuda_home
    source = sources(question, rules=("flashinfer-prebuilt",))
    if home is not None and (not home.startswith("/") or re.search(r"[:\s\"';]", home)):
        hint = "CUDA_HOME set to one directory: that of the toolkit"
        text = f"CUDA_HOME is `{home}`, which is no directory; {name} builds with the nvcc below it"
        yield no("cuda-home", "cuda-toolkit", text, wanted="one absolute path", source=source, hints=(hint,))
        return
    own = [p for p in question.environment.compilers if p.endswith("/nvcc")]
    wheels = [n for n in packages if n.startswith("nvidia-cuda-nvcc")]
    if own or wheels or ground.toolkits:
        where = own or wheels or [path for path, _version in ground.toolkits or ()]
        yield yes("jit-nvcc", "cuda-toolkit", f"{name} can build: nvcc of `{where[0]}`")
    elif ground.toolkits is None:
        yield unknown(
            "jit-nvcc",
            "cuda-toolkit",
            f"{name} builds kernels with nvcc; toolkits of the machine are not known",
        )
    elif any(card.capability and card.capability.major >= 10 for card in ground.cards):
        found = f"no nvcc for {name}, which vLLM prefers on these GPUs"
        yield warn(
            "jit-nvcc",
            "cuda-toolkit",
            found,
            wanted="flashinfer-cubin of the same release, or nvcc",
            source=source,
        )
    else:
        yield yes(
            "jit-nvcc",
            "cuda-toolkit",
            f"no nvcc for {name}: what it would build is not used by default on these GPUs",
        )


def mpi(question: Question) -> Iterator[Fit]:
    """TensorRT-LLM loads libmpi when it is imported."""
    environment = question.environment
    if not environment.tensorrt_llm or environment.mpi is None:
        return
    if environment.mpi:
        yield yes("trtllm-mpi", "tensorrt-llm", f"libmpi is `{environment.mpi}`")
        return
    hint = "Open MPI from the distribution (`libopenmpi3`, `openmpi`), or NVIDIA's container"
    source = sources(question, rules=("trtllm-mpi",))
    yield no(
        "trtllm-mpi",
        "tensorrt-llm",
        "no libmpi was found",
        wanted="a libmpi that the loader finds",
        source=source,
        hints=(hint,),
    )


# --- limits ---------------------------------------------------------------------------------------


def open_files(question: Question) -> Iterator[Fit]:
    """A server holds a descriptor for each connection and each file of its cache."""
    files = next((limit for limit in question.ground.limits if limit.name == "nofile"), None)
    if files is None or not question.engine or not question.is_tooled:
        return
    found = f"at most {files.hard} open files" if files.hard != _UNLIMITED else "open files are not limited"
    if files.hard != _UNLIMITED and files.hard < _OPEN_FILES:
        source = sources(question, rules=("vllm-open-files",))
        yield warn(
            "open-files", "limits", found, wanted=f"a hard limit of {_OPEN_FILES} or more", source=source
        )
    else:
        yield yes("open-files", "limits", found)
