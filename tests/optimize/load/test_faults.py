"""Every way in which a server breaks has a name of its own, and the run goes on to its end."""

from __future__ import annotations

from math import isnan

import pytest

from optimize.load.mock_scripts import FAULTS
from optimize.load.record import Status
from tests.optimize.load.rig import TOKENS, closed, load

#: Fault → how the request ends, and words that its example must have.
EXPECTED: dict[str, tuple[Status, str]] = {
    "stall": (Status.STALLED, "after"),
    "silent": (Status.HEADER_TIMEOUT, "after"),
    "slow-head": (Status.HEADER_TIMEOUT, "after"),
    "endless": (Status.TIMEOUT, "after"),
    "close": (Status.CLOSED_EARLY, "in the body"),
    "close-at-once": (Status.CLOSED_EARLY, "before the answer"),
    "close-in-event": (Status.CLOSED_EARLY, "in the body"),
    "close-idle": (Status.OK, ""),
    "reset": (Status.RESET, "reset"),
    "no-end-mark": (Status.CLOSED_EARLY, "finish_reason"),
    "no-done": (Status.OK, ""),
    "not-json": (Status.MALFORMED_STREAM, "JSON is malformed"),
    "not-the-form": (Status.MALFORMED_STREAM, "choices"),
    "bad-utf8": (Status.BAD_UTF8, "UTF-8"),
    "error-event": (Status.ERROR_IN_STREAM, "CUDA error: an illegal memory access"),
    "comments": (Status.OK, ""),
    "not-http": (Status.MALFORMED_HTTP, "HTTP"),
    "bad-chunk-size": (Status.MALFORMED_HTTP, "chunk size"),
    "giant-head": (Status.TOO_LARGE, "head"),
    "giant-event": (Status.TOO_LARGE, "event"),
    "large-event": (Status.OK, ""),
    "split-utf8": (Status.OK, ""),
    "counts-more": (Status.MISCOUNTED, "48 tokens, and 24 were allowed"),
    "counts-fewer": (Status.MISCOUNTED, "12 tokens, and 24 pieces"),
    "no-usage": (Status.OK, ""),
    "short": (Status.WRONG_LENGTH, "12 tokens of 24, finish_reason `stop`"),
    "empty": (Status.EMPTY, "without a token"),
    "textless": (Status.EMPTY, "without a token"),
    "coalesced": (Status.OK, ""),
    "reasoning": (Status.OK, ""),
    "tool-call": (Status.OK, ""),
    "http10": (Status.OK, ""),
    "with-length": (Status.OK, ""),
    "json-instead": (Status.MALFORMED_STREAM, "no event stream"),
    "rest-behind": (Status.OK, ""),
    "redirect": (Status.REFUSED, "302"),
    "400": (Status.REFUSED, "bad request"),
    "401": (Status.UNAUTHORISED, "Incorrect API key"),
    "404": (Status.NOT_FOUND, "does not exist"),
    "429": (Status.RATE_LIMITED, "Retry-After: 7"),
    "500": (Status.SERVER_ERROR, "EngineDeadError"),
    "503": (Status.UNAVAILABLE, "Retry-After: 2"),
}


def test_every_fault_has_a_name_that_is_expected() -> None:
    assert set(EXPECTED) == set(FAULTS)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_fault_is_classified(name: str) -> None:
    status, words = EXPECTED[name]
    run = load(f"fault-{name}")
    assert run.samples.counts() == {status.word: 2}
    examples = run.said.examples.get(status.word, [])
    assert status is Status.OK or any(words in one for one in examples), examples
    assert run.said.in_flight == 0


@pytest.mark.parametrize("name", ["stall", "close", "error-event", "counts-more", "429"])
def test_what_failed_is_averaged_into_nothing(name: str) -> None:
    samples = load(f"fault-{name}").samples
    assert len(samples) == 2
    assert list(samples.gaps) == []


def test_the_run_goes_on_past_all_of_them() -> None:
    """A connection that closes at once may be one that was idle too long: that request takes another turn."""
    counts = load("fault-mix", closed(3 * len(FAULTS), streams=16)).samples.counts()
    assert set(counts) == {status.word for status, _ in EXPECTED.values()}
    assert sum(counts.values()) == 3 * len(FAULTS)


def test_pieces_of_several_tokens_are_known() -> None:
    samples = load("fault-coalesced").samples
    assert list(samples.n_out) == [TOKENS, TOKENS]
    assert list(samples.n_chunks) == [TOKENS / 4, TOKENS / 4]


def test_without_a_usage_block_tokens_are_untold_and_not_guessed() -> None:
    samples = load("fault-no-usage").samples
    assert all(map(isnan, samples.n_out))
    assert list(samples.n_chunks) == [TOKENS, TOKENS]


def test_a_role_is_no_token() -> None:
    samples = load("mock").samples
    assert list(samples.n_chunks) == [TOKENS, TOKENS]
    # The server sends the role at once with the first piece only in its own time: 10 ms after the request.
    assert all(first >= sent + 0.01 for first, sent in zip(samples.first_token, samples.sent, strict=True))
