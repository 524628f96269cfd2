"""What has to be known of an engine's own release and build before it can be said that it would run."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.core.fit.code import is_index_build, on_both_sides
from doctor.core.fit.cuda import floor_of
from doctor.core.fit.verdict import Fit, Question, local_cuda, of_some_card, sources, unknown, yes
from doctor.core.versions import Dotted

__all__ = ["other_build", "rows", "torch_beside"]

_ENGINES = ("vllm", "sglang", "tensorrt-llm", "tensorrt")
#: What cannot be imported without a torch.
_ON_TORCH = ("vllm", "sglang", "tensorrt-llm", "torch-tensorrt")


def rows(question: Question) -> Iterator[Fit]:
    """An engine without a row: a torch that is known says nothing of the engine's own code and needs."""
    for component in _ENGINES:
        version = question.releases.get(component, "")
        if version and question.row(component) is None:
            text = f"{component} {version} has no row in this matrix: its needs are not known"
            yield unknown("nearest-known-row", component, text, is_open=True)
    environment, row = question.environment, question.row("vllm")
    is_told = any(one.by == "vllm" for one in environment.requires)
    if row is not None and environment.is_listed and not is_told:
        text = (
            f"what vllm {environment.vllm} asks for was not found in its METADATA: its row was taken instead"
        )
        yield unknown("vllm-metadata", "vllm", text, row.source)


def torch_beside(question: Question) -> Iterator[Fit]:
    """A torch that was not found may lie where another path leads: without any the engine does not start."""
    environment = question.environment
    engines = [name for name in _ON_TORCH if name in question.releases]
    if environment.is_listed and engines and not environment.torch:
        own = question.row(engines[0])
        wanted = own.requires.get("torch", "") if own else ""
        text = f"{engines[0]} needs torch {wanted}".rstrip() + ", and none was found among the packages"
        yield unknown(f"{engines[0]}-torch-pin", "torch", text, sources(question, own), is_open=True)


def other_build(question: Question) -> Iterator[Fit]:
    """A vLLM that is not the index's build of its release: its CUDA, and its code for each kind of GPU."""
    environment = question.environment
    row = question.row("vllm")
    if row is None or is_index_build(question, "vllm") or environment.codes:
        return
    own = local_cuda(environment.vllm)
    cuda = own or (environment.torch_cuda if environment.kind == "image" else None)
    name = f"vllm {environment.vllm}"
    if own is not None:
        yield from floor_of(question, "vllm", name, own)
    told = [(card.name, card.capability) for card in question.ground.cards if card.capability is not None]
    yield from of_some_card([[_code_on(question, name, card, at, cuda)] for card, at in told])


def _code_on(question: Question, name: str, card: str, capability: Dotted, cuda: Dotted | None) -> Fit:
    near = on_both_sides(question, "vllm", capability, cuda) if cuda is not None else []
    gpu = f"{card} is compute capability {capability}; {name} is not the index's build"
    if near:
        builds = " and ".join(f"{row.version} (CUDA {row.cuda})" for row in near)
        text = f"{gpu}, but builds on both sides of it have code for it: {builds}"
        return yes("vllm-compiled-cc", "vllm", text, sources(question, *near), "derived")
    return unknown(
        "vllm-compiled-cc", "vllm", f"{gpu}: which GPUs it has code for is not in the matrix", is_open=True
    )
