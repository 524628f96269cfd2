"""Starts the measuring processes of a run, follows them, and joins what they measured."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import BinaryIO

import msgspec

from optimize.load.job import Job, Said
from optimize.load.record import Samples
from optimize.load.worker import read_frame, write_frame

__all__ = ["Measured", "RunError", "Tally", "python_child", "run_load"]

#: Between the last process being ready and the first request.
_LEAD_S = 0.3
#: What a process may take to hand over what it has, once it is told to stop.
_CUT_S = 20.0


class RunError(Exception):
    """A measuring process ended without a result: `words` say what it said."""


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run is, over all processes."""

    elapsed_s: float = 0.0
    sent: int = 0
    ok: int = 0
    failed: int = 0
    in_flight: int = 0
    tokens: float = 0.0


class Measured(msgspec.Struct, kw_only=True):
    """What a run gave. `start_s` is its zero on CLOCK_MONOTONIC; `cpu_share` the busiest process's."""

    samples: Samples
    examples: dict[str, list[str]]
    start_s: float
    wall_s: float
    cpu_share: float
    retried: int
    connections: int
    loop: str
    is_cut: bool


@contextmanager
def python_child(call: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process that runs `call`, an expression; it is ended, and waited for, when the block ends.

    It has a session of its own: Ctrl-C reaches the command alone, which then tells its children.
    """
    root = str(Path(__file__).resolve().parents[2])
    module, _, function = call.partition(":")
    code = (
        f"import sys; sys.path.insert(0, {root!r}); from {module} import {function} as run;"
        " sys.exit(run(*map(float, sys.argv[1:])))"
    )
    child = subprocess.Popen(  # noqa: S603 - our own interpreter and code
        [sys.executable, "-I", "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield child
    finally:
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        with suppress(subprocess.TimeoutExpired):
            child.wait(2)
        if child.poll() is None:
            child.kill()
            child.wait()


def run_load(
    jobs: list[Job],
    *,
    limit_s: float = inf,
    on_start: Callable[[float], None] = lambda _start: None,
    on_progress: Callable[[Tally], None] = lambda _tally: None,
) -> Measured:
    """Run the jobs at the same time and join their results. Raises RunError.

    `limit_s` after the start, what is open is cancelled. KeyboardInterrupt does the same at once: what was
    measured until then comes back with `is_cut`.
    """
    with _children(jobs) as children:
        start_s = time.perf_counter() + _LEAD_S
        for child in children:
            _write(child, msgspec.msgpack.encode(start_s))
        on_start(start_s)
        results, is_cut = _follow(children, start_s, start_s + limit_s, on_progress)
    return _joined(results, start_s, is_cut=is_cut)


@contextmanager
def _children(jobs: list[Job]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that have said that they are ready."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        children = [stack.enter_context(python_child("optimize.load.worker:main")) for _ in jobs]
        for child, job in zip(children, jobs, strict=True):
            _write(child, msgspec.msgpack.encode(job))
        for child in children:
            said = _read(child)
            if said is None or said.kind != "ready":
                raise RunError(said.words if said else "a measuring process ended before it was ready")
        yield children


def _pipe(stream: BinaryIO | None) -> int:
    if stream is None:
        raise RunError("a measuring process has no pipe")
    return stream.fileno()


def _write(child: subprocess.Popen[bytes], data: bytes) -> None:
    try:
        write_frame(_pipe(child.stdin), data)  # type: ignore[arg-type]
    except BrokenPipeError:
        raise RunError("a measuring process ended before it began") from None


def _read(child: subprocess.Popen[bytes]) -> Said | None:
    data = read_frame(_pipe(child.stdout))  # type: ignore[arg-type]
    return msgspec.msgpack.decode(data, type=Said) if data else None


def _follow(
    children: list[subprocess.Popen[bytes]],
    start_s: float,
    until_s: float,
    on_progress: Callable[[Tally], None],
) -> tuple[list[Said], bool]:
    """Read until each has given its result. A first Ctrl-C cuts the run, a second one is not held back."""
    latest: dict[int, Said] = {}
    results: dict[int, Said] = {}
    is_cut = False
    deadline = inf
    with selectors.DefaultSelector() as selector:
        for n, child in enumerate(children):
            selector.register(_pipe(child.stdout), selectors.EVENT_READ, n)  # type: ignore[arg-type]
        while len(results) < len(children):
            try:
                _read_ready(selector, children, latest, results)
                on_progress(_tally(latest, start_s))
            except KeyboardInterrupt:
                if is_cut:
                    raise
                is_cut = True
            if deadline == inf and (is_cut or time.perf_counter() > until_s):
                deadline = time.perf_counter() + _CUT_S
                _signal(children)
            if time.perf_counter() > deadline:
                raise RunError(f"a measuring process did not stop within {_CUT_S:g} s")
    return list(results.values()), is_cut


def _read_ready(
    selector: selectors.BaseSelector,
    children: list[subprocess.Popen[bytes]],
    latest: dict[int, Said],
    results: dict[int, Said],
) -> None:
    for key, _ in selector.select(timeout=0.5):
        n = int(key.data)
        said = _read(children[n])
        if said is None or said.kind == "error":
            words = said.words if said else f"a measuring process died (exit code {children[n].wait(5)})"
            raise RunError(words)
        latest[n] = said
        if said.kind == "result":
            results[n] = said
            selector.unregister(key.fileobj)


def _signal(children: list[subprocess.Popen[bytes]]) -> None:
    for child in children:
        if child.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGINT)


def _tally(latest: dict[int, Said], start_s: float) -> Tally:
    said = list(latest.values())
    return Tally(
        elapsed_s=max(time.perf_counter() - start_s, 0.0),
        sent=sum(one.sent for one in said),
        ok=sum(one.ok for one in said),
        failed=sum(one.failed for one in said),
        in_flight=sum(one.in_flight for one in said),
        tokens=sum(one.tokens for one in said),
    )


def _joined(results: list[Said], start_s: float, *, is_cut: bool) -> Measured:
    samples = Samples()
    examples: dict[str, list[str]] = {}
    for one in results:
        samples.extend(Samples.unpack(one.samples))
        for word, texts in one.examples.items():
            known = examples.setdefault(word, [])
            known += [text for text in texts if text not in known][: 3 - len(known)]
    return Measured(
        samples=samples,
        examples=examples,
        start_s=start_s,
        wall_s=max(one.wall_s for one in results),
        cpu_share=max(one.cpu_s / max(one.wall_s, 1e-9) for one in results),
        retried=sum(one.retried for one in results),
        connections=sum(one.connections for one in results),
        loop=results[0].loop,
        is_cut=is_cut,
    )
