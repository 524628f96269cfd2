"""How far a load is, on stderr: a line that is written over on a terminal, one in ten seconds in a log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from optimize.load.run import Tally

__all__ = ["Progress"]

_LOG_EVERY_S = 10.0
_WIDTH = 79


class Progress:
    """Writes phases and counts."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._is_terminal = out.isatty()
        self._is_open = False
        self._told_s = time.monotonic()

    def phase(self, words: str) -> None:
        """A new phase, on a line of its own."""
        self.close()
        self._out.write(f"mopt-doctor: {words}\n")
        self._out.flush()
        self._told_s = time.monotonic()

    def tally(self, tally: Tally) -> None:
        """Counts of the phase so far."""
        now = time.monotonic()
        if not self._is_terminal and now - self._told_s < _LOG_EVERY_S:
            return
        self._told_s = now
        failed = f", {tally.failed} failed" if tally.failed else ""
        line = (
            f"  {tally.elapsed_s:5.0f} s  {tally.sent} sent, {tally.ok} answered{failed},"
            f" {tally.in_flight} in flight, {tally.tokens:,.0f} tokens"
        )[:_WIDTH]
        self._out.write(f"\r{line:<{_WIDTH}}" if self._is_terminal else f"{line}\n")
        self._out.flush()
        self._is_open = self._is_terminal

    def close(self) -> None:
        """End the line that is open."""
        if self._is_open:
            self._out.write("\n")
            self._out.flush()
            self._is_open = False
