"""Takes the evidence of this host, or of a sysroot: runs the collector as a child and reads its stream."""

from __future__ import annotations

import importlib.util
import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence

import msgspec

from doctor import __version__
from doctor.core.evidence import EVIDENCE_SCHEMA, Evidence, Meta
from doctor.errors import ProbeError, UsageError
from doctor.timeouts import (
    BUNDLE_MEMBER_BYTES_MAX,
    BUNDLE_MEMBERS_MAX,
    BUNDLE_UNPACKED_BYTES_MAX,
    COLLECT_GRACE_S,
)

__all__ = [
    "CALLER_VARIABLES",
    "Collecting",
    "collect_live",
    "evidence_from_stream",
    "list_items",
    "start_collecting",
    "whole_paths",
]

#: What of the caller's environment is evidence; the collector's own list, tested to be the same.
CALLER_VARIABLES = (
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "CUDA_MODULE_LOADING",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "container",
    "SLURM_JOB_ID",
    "PBS_JOBID",
    "LSB_JOBID",
)
_PREFIX = "MOPT_CALLER_"
_WITNESS_PACKAGES = ("pynvml", "distro", "psutil")

# Imported rather than run as a script, so that its byte code is cached: 12 ms of CPU (CPython 3.11).
_START = "import sys; sys.path.append(sys.argv[1]); import collector; collector.program(sys.argv[2:])"

_STDERR_MAX = 4096
_BLOCK = 512
_ARCHIVE_END = bytes(2 * _BLOCK)
#: What the collector takes after its report at most: its last sweep, and some.
_LEAVING_S = 0.5


def collect_live(*, budget_s: float, sysroot: str | None, environments: Sequence[str] = ()) -> Evidence:
    """Everything the collector can find out within `budget_s` seconds.

    Raises `ProbeError` when there is no report: it could not start, crashed, or did not end.
    """
    with start_collecting(budget_s=budget_s, sysroot=sysroot, environments=environments) as collecting:
        return collecting.evidence()


def start_collecting(
    *,
    budget_s: float,
    sysroot: str | None,
    environments: Sequence[str] = (),
    is_narrow: bool = False,
) -> Collecting:
    """Starts the collector and returns at once: there is time to import and load while it works.

    `environments` are looked into besides those that it finds; with `is_narrow` nothing else is asked.
    Use it as a context: leaving it ends the collector if it has not ended. Raises `ProbeError` when it
    cannot start.
    """
    more = [f"--env={path}" for path in environments]
    return Collecting(budget_s, sysroot, [*more, *(["--ask=environments"] if is_narrow else [])])


def whole_paths(paths: Sequence[str], sysroot: str | None) -> tuple[str, ...]:
    """Environments as the collector takes them: below a sysroot as they are, else from this directory.

    Links stay: the interpreter of a venv is one, and leads out of it. Raises `UsageError` on no path.
    """
    for path in paths:
        if not path or (sysroot and not path.startswith("/")):
            raise UsageError(f"`--env {path}` names no environment", hints=("a prefix, or its bin/python",))
    if sysroot:
        return tuple(paths)
    whole = tuple(os.path.abspath(os.path.expanduser(path)) for path in paths)  # noqa: PTH100, PTH111 - 4 ms
    for path in whole:
        if not os.path.exists(path):  # noqa: PTH110 - as above
            raise UsageError(f"`{path}` does not exist", hints=("`--env` takes a prefix, or its bin/python",))
    return whole


def list_items() -> str:
    """The collector's table as text: what it asks for, why, whether that needs root, limit and cap."""
    from doctor.evidence import collector  # 15 ms of CPU: it loads ctypes and json

    return collector.list_items()


def _argv(budget_s: float, sysroot: str | None) -> list[str]:
    own = __file__.rpartition(os.sep)[0]
    argv = [sys.executable, "-I", "-S", "-c", _START, own, "--output=-", f"--budget={budget_s}"]
    argv.append(f"--tool=mopt-doctor {__version__}")
    argv += [f"--site={directory}" for directory in _sites()]
    return [*argv, f"--sysroot={sysroot}"] if sysroot else argv


def _sites() -> list[str]:
    """The directories from which the witnesses' packages are imported here."""
    found: list[str] = []
    for package in _WITNESS_PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            continue
        depth = 2 if spec.submodule_search_locations else 1
        directory = spec.origin.rsplit(os.sep, depth)[0]
        if directory not in found:
            found.append(directory)
    return found


def _environment() -> dict[str, str]:
    """Nothing of the caller's but what is evidence, under names that steer no program."""
    caller = {_PREFIX + name: os.environ[name] for name in CALLER_VARIABLES if name in os.environ}
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": "/", _PREFIX: "1", **caller}


class Collecting:
    """A collector at work. Raises `ProbeError` when it cannot start."""

    def __init__(self, budget_s: float, sysroot: str | None, more: Sequence[str] = ()) -> None:
        self._budget_s = budget_s
        self._deadline = time.monotonic() + budget_s + COLLECT_GRACE_S
        self._status: int | None = None
        self._is_whole = False
        self._out, out_writer = os.pipe()
        self._err, err_writer = os.pipe()
        try:
            self._pid = _spawn([*_argv(budget_s, sysroot), *more], out_writer, err_writer)
        except OSError as exc:
            os.close(self._out)
            os.close(self._err)
            raise ProbeError(f"the collector cannot start: `{sys.executable}`: {exc.strerror}") from exc
        finally:
            os.close(out_writer)
            os.close(err_writer)

    def __enter__(self) -> Collecting:  # noqa: PYI034 - Self would cost the import of typing
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def evidence(self) -> Evidence:
        """What it found, once it is done. Raises `ProbeError` when there is no report."""
        return evidence_from_stream(self.read(self._deadline))

    def read(self, deadline: float) -> bytes:
        """Its stream to the end. Raises `ProbeError` at the deadline, at the cap and after a crash."""
        data, errors = bytearray(), bytearray()
        poll = select.poll()
        streams = {self._out: data, self._err: errors}
        for fd in streams:
            poll.register(fd, select.POLLIN)
        while self._out in streams:
            for fd, _ in poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                chunk = os.read(fd, 1 << 18)
                streams[fd] += chunk
                if not chunk:
                    poll.unregister(fd)
                    del streams[fd]
            del errors[:-_STDERR_MAX]
            if len(data) > BUNDLE_UNPACKED_BYTES_MAX:
                raise ProbeError(f"the collector's report exceeds {BUNDLE_UNPACKED_BYTES_MAX} bytes")
            if time.monotonic() >= deadline and self._out in streams:
                raise ProbeError(
                    f"the collector gave no report within its budget of {self._budget_s:g} s"
                    f" and {COLLECT_GRACE_S:g} s of grace",
                    hints=("run again with a longer `--timeout`",),
                )
        self._is_whole = data.endswith(_ARCHIVE_END)
        if not self._is_whole:
            self._judge(self._wait(deadline), errors.decode("utf-8", "replace").strip())
        return bytes(data)

    def _wait(self, deadline: float) -> int | None:
        """The exit status once its streams are closed; None when it does not end."""
        while self._status is None and time.monotonic() < deadline:
            self._reap()
            if self._status is None:
                time.sleep(0.001)
        return self._status

    def _reap(self) -> None:
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid:
            self._status = os.waitstatus_to_exitcode(status)

    def _judge(self, code: int | None, errors: str) -> None:
        if code == 0:
            return
        how = "did not end" if code is None else f"ended with status {code}"
        raise ProbeError(f"the collector {how} and left no report: {errors or 'it said nothing'}")

    def end(self) -> None:
        """Lets go of its pipes, and ends it when it has not ended by itself.

        After its report it only waits for witnesses that are leaving: that gets the time it takes.
        """
        os.close(self._out)
        os.close(self._err)
        # On SIGTERM it kills what it started; after SIGKILL the kernel does so (PDEATHSIG).
        if self._is_whole:
            self._wait(time.monotonic() + _LEAVING_S)
        for number, send, wait_s in ((signal.SIGTERM, os.kill, 0.5), (signal.SIGKILL, os.killpg, 0.2)):
            if self._status is None:
                send(self._pid, number)
                self._wait(time.monotonic() + wait_s)


def _spawn(argv: list[str], stdout: int, stderr: int) -> int:
    """A process in a session of its own. posix_spawn: `subprocess` costs 12 ms of CPU to import."""
    return os.posix_spawn(
        argv[0],
        argv,
        _environment(),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, stdout, 1),
            (os.POSIX_SPAWN_DUP2, stderr, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGPIPE),
    )


def evidence_from_stream(stream: bytes) -> Evidence:
    """The collector's tar stream as evidence. Raises `ProbeError` when it is cut off or foreign."""
    blobs: dict[str, bytes] = {}
    for name, data in _members(stream):
        if len(blobs) >= BUNDLE_MEMBERS_MAX:
            raise ProbeError(f"the collector's report has more than {BUNDLE_MEMBERS_MAX} members")
        blobs[name] = data
    if "meta.json" not in blobs:
        raise ProbeError("the collector's report has no `meta.json`")
    try:
        meta = msgspec.json.decode(blobs.pop("meta.json"), type=Meta)
    except msgspec.MsgspecError as exc:
        raise ProbeError(f"the collector's `meta.json` cannot be read: {exc}") from exc
    if meta.schema != EVIDENCE_SCHEMA:
        raise ProbeError(f"the collector speaks `{meta.schema}`, this doctor `{EVIDENCE_SCHEMA}`")
    return Evidence(meta, blobs)


def _members(stream: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each file: the subset of ustar and pax that the collector writes.

    `tarfile` would read it, too, at 20 ms of CPU for its import.
    """
    place, long_name = 0, ""
    while True:
        header = stream[place : place + _BLOCK]
        if len(header) < _BLOCK:
            raise ProbeError("the collector's report is cut off")
        if not header.strip(b"\0"):
            return
        name, size, kind = _header(header)
        data = stream[place + _BLOCK : place + _BLOCK + size]
        if len(data) < size:
            raise ProbeError(f"the collector's report is cut off in `{name}`")
        place += _BLOCK + -(-size // _BLOCK) * _BLOCK
        if kind == b"x":
            long_name = data.partition(b" path=")[2].rstrip(b"\n").decode()
            continue
        yield long_name or name, data
        long_name = ""


def _header(header: bytes) -> tuple[str, int, bytes]:
    """Name, size and kind of a member. Raises `ProbeError` when it is not one of the collector's."""
    try:
        name = header[:100].rstrip(b"\0").decode()
        size = int(header[124:136].rstrip(b"\0 "), 8)
    except ValueError as exc:
        raise ProbeError(f"the collector's report is damaged: {exc}") from exc
    kind = header[156:157]
    if kind not in (b"0", b"x") or header[257:262] != b"ustar" or size > BUNDLE_MEMBER_BYTES_MAX:
        raise ProbeError(f"the collector's report is damaged at `{name}`")
    return name, size, kind
