"""Whether a model fits GPUs of a kind, how fast they could be at best, and what would make it fit. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from doctor.core.edition import Edition
from doctor.core.model_facts import ModelFacts
from doctor.core.model_report import Fit, MemoryPlan
from optimize.memory import GIB, plan_memory, usable_bytes
from optimize.roofline import Rates, crossing_batch, decode_floor, prefill_floor, rates_for
from optimize.split import tensor_problem

__all__ = ["FitAsked", "Room", "fit", "kv_dtype_of", "room_of_card"]

_SPLITS = ((2, 1), (4, 1), (8, 1), (8, 2))
"""Tensor and pipeline parallelism, the cheapest first: beyond 8 GPUs a second node."""


class Room(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GPUs of one kind: so many, each with so much memory."""

    gpu: str
    count: int
    bytes: int
    pci_id: str = ""
    architecture: str = ""
    memory_type: str = ""
    is_here: bool = False


class FitAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the model is to do."""

    context_tokens: int
    sequences: int = 1
    kv_dtype: str = ""
    """Empty: the type of the weights."""
    stored_bytes: int | None = None
    utilisation: float = 0.92


def room_of_card(edition: Edition, name: str, pci_id: str, architecture: str, count: int) -> Room | None:
    """GPUs by the matrix; None where it has no memory size for the card."""
    row = next((one for one in edition.products if pci_id in one.pci_device_ids), None)
    if row is None or row.memory_gb is None:
        return None
    return Room(
        gpu=name,
        count=count,
        bytes=usable_bytes(row.memory_gb, row.memory_type, ecc=row.ecc),
        pci_id=pci_id,
        architecture=architecture,
        memory_type=row.memory_type,
    )


def kv_dtype_of(facts: ModelFacts) -> str:
    """The type of the cache where nobody says another: that of the unconverted weights."""
    return facts.dtype if facts.dtype in ("bfloat16", "float16", "float32") else "bfloat16"


def fit(edition: Edition, facts: ModelFacts, room: Room, asked: FitAsked) -> Fit | None:
    """The model on all GPUs of the room by tensor parallelism; None where its weights are not known."""
    kv_dtype = asked.kv_dtype or kv_dtype_of(facts)
    tensor = _widest(facts, room.count)
    plan = _plan(facts, room, asked, tensor, kv_dtype)
    if plan is None:
        return None
    rates = _rates(edition, facts, room)
    found = Fit(
        gpu=room.gpu,
        count=tensor,
        is_here=room.is_here,
        memory=plan,
        would_fit=() if plan.fits else tuple(_ways(edition, facts, room, asked, plan)),
    )
    return found if rates is None else _with_speed(found, facts, rates, asked, kv_dtype)


def _widest(facts: ModelFacts, count: int) -> int:
    """The most GPUs, of those there are, that the model divides over."""
    return next((n for n in range(count, 1, -1) if not _problem(facts, n)), 1)


def _problem(facts: ModelFacts, tensor: int) -> str:
    """Why so many GPUs cannot share it; whole experts lie on each where a split would cut their scales."""
    return tensor_problem(facts, tensor, is_expert_parallel=facts.experts is not None)


def _plan(  # noqa: PLR0913 - the question of a plan
    facts: ModelFacts, room: Room, asked: FitAsked, tensor: int, kv_dtype: str, *, pipeline: int = 1
) -> MemoryPlan | None:
    return plan_memory(
        facts,
        gpu_bytes=room.bytes,
        utilisation=asked.utilisation,
        tensor=tensor,
        pipeline=pipeline,
        context_tokens=asked.context_tokens,
        sequences=asked.sequences,
        kv_dtype=kv_dtype,
        stored_bytes=asked.stored_bytes,
    )


def _rates(edition: Edition, facts: ModelFacts, room: Room) -> Rates | None:
    """The upper end: floors are what no card passes."""
    if not room.pci_id:
        return None
    return rates_for(edition, facts, room.pci_id, room.architecture, room.memory_type, end="high")


def _with_speed(found: Fit, facts: ModelFacts, rates: Rates, asked: FitAsked, kv_dtype: str) -> Fit:
    gpus = found.count
    is_decoder = facts.task == "generate"
    return msgspec.structs.replace(
        found,
        decode=decode_floor(
            facts,
            rates,
            batch=asked.sequences,
            context_tokens=asked.context_tokens,
            gpus=gpus,
            kv_dtype=kv_dtype,
        )
        if is_decoder
        else None,
        prefill=prefill_floor(facts, rates, prompt_tokens=asked.context_tokens, gpus=gpus),
        crossing_tokens=crossing_batch(facts, rates),
        rates_because=rates.because,
        source=rates.source,
    )


# --- what would make it fit -----------------------------------------------------------------------


def _ways(
    edition: Edition, facts: ModelFacts, room: Room, asked: FitAsked, plan: MemoryPlan
) -> Iterator[str]:
    """Changes, the smallest first: of length, of concurrency, of the cache, of weights, of GPUs."""
    kept = next((one.bytes for one in plan.components if one.name == "kv_cache"), 0)
    if plan.longest_tokens:
        many = f" for {asked.sequences} at once" if asked.sequences > 1 else ""
        longest = min(plan.longest_tokens, facts.context_tokens or plan.longest_tokens)
        yield f"a context of {longest} tokens{many} instead of {asked.context_tokens}"
    if plan.most_sequences and plan.most_sequences < asked.sequences:
        yield f"{plan.most_sequences} sequences at once instead of {asked.sequences}"
    architecture = next((row for row in edition.architectures if row.architecture == room.architecture), None)
    has_fp8 = architecture is not None and architecture.fp8 is True
    if has_fp8 and plan.kv_dtype in ("bfloat16", "float16") and kept // 2 >= plan.short_bytes:
        yield f"an FP8 KV cache: {kept / 2 / GIB:.1f} GiB less on each GPU"
    yield from _smaller_weights(facts, plan, has_fp8=has_fp8)
    yield from _more_gpus(facts, room, asked, plan)
    yield from _larger_card(edition, facts, room, asked, plan)


def _smaller_weights(facts: ModelFacts, plan: MemoryPlan, *, has_fp8: bool) -> Iterator[str]:
    if facts.quantization is not None:
        return
    weights = next((one.bytes for one in plan.components if one.name == "weights"), 0)
    linear = sum(one.values for one in facts.weights if one.is_linear and one.role != "head")
    share = linear / (facts.parameters or 1)
    for bits, name, is_apt in ((8, "FP8", has_fp8), (4.5, "4-bit", True)):
        saved = weights * share * (1 - bits / 16)
        if is_apt and saved >= plan.short_bytes:
            yield f"{name} weights: about {saved / GIB:.1f} GiB less on each GPU (judge the answers, too)"


def _more_gpus(facts: ModelFacts, room: Room, asked: FitAsked, plan: MemoryPlan) -> Iterator[str]:
    for tensor, pipeline in _SPLITS:
        if tensor * pipeline <= plan.tensor or _problem(facts, tensor):
            continue
        other = _plan(facts, room, asked, tensor, plan.kv_dtype, pipeline=pipeline)
        if other is not None and other.fits:
            nodes = f", and {pipeline} stages of pipeline parallelism" if pipeline > 1 else ""
            yield f"{tensor * pipeline} such GPUs: {tensor} of tensor parallelism{nodes}"
            return


def _larger_card(
    edition: Edition, facts: ModelFacts, room: Room, asked: FitAsked, plan: MemoryPlan
) -> Iterator[str]:
    """The smallest card for data centers that takes it on as many GPUs as these."""
    rows = [row for row in edition.products if row.memory_gb and row.ecc and row.pci_device_ids]
    for row in sorted(rows, key=lambda one: one.memory_gb or 0):
        other = room_of_card(edition, row.product, row.pci_device_ids[0], row.architecture, plan.tensor)
        if other is None or other.bytes <= room.bytes:
            continue
        found = _plan(facts, other, asked, plan.tensor, plan.kv_dtype)
        if found is not None and found.fits:
            count = f"{plan.tensor} x " if plan.tensor > 1 else ""
            yield f"{count}{row.product} ({other.bytes / GIB:.0f} GiB each)"
            return
