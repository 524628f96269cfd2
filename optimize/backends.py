"""Which engine serves a model on a GPU, in which release, and why. Pure.

Tutorials have a rule: steady lengths at a high rate for TensorRT-LLM, mixed lengths for vLLM, embeddings for
TensorRT. What of it holds: both batch in flight, so that mixed lengths cost neither; TensorRT-LLM's default
has been PyTorch since 1.0, not built engines; and TensorRT builds engines and serves nothing. So vLLM is
taken unless the load is steady and past the GPU's balance; which is faster, measuring both tells.
"""

from __future__ import annotations

import msgspec

from doctor.core.edition import Edition
from doctor.core.rows.engine import ModelRow
from doctor.core.serving import Candidate, Load, Standing
from doctor.core.versions import Dotted, Pep440
from optimize.argv import grammar_of
from optimize.model import ModelFacts

__all__ = ["COMMANDS", "choose", "release_for"]

#: The command of each engine that a plan prints.
COMMANDS = {"vllm": "vllm serve", "tensorrt-llm": "trtllm-serve", "tensorrt": "trtexec"}


def choose(  # noqa: PLR0913 - the question of a plan
    edition: Edition,
    facts: ModelFacts,
    load: Load | None,
    *,
    capability: str,
    balance: int | None,
    asked: str = "",
    asked_version: str = "",
) -> tuple[Candidate, ...]:
    """Every engine, the chosen one first; none is `chosen` where none can, or what was asked for cannot."""
    versions = {asked: asked_version} if asked else {}
    known = {
        name: release_for(edition, name, facts, capability=capability, version=versions.get(name, ""))
        for name in COMMANDS
    }
    name, why = (asked, "it was asked for") if asked else _rule(facts, load, known, balance)
    first = known[name]
    if first.standing in ("possible", "unknown"):
        first = msgspec.structs.replace(first, standing="chosen", because=(why, *first.because))
    return (first, *(one for other, one in known.items() if other != name))


def _rule(
    facts: ModelFacts, load: Load | None, known: dict[str, Candidate], balance: int | None
) -> tuple[str, str]:
    """The engine to take where nobody asked for one, and why."""
    vllm, llm = known["vllm"], known["tensorrt-llm"]
    if facts.task != "generate":
        if vllm.standing != "not possible":
            return (
                "vllm",
                "it batches and serves embeddings itself (`--runner pooling`); TensorRT only builds",
            )
        return "tensorrt", "vllm cannot serve it here; an engine still needs a server of its own"
    if vllm.standing == "not possible" and llm.standing == "possible":
        return "tensorrt-llm", "vllm cannot serve it here"
    at_once = load.concurrency if load else None
    is_steady = load is not None and load.prompt.is_steady and load.output.is_steady
    if is_steady and at_once and balance and at_once >= balance and llm.standing == "possible":
        why = f"lengths are steady and {at_once} at once are past this GPU's balance of {balance} tokens"
        return "tensorrt-llm", f"{why}: compute decides; no row has measured which is faster, `bench` does"
    return "vllm", "it takes the checkpoint as it is, batches in flight, and needs no build"


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a release must take."""

    component: str
    facts: ModelFacts
    capability: str
    row: ModelRow | None
    """Of the model's architecture, where the engine's list has it."""


def release_for(
    edition: Edition, component: str, facts: ModelFacts, *, capability: str, version: str = ""
) -> Candidate:
    """The newest final release that takes this GPU and model, or what keeps the one asked for from it.

    Of those that could, the newest whose command line is known.
    """
    unfit = _unfit_task(component, facts)
    if unfit:
        return Candidate(component=component, standing="not possible", because=(unfit,))
    row = _model_row(edition, component, facts.architecture)
    wanted = _Wanted(component=component, facts=facts, capability=capability, row=row)
    known = sorted((r.version for r in edition.releases if r.component == component), reverse=True)
    releases = [release for release in known if isinstance(release, Pep440)]
    if version:
        return _asked(edition, wanted, version, releases)
    return _newest(edition, wanted, [release for release in releases if not release.key.is_prerelease])


def _newest(edition: Edition, wanted: _Wanted, finals: list[Pep440]) -> Candidate:
    """Of final releases, newest first."""
    grammar = grammar_of(edition, wanted.component, COMMANDS[wanted.component])
    first = ""
    for release in finals:
        problem = _problem(edition, wanted, release)
        first = first or problem
        if not problem and (grammar is None or grammar.read[0] <= release <= grammar.read[-1]):
            return _possible(wanted, release, is_newest=release == finals[0])
    why = first or f"no release of {wanted.component} whose command line is known takes it"
    return Candidate(component=wanted.component, standing="not possible", because=(why,))


def _asked(edition: Edition, wanted: _Wanted, version: str, releases: list[Pep440]) -> Candidate:
    component = wanted.component
    # `0.33` means 0.33.0, as it does to pip.
    release = next((release for release in releases if release == Pep440(version)), None)
    if release is None:
        why = f"the matrix has no release {component} {version}: nothing is known of its GPUs and models"
        return Candidate(component=component, version=version, standing="unknown", because=(why,))
    problem = _problem(edition, wanted, release)
    if problem:
        return Candidate(component=component, version=version, standing="not possible", because=(problem,))
    return _possible(wanted, release, is_newest=True)


def _possible(wanted: _Wanted, release: Pep440, *, is_newest: bool) -> Candidate:
    component, row = wanted.component, wanted.row
    standing: Standing = "possible"
    if row is not None:
        because = [f"{row.architecture} is in its list of models from {row.first} on"]
    elif component == "tensorrt":
        because = ["it builds what an ONNX export holds"]
    else:
        standing = "unknown"
        name = wanted.facts.architecture or "an architecture that is not said"
        because = [f"no row tells whether {component} loads {name}; it may, through its Transformers backend"]
    if not is_newest:
        because.append(f"{release} is the newest that takes this GPU and whose command line is known")
    source = row.source if row else ()
    return Candidate(
        component=component, version=release.raw, standing=standing, because=tuple(because), source=source
    )


def _unfit_task(component: str, facts: ModelFacts) -> str:
    if component == "tensorrt" and facts.task == "generate":
        return "TensorRT has no loop over tokens and no KV cache of its own: TensorRT-LLM adds them"
    if component == "tensorrt-llm" and facts.task != "generate":
        return "no row tells that trtllm-serve answers with embeddings"
    return ""


def _model_row(edition: Edition, component: str, architecture: str) -> ModelRow | None:
    rows = (row for row in edition.models if row.component == component)
    return next((row for row in rows if row.architecture.casefold() == architecture.casefold()), None)


def _problem(edition: Edition, wanted: _Wanted, release: Pep440) -> str:
    """Why a release cannot serve a model on a GPU, as far as rows tell; empty where none does."""
    component, row = wanted.component, wanted.row
    problem = _gpu_problem(edition, component, release, wanted.capability)
    if problem:
        return problem
    if row is None:
        is_closed = component == "tensorrt-llm"
        return (
            f"{wanted.facts.architecture} is not among the models that {component} lists" if is_closed else ""
        )
    if release < row.first:
        return f"{component} {release} is before {row.first}, the first read that has {row.architecture}"
    newest = max((r.last for r in edition.models if r.component == component and r.last), default=None)
    if row.last is not None and row.last != newest and release > row.last:
        return f"{component} {row.last} is the last read that has {row.architecture}"
    return ""


def _gpu_problem(edition: Edition, component: str, release: Pep440, capability: str) -> str:
    from packaging.specifiers import SpecifierSet  # 15 ms at import

    for row in edition.hardware:
        if row.component != component or not SpecifierSet(row.versions).contains(release.raw):
            continue
        least = row.min_compute_capability
        if least and Dotted(capability) < Dotted(least):
            return f"{component} {release} begins with compute capability {least}; this GPU has {capability}"
        if row.compute_capability and capability not in row.compute_capability:
            listed = ", ".join(row.compute_capability)
            return f"{component} {release} is listed for {listed}; {capability} is untested by its vendor"
    return ""
