"""CUDA of what lies in an environment: against the driver, and of its parts among one another."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.core.fit.code import public, variant_of
from doctor.core.fit.verdict import Fit, Question, no, sources, unknown, warn, yes
from doctor.core.matrix import ToolkitRow
from doctor.core.versions import Dotted

__all__ = ["cuda_libraries", "driver_floor", "floor_of", "libcuda", "nccl", "tensorrt_driver", "torch_build"]


def torch_build(question: Question) -> Iterator[Fit]:
    """A torch without CUDA computes on the processor, whatever the GPU."""
    environment, ground = question.environment, question.ground
    if not environment.torch or ground.has_gpu is False:
        return
    name = f"torch {environment.torch}"
    if (
        environment.torch_build == "cuda"
        or environment.torch_cuda is not None
        or environment.is_cuda_available
    ):
        yield yes(
            "torch-cuda-build", "torch", f"{name} is built with CUDA {environment.torch_cuda or ''}".rstrip()
        )
    elif (
        environment.torch_build in ("cpu", "rocm", "xpu")
        or public(environment.torch) + "+cpu" == environment.torch
    ):
        yield _other_build(question, name)
    else:
        found = f"whether {name} is built with CUDA was not read"
        yield unknown("torch-cuda-build", "torch", found, is_open=True)


def _other_build(question: Question, name: str) -> Fit:
    environment, ground = question.environment, question.ground
    maker = {"rocm": "for AMD GPUs", "xpu": "for Intel GPUs"}.get(environment.torch_build, "without CUDA")
    found, wanted = f"{name} is a build {maker}", "a build of torch with CUDA"
    if ground.has_gpu is None:
        return unknown("torch-cuda-build", "torch", f"{found}; whether there is a GPU is not known")
    source = sources(question, rules=("torch-cpu-wheels",))
    if not question.engine and not environment.is_meant:
        return warn("torch-cuda-build", "torch", found, wanted=wanted, source=source)
    hint = "the CUDA build of the same release, from PyTorch's own index"
    return no("torch-cuda-build", "torch", found, wanted=wanted, source=source, hints=(hint,))


# --- the driver -----------------------------------------------------------------------------------


def driver_floor(question: Question) -> Iterator[Fit]:
    """The driver has to be of the CUDA major that torch was built with, or newer."""
    environment = question.environment
    if environment.torch_cuda is not None and (environment.torch or environment.kind == "image"):
        name = f"torch {environment.torch}" if environment.torch else "the image"
        yield from floor_of(question, "torch" if environment.torch else "cuda", name, environment.torch_cuda)


def tensorrt_driver(question: Question) -> Iterator[Fit]:
    """The same for the CUDA major that TensorRT's variant is built for."""
    environment = question.environment
    if not environment.tensorrt:
        return
    majors = {
        m for p in environment.packages if p.startswith("tensorrt-cu") and (m := variant_of(p)) is not None
    }
    row = question.matrix.release("tensorrt", ".".join(environment.tensorrt.split(".")[:3]))
    if not majors and row is not None and (row.unsuffixed_variant or len(row.cuda_variants) == 1):
        majors = {int((row.unsuffixed_variant or row.cuda_variants[0]).removeprefix("cu"))}
    for major in sorted(majors):
        name = f"TensorRT {environment.tensorrt} (CUDA {major})"
        yield from floor_of(question, "tensorrt", name, Dotted(str(major)))


def floor_of(question: Question, component: str, name: str, cuda: Dotted) -> Iterator[Fit]:
    """The driver that a build with a CUDA needs."""
    ground, relation = question.ground, f"driver-floor-cuda{cuda.major}"
    row = _row(question, cuda)
    if ground.has_gpu is False or ground.is_jetson:
        return
    if question.environment.is_cuda_available and component == "torch":
        yield yes(relation, component, f"{name} started CUDA on this machine")
    elif ground.driver is None and ground.driver_cuda is None:
        needs = f", which needs driver {row.driver_floor}" if row else ""
        yield unknown(
            relation,
            component,
            f"{name} is built with CUDA {cuda}{needs}; the driver is not known",
            is_open=True,
        )
    elif ground.driver_cuda is not None and ground.driver_cuda.major >= cuda.major:
        yield yes(
            relation,
            component,
            f"{name} needs a driver for CUDA {cuda.major}; this one speaks {ground.driver_cuda}",
            sources(question, row),
        )
    elif (compat := _by_compat(question, component, name, cuda, row)) is not None:
        yield compat
    elif row is None:
        yield unknown(relation, component, f"CUDA {cuda} has no row in this matrix", is_open=True)
    elif ground.driver_cuda is None and ground.driver is not None and ground.driver >= row.driver_floor:
        yield yes(
            relation,
            component,
            f"{name} needs driver {row.driver_floor}; it is {ground.driver}",
            sources(question, row),
        )
    else:
        yield _too_old(question, component, name, cuda, row)


def _by_compat(
    question: Question, component: str, name: str, cuda: Dotted, row: ToolkitRow | None
) -> Fit | None:
    """Newer driver libraries in the driver's place: there, perhaps there, or (None) no way out here."""
    ground, environment, compat = question.ground, question.environment, question.compat
    relation = f"driver-floor-cuda{cuda.major}"
    if not ground.cards or not all(card.takes_compat for card in ground.cards):
        return None
    needs, source = (
        f"{name} needs a driver for CUDA {cuda.major}",
        sources(question, row, rules=("fwd-compat",)),
    )
    if compat is not None and row is not None:
        if compat < row.driver_floor:
            return None
        found = f"{needs}; newer driver libraries ({compat}) stand in for it, which these GPUs take"
        return yes(relation, component, found, source, "derived")
    if environment.has_compat:
        beside = "the image brings newer driver libraries, which these GPUs take"
        return yes(relation, component, f"{needs}; {beside}", source, "derived")
    if environment.kind != "image":
        return None
    driver = f"driver {ground.driver or 'of an older CUDA'}"
    text = (
        f"{needs}, and there is {driver}: it runs where the image brings newer driver libraries"
        " (cuda-compat), of which its configuration says nothing; `--have cuda-compat==VERSION` says it"
    )
    return unknown(relation, component, text, source, is_open=True)


def _row(question: Question, cuda: Dotted) -> ToolkitRow | None:
    if len(cuda.parts) > 1 and (row := question.matrix.toolkit(cuda)) is not None:
        return row
    return next((row for row in question.matrix.edition.toolkits if row.cuda.major == cuda.major), None)


def _too_old(question: Question, component: str, name: str, cuda: Dotted, row: ToolkitRow) -> Fit:
    ground = question.ground
    speaks = f", which speaks CUDA {ground.driver_cuda}" if ground.driver_cuda else ""
    wanted = f"driver {row.driver_floor} or newer"
    majors = ground.driver_cuda.major if ground.driver_cuda else cuda.major - 1
    hints = [wanted, f"builds for CUDA {majors}"]
    if ground.cards and all(card.takes_compat for card in ground.cards):
        hints.append(
            f"package cuda-compat-{cuda.major}-{(*cuda.parts, 0)[1]}: these GPUs take newer driver libraries"
        )
    return no(
        f"driver-floor-cuda{cuda.major}",
        component,
        f"{name} is built with CUDA {cuda}; the driver is {ground.driver or 'older'}{speaks}",
        wanted=wanted,
        source=sources(question, row, rules=("mvc",)),
        hints=tuple(hints),
    )


# --- parts among one another ----------------------------------------------------------------------

_SONAME = re.compile(r"lib(cudart|cublas|cublasLt|nvrtc)\.so\.(\d{2})(?:$|\.)")
_OF_WHEEL = {
    "cudart": "nvidia-cuda-runtime",
    "cublas": "nvidia-cublas",
    "cublasLt": "nvidia-cublas",
    "nvrtc": "nvidia-cuda-nvrtc",
}


def cuda_libraries(question: Question) -> Iterator[Fit]:
    """Each CUDA library that an extension asks for is there, in the major that it asks for."""
    environment = question.environment
    if not environment.is_listed or not environment.bundled:
        return
    said = False
    for soname, name, major, paths in _asked(question):
        said = True
        if major in _provided(question, name):
            continue
        if question.ground.toolkits is None:
            yield unknown(
                "cuda-runtime-library",
                "cuda",
                f"`{paths[0]}` needs {soname}; toolkits of the machine are not known",
            )
        elif any(version.major == major for _path, version in question.ground.toolkits):
            continue
        else:
            there = sorted(_provided(question, name))
            others = f"; there is CUDA {', '.join(map(str, there))}" if there else ""
            hint = "a fresh environment in which torch and engine are of one CUDA major"
            wanted = f"{_OF_WHEEL[name]} of CUDA {major}"
            source = sources(question, rules=("one-cuda-major",))
            yield no(
                "cuda-runtime-library",
                "cuda",
                f"`{paths[0]}` needs {soname}{others}",
                wanted=wanted,
                source=source,
                hints=(hint,),
            )
            return
    if said:
        yield yes("cuda-runtime-library", "cuda", "each CUDA library that is asked for is there")


def _asked(question: Question) -> Iterator[tuple[str, str, int, list[str]]]:
    found: dict[str, list[str]] = {}
    for one in question.environment.bundled:
        for soname in one.needs:
            if _SONAME.match(soname):
                found.setdefault(soname, []).append(one.path)
    for soname, paths in sorted(found.items()):
        match = _SONAME.match(soname)
        if match is not None:
            yield soname, match.group(1), int(match.group(2)), paths


def _provided(question: Question, name: str) -> set[int]:
    """The CUDA majors of which the environment has a library: by file, by wheel, by conda package."""
    environment = question.environment
    files = [_SONAME.match(path.rpartition("/")[2]) for path in environment.libraries]
    found = {int(match.group(2)) for match in files if match and match.group(1) == name}
    for package, version in environment.packages.items():
        if re.sub(r"-cu\d+$", "", package) == _OF_WHEEL[name]:
            found.add(variant_of(package) or int(version.split(".")[0]))
    return found


def libcuda(question: Question) -> Iterator[Fit]:
    """The driver brings libcuda; one inside the environment is found before it and is of another version."""
    environment = question.environment
    if environment.is_listed and (not environment.libcuda or environment.prefix == "/usr"):
        yield yes("libcuda-inside", "cuda-compat", "no libcuda of its own lies in it")
    elif environment.libcuda and environment.prefix != "/usr":
        found = f"a libcuda of its own lies at `{environment.libcuda[0]}`"
        wanted = "the libcuda of the driver alone"
        source = sources(question, rules=("fwd-compat", "fwd-compat-build"))
        yield warn("libcuda-inside", "cuda-compat", found, wanted=wanted, source=source)


def nccl(question: Question) -> Iterator[Fit]:
    """One NCCL, in the version that torch asks for: the wheels of two CUDA majors share a folder."""
    environment = question.environment
    wheels = {name: v for name, v in environment.wheels.items() if re.fullmatch(r"nvidia-nccl-cu\d+", name)}
    if not wheels:
        return
    text = ", ".join(f"{name} {version}" for name, version in sorted(wheels.items()))
    asked = [
        r for r in environment.requires if r.by == "torch" and r.name in wheels and r.spec.startswith("==")
    ]
    if len(wheels) > 1:
        wanted = "one NCCL wheel"
        source = sources(question, rules=("wheels-share-folder",))
        yield warn("nccl-single", "nccl", f"{text}: both write nvidia/nccl", wanted=wanted, source=source)
        return
    for one in asked:
        if public(wheels[one.name]) != one.spec.removeprefix("=="):
            source = sources(question, question.matrix.release("torch", public(environment.torch)))
            yield warn(
                "torch-nccl-pin",
                "nccl",
                text,
                wanted=f"{one.name}{one.spec}, as torch {environment.torch} asks",
                source=source,
            )
            return
    yield yes("nccl-single", "nccl", text)
