"""Columns: merged by concatenation, packed without loss, thinned when there are too many gaps."""

from __future__ import annotations

from array import array
from math import isnan

from optimize.load import record
from optimize.load.record import UNTOLD, Samples, Status


def filled(gaps: int, stride: int = 1) -> Samples:
    samples = Samples()
    samples.add(Status.OK, (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.01, 7.0, 3.0, 3.0, 0.0))
    samples.add(Status.STALLED, (1.0, 1.1, *[UNTOLD] * 9))
    samples.gaps = array("d", range(0, gaps * stride, stride))
    samples.gap_stride = stride
    return samples


def test_the_pipe_changes_nothing() -> None:
    one, other = filled(5), Samples.unpack(filled(5).pack())
    assert list(one.rows()) == list(other.rows())
    assert one.gaps == other.gaps


def test_rows_leave_out_what_is_untold() -> None:
    done, stalled = filled(0).rows()
    assert (done.status, done.n_out) == ("ok", 3.0)
    assert (stalled.status, stalled.sent, stalled.first_token, stalled.n_out) == ("stalled", 1.1, None, None)


def test_processes_are_joined_by_concatenation() -> None:
    joined = filled(3)
    joined.extend(filled(2))
    assert len(joined) == 4
    assert joined.counts() == {"ok": 2, "stalled": 2}
    assert list(joined.gaps) == [0, 1, 2, 0, 1]


def test_thinned_and_whole_gaps_are_joined_at_one_density() -> None:
    joined = filled(8)
    joined.extend(filled(2, stride=4))
    assert list(joined.gaps) == [0, 4, 0, 4]
    joined.extend(filled(8))
    assert list(joined.gaps) == [0, 4, 0, 4, 0, 4]


def test_the_memory_of_gaps_has_an_end(monkeypatch) -> None:
    monkeypatch.setattr(record, "GAPS_MAX", 100)
    samples = Samples()
    for _ in range(1000):
        samples.add_gaps(array("d", [0.01] * 64))
    assert len(samples.gaps) <= 100
    assert samples.gap_stride >= 512


def test_untold_is_no_number() -> None:
    assert isnan(UNTOLD)
