"""Where a load fits: splits of a model over GPUs, copies of it, and what each one holds. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import msgspec

from doctor.core.model_report import MemoryPlan
from doctor.core.serving import Load, Split
from optimize.limits import headroom
from optimize.memory import plan_memory, sequences_that_fit
from optimize.model import ModelFacts
from optimize.roofline import Rates, decode_floor, prefill_floor
from optimize.split import splits

__all__ = ["Bench", "Seat", "attempts", "best", "in_flight", "pace"]

#: Steps of the search for how many are in flight; each at least halves what is left of the distance.
_ROUNDS = 200


class Bench(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every attempt of a plan has in common."""

    facts: ModelFacts
    """As they will be computed: dtype and quantization as decided."""
    stored_bytes: int | None
    """Weights as the files hold them; None where they are converted while they are loaded."""
    gpus: int
    gpu_bytes: int
    share: float
    """Of the device, for one engine."""
    kv_dtype: str
    rates: Rates | None
    load: Load | None
    longest_tokens: int
    step_tokens: int
    can_be_eager: bool
    """Whether the engine has a flag to go without CUDA graphs."""
    sequences_max: int
    """Most sequences in a step that the engine would take by itself."""


class Seat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to serve: a split, copies of it, and what is lacking."""

    split: Split
    copies: int
    memory: MemoryPlan
    """With one request of the greatest length; its `short_bytes` says what lacks."""
    holds: int | None
    """Requests of mean length at once, in one copy; None where they cost nothing."""
    asked: int | None
    """Requests at once that one copy is asked for; None where nobody said."""
    max_sequences: int
    is_eager: bool = False
    tpot_s: float | None = None
    ttft_s: float | None = None

    @property
    def fits(self) -> bool:
        """Whether the weights and one request of the greatest length fit."""
        return self.memory.fits

    @property
    def holds_load(self) -> bool:
        """Whether it holds what it was asked for as well."""
        return self.fits and (self.asked is None or self.holds is None or self.holds >= self.asked)

    @property
    def gpus(self) -> int:
        """GPUs of all copies."""
        return self.split.gpus * self.copies


def attempts(bench: Bench, *, is_eager: bool = False) -> Iterator[Seat]:
    """Every split, with as few copies as hold the load: fewest GPUs of a copy first."""
    for split in splits(bench.facts, bench.gpus):
        seat = _fewest_copies(bench, split, is_eager=is_eager)
        if seat is None:
            return
        yield seat


def _fewest_copies(bench: Bench, split: Split, *, is_eager: bool) -> Seat | None:
    """As few copies as serve the load, or as many as there are GPUs for; more copies never serve less."""

    def seat(copies: int) -> Seat | None:
        return _seat(bench, split, copies, is_eager=is_eager)

    first = seat(1)
    low, high = 1, bench.gpus // split.gpus
    if first is None or not first.fits or _serves(bench, first) or high == 1:
        return first
    last = seat(high)
    if last is None or not _serves(bench, last):
        return last
    while high - low > 1:
        middle = (low + high) // 2
        tried = seat(middle)
        if tried is not None and _serves(bench, tried):
            high, last = middle, tried
        else:
            low = middle
    return last


def _serves(bench: Bench, seat: Seat) -> bool:
    return seat.holds_load and _meets(bench, seat)


def best(bench: Bench) -> Seat | None:
    """The first that holds the load and whose floors keep the promises; else the one that comes nearest.

    CUDA graphs are given up only where nothing fits with them. None where the weights are not known.
    """
    seats = list(attempts(bench))
    if bench.can_be_eager and not any(seat.fits for seat in seats):
        eager = [seat for seat in attempts(bench, is_eager=True) if seat.fits]
        seats = eager or seats
    if not seats:
        return None
    return min(seats, key=lambda seat: _rank(bench, seat))


def _rank(bench: Bench, seat: Seat) -> tuple[bool, bool, bool, float]:
    """What is lacking, worst first; among equals the one that stands first, with fewest GPUs a copy."""
    is_good = _serves(bench, seat)
    lacking = float(seat.memory.short_bytes) if not seat.fits else 0.0
    if seat.fits and not seat.holds_load and seat.holds is not None:
        lacking = -float(seat.holds * seat.copies)
    elif not is_good:
        lacking = lacking or (seat.tpot_s or 0) + (seat.ttft_s or 0)
    return (not seat.fits, not seat.holds_load, not is_good, lacking)


def _meets(bench: Bench, seat: Seat) -> bool:
    """Whether the least times are within what was promised; a floor above it cannot be met at all."""
    slo = bench.load.slo if bench.load else None
    if slo is None:
        return True
    late = [
        (slo.ttft_ms, seat.ttft_s),
        (slo.tpot_ms, seat.tpot_s),
    ]
    return not any(
        promised is not None and least is not None and least * 1000 > promised for promised, least in late
    )


def _seat(bench: Bench, split: Split, copies: int, *, is_eager: bool) -> Seat | None:
    asked = in_flight(bench, split, copies)
    # What follows from a rate rests on floors: a real engine has more in flight, and is not held to that.
    is_said = bench.load is not None and bench.load.concurrency is not None
    wanted = asked if is_said and asked else bench.sequences_max
    found = _most_sequences(bench, split, wanted, is_eager=is_eager)
    if found is None:
        return None
    max_sequences, memory, holds = found
    at_once = min(asked or holds or max_sequences, max_sequences)
    ttft_s, tpot_s = pace(bench, split, at_once)
    return Seat(
        split=split,
        copies=copies,
        memory=memory,
        holds=holds,
        asked=asked,
        max_sequences=max_sequences,
        is_eager=is_eager,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
    )


def _most_sequences(
    bench: Bench, split: Split, wanted: int, *, is_eager: bool
) -> tuple[int, MemoryPlan, int | None] | None:
    """The highest limit of sequences, up to `wanted`, that the cache holds beside the sampler's buffers.

    The buffers grow with the limit: a lower one leaves the cache more. Where not even one fits, that one.
    """

    def tried(limit: int) -> tuple[int, MemoryPlan, int | None] | None:
        memory = _memory(bench, split, limit, is_eager=is_eager)
        return None if memory is None else (limit, memory, _holds(bench, memory))

    def holds(one: tuple[int, MemoryPlan, int | None] | None) -> bool:
        return one is not None and one[1].fits and (one[2] is None or one[2] >= one[0])

    best_yet, most = tried(1), tried(wanted)
    if bench.load is None and most is not None and most[1].fits:
        return most  # how long requests are was not said: the greatest length would limit the short ones
    if not holds(best_yet) or holds(most):
        return most if holds(most) else best_yet
    low, high = 1, wanted
    while high - low > 1:
        middle = (low + high) // 2
        one = tried(middle)
        low, high, best_yet = (middle, high, one) if holds(one) else (low, middle, best_yet)
    limit, memory, _ = best_yet or (1, None, None)
    return None if memory is None else (limit, memory, limit)


def _memory(bench: Bench, split: Split, max_sequences: int, *, is_eager: bool) -> MemoryPlan | None:
    return plan_memory(
        bench.facts,
        gpu_bytes=bench.gpu_bytes,
        utilisation=bench.share,
        tensor=split.tensor,
        pipeline=split.pipeline,
        context_tokens=bench.longest_tokens,
        sequences=1,
        kv_dtype=bench.kv_dtype,
        batched_tokens=max(bench.step_tokens, max_sequences),
        max_sequences=max_sequences,
        is_eager=is_eager,
        stored_bytes=bench.stored_bytes,
    )


def _holds(bench: Bench, memory: MemoryPlan) -> int | None:
    return sequences_that_fit(bench.facts, memory, _mean_tokens(bench))


def _mean_tokens(bench: Bench) -> int:
    """What a request holds at its end, on average."""
    if bench.load is None:
        return bench.longest_tokens
    if bench.facts.task != "generate":
        return ceil(bench.load.prompt.mean)
    return min(ceil(bench.load.mean_tokens), bench.longest_tokens)


# --- speed ----------------------------------------------------------------------------------------


def pace(bench: Bench, split: Split, at_once: int) -> tuple[float | None, float | None]:
    """Least seconds to the first token of a mean prompt, and for each token of so many at once.

    Stages of a pipeline follow one another: they make a request no faster. None where no row has the rates.
    """
    if bench.rates is None or bench.load is None:
        return None, None
    prompt = prefill_floor(
        bench.facts, bench.rates, prompt_tokens=ceil(bench.load.prompt.mean), gpus=split.tensor
    )
    if bench.facts.task != "generate":
        return (prompt.time_s if prompt else None), None
    # Requests are spread over their life: on average half of the answer is there.
    context = ceil(bench.load.prompt.mean + bench.load.output.mean / 2)
    step = decode_floor(
        bench.facts,
        bench.rates,
        batch=max(at_once, 1),
        context_tokens=context,
        gpus=split.tensor,
        kv_dtype=bench.kv_dtype,
    )
    return (prompt.time_s if prompt else None), (step.time_s if step else None)


def in_flight(bench: Bench, split: Split, copies: int) -> int | None:
    """How many requests one copy must hold at once; None where nobody said.

    Of a rate, Little's law: the rate times what a request takes, which grows with how many there are. By the
    floors, so that there are never fewer; and room for arrivals at random.
    """
    load = bench.load
    if load is None:
        return None
    if load.concurrency is not None:
        return ceil(load.concurrency / copies)
    if load.rate_per_s is None or bench.rates is None:
        return None
    rate, at_once, wanted = load.rate_per_s / copies, 1.0, 1.0
    for _ in range(_ROUNDS):
        first, each = pace(bench, split, ceil(at_once))
        if first is None:
            return None
        if rate * first >= 1:
            wanted = float("inf")  # reading prompts alone takes more than all of the time
            break
        wanted = max(rate * load.time_s(first, each or 0.0), 1.0)
        if wanted > bench.sequences_max * 100:
            break  # it grows without bound: the rate is above what the GPU can do at all
        if abs(wanted - at_once) < 0.5:
            return headroom(wanted)
        at_once = wanted
    return headroom(min(wanted, bench.sequences_max * 100))
