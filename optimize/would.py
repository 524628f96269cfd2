"""What a plan lacks, by how much, and what alone would mend it. Pure: every remedy is computed."""

from __future__ import annotations

from collections.abc import Iterator
from math import floor, log10

import msgspec

from doctor.core.edition import Edition
from doctor.core.serving import Candidate, Gpu, Load, Slo
from optimize.decisions import ONLINE
from optimize.formats import kv_dtype_allowed, quantization_allowed
from optimize.memory import usable_bytes
from optimize.roofline import rates_for
from optimize.room import Bench, Seat, best, pace

__all__ = ["remedies", "shortfalls"]

GIB = 1024**3
#: What vLLM takes by itself, in hundredths; above it the device runs out at the first thing nobody counted.
_SHARE_MAX = 92
_COUNTS = (2, 4, 8, 16, 32)
#: Of the factor between a rate that is served and one that is not: to less than a hundredth from 4096.
_HALVINGS = 10


def shortfalls(bench: Bench, seat: Seat) -> tuple[str, ...]:
    """What is lacking, and by how much; none where the load is served."""
    found = []
    memory = seat.memory
    if not seat.fits:
        found.append(
            f"{memory.short_bytes / GIB:.1f} GiB are lacking on each GPU: {memory.needed_bytes / GIB:.1f} GiB"
            f" for weights, buffers and one request of {bench.longest_tokens} tokens, of"
            f" {memory.budget_bytes / GIB:.1f} GiB to use"
        )
    elif not seat.holds_load:
        found.append(_too_many(bench, seat))
    return (*found, *(_late(bench, seat) if seat.fits else ()))


def _too_many(bench: Bench, seat: Seat) -> str:
    """Why the load is more than a copy holds: too many at once, or prompts that arrive faster than they are
    read at the most.
    """
    load, (first_s, _) = bench.load, pace(bench, seat.split, 1)
    if load is not None and load.concurrency is None and load.rate_per_s is not None and first_s is not None:
        busy = load.rate_per_s / seat.copies * first_s
        if busy >= 1:
            each = " of each copy" if seat.copies > 1 else ""
            return (
                f"to read the prompts of {load.rate_per_s:g} requests takes {busy:.3g} s{each} at the least,"
                " and so many arrive every second"
            )
    return f"{seat.asked} requests at once are asked of each copy, {seat.holds} of mean length fit"


def _late(bench: Bench, seat: Seat) -> Iterator[str]:
    """Promises below what the hardware needs at the least."""
    slo = bench.load.slo if bench.load else None
    if slo is None:
        return
    if slo.ttft_ms is not None and seat.ttft_s is not None and seat.ttft_s * 1000 > slo.ttft_ms:
        least = f"{seat.ttft_s * 1000:.3g} ms"
        yield f"the first token takes {least} at the least, {slo.ttft_ms:g} ms were promised"
    if slo.tpot_ms is not None and seat.tpot_s is not None and seat.tpot_s * 1000 > slo.tpot_ms:
        yield f"each token takes {seat.tpot_s * 1000:.3g} ms at the least, {slo.tpot_ms:g} ms were promised"


def remedies(edition: Edition, engine: Candidate, gpu: Gpu, bench: Bench, seat: Seat) -> tuple[str, ...]:
    """What would make it fit, each alone."""
    found = [*_fewer(bench, seat), *_smaller(edition, engine, gpu, bench), *_more(bench)]
    return (*found, *_others(edition, gpu, bench)) or (
        "none of: fewer or shorter requests, an FP8 cache, FP8 weights, up to 32 such GPUs, another GPU",
    )


def _serves(bench: Bench) -> bool:
    seat = best(bench)
    return seat is not None and not shortfalls(bench, seat)


def _fewer(bench: Bench, seat: Seat) -> Iterator[str]:
    """Less of the load on the same GPUs."""
    yield from _larger_share(bench)
    longest = seat.memory.longest_tokens
    is_shorter = not seat.fits and longest and _is_generous(bench, longest)
    if is_shorter and _serves(msgspec.structs.replace(bench, longest_tokens=longest)):
        yield f"a greatest length of {longest} tokens in place of {bench.longest_tokens}"
    if not seat.fits or bench.load is None:
        return
    if bench.load.concurrency is not None:
        yield from _fewer_at_once(bench, bench.load, bench.load.concurrency)
    elif bench.load.rate_per_s is not None:
        yield from _fewer_a_second(bench, bench.load, bench.load.rate_per_s)


def _fewer_at_once(bench: Bench, load: Load, asked: int) -> Iterator[str]:
    """As many as are served, promises kept."""

    def serves(count: int) -> bool:
        return _serves(msgspec.structs.replace(bench, load=msgspec.structs.replace(load, concurrency=count)))

    low, high = 1, asked
    if asked < 2 or not serves(1):
        return
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if serves(middle) else (low, middle)
    yield f"{low} requests at once in place of {asked}; others wait"


def _fewer_a_second(bench: Bench, load: Load, asked: float) -> Iterator[str]:
    """As high a rate as is served, rounded down to two digits."""

    def serves(rate: float) -> bool:
        return _serves(msgspec.structs.replace(bench, load=msgspec.structs.replace(load, rate_per_s=rate)))

    low, high = asked / 4096, asked
    if not serves(low):
        return
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if serves(middle) else (low, middle)
    unit = 10.0 ** (floor(log10(low)) - 1)
    yield f"{floor(low / unit) * unit:.2g} requests/s in place of {asked:g}"


def _larger_share(bench: Bench) -> Iterator[str]:
    """The least share of the device that does, where less was said than engines take by themselves."""
    low, high = int(bench.share * 100) + 1, _SHARE_MAX
    if low > high or not _serves(msgspec.structs.replace(bench, share=high / 100)):
        return
    while low < high:
        middle = (low + high) // 2
        does = _serves(msgspec.structs.replace(bench, share=middle / 100))
        low, high = (low, middle) if does else (middle + 1, high)
    yield f"a memory share of {low / 100:g} or more, in place of {bench.share:g}"


def _is_generous(bench: Bench, longest: int) -> bool:
    """Whether a shorter length still serves the mean request."""
    return bench.load is None or longest >= bench.load.mean_tokens


def _smaller(edition: Edition, engine: Candidate, gpu: Gpu, bench: Bench) -> Iterator[str]:
    """Other formats, where the engine and the GPU allow them."""
    if engine.component != "vllm":
        return
    facts, capability = bench.facts, gpu.compute_capability
    cached = kv_dtype_allowed(edition, "fp8", engine.version, capability)
    is_open = facts.task == "generate" and bench.kv_dtype != "fp8" and cached.verdict == "native"
    if is_open and _serves(msgspec.structs.replace(bench, kv_dtype="fp8")):
        yield "a KV cache in FP8 (`--kv-cache-dtype fp8`): half the cache, less precision"
    if facts.quantization is not None:
        return
    allowed = quantization_allowed(
        edition,
        ONLINE["fp8"],
        component="vllm",
        version=engine.version,
        architecture=gpu.architecture,
        capability=capability,
    )
    smaller = msgspec.structs.replace(facts, quantization=ONLINE["fp8"])
    if allowed.verdict in ("native", "weights-only") and _serves(
        msgspec.structs.replace(bench, facts=smaller, stored_bytes=None)
    ):
        is_native = allowed.verdict == "native"
        only = "" if is_native else ", for memory alone: this GPU does not compute in it"
        yield f"weights in FP8 (`--quantization fp8`): half the weights, less precision{only}"


def _more(bench: Bench) -> Iterator[str]:
    """More GPUs of the same kind."""
    for count in _COUNTS:
        if count > bench.gpus and _serves(msgspec.structs.replace(bench, gpus=count)):
            nodes = f", of {count // 8} machines" if count > 8 else ""
            yield f"{count} such GPUs{nodes}"
            return


def _others(edition: Edition, gpu: Gpu, bench: Bench) -> Iterator[str]:
    """The smallest other data-center GPU that does, as many as there are."""
    found: list[tuple[float, str]] = []
    products = {i: row for row in edition.products for i in row.pci_device_ids}
    for row in edition.speeds:
        product = next((products[i] for i in row.pci_device_ids if i in products), None)
        if product is None or gpu.pci_id in row.pci_device_ids or product.memory_gb is None:
            continue
        if float(row.compute_capability) < float(gpu.compute_capability):
            continue
        size = usable_bytes(product.memory_gb, product.memory_type, ecc=product.ecc)
        if size <= bench.gpu_bytes:
            continue
        rates = rates_for(
            edition,
            bench.facts,
            row.pci_device_ids[0],
            product.architecture,
            product.memory_type,
            end="high",
        )
        if rates is None and bench.rates is not None and _is_timed(bench):
            continue  # whether it is fast enough is not known
        if _serves(msgspec.structs.replace(bench, gpu_bytes=size, rates=rates)):
            found.append((size, product.product))
    if found:
        count = f"{bench.gpus} x " if bench.gpus > 1 else ""
        yield f"{count}{min(found)[1]} in {'their' if count else 'its'} place"


def _is_timed(bench: Bench) -> bool:
    """Whether the load asks for more than memory: a rate, or promises."""
    load = bench.load
    return load is not None and (load.rate_per_s is not None or load.slo != Slo())
