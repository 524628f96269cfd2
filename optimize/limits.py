"""The limits that an engine is given: longest sequence, sequences and tokens in a step, its share of memory.

Pure. Where the engine's own default serves, it is kept and said; vLLM's follow from the device and the
release (rows `engine_batches`). A limit of sequences follows from the cache they need, not from a formula of
block sizes: what a sequence takes depends on layers, KV heads and data type (`optimize.memory`).
"""

from __future__ import annotations

from math import ceil, floor, sqrt

from doctor.core.edition import Edition
from doctor.core.rows.flag import EngineBatch
from doctor.core.serving import Ask, Gpu, Setting
from doctor.core.versions import Pep440
from optimize.argv import flags_of, grammar_of
from optimize.model import ModelFacts

__all__ = ["batch_defaults", "headroom", "length", "memory_share", "step_tokens"]

GIB = 1024**3
#: Sizes of a step to try, largest first; below the last one prompts are cut too fine to be worth it.
_STEPS = (8192, 4096, 2048, 1024, 512, 256)
#: Of a device that several engines share: what none of them may take (contexts, fragments).
_SHARED_MARGIN = 0.03
_UTIL_FALLBACK = 0.9


def batch_defaults(edition: Edition, component: str, version: str, gpu: Gpu) -> EngineBatch | None:
    """What an engine takes by itself on this device; None where no row tells.

    Of a release between two that were read, the row of the older one.
    """
    release, name = Pep440(version), gpu.name.casefold()
    for row in edition.engine_batches:
        if row.component != component or not row.first <= release <= row.last:
            continue
        is_meant = not any(word in name for word in row.not_names)
        if gpu.compute_capability in row.not_compute_capability or not is_meant:
            continue
        if gpu.memory_bytes >= row.min_memory_gib * GIB:
            return row
    return None


def length(facts: ModelFacts, ask: Ask) -> tuple[int | None, str, str]:
    """The longest sequence to serve, why, and why it cannot be; the last is empty where it can."""
    most = facts.context_tokens
    if ask.context_tokens is not None:
        wanted, why = ask.context_tokens, "it was asked for"
    elif ask.load is not None:
        wanted = ask.load.longest_tokens
        parts = f"{ask.load.prompt.high} tokens of prompt and {ask.load.output.high} of answer"
        why = f"the longest request: {parts}"
        if facts.task != "generate":
            wanted, why = ask.load.prompt.high, f"the longest input has {ask.load.prompt.high} tokens"
    elif most is None:
        return None, "", "neither the model nor the question says how long a sequence may be"
    else:
        return most, "what the model was made for; a shorter one leaves more sequences room", ""
    if most is not None and wanted > most:
        beyond = "positions beyond it were never trained"
        return wanted, why, f"{wanted} tokens are more than the model's {most}: {beyond}"
    return wanted, why, ""


def memory_share(edition: Edition, version: str, gpu: Gpu, ask: Ask) -> Setting:
    """The share of the device for vLLM: asked for, what others leave, or the release's default."""
    grammar = grammar_of(edition, "vllm", "vllm serve")
    flag = flags_of(edition, grammar, Pep440(version)).get("--gpu-memory-utilization") if grammar else None
    default = flag.default if flag else ""
    name, own = "gpu-memory-utilization", float(default or _UTIL_FALLBACK)
    if ask.memory_fraction is not None:
        share = f"{ask.memory_fraction:g}"
        return Setting(name=name, value=share, because="it was asked for", is_given=True)
    if ask.beside:
        taken = sum(other.bytes for other in ask.beside)
        left = floor((1 - taken / gpu.memory_bytes - _SHARED_MARGIN) * 100) / 100
        names = ", ".join(other.name for other in ask.beside)
        if left < own:
            because = f"{names} on the same GPU take {taken / GIB:.1f} GiB, and shares add up"
            return Setting(name=name, value=f"{max(left, 0):g}", because=because, is_given=True)
    if default:
        because = f"the default of vllm {version}; the rest is for what is not counted"
        return Setting(name=name, value=default, because=because)
    because = f"the default of vllm {version} was not read: said, so that it is known"
    return Setting(name=name, value=f"{own:g}", because=because, is_given=True)


def headroom(mean_in_flight: float) -> int:
    """How many may be in flight where so many are on average, when requests come at random.

    A Poisson count stays below its mean and three standard deviations more than 99 times in 100.
    """
    return max(1, ceil(mean_in_flight + 3 * sqrt(mean_in_flight)))


def step_tokens(  # noqa: PLR0913 - the default, and what may change it
    default: int,
    *,
    longest: int,
    is_chunked: bool,
    seconds_per_token: float | None,
    tpot_ms: float | None,
    default_because: str = "the engine's own for this device",
) -> tuple[int, str]:
    """Most tokens in one step, and why. `seconds_per_token` is what one prompt token takes on the
    slowest of good cards: the step must be short enough on each of them.

    While a piece of a prompt is computed, the answers of others wait for that step: with a promise for the
    time of each token, the piece must fit into it.
    """
    if not is_chunked:
        tokens = max(default, longest)
        return tokens, "a prompt is computed in one step here, so that the longest must fit into it"
    if tpot_ms is None or seconds_per_token is None:
        return default, default_because
    fitting = [size for size in (default, *_STEPS) if size <= default]
    for size in fitting:
        if size * seconds_per_token * 1000 <= tpot_ms:
            took = size * seconds_per_token * 1000
            why = f"{size} prompt tokens take {took:.3g} ms by the lower end of what good cards reach"
            return size, f"{why}, and no token of another answer may wait longer than {tpot_ms:g} ms"
    why = f"even {fitting[-1]} prompt tokens take longer than {tpot_ms:g} ms: answers stall meanwhile"
    return fitting[-1], why
