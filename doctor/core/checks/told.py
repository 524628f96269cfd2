"""What is said where nobody told what a check asks: never that it holds."""

from __future__ import annotations

from doctor.core.check import Outcome, skipped, unknown
from doctor.core.host import Absent, Gpu

__all__ = ["fact_untold", "gpu_untold", "has_failed", "is_unasked"]

#: Why a fact is absent although somebody asked for it.
_REASONS = {
    "denied": "needs root",
    "timeout": "did not answer in time",
    "unreadable": "could not be read",
    "failed": "could not be asked",
}


def is_unasked(fact: object) -> bool:
    """True for what the evidence never asked for: foreign reports and older bundles hold no such thing."""
    return isinstance(fact, Absent) and fact.reason == "not_collected"


def has_failed(fact: object) -> bool:
    """True for what was asked for and gave no answer: neither known, nor known not to be there."""
    return isinstance(fact, Absent) and fact.reason in _REASONS


def gpu_untold(gpu: Gpu, *getters: str, words: str = "not told") -> Outcome:
    """Of a GPU whose witness gave no value: unknown when a call failed, else the card has no such thing.

    `getters` are the calls that would have told it, as `Gpu.errors` names them; a call that the card does
    not support is no error.
    """
    failures = (f"{name}: {text}" for name, text in gpu.errors.items() if name.partition(".")[0] in getters)
    failure = next(failures, "")
    if failure:
        return unknown("the driver did not answer", subject=gpu.pci_address, why=(failure,))
    return skipped(words, subject=gpu.pci_address)


def fact_untold(fact: object, what: str, *, absent: str, subject: str = "") -> Outcome:
    """Of a fact that a check cannot go on without: `absent` says what follows where it is truly not there.

    What a report or an older bundle never asked for is no open question; what failed to answer is one.
    """
    if not isinstance(fact, Absent) or fact.reason == "not_installed":
        return skipped(absent, subject=subject)
    if is_unasked(fact):
        return skipped(f"{what}: not asked in this evidence", subject=subject)
    why = (fact.detail,) if fact.detail else ()
    return unknown(f"{what} {_REASONS[fact.reason]}", subject=subject, why=why)
