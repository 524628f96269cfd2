"""How fast a GPU could serve a model at best: the time that its memory and its arithmetic need. Pure.

A step reads the weights once and every sequence's cache, and multiplies each token with the active weights.
Neither is faster than what a good card *reaches*; a measurement above that is an error of one of the two.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from doctor.core.edition import Edition
from doctor.core.model_report import Floor
from doctor.core.rows.speed import GpuSpeed, SpeedRange
from optimize.footprint import kv_bytes_per_sequence, state_bytes_per_sequence, stored_bits
from optimize.formats import native
from optimize.model import ModelFacts

__all__ = [
    "EFFICIENCY_MAX",
    "Floor",
    "Precision",
    "Rates",
    "crossing_batch",
    "decode_floor",
    "efficiency",
    "prefill_floor",
    "rates_for",
    "rates_of",
]

#: Above it, model or measurement is wrong: a cache hit, answers that ended early, another model.
EFFICIENCY_MAX = 1.05


class _Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every value here."""


Precision = Literal["bf16", "fp8", "fp4"]


#: Schemes whose arithmetic is in the format too, where activations are converted and the GPU has it.
_COMPUTED: dict[str, tuple[str, Precision]] = {
    "fp8": ("fp8", "fp8"),
    "fp8-block": ("fp8", "fp8"),
    "nvfp4": ("nvfp4", "fp4"),
}


class Rates(_Value, frozen=True, kw_only=True):
    """What good cards reach: the upper or the lower end of each range in the matrix."""

    gpu: str
    memory_bytes_per_s: float
    flop_per_s: float
    precision: Precision
    is_measured: bool
    """Whether arithmetic was measured on such a card; else a share of its datasheet."""
    because: tuple[str, ...]
    source: tuple[str, ...]


# --- rates ----------------------------------------------------------------------------------------


def rates_of(  # noqa: PLR0913 - a card and what is asked of it
    edition: Edition,
    pci_id: str,
    architecture: str,
    memory_type: str,
    precision: Precision = "bf16",
    *,
    end: Literal["low", "high"] = "low",
) -> Rates | None:
    """What a card reaches, by the rows of the matrix; None where there is no row for it, or none that says
    this precision. `low` is for plans, which must hold on every good card; `high` for floors, which none may
    pass.
    """
    row = next((one for one in edition.speeds if pci_id in one.pci_device_ids), None)
    if row is None:
        return None
    memory = _memory_share(edition, memory_type)
    arithmetic = _arithmetic(edition, row, architecture, precision, end)
    if memory is None or arithmetic is None:
        return None
    flops, is_measured, why = arithmetic
    share = getattr(memory, end)
    return Rates(
        gpu=row.gpu,
        memory_bytes_per_s=row.bandwidth_gb_s * 1e9 * share,
        flop_per_s=flops,
        precision=precision,
        is_measured=is_measured,
        because=(f"{share:g} of {row.bandwidth_gb_s:g} GB/s ({memory.id})", why),
        source=tuple(dict.fromkeys((*row.source, *memory.source))),
    )


def rates_for(  # noqa: PLR0913 - a model and a card
    edition: Edition,
    facts: ModelFacts,
    pci_id: str,
    architecture: str,
    memory_type: str,
    *,
    end: Literal["low", "high"],
) -> Rates | None:
    """What a card reaches in the format that the model is multiplied in: FP8 or FP4 where activations are
    converted too and the GPU computes in it, else 16 bits. None where no row tells.
    """
    said = facts.quantization
    scheme = said.scheme if said is not None and said.has_quantized_activations else ""
    if scheme in _COMPUTED:
        name, precision = _COMPUTED[scheme]
        if native(edition, architecture, name):
            found = rates_of(edition, pci_id, architecture, memory_type, precision, end=end)
            if found is not None:
                return found
    return rates_of(edition, pci_id, architecture, memory_type, end=end)


def _memory_share(edition: Edition, memory_type: str) -> SpeedRange | None:
    """Reading weights reads only; of GDDR a copy was measured, which is not faster."""
    wanted = (
        (("hbm", "memory-read"),) if memory_type.upper().startswith("HBM") else (("gddr", "memory-copy"),)
    )
    rows = [one for one in edition.speed_ranges if (one.applies_to, one.quantity) in wanted]
    return rows[0] if rows else None


def _arithmetic(
    edition: Edition, row: GpuSpeed, architecture: str, precision: str, end: Literal["low", "high"]
) -> tuple[float, bool, str] | None:
    """Operations a second: measured on the card, else by the share that its architecture reaches."""
    measured = {"bf16": row.measured_bf16_tflops, "fp8": row.measured_fp8_tflops}.get(precision)
    if measured is not None:
        return measured * 1e12, True, f"{measured:g} TFLOPS {precision} measured"
    sheet = {"bf16": row.bf16_tflops or row.fp16_tflops, "fp8": row.fp8_tflops, "fp4": row.fp4_tflops}[
        precision
    ]
    if sheet is None:
        return None
    shares = [one for one in edition.speed_ranges if one.quantity == precision and one.unit == "share"]
    own = [one for one in shares if one.applies_to in (architecture, architecture.partition("_")[0])]
    among = sorted(own or shares, key=lambda one: float(getattr(one, end)))
    if not among:
        return None
    chosen = among[0] if end == "low" else among[-1]
    share = getattr(chosen, end)
    apart = "" if own else f", the {end}est of other architectures"
    why = f"{share:g} of {sheet:g} TFLOPS {precision} ({chosen.id}{apart})"
    return sheet * 1e12 * share, False, why


# --- floors ---------------------------------------------------------------------------------------


def _read_weights(facts: ModelFacts, batch: int) -> int | None:
    """Bytes of weights that a step reads: no look-up tables, and of the experts those that `batch` tokens
    are expected to meet, E (1 - (1 - k/E)^B).
    """
    if not facts.weights or facts.parameters is None:
        return None
    experts, total = facts.experts, 0.0
    met = 1 - (1 - experts.per_token / experts.count) ** batch if experts else 1.0
    for one in facts.weights:
        bits = stored_bits(facts, one)
        if bits is None:
            return None
        if one.role in ("embedding", "position") and not (facts.is_tied and facts.task == "generate"):
            continue
        total += float(one.values * bits / 8) * (met if one.role == "expert" else 1.0)
    return int(total)


def _attention_operations(facts: ModelFacts, tokens: float, *, is_prompt: bool = False) -> int:
    """Multiply-adds of scores and values for one query over `tokens` keys, two operations each. A latent row
    is multiplied as it is when a token is made, and is unfolded once for a prompt.
    """
    total = 0.0
    for one in facts.attention:
        seen = min(tokens, one.window_tokens) if one.window_tokens else tokens
        is_folded = one.kind == "mla" and not is_prompt
        width = one.latent_dim * 2 + one.rope_dim if is_folded else one.head_dim + one.v_head_dim
        total += 2 * one.layers * one.heads * width * seen
    return int(total)


def decode_floor(  # noqa: PLR0913 - a step and where it runs
    facts: ModelFacts,
    rates: Rates,
    *,
    batch: int,
    context_tokens: int,
    gpus: int = 1,
    kv_dtype: str = "bfloat16",
) -> Floor | None:
    """The least time of one token for each of `batch` sequences. None where the weights are not known.

    Over several GPUs of tensor parallelism each reads its share; what they say to each other is left out.
    """
    weights = _read_weights(facts, batch)
    if weights is None or facts.active_parameters is None:
        return None
    kept = kv_bytes_per_sequence(facts, context_tokens, kv_dtype) + state_bytes_per_sequence(facts)
    operations = batch * (2 * facts.active_parameters + _attention_operations(facts, context_tokens))
    return _floor(weights + batch * kept, operations, rates, gpus, batch)


def prefill_floor(facts: ModelFacts, rates: Rates, *, prompt_tokens: int, gpus: int = 1) -> Floor | None:
    """The least time to read a prompt: half of the square of its length is attended. As `decode_floor`."""
    weights = _read_weights(facts, prompt_tokens)
    if weights is None or facts.active_parameters is None:
        return None
    head = sum(one.values for one in facts.weights if one.role == "head") or 0
    head = head or (
        sum(one.values for one in facts.weights if one.role == "embedding") if facts.is_tied else 0
    )
    # The head is needed for the last token only.
    body = facts.active_parameters - (head if facts.task == "generate" else 0)
    half = 2 if any(one.kind != "bidirectional" for one in facts.attention) else 1
    attended = _attention_operations(facts, prompt_tokens / half, is_prompt=True)
    operations = prompt_tokens * (2 * body + attended) + 2 * (head if facts.task == "generate" else 0)
    return _floor(weights, operations, rates, gpus, prompt_tokens)


def _floor(read: int, operations: int, rates: Rates, gpus: int, tokens: int) -> Floor:
    memory, arithmetic = read / rates.memory_bytes_per_s / gpus, operations / rates.flop_per_s / gpus
    time = max(memory, arithmetic)
    return Floor(
        time_s=time,
        bound="memory" if memory >= arithmetic else "arithmetic",
        read_bytes=read,
        operations=operations,
        tok_per_s=tokens / time,
    )


def crossing_batch(facts: ModelFacts, rates: Rates) -> int | None:
    """How many tokens at once it takes until arithmetic, not memory, sets the time of a step: F b / (2 W)
    for dense weights (about 170 to 300 on Hopper in bf16), more with experts. None where nothing is known,
    or where it never comes within a million.
    """
    if facts.active_parameters is None or _read_weights(facts, 1) is None:
        return None
    low, high = 1, 2**20
    if _is_memory_bound(facts, rates, high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if _is_memory_bound(facts, rates, middle) else (low, middle)
    return low


def _is_memory_bound(facts: ModelFacts, rates: Rates, batch: int) -> bool:
    read = _read_weights(facts, batch) or 0
    return read / rates.memory_bytes_per_s > 2 * (facts.active_parameters or 0) * batch / rates.flop_per_s


def efficiency(floor: Floor, measured_s: float) -> tuple[float, str]:
    """The share of what a good card reaches, and what is wrong with it: empty text where nothing is."""
    if measured_s <= 0:
        return 0.0, f"a time of {measured_s:g} s is none"
    share = floor.time_s / measured_s
    if share <= EFFICIENCY_MAX:
        return share, ""
    return share, (
        f"{measured_s * 1000:.3g} ms is {share:.2f} times as fast as the GPU's own floor of"
        f" {floor.time_s * 1000:.3g} ms: the measurement or the model facts are wrong (prompts that a cache"
        " knew, answers that ended early, another model or precision)"
    )
