"""Machine code for a GPU: what a build carries, and what of it runs where."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from doctor.core.codes import FIRST_SPECIFIC, Runs, architecture_of, runs
from doctor.core.fit.ground import Card
from doctor.core.fit.verdict import Fit, Question, local_cuda, no, of_some_card, sources, unknown, warn, yes
from doctor.core.matrix import Architecture
from doctor.core.rows.package import HardwareSupport, Release
from doctor.core.sets import VersionSet
from doctor.core.versions import Dotted, parse

__all__ = [
    "engine_gpu",
    "is_index_build",
    "needs_ptx",
    "on_both_sides",
    "ptx",
    "public",
    "torch_archs",
    "torch_row",
    "variant_of",
]


def _runs(
    question: Question, capability: Dotted, codes: Sequence[str], ptx: str, cuda: Dotted | None
) -> Runs:
    return runs(question.matrix, capability, [Dotted(text) for text in codes], ptx, cuda)


def needs_ptx(capability: Dotted, codes: Sequence[str]) -> bool:
    """Whether none of a build's machine code is of this GPU's generation: PTX is all that could run."""
    return bool(codes) and not any(Dotted(code).parts[0] == capability.parts[0] for code in codes)


def public(version: str) -> str:
    """A version without the local part that tells a build: `2.9.1` of `2.9.1+cu129`."""
    return version.partition("+")[0]


def torch_row(question: Question) -> Release | None:
    """The row of this torch when it is the build of the package index: of the same release and CUDA."""
    environment = question.environment
    row = question.matrix.release("torch", public(environment.torch))
    if row is None or row.cuda is None or environment.torch_cuda is None:
        return None
    return row if row.cuda.parts[:2] == environment.torch_cuda.parts[:2] else None


def is_index_build(question: Question, component: str) -> bool:
    """Whether a package is the build that the package index has, of which rows tell CUDA and code.

    A vLLM for another CUDA than its release's own says so in its version (`+cu129`), and so do its
    extensions.
    """
    row, version = question.row(component), question.releases.get(component, "")
    if row is None or question.environment.kind == "image":
        return False
    if component == "torch":
        return torch_row(question) is not None
    local = local_cuda(version)
    if row.version.raw != version and "+" in version:
        return local is not None and row.cuda is not None and row.cuda.parts[:2] == local.parts[:2]
    asked = {
        name
        for one in question.environment.bundled
        if one.path.startswith(f"{component}/")
        for name in one.needs
    }
    majors = {int(found.group(1)) for name in asked if (found := re.match(r"libcudart\.so\.(\d{2})$", name))}
    is_other = row.cuda is not None and bool(majors) and row.cuda.major not in majors
    return not is_other


# --- torch ----------------------------------------------------------------------------------------


def torch_archs(question: Question) -> Iterator[Fit]:
    """Whether torch has kernels for each kind of GPU."""
    cuda = question.environment.torch_cuda
    if not (question.environment.torch or question.environment.codes) or cuda is None:
        return
    told = [(card, card.capability) for card in question.ground.cards if card.capability is not None]
    yield from of_some_card([[_torch_on(question, card, capability, cuda)] for card, capability in told])


def _torch_on(question: Question, card: Card, capability: Dotted, cuda: Dotted) -> Fit:
    matrix, name = question.matrix, f"torch {question.environment.torch}"
    row = torch_row(question)
    if question.environment.codes:
        return _on_said_codes(question, card, capability, cuda)
    relation, gpu = "torch-compiled-cc", f"{card.name} is compute capability {capability}"
    if row is not None and row.compute_capability:
        answer = _runs(question, capability, row.compute_capability, row.ptx, cuda)
        codes = f"{name} has code for {', '.join(row.compute_capability)}"
        if answer == "yes":
            return yes(relation, "torch", f"{codes}; {gpu}", row.source)
        if answer == "unknown":
            return unknown(
                relation,
                "torch",
                f"{codes}; whether that serves {card.name} ({capability}) is not known",
                row.source,
            )
        return _no_kernels(question, capability, f"{codes}; {gpu}", row.source)
    family = architecture_of(matrix, capability)
    if family is None:
        return unknown(relation, "torch", f"{gpu}, which the matrix does not know")
    told = _by_toolkit(question, card, capability, cuda, family)
    if told is not None:
        return told
    near = on_both_sides(question, "torch", capability, cuda)
    if near:
        builds = " and ".join(f"{r.version} (CUDA {r.cuda})" for r in near)
        found = f"{gpu}; {name} is not the index's build; those on both sides have code for it: {builds}"
        return yes(relation, "torch", found, sources(question, *near), "derived")
    return unknown(relation, "torch", f"{gpu}; which GPUs the build {name} has code for is not in the matrix")


def _on_said_codes(question: Question, card: Card, capability: Dotted, cuda: Dotted) -> Fit:
    """By what an image says of itself."""
    environment = question.environment
    answer = _runs(question, capability, environment.codes, environment.ptx, cuda)
    codes = ", ".join(environment.codes) + (f" and PTX of {environment.ptx}" if environment.ptx else "")
    found = f"the image is built for {codes}; {card.name} is compute capability {capability}"
    if answer == "yes":
        return yes("torch-compiled-cc", "torch", found, confidence="derived")
    if answer == "unknown":
        return unknown("torch-compiled-cc", "torch", f"{found}: whether that serves it is not known")
    return _no_kernels(question, capability, found, ())


def _by_toolkit(
    question: Question, card: Card, capability: Dotted, cuda: Dotted, family: Architecture
) -> Fit | None:
    """What no build with a toolkit can have: code for a GPU that its compiler does not know."""
    name = f"torch {question.environment.torch} is built with CUDA {cuda}"
    gpu = f"{card.name} ({capability})"
    if family.first_cuda is not None and cuda.parts[:2] < family.first_cuda.parts[:2]:
        found = f"{name}, and CUDA {family.first_cuda} is the first that compiles for {gpu}"
        return _no_kernels(question, capability, found, family.source)
    if family.last_cuda_major is not None and cuda.major > family.last_cuda_major:
        found = f"{name}, and CUDA {family.last_cuda_major}.x is the last that compiles for {gpu}"
        return _no_kernels(question, capability, found, family.source)
    return None


def _no_kernels(question: Question, capability: Dotted, found: str, source: tuple[str, ...]) -> Fit:
    rows = question.matrix.releases("torch")
    serving = [
        r
        for r in rows
        if r.cuda and _runs(question, capability, r.compute_capability, r.ptx, r.cuda) == "yes"
    ]
    last = serving[-1] if serving else None
    hint = (
        f"a torch with code for {capability}: {last.version} (CUDA {last.cuda}) is the last in the index"
        if last
        else ""
    )
    if hint and question.engine:
        hint = f"{hint}; and an {question.engine} that asks for that one"
    return no(
        "torch-compiled-cc",
        "torch",
        found,
        wanted=f"a build of torch with kernels for compute capability {capability}",
        source=source,
        hints=(hint,) if hint else (),
    )


def on_both_sides(question: Question, component: str, capability: Dotted, cuda: Dotted) -> list[Release]:
    """A release no newer, with no newer CUDA, and one no older, with no older CUDA: what both have serves.

    Releases and toolkits take up new GPUs and leave old ones behind, and bring none back: what lies between
    two builds with code for a GPU has it. One build alone proves nothing of the next: torch 2.11 leaves out
    Volta where 2.10 with the same CUDA has it.
    """
    own = question.row(component)
    if own is None:
        return []
    rows = [row for row in question.matrix.releases(component) if row.cuda and row.compute_capability]
    below = [r for r in rows if r.cuda and r.version <= own.version and r.cuda.parts[:2] <= cuda.parts[:2]]
    above = [r for r in rows if r.cuda and r.version >= own.version and r.cuda.parts[:2] >= cuda.parts[:2]]
    for older in reversed(below):
        for newer in above:
            both = [code for code in older.compute_capability if code in newer.compute_capability]
            if both and _runs(question, capability, both, "", cuda) == "yes":
                return [older] if older is newer else [older, newer]
    return []


# --- engines --------------------------------------------------------------------------------------


def engine_gpu(question: Question) -> Iterator[Fit]:
    """Whether vLLM, TensorRT and TensorRT-LLM support each kind of GPU."""
    environment = question.environment
    named = {
        "vllm": environment.vllm,
        "tensorrt": environment.tensorrt,
        "tensorrt-llm": environment.tensorrt_llm,
    }
    told = [(card.name, card.capability) for card in question.ground.cards if card.capability is not None]
    for component, version in named.items():
        if version:
            yield from of_some_card(
                [tuple(_engine_on(question, component, version, name, at)) for name, at in told]
            )


def _engine_on(
    question: Question, component: str, version: str, card: str, capability: Dotted
) -> Iterator[Fit]:
    row = next((r for r in question.matrix.edition.hardware if _covers(r, component, version)), None)
    gpu = f"{card} is compute capability {capability}"
    if row is not None and row.min_compute_capability:
        floor = Dotted(row.min_compute_capability)
        found = f"{component} {version} needs compute capability {floor}; {gpu}"
        if capability < floor:
            wanted = f"compute capability {floor} or newer"
            hint = f"a release of {component} that supports {capability}, or another GPU"
            yield no(f"{component}-min-cc", component, found, wanted=wanted, source=row.source, hints=(hint,))
            return
        yield yes(f"{component}-min-cc", component, found, row.source)
    if row is not None and row.compute_capability:
        yield _listed(f"{component} {version}", gpu, capability, row)
    release = question.matrix.release(component, version)
    if component == "vllm" and release is not None and release.compute_capability:
        yield _compiled(question, release, gpu, capability)


def _listed(name: str, gpu: str, capability: Dotted, row: HardwareSupport) -> Fit:
    relation, codes = f"{row.component}-hardware", [Dotted(text) for text in row.compute_capability]
    found = f"{name} lists {', '.join(row.compute_capability)}; {gpu}"
    if capability in codes:
        return yes(relation, row.component, found, row.source)
    if capability < min(codes):
        # Some of it runs there with features off; the vendor promises none of it.
        wanted = f"a GPU of compute capability {min(codes)} or newer"
        hints = ("vLLM, if it supports this GPU",)
        return no(relation, row.component, found, wanted=wanted, source=row.source, hints=hints)
    return unknown(relation, row.component, f"{found}: untested by the vendor", row.source)


def _compiled(question: Question, release: Release, gpu: str, capability: Dotted) -> Fit:
    answer = _runs(question, capability, release.compute_capability, release.ptx, release.cuda)
    found = f"vllm {release.version} has code for {', '.join(release.compute_capability)}; {gpu}"
    if answer == "yes":
        return yes("vllm-compiled-cc", "vllm", found, release.source)
    if answer == "unknown" or "compute_capability" in release.unverified:
        return unknown(
            "vllm-compiled-cc", "vllm", f"{found}: whether that serves it is not known", release.source
        )
    wanted = f"a vLLM with kernels for compute capability {capability}"
    return no("vllm-compiled-cc", "vllm", found, wanted=wanted, source=release.source)


def _covers(row: HardwareSupport, component: str, version: str) -> bool:
    if row.component != component:
        return False
    try:
        return VersionSet(row.versions, "pep440").has(parse(public(version), "pep440"))
    except ValueError:
        return False


# --- PTX ------------------------------------------------------------------------------------------


def ptx(question: Question) -> Iterator[Fit]:
    """Whether the driver can compile the PTX of what is there: it cannot when that is of a newer CUDA."""
    environment, speaks = question.environment, question.speaks
    cuda = environment.torch_cuda
    if cuda is None or speaks is None or speaks.major != cuda.major:
        return
    what = "torch" if environment.torch else "the image"
    names = f"CUDA {cuda} and driver {question.ground.driver or 'of this host'} speaks CUDA {speaks}"
    if cuda.parts[:2] <= speaks.parts[:2]:
        yield yes("driver-ptx", "torch", f"{what} is built with {names}", sources(question, rules=("mvc",)))
        return
    wanted = f"a driver that speaks CUDA {cuda.parts[0]}.{cuda.parts[1]} or newer"
    toolkit = question.matrix.toolkit(cuda)
    since = (
        f"driver {toolkit.driver} or newer, the one that came with CUDA {toolkit.cuda}"
        if toolkit and toolkit.driver
        else wanted
    )
    hints = (since, f"builds of torch and engine for CUDA {speaks} or older")
    source = sources(question, toolkit, rules=("mvc", "vllm-ptx-kernels"))
    only = [
        card.name
        for card in question.ground.cards
        if card.capability and _is_ptx_only(question, card.capability)
    ]
    found = f"{what} is built with {names}: machine code runs, PTX does not"
    cards = question.ground.cards
    is_bitten = only or (environment.vllm and any(_has_specific(card) for card in cards))
    if is_bitten and environment.kind == "image" and cards and all(card.takes_compat for card in cards):
        text = (
            f"{found}, unless the newer driver libraries (cuda-compat) of the image stand in for the driver"
        )
        yield unknown("driver-ptx", "torch", text, source, is_open=True)
        return
    if only:
        text = f"{found}, and for {', '.join(only)} it carries PTX only (CUDA error 222)"
        yield no("driver-ptx", "torch", text, wanted=wanted, source=source, hints=hints)
    elif is_bitten:
        kernels = "vLLM brings some kernels (Marlin) for GPUs from 9.0 on as PTX"
        text = f"{found}; {kernels}: CUDA error 222, unsupported toolchain"
        yield no("driver-ptx", "vllm", text, wanted=wanted, source=source, hints=hints)
    elif question.engine or {"flashinfer-python", "deep-gemm"} & set(environment.packages):
        name = question.engine or "what is compiled at run time"
        text = f"{found}; kernels that {name} has as PTX would end with CUDA error 222"
        yield warn("driver-ptx", "torch", text, wanted=wanted, source=source)
    else:
        yield yes("driver-ptx", "torch", f"{found} (minor-version compatibility)", source)


def _has_specific(card: Card) -> bool:
    return card.capability is not None and card.capability.major >= FIRST_SPECIFIC


def _is_ptx_only(question: Question, capability: Dotted) -> bool:
    row = torch_row(question)
    return (
        row is not None
        and bool(row.ptx)
        and needs_ptx(capability, row.compute_capability)
        and capability >= Dotted(row.ptx)
    )


def variant_of(package: str) -> int | None:
    """The CUDA major in a package's name: 12 of `nvidia-nccl-cu12`."""
    found = re.search(r"-cu(\d{2})(?:-|$)", package)
    return int(found.group(1)) if found else None
