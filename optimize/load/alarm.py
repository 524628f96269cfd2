"""Wakes an event loop when the next request is due, to 0.1 ms: loops round their own timers to whole ms."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from time import CLOCK_MONOTONIC, clock_gettime

__all__ = ["Alarm"]

_ABSOLUTE = 1  # TFD_TIMER_ABSTIME
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC  # TFD_NONBLOCK | TFD_CLOEXEC have these values


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Alarm:
    """One timer of the kernel (timerfd on CLOCK_MONOTONIC), set again for each next time.

    uvloop's and asyncio's `call_at` are late by up to 1 ms, 0.5 ms on average, for they wait in whole
    milliseconds: that is the whole error that a TTFT is allowed. Without timerfd `call_at` serves.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop, self._ring = loop, ring
        self._fallback: asyncio.TimerHandle | None = None
        self._libc = ctypes.CDLL(None, use_errno=True)
        create = getattr(self._libc, "timerfd_create", None)
        self._fd: int = create(CLOCK_MONOTONIC, _FLAGS) if create is not None else -1
        if self._fd >= 0:
            loop.add_reader(self._fd, self._woken)

    @property
    def is_exact(self) -> bool:
        """Whether the kernel's timer is used."""
        return self._fd >= 0

    def set(self, at_s: float) -> None:
        """Ring at this time of CLOCK_MONOTONIC (perf_counter's clock on Linux), at once when it is past."""
        if self._fd < 0:
            self._late(at_s)
            return
        nanoseconds = max(int(at_s * 1e9), 1)
        value = _Timespec(nanoseconds // 1_000_000_000, nanoseconds % 1_000_000_000)
        when = _Itimerspec(_Timespec(0, 0), value)
        if self._libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(when), None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def _late(self, at_s: float) -> None:
        if self._fallback:
            self._fallback.cancel()
        self._fallback = self._loop.call_later(at_s - clock_gettime(CLOCK_MONOTONIC), self._ring)

    def _woken(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        self._ring()

    def close(self) -> None:
        """Nothing rings after this."""
        if self._fallback:
            self._fallback.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
