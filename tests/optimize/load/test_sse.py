"""Events come out the same however the stream was cut, and hostile ones are bounded."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimize.load.sse import EVENT_BYTES_MAX, Events, EventTooLarge

STREAM = (
    b'data: {"a":1}\n\n: comment\n\ndata:{"b":"\xc3\xa9"}\r\n\r\nevent: x\ndata: one\ndata: two\n\nid: 7\n\n'
    b"data: cr\r\rdata: [DONE]\n\n"
)
WANTED = [b'{"a":1}', '{"b":"é"}'.encode(), b"one\ntwo", b"cr", b"[DONE]"]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_any_cut_gives_the_same_events(cuts: list[int]) -> None:
    events = Events()
    places = [0, *sorted(cuts), len(STREAM)]
    found = [one for a, b in itertools.pairwise(places) for one in events.feed(STREAM[a:b])]
    assert found == WANTED
    assert not events.has_rest


def test_byte_by_byte() -> None:
    events = Events()
    assert [one for n in range(len(STREAM)) for one in events.feed(STREAM[n : n + 1])] == WANTED


FORMS = {
    "one event a read": (b"data: x\n\n", [b"x"]),
    "several in a read": (b"data: x\n\ndata: y\n\ndata: z\n\n", [b"x", b"y", b"z"]),
    "a line break in the data": (b"data: x\ny\n\n", [b"x"]),
    "no data": (b"event: ping\n\n", []),
    "no space": (b"data:x\n\n", [b"x"]),
    "two spaces": (b"data:  x\n\n", [b" x"]),
    "empty": (b"data:\n\n", [b""]),
    "data in the middle of a line": (b"xdata: y\n\ndata: z\n\n", [b"z"]),
    "blank lines before": (b"\n\n\ndata: x\n\n", [b"x"]),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms(name: str) -> None:
    data, wanted = FORMS[name]
    assert Events().feed(data) == wanted


def test_what_is_not_whole_is_kept() -> None:
    events = Events()
    assert events.feed(b"data: x\n") == []
    assert events.has_rest
    assert events.feed(b"\n") == [b"x"]


def test_an_event_without_end_is_bounded() -> None:
    events = Events()
    for _ in range(EVENT_BYTES_MAX // 65_536):
        events.feed(b"a" * 65_536)
    with pytest.raises(EventTooLarge):
        events.feed(b"a")


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
def test_a_whole_event_is_bounded_too(end: bytes) -> None:
    with pytest.raises(EventTooLarge):
        Events().feed(b"data: " + b"a" * (EVENT_BYTES_MAX + 1) + end)
