"""What server and GPUs did during a run, once a second, on the client's clock; read in threads beside it."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

from doctor.core.load import Series, Timeline
from optimize.load.control import ask
from optimize.load.metrics import KNOWN, engine_values, server_kind
from optimize.load.record import Samples
from optimize.load.target import Address

__all__ = ["Telemetry", "client_series", "rates_of"]

_EVERY_S = 1.0
#: An hour of seconds; beyond it every second value is dropped.
_VALUES_MAX = 3600
_UNITS = {ours: unit for ours, unit, _how in KNOWN.values()}
#: Counters are shown as what they gain a second.
_COUNTERS = {"preemptions", "prompt_tokens", "generation_tokens", "prefix_cache_hits", "prefix_cache_queries"}
_GPU_UNITS = {"util": "percent", "power": "W", "sm_clock": "MHz", "memory": "MiB", "temperature": "C"}
#: nvmlClocksEventReasons that slow an inference GPU down: power cap, hardware slowdown, thermal (nvml.h).
_THROTTLES = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}


class Telemetry:
    """Reads until it is stopped. A thread that hangs in a driver call is a daemon, and is not waited for."""

    def __init__(self, address: Address, *, key: str = "", ca_file: str = "") -> None:
        self._address, self._key, self._ca_file = address, key, ca_file
        self._stop = threading.Event()
        self._start_s = 0.0
        self._rows: dict[tuple[str, str], list[tuple[float, float]]] = {}
        self._marks: list[tuple[float, str]] = []
        self._threads: list[threading.Thread] = []
        self.server = ""

    def begin(self, start_s: float) -> None:
        """Read from now on; `start_s` is the run's zero on CLOCK_MONOTONIC."""
        self._start_s = start_s
        readers: list[Callable[[], None]] = [self._engine]
        if self._address.is_local:  # the GPUs of this host are the server's
            readers.append(self._gpus)
        self._threads = [threading.Thread(target=reader, daemon=True) for reader in readers]
        for thread in self._threads:
            thread.start()

    def end(self) -> Timeline:
        """Stop, and what was read."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=2)
        series: list[Series] = []
        for (source, name), rows in sorted(self._rows.items()):
            is_counter = source == "engine" and name in _COUNTERS
            told = rates_of(rows) if is_counter else rows
            unit = (_UNITS if source == "engine" else _GPU_UNITS).get(name.rpartition(".")[2], "")
            told = told[:: -(-len(told) // _VALUES_MAX) or 1]
            series.append(
                Series(
                    name=name,
                    unit=f"{unit}/s" if is_counter else unit,
                    source="engine" if source == "engine" else "gpu",
                    t_s=tuple(t for t, _ in told),
                    values=tuple(value for _, value in told),
                )
            )
        return Timeline(series=tuple(series), marks=tuple(self._marks))

    def _add(self, source: str, name: str, value: float) -> None:
        self._rows.setdefault((source, name), []).append((time.perf_counter() - self._start_s, value))

    def _engine(self) -> None:
        path = f"{self._address.root}/metrics"
        misses = 0
        while misses < 3:
            try:
                code, text = ask(self._address, path, key=self._key, ca_file=self._ca_file, timeout_s=5)
            except (OSError, http.client.HTTPException):
                code, text = 0, b""
            values = engine_values(text) if code == 200 else {}
            misses = 0 if values else misses + 1
            self.server = self.server or (server_kind(text) if code == 200 else "")
            for name, value in values.items():
                self._add("engine", name, value)
            if self._stop.wait(_EVERY_S):
                return

    def _gpus(self) -> None:
        """NVML where it is; without a driver there is nothing to tell."""
        with suppress(Exception):  # NVMLError, and what a broken library raises
            import pynvml

            pynvml.nvmlInit()
            handles = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]
            throttled: dict[int, int] = {}
            while not self._stop.wait(_EVERY_S):
                for n, handle in enumerate(handles):
                    self._gpu(pynvml, n, handle, throttled)

    def _gpu(self, nvml: Any, n: int, handle: Any, throttled: dict[int, int]) -> None:
        reads: dict[str, Callable[[], float]] = {
            "util": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
            "power": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            "sm_clock": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used / 2**20,
            "temperature": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        }
        for name, read in reads.items():
            with suppress(nvml.NVMLError):
                self._add("gpu", f"gpu{n}.{name}", float(read()))
        with suppress(nvml.NVMLError, AttributeError):
            bits = int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
            for bit, words in _THROTTLES.items():
                if bits & bit and not throttled.get(n, 0) & bit and len(self._marks) < 1000:
                    self._marks.append((time.perf_counter() - self._start_s, f"gpu{n}: {words}"))
            throttled[n] = bits


def rates_of(rows: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """What a counter gained a second between two readings; a restart (it fell) gives no value."""
    found: list[tuple[float, float]] = []
    for (t0, v0), (t1, v1) in pairwise(rows):
        if t1 > t0 and v1 >= v0:
            found.append((t1, (v1 - v0) / (t1 - t0)))
    return found


def client_series(samples: Samples) -> tuple[Series, ...]:
    """In flight, and answers a second, as the client saw them: 200 points at most."""
    ends = sorted(t for t in samples.end if t == t)  # noqa: PLR0124
    if not ends or ends[-1] <= 0:
        return ()
    steps = min(200, max(int(ends[-1]), 1))
    width = ends[-1] / steps
    started, ended = [0] * (steps + 1), [0] * (steps + 1)
    for column, bins in ((samples.scheduled, started), (samples.end, ended)):
        for t in column:
            if t == t and t >= 0:  # noqa: PLR0124
                bins[min(int(t / width), steps)] += 1
    times, flying, rates, now = [], [], [], 0
    for n in range(steps):
        now += started[n] - ended[n]
        times.append((n + 1) * width)
        flying.append(float(now))
        rates.append(ended[n] / width)
    t_s = tuple(times)
    return (
        Series(name="in_flight", unit="requests", source="client", t_s=t_s, values=tuple(flying)),
        Series(name="answers", unit="requests/s", source="client", t_s=t_s, values=tuple(rates)),
    )
