"""In which data types a model can be computed and cached on a GPU, by the rows of the matrix.

Pure. A GPU that lacks a format in hardware may still load weights in it, and compute in another: that saves
memory, and is said as such. What no row tells is unknown, never allowed or refused.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from doctor.core.edition import Edition
from doctor.core.rows.engine import QuantizationGate
from doctor.core.versions import Dotted, Pep440
from optimize.model import ModelFacts, Quantization

__all__ = ["Allowed", "dtype_for", "kv_dtype_allowed", "native", "quantization_allowed"]

Verdict = Literal["native", "weights-only", "refused", "unknown"]

#: vLLM's names of schemes (rows `quantization_gates`), by method and scheme of a checkpoint. The second of
#: two is what it falls back to where the GPU does not compute in the format.
_VLLM_GATES: dict[tuple[str, str], tuple[str, ...]] = {
    ("fp8", "fp8"): ("fp8",),
    ("fp8", "fp8-block"): ("fp8",),
    ("compressed-tensors", "fp8"): ("ct_w8a8_fp8", "ct_w8a16_fp8"),
    ("compressed-tensors", "fp8-block"): ("ct_w8a8_fp8", "ct_w8a16_fp8"),
    ("compressed-tensors", "int8"): ("ct_w8a8_int8",),
    ("compressed-tensors", "w8a16"): ("ct_wna16",),
    ("compressed-tensors", "int4"): ("ct_wna16",),
    ("compressed-tensors", "nvfp4"): ("ct_w4a4_nvfp4",),
    ("compressed-tensors", "mxfp4"): ("ct_w4a4_mxfp4",),
    ("compressed-tensors", "mxfp8"): ("ct_w8a8_mxfp8",),
    ("gptq", "int4"): ("auto_gptq",),
    ("gptq", "w8a16"): ("auto_gptq",),
    ("gptq", "int8"): ("auto_gptq",),
    ("awq", "int4"): ("auto_awq", "awq"),
    ("modelopt", "fp8"): ("modelopt_fp8",),
    ("modelopt", "nvfp4"): ("modelopt_fp4",),
    ("nvfp4", "nvfp4"): ("modelopt_fp4",),
    ("mxfp4", "mxfp4"): ("mxfp4",),
    ("quark", "fp8"): ("quark",),
}

#: Which field of an architecture's row says that its tensor cores have the format.
_HARDWARE = {"fp8": "fp8", "fp8-block": "fp8", "nvfp4": "fp4", "mxfp4": "fp4", "int8": "int8_tensor"}


class Allowed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether a format can be used, and why."""

    verdict: Verdict
    because: str
    source: tuple[str, ...] = ()


def native(edition: Edition, architecture: str, scheme: str) -> bool | None:
    """Whether GPUs of an architecture compute in a scheme's format; None where no row tells."""
    row = next((row for row in edition.architectures if row.architecture == architecture), None)
    field = _HARDWARE.get(scheme)
    return getattr(row, field) if row is not None and field else None


def quantization_allowed(  # noqa: PLR0913 - the checkpoint, the engine's release, and the GPU
    edition: Edition,
    quantization: Quantization,
    *,
    component: str,
    version: str,
    architecture: str,
    capability: str,
) -> Allowed:
    """Whether a release of an engine loads a quantized checkpoint on a GPU, and computes in its format."""
    said, scheme = quantization.said, quantization.scheme
    if component == "vllm":
        names = _VLLM_GATES.get((quantization.method, scheme), ())
        found = _gate(edition, names, version, capability)
        if found is not None:
            return found
    has = native(edition, architecture, scheme)
    name = f"{said} ({scheme})"
    if has:
        return Allowed(verdict="native", because=f"GPUs of {capability} compute in the format of {name}")
    if has is None:
        return Allowed(
            verdict="unknown",
            because=f"no row tells whether {component} {version} takes {name} on {capability}",
        )
    lacks = f"GPUs of {capability} have no hardware for {name}"
    untold = f"no row tells whether {component} {version} loads its weights all the same"
    return Allowed(verdict="unknown", because=f"{lacks}, and {untold}")


def _gate(edition: Edition, names: tuple[str, ...], version: str, capability: str) -> Allowed | None:
    """By vLLM's own gates: the first scheme that lets the GPU in; None where none of the release is known."""
    release, gpu = Pep440(version), Dotted(capability)
    gates: list[QuantizationGate] = []
    for name in names:
        rows = [row for row in edition.quantization_gates if row.component == "vllm" and row.scheme == name]
        gates += [row for row in rows if _holds(row.versions, release)]
    if not gates:
        return None
    for gate in gates:
        if gpu >= Dotted(gate.min_compute_capability):
            return _through(gate, gpu, version)
    least = min((gate.min_compute_capability for gate in gates), key=Dotted)
    because = f"vllm {version} loads {gates[0].scheme} from compute capability {least} on; this GPU has {gpu}"
    return Allowed(verdict="refused", because=because, source=gates[0].source)


def _through(gate: QuantizationGate, gpu: Dotted, version: str) -> Allowed:
    starts = f"vllm {version} loads {gate.scheme} from {gate.min_compute_capability} on"
    computes = gate.native_compute_capability
    is_weight_only = gate.scheme.endswith(("a16_fp8", "wna16"))
    if (computes and gpu < Dotted(computes)) or is_weight_only:
        why = f"computes in it from {computes} on: on {gpu} weights only" if computes else "with weights only"
        return Allowed(verdict="weights-only", because=f"{starts}, and {why}", source=gate.source)
    return Allowed(verdict="native", because=f"{starts}; this GPU has {gpu}", source=gate.source)


def _holds(versions: str, release: Pep440) -> bool:
    from packaging.specifiers import SpecifierSet  # 15 ms at import

    return SpecifierSet(versions).contains(release.raw, prereleases=True)


def dtype_for(edition: Edition, facts: ModelFacts, version: str, capability: str) -> tuple[str, Allowed]:
    """The type to compute in, and why: the model's own where the GPU has it, else the next one that is safe.

    Empty where no row tells. float16 has less range than bfloat16: some models overflow in it.
    """
    own = facts.dtype or ""
    gpu, release = Dotted(capability), Pep440(version)
    rows = [
        row for row in edition.engine_dtypes if row.component == "vllm" and row.first <= release <= row.last
    ]
    refused: list[str] = []
    for dtype in _order(own, facts.task):
        row = next((row for row in rows if row.dtype == dtype), None)
        if row is None:
            return "", Allowed(verdict="unknown", because=f"no row tells what vllm {version} computes in")
        if gpu < Dotted(row.min_compute_capability):
            refused.append(f"{dtype} begins with {row.min_compute_capability}, and this GPU has {capability}")
        elif facts.model_type in row.refused_model_types:
            refused.append(f"vllm refuses {facts.model_type} in {dtype}, in which it overflows")
        else:
            why = "; ".join(refused) or (
                f"the model's own type, which {capability} computes in"
                if dtype == own
                else f"what vllm makes of a {own} checkpoint by itself; `--dtype {own}` keeps its precision"
            )
            return dtype, Allowed(verdict="native", because=why, source=row.source)
    if refused:
        return "", Allowed(verdict="refused", because="; ".join(refused))
    said = f"`{own}`" if own else "no dtype"
    return "", Allowed(verdict="unknown", because=f"the model says {said}: vllm decides by itself")


def _order(own: str, task: str) -> tuple[str, ...]:
    """Types to try. Of float32 vLLM makes a smaller one: float16 where it pools (_resolve_auto_dtype)."""
    if own == "float32":
        first = "bfloat16" if task == "generate" else "float16"
        return (first, "float16" if first == "bfloat16" else "bfloat16", "float32")
    return {"bfloat16": (own, "float16", "float32"), "float16": (own, "bfloat16", "float32")}.get(own, ())


def kv_dtype_allowed(edition: Edition, dtype: str, version: str, capability: str) -> Allowed:
    """Whether a vLLM release keeps its KV cache in a data type on a GPU."""
    row = next((row for row in edition.kv_cache if row.component == "vllm" and row.dtype == dtype), None)
    if row is None:
        known = ", ".join(r.dtype for r in edition.kv_cache if r.component == "vllm")
        return Allowed(verdict="refused", because=f"vllm has no KV cache of type `{dtype}`: {known}")
    if Pep440(version) < row.first:
        because = f"vllm {version} has no KV cache in {dtype}: {row.first} is the first read that has"
        return Allowed(verdict="refused", because=because, source=row.source)
    least = row.min_compute_capability
    if least and Dotted(capability) < Dotted(least):
        because = f"a KV cache in {dtype} wants compute capability {least}; this GPU has {capability}"
        return Allowed(verdict="refused", because=because, source=row.source)
    return Allowed(verdict="native", because=f"vllm has it from {row.first} on", source=row.source)
