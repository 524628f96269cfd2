"""Whether a whole answer is the one that was asked for: its code, its end, its count of tokens. Pure."""

from __future__ import annotations

from math import isnan

import msgspec

from optimize.load.answers import Choice, Usage, Whole, has_content
from optimize.load.record import UNTOLD, Status

__all__ = ["Expectation", "Verdict", "choices_verdict", "status_of_code", "tokens_verdict", "told"]

#: How it ended and why; None when there is nothing to object.
Verdict = tuple[Status, str] | None

#: Servers send pieces that are no token (a tool call's name, a reasoning tag): so many are fine.
_COUNT_SLACK = 8


class Expectation(msgspec.Struct, frozen=True, gc=False):
    """What the answers of a run must be like."""

    is_stream: bool = True
    is_embedding: bool = False
    #: the whole length was asked for, and the server is known to give it
    is_exact: bool = False


def told(count: int | None) -> float:
    """A count of the usage block as a number of a column."""
    return UNTOLD if count is None else float(count)


def status_of_code(code: int) -> Status:
    """The status of an answer that is not 200."""
    named = {
        401: Status.UNAUTHORISED,
        403: Status.UNAUTHORISED,
        404: Status.NOT_FOUND,
        429: Status.RATE_LIMITED,
    }
    if code in named:
        return named[code]
    if code >= 500:
        return Status.UNAVAILABLE if code == 503 else Status.SERVER_ERROR
    return Status.REFUSED


def choices_verdict(answer: Whole, *, asked: int, is_exact: bool) -> Verdict:
    """An answer that is not streamed: has it text, and of the right length?"""
    choices = answer.choices or []
    if not any(_speaks(choice) for choice in choices):
        return Status.EMPTY, "no text in the answer"
    return tokens_verdict(answer.usage, choices[0].finish_reason, asked=asked, pieces=0, is_exact=is_exact)


def _speaks(choice: Choice) -> bool:
    return has_content(choice) or (choice.message is not None and has_content(Choice(delta=choice.message)))


def tokens_verdict(
    usage: Usage | None, finish: str | None, *, asked: int, pieces: int, is_exact: bool
) -> Verdict:
    """The count of tokens against what was asked for, and against the pieces of text that arrived."""
    said = told(usage.completion_tokens if usage is not None else None)
    if said > asked:
        return Status.MISCOUNTED, f"the usage block says {said:.0f} tokens, and {asked} were allowed"
    if pieces > said + _COUNT_SLACK and pieces > 1.05 * said:
        return (
            Status.MISCOUNTED,
            f"the usage block says {said:.0f} tokens, and {pieces} pieces of text arrived",
        )
    if not is_exact:
        return None
    if said < asked or (isnan(said) and finish not in (None, "length")):
        count = "fewer" if isnan(said) else f"{said:.0f}"
        return Status.WRONG_LENGTH, f"{count} tokens of {asked}, finish_reason `{finish}`"
    return None
