"""What packages of an environment ask of one another: pins, one TensorRT, one set of FlashInfer."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.core.fit.code import public, variant_of
from doctor.core.fit.verdict import Fit, Question, no, sources, unknown, warn, yes
from doctor.core.host_engine import Requirement
from doctor.core.sets import VersionSet
from doctor.core.versions import parse

__all__ = ["flashinfer", "requirements", "tensorrt_libraries", "tensorrt_single", "torch_pin", "trtllm_pins"]

#: Compiled against one torch: with another they do not load.
_COMPILED = ("vllm", "torchvision", "torchaudio", "xformers", "flash-attn", "sgl-kernel", "torch-tensorrt")
_NAMES = {
    "flashinfer-python": "flashinfer",
    "torch": "torch",
    "transformers": "transformers",
    "xgrammar": "xgrammar",
}


def torch_pin(question: Question) -> Iterator[Fit]:
    """Each extension compiled for a torch finds that one."""
    for one in _asked(question):
        if one.by in _COMPILED and one.name == "torch":
            yield _pinned(question, one)


def trtllm_pins(question: Question) -> Iterator[Fit]:
    """TensorRT-LLM finds the torch and the TensorRT that it asks for."""
    for one in _asked(question):
        if one.by == "tensorrt-llm" and one.name in ("torch", "tensorrt", "tensorrt-cu12", "tensorrt-cu13"):
            yield _pinned(question, one)


def requirements(question: Question) -> Iterator[Fit]:
    """What else engines ask for, where it is there in another version."""
    for one in _asked(question):
        if (
            one.by in ("vllm", "sglang", "tensorrt-llm")
            and one.name not in ("torch", "tensorrt")
            and one.spec
        ):
            fit = _pinned(question, one)
            if fit.answer == "no":
                yield warn(fit.relation, fit.component, fit.found, wanted=fit.wanted, source=fit.source)
            elif fit.answer == "yes":
                yield fit


def _asked(question: Question) -> Iterator[Requirement]:
    """Requirements whose packages are both there: by metadata, else by the rows of the releases."""
    environment = question.environment
    versions = {**environment.packages, **({"torch": environment.torch} if environment.torch else {})}
    told = [one for one in environment.requires if one.name in versions and one.by in versions]
    yield from told
    spoken = {one.by for one in environment.requires}
    for component, by in (("vllm", environment.vllm), ("tensorrt-llm", environment.tensorrt_llm)):
        row = question.matrix.release(component, public(by)) if by and component not in spoken else None
        for name, spec in (row.requires if row else {}).items():
            package = next((p for p, c in _NAMES.items() if c == name and p in versions), "")
            if package:
                yield Requirement(by=component, name=package, spec=spec)


def _pinned(question: Question, one: Requirement) -> Fit:
    environment = question.environment
    version = (
        environment.torch if one.name == "torch" and environment.torch else environment.packages[one.name]
    )
    own = {"vllm": environment.vllm, "tensorrt-llm": environment.tensorrt_llm}
    by = environment.packages.get(one.by) or own.get(one.by, "")
    component = {"tensorrt-llm": "trtllm"}.get(one.by, one.by)
    relation = f"{component}-{one.name}-pin"
    source = sources(question, question.matrix.release(one.by, public(by)))
    source = source or ((f"METADATA of {one.by} {by} in the environment",) if environment.is_listed else ())
    found = f"{one.by} {by} asks for {one.name}{one.spec}; it is {version}"
    holds = _has(one.spec, version)
    if holds is None:
        return unknown(relation, one.name, found, source)
    if holds:
        return yes(relation, one.name, found, source)
    wanted = f"{one.name}{one.spec}"
    hints = (f"{one.by} and {one.name} installed together, so that the pin holds",)
    return no(relation, one.name, found, wanted=wanted, source=source, hints=hints)


def _has(spec: str, version: str) -> bool | None:
    """Whether a version lies in a set; None where one of them cannot be read.

    A pin without a local part takes every build of that release. A vendor's own build of a coming release
    (`2.9.0a0+145a3a7bda.nv25.10`) is what the vendor's other packages were compiled for: nothing is said.
    """
    if ".nv" in version.partition("+")[2]:
        return None
    try:
        wanted = VersionSet(spec, "pep440")
        return wanted.has(parse(version if "+" in spec else public(version), "pep440"))
    except ValueError:
        return None


# --- TensorRT -------------------------------------------------------------------------------------


def tensorrt_single(question: Question) -> Iterator[Fit]:
    """One TensorRT: a plan is read by the version that built it, and no other."""
    environment = question.environment
    mine = {
        n: v
        for n, v in environment.packages.items()
        if n == "tensorrt" or n.startswith(("tensorrt-cu", "tensorrt-libs", "tensorrt-bindings"))
    }
    if not mine:
        return
    text = ", ".join(f"{name} {version}" for name, version in sorted(mine.items()))
    variants = {variant for name in mine if (variant := variant_of(name)) is not None}
    releases = {".".join(public(version).split(".")[:3]) for version in mine.values()}
    source = sources(question, rules=("trt-one-version",))
    if len(variants) > 1 or len(releases) > 1 or any(name in environment.doubled for name in mine):
        hint = "a fresh environment with one of them; plans are built again with it"
        yield no(
            "tensorrt-single",
            "tensorrt",
            text,
            wanted="one release of TensorRT for one CUDA major",
            source=source,
            hints=(hint,),
        )
        return
    system = question.ground.tensorrt
    if system and system.split(".")[:2] != environment.tensorrt.split(".")[:2]:
        found = f"{text} here, {system} among the system's packages"
        yield warn(
            "tensorrt-single", "tensorrt", found, wanted="plans built and run by one release", source=source
        )
        return
    yield yes("tensorrt-single", "tensorrt", text, source)


def tensorrt_libraries(question: Question) -> Iterator[Fit]:
    """The bindings find libnvinfer: in a wheel of its own, or among the system's libraries."""
    environment = question.environment
    if not environment.tensorrt or not environment.is_listed:
        return
    has_wheel = any(name.startswith("tensorrt") and name.endswith("-libs") for name in environment.packages)
    has_file = any("libnvinfer.so" in path for path in environment.libraries)
    name = f"TensorRT {environment.tensorrt}"
    if has_wheel or has_file or question.ground.tensorrt:
        yield yes("tensorrt-libraries", "tensorrt", f"{name} has its libraries")
        return
    if not question.is_tooled:
        yield unknown(
            "tensorrt-libraries",
            "tensorrt",
            f"{name} brings no libnvinfer; whether the system has it is not known",
            is_open=True,
        )
        return
    source = sources(question, rules=("trt-libs-wheel",))
    found = f"{name} is there without libnvinfer"
    wanted = "the `-libs` wheel of the same release, or the system's package"
    yield no("tensorrt-libraries", "tensorrt", found, wanted=wanted, source=source, hints=(wanted,))


def flashinfer(question: Question) -> Iterator[Fit]:
    """FlashInfer's prebuilt kernels are of its own release: it refuses to start with others."""
    packages = question.environment.packages
    own = packages.get("flashinfer-python")
    names = ("flashinfer-cubin", "flashinfer-jit-cache")
    beside: dict[str, str] = {name: packages[name] for name in names if name in packages}
    if own is None or not beside:
        return
    source = sources(question, rules=("flashinfer-prebuilt",))
    every: dict[str, str] = {"flashinfer-python": own, **beside}
    text = ", ".join(f"{name} {version}" for name, version in every.items())
    if all(public(version) == public(own) for version in beside.values()):
        yield yes("flashinfer-set", "flashinfer", text, source)
        return
    hint = f"flashinfer-cubin and flashinfer-jit-cache {public(own)}"
    yield no("flashinfer-set", "flashinfer", text, wanted="all of one release", source=source, hints=(hint,))
