"""Where an answer goes: stdout, or a file that `-o` names."""

from __future__ import annotations

import errno
import os
import stat
import sys

from doctor.errors import UsageError

__all__ = ["write_answer"]


def write_answer(answer: bytes, path: str | None, *, whole: bool = False) -> None:
    """Writes to stdout when there is no path. Raises UsageError when the answer cannot be written.

    A link is not followed, and only a regular file is written: as root, a planted FIFO or link in a
    shared folder must neither block nor overwrite something else. `whole`: a reader that comes at any
    moment (node_exporter, Ansible) finds the old file or the new one, never a part.
    """
    if path is None or path == "-":
        _to_stdout(answer)
        return
    try:
        if whole:
            _replace(answer, path)
        else:
            _write(answer, path, os.O_TRUNC)
    except OSError as error:
        reason = "it is a link, and links are not followed" if error.errno == errno.ELOOP else error.strerror
        raise UsageError(f"`{path}` cannot be written: {reason}") from None


def _write(answer: bytes, path: str, flags: int) -> None:
    truncate = flags & os.O_TRUNC
    flags = (flags & ~os.O_TRUNC) | os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    with os.fdopen(os.open(path, flags, 0o644), "wb") as out:
        if not stat.S_ISREG(os.fstat(out.fileno()).st_mode):
            raise UsageError(f"`{path}` is no regular file: the answer is not written to it")
        if truncate:
            out.truncate()
        out.write(answer)


def _replace(answer: bytes, path: str) -> None:
    """A file beside it takes its place in one step; what is no regular file stays as it is."""
    try:
        there = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - pathlib costs 4 ms at import
    except FileNotFoundError:
        there = None
    if there is not None and stat.S_ISLNK(there.st_mode):
        raise OSError(errno.ELOOP, "")
    if there is not None and not stat.S_ISREG(there.st_mode):
        raise UsageError(f"`{path}` is no regular file: the answer is not written to it")
    folder, _, name = path.rpartition("/")
    # node_exporter reads what ends in `.prom`, Ansible what ends in `.fact`: this one ends in neither.
    beside = f"{folder}/.{name}.{os.getpid()}" if folder or path.startswith("/") else f".{name}.{os.getpid()}"
    try:
        _write(answer, beside, os.O_EXCL)
        os.chmod(beside, stat.S_IMODE(there.st_mode) if there else 0o644)  # noqa: PTH101
        os.replace(beside, path)  # noqa: PTH105
    except BaseException:
        if os.path.lexists(beside):
            os.unlink(beside)  # noqa: PTH108
        raise


def _to_stdout(answer: bytes) -> None:
    """A reader that has gone (`| head`) changes no verdict: the exit code stays that of the report."""
    try:
        sys.stdout.buffer.write(answer)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        raise UsageError(f"the answer cannot be written: {error.strerror}") from None
