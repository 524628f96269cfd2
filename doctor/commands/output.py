"""Where an answer goes: stdout, or a file that `-o` names."""

from __future__ import annotations

import errno
import os
import stat
import sys

from doctor.errors import UsageError

__all__ = ["write_answer"]


def write_answer(answer: bytes, path: str | None) -> None:
    """Writes to stdout when there is no path. Raises UsageError when the answer cannot be written.

    A link is not followed, and only a regular file is written: as root, a planted FIFO or link in a
    shared folder must neither block nor overwrite something else.
    """
    if path is None or path == "-":
        _to_stdout(answer)
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        with os.fdopen(descriptor, "wb") as out:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UsageError(f"`{path}` is no regular file: the answer is not written to it")
            out.truncate()
            out.write(answer)
    except OSError as error:
        reason = "it is a link, and links are not followed" if error.errno == errno.ELOOP else error.strerror
        raise UsageError(f"`{path}` cannot be written: {reason}") from None


def _to_stdout(answer: bytes) -> None:
    """A reader that has gone (`| head`) changes no verdict: the exit code stays that of the report."""
    try:
        sys.stdout.buffer.write(answer)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        raise UsageError(f"the answer cannot be written: {error.strerror}") from None
