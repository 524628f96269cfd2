"""What a claim comes to: true, false or untold, with the values that make it so."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from doctor.core.check import Case
from doctor.core.host import Known
from doctor.core.views import log_is_whole, messages, report

__all__ = ["UNTOLD", "Claim", "Claimed", "either", "is_told", "no", "said", "yes"]


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """`holds` None: the facts do not say. `because` gives the values, as a sentence."""

    holds: bool | None
    because: str = ""


Claim = Callable[[Case], Claimed]
UNTOLD = Claimed(holds=None)


def yes(because: str) -> Claimed:
    """It holds, because."""
    return Claimed(holds=True, because=because)


def no(because: str = "") -> Claimed:
    """It does not hold; `because` is what its negation says."""
    return Claimed(holds=False, because=because)


def either(holds: bool, because: str) -> Claimed:
    """It holds or not; the sentence belongs to the positive answer."""
    return Claimed(holds=holds, because=because if holds else "")


def is_told(fact: object) -> bool:
    """True when a fact is known, or known not to be there."""
    return isinstance(fact, Known) or getattr(fact, "reason", "") == "not_installed"


def said(*kinds: str) -> Claim:
    """A claim that the kernel said something of these kinds in the running boot."""

    def claim(case: Case) -> Claimed:
        message = next(messages(case, *kinds), None)
        if message:
            return yes(f"kernel: {message.text}")
        return no() if log_is_whole(case) else UNTOLD

    return claim


def gpu_flag(name: str, words: str) -> Claim:
    """A claim that a boolean field of some GPU is true."""

    def claim(case: Case) -> Claimed:
        answered = report(case)
        values = [(g.pci_address, getattr(g, name)) for g in answered.gpus] if answered else []
        hit = [address for address, value in values if value is True]
        if hit:
            return yes(f"{words}: {', '.join(hit)}")
        return no() if values and all(v is not None for _, v in values) else UNTOLD

    return claim


def clock_limit(name: str, words: str) -> Claim:
    """A claim that some GPU's clocks are limited for this reason now."""

    def claim(case: Case) -> Claimed:
        answered = report(case)
        if answered is None or not answered.gpus:
            return UNTOLD
        hit = [g.pci_address for g in answered.gpus if name in (g.clock_limits or ())]
        if hit:
            return yes(f"{words}: {', '.join(hit)}")
        return no() if all(g.clock_limits is not None for g in answered.gpus) else UNTOLD

    return claim
