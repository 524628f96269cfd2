"""The pieces of one streamed answer: when they came, how many, and what the stream said of itself. Pure.

This is the inner loop of the client: all pieces of one read share its time, so they are counted in a loop and
written down once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

import msgspec

from optimize.load.answers import NULL, Event, MarkedEvent, Usage, has_content, is_told, is_utf8, read_error
from optimize.load.ending import Verdict, tokens_verdict, told
from optimize.load.record import UNTOLD, Status
from optimize.load.sse import Events, EventTooLarge

__all__ = ["GAPS_OF_ONE_MAX", "Pieces", "broken"]

#: Gaps that one request keeps; a longer stream is thinned, so that it costs no memory.
GAPS_OF_ONE_MAX = 65_536


class Pieces:
    """What a stream has given so far. Times are those of the reads, seconds; UNTOLD before there is one."""

    __slots__ = (
        "_events", "_lags", "_read", "_stride", "count", "end_s", "finish", "first_s", "gaps", "is_done",
        "last_s", "max_stall_s", "usage",
    )  # fmt: skip

    def __init__(self, read: Callable[[bytes], Event], lags: array[float] | None = None) -> None:
        self._events = Events()
        self._read, self._lags = read, lags
        self._stride = 1
        self.count = 0
        self.first_s = self.last_s = self.end_s = self.max_stall_s = UNTOLD
        self.gaps = array("d")
        self.is_done = False
        self.finish: str | None = None
        self.usage: Usage | None = None

    def feed(self, data: bytes, now_s: float) -> Verdict:  # noqa: C901 - the inner loop: a call costs 0.1 us a piece
        """Read what came at a time. What is wrong with it, if anything is."""
        event_data = b""
        new = 0
        try:
            for event_data in self._events.feed(data):
                if event_data == b"[DONE]":
                    self.is_done = True
                    continue
                event = self._read(event_data)
                for choice in event.choices or ():
                    if choice.text or has_content(choice):
                        new += 1
                        if self._lags is not None and isinstance(event, MarkedEvent):
                            self._lags.append(now_s - event.sent_s)
                    if choice.finish_reason is not None:
                        self.finish, self.end_s = choice.finish_reason, now_s
                if event.usage is not None:
                    self.usage = event.usage
                if event.object == "error" or (event.error is not NULL and is_told(event.error)):
                    return Status.ERROR_IN_STREAM, read_error(event_data)
        except EventTooLarge:
            return Status.TOO_LARGE, "an event of more than 4 MiB"
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return broken(event_data, error)
        finally:
            if new:
                self._arrived(new, now_s)
        return None

    def _arrived(self, new: int, now_s: float) -> None:
        """So many pieces came at once: one gap to those before, and none between them."""
        gaps = [0.0] * (new - 1)
        if self.count:
            gaps.insert(0, now_s - self.last_s)
        else:
            self.first_s = now_s
        if gaps:
            if not gaps[0] <= self.max_stall_s:  # UNTOLD before the first gap
                self.max_stall_s = gaps[0]
            first = max(self.count - 1, 0)
            self.gaps.extend(array("d", gaps[-first % self._stride :: self._stride]))
        self.last_s = now_s
        self.count += new
        while len(self.gaps) > GAPS_OF_ONE_MAX:
            self.gaps = self.gaps[::2]
            self._stride *= 2

    def verdict(self, *, asked: int, is_exact: bool) -> Verdict:
        """The body is whole: is it the answer that was asked for?"""
        if not (self.is_done or self.finish is not None):
            if self._events.has_rest and not self.count:
                return Status.MALFORMED_STREAM, "the answer is no event stream"
            return Status.CLOSED_EARLY, "the stream ended without `finish_reason` and without `[DONE]`"
        if not self.count:
            return Status.EMPTY, "the stream ended without a token"
        return tokens_verdict(self.usage, self.finish, asked=asked, pieces=self.count, is_exact=is_exact)

    @property
    def n_in(self) -> float:
        """Tokens of the prompt, by the usage block."""
        return told(self.usage.prompt_tokens if self.usage is not None else None)

    @property
    def n_out(self) -> float:
        """Tokens of the answer, by the usage block."""
        return told(self.usage.completion_tokens if self.usage is not None else None)


def broken(data: bytes, error: Exception) -> Verdict:
    """Why it cannot be read."""
    if not is_utf8(data):
        return Status.BAD_UTF8, "an event is no UTF-8"
    return Status.MALFORMED_STREAM, f"an event is not of the API's form: {error}"
