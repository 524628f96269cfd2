"""The load that a plan is for: lengths of prompts and answers, how many at once or how often, how fast.

Pure. Little's law joins them: the mean number of requests in flight is their rate times the time that each
takes (J. D. C. Little, Operations Research 9, 1961), whatever their distribution.
"""

from __future__ import annotations

import re

from doctor.core.serving import Lengths, Load

__all__ = ["contradiction", "parse_lengths"]

TOKENS_MAX = 100_000_000
_LENGTHS = re.compile(r"[0-9]{1,9}(-[0-9]{1,9})?")
_PARTS_MAX = 64


def parse_lengths(text: str) -> Lengths:
    """`512`, `128-2048`, or several, each as frequent: `128,512,128-2048`. Raises ValueError."""
    parts = text.split(",")
    if len(parts) > _PARTS_MAX or not all(_LENGTHS.fullmatch(part.strip()) for part in parts):
        raise ValueError(f"`{text}` is no length: `512`, `128-2048`, or several of them, `128,512,2048`")
    ranges = []
    for part in parts:
        first, _, last = part.strip().partition("-")
        ranges.append((int(first), int(last or first)))
    for low, high in ranges:
        if not 0 < low <= high <= TOKENS_MAX:
            raise ValueError(
                f"`{low}-{high}` is no range of lengths: from 1 to {TOKENS_MAX}, the smaller one first"
            )
    mean = sum((low + high) / 2 for low, high in ranges) / len(ranges)
    return Lengths(low=min(low for low, _ in ranges), mean=mean, high=max(high for _, high in ranges))


def contradiction(load: Load, least_s: float | None) -> str:
    """Why rate and concurrency cannot both hold, by Little's law; empty where they can or nobody asks.

    `least_s` is the least time that a request can take on the hardware; None where it is not known.
    """
    cycle_s = load.think_s + (least_s or 0.0)
    if load.rate_per_s is None or load.concurrency is None or not cycle_s:
        return ""
    most = load.concurrency / cycle_s
    if load.rate_per_s <= most * (1 + 1e-9):
        return ""
    asked = f"{load.rate_per_s:g} requests/s from {load.concurrency} at a time cannot be"
    return f"{asked}: each takes {cycle_s:.3g} s at the least, so {most:.3g} a second at most (Little's law)"
