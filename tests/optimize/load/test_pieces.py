"""Pieces of a stream: one time a read, gaps as they were, thinned where there are too many."""

from __future__ import annotations

from math import isnan

import pytest

from optimize.load import pieces as module
from optimize.load.answers import read_event
from optimize.load.pieces import Pieces
from optimize.load.record import Status

PIECE = b'data: {"choices":[{"text":"a","finish_reason":null}]}\n\n'
EMPTY = b'data: {"choices":[{"text":"","finish_reason":null}]}\n\n'
END = b'data: {"choices":[{"text":"","finish_reason":"length"}]}\n\n'


def test_pieces_of_one_read_have_one_time() -> None:
    one = Pieces(read_event)
    one.feed(PIECE * 3, 1.0)
    one.feed(PIECE, 1.5)
    one.feed(PIECE * 2, 1.75)
    assert (one.first_s, one.last_s, one.count) == (1.0, 1.75, 6)
    assert list(one.gaps) == [0.0, 0.0, 0.5, 0.25, 0.0]
    assert one.max_stall_s == 0.5


def test_a_single_piece_has_no_gap_and_no_stall() -> None:
    one = Pieces(read_event)
    one.feed(PIECE, 1.0)
    assert list(one.gaps) == []
    assert isnan(one.max_stall_s)


def test_what_has_no_text_is_no_piece_and_the_usage_moves_no_time() -> None:
    one = Pieces(read_event)
    one.feed(EMPTY, 1.0)
    one.feed(PIECE, 2.0)
    one.feed(END, 3.0)
    one.feed(
        b'data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":1}}\n\ndata: [DONE]\n\n', 9.0
    )
    assert (one.first_s, one.last_s, one.end_s, one.count) == (2.0, 2.0, 3.0, 1)
    assert (one.n_in, one.n_out) == (4.0, 1.0)
    assert one.verdict(asked=1, is_exact=True) is None


def test_what_came_before_a_fault_is_written_down() -> None:
    one = Pieces(read_event)
    verdict = one.feed(PIECE * 2 + b"data: {\n\n" + PIECE, 1.0)
    assert verdict is not None
    assert verdict[0] is Status.MALFORMED_STREAM
    assert one.count == 2


@pytest.mark.parametrize("at_once", [1, 3, 7])
def test_a_long_stream_keeps_gaps_evenly_and_no_more_than_the_bound(monkeypatch, at_once: int) -> None:
    monkeypatch.setattr(module, "GAPS_OF_ONE_MAX", 64)
    one = Pieces(read_event)
    for n in range(600):
        one.feed(PIECE * at_once, float(n))
    assert len(one.gaps) <= 64
    assert one.count == 600 * at_once
    # A gap of 1 s for each read, none inside it: the mean of what is kept is that of all.
    assert sum(one.gaps) / len(one.gaps) == pytest.approx(1 / at_once, abs=0.12)
    assert one.max_stall_s == 1.0
