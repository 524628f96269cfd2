"""The border of `mopt-doctor`: one command runs; how it ends becomes an exit code and a message."""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
from collections.abc import Sequence

from doctor import __version__
from doctor.errors import DoctorError, MatrixError, UsageError
from doctor.grammar import build_parser

__all__ = ["main", "program"]

TYPE_CHECKING = False  # the import of typing is not free
if TYPE_CHECKING:
    from typing import NoReturn


#: Options that may stand before a command, or without one; any other first option is one of `check`.
_OF_NO_COMMAND = ("-h", "--help", "--version", "--debug")


#: What a write to stdout ends with on a full or broken disk.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class _Interrupted(Exception):  # noqa: N818 - a signal is no error
    """SIGTERM arrived; raised so that children are ended before we go."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (see `doctor.errors.EXIT_CODES`)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in _OF_NO_COMMAND):
        arguments = ["check", *arguments]
    options = build_parser(arguments[0]).parse_args(arguments)
    if not hasattr(options, "run"):
        options = build_parser().parse_args([*arguments, "check"])
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup means it
            signal.signal(number, _terminate)
    try:
        _trust_what_runs()
        code = int(options.run(options))
        _flush()
    except BrokenPipeError:
        # The reader (`| head`) has what it wanted; nothing more can be said to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return _say_interrupted(130)
    except _Interrupted:
        return _say_interrupted(143)
    except Exception as error:  # noqa: BLE001 - the border: a bug is told in one line, kept whole for --debug
        return _failed(error, debug=options.debug)
    return code


def _flush() -> None:
    """What was printed reaches its reader now. Raises UsageError when it cannot (a full disk)."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _unwritten(error) from None


def _unwritten(error: OSError) -> UsageError:
    return UsageError(f"the answer cannot be written: {error.strerror}")


def _failed(error: Exception, *, debug: bool) -> int:
    """The exit code of an error that reached the border, once it is told."""
    if isinstance(error, DoctorError):
        return _complain(error, debug=debug)
    if isinstance(error, OSError) and error.filename is None and error.errno in _NO_ROOM:
        return _complain(_unwritten(error), debug=debug)
    return _bug(error, debug=debug)


def _trust_what_runs() -> None:
    """Root runs no command, not even one that lists, from files that somebody else could have written."""
    if os.geteuid() == 0:
        from doctor.config import check_root_ownership, load_settings

        # Only the data folder matters here: a bad timeout is for the command to refuse, if it has one.
        check_root_ownership(load_settings(environ={"MOPT_DATA": os.environ.get("MOPT_DATA", "")}))


def program() -> NoReturn:
    """The console script: `main`, and then the process ends at once.

    Taking the interpreter apart costs 9 ms of CPU, and collecting garbage 3 ms, in a process that lives
    for a fraction of a second (CPython 3.11).
    """
    gc.disable()
    _open_streams()
    code = main()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        # `main` has told what could not be written; there is nobody left to tell.
        os._exit(code or 2)
    os._exit(code)


def _open_streams() -> None:
    """Null streams where the caller closed them: a verdict is the exit code, whoever reads the text."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free one, which is this
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, "r" if name == "stdin" else "w", closefd=False))  # noqa: SIM115


def _terminate(_signum: int, _frame: object) -> None:
    raise _Interrupted


def _say_interrupted(code: int) -> int:
    sys.stderr.write("mopt-doctor: interrupted; nothing was changed\n")
    return code


def _complain(error: DoctorError, *, debug: bool) -> int:
    if debug:
        _trace(error)
    lines = [f"mopt-doctor: {error.message}"]
    if isinstance(error, MatrixError):
        lines += [f"  {problem}" for problem in error.problems]
    lines += [f"  hint: {hint}" for hint in error.hints]
    from doctor.report.escape import escape

    sys.stderr.write("\n".join(escape(line) for line in lines) + "\n")
    return error.exit_code


def _trace(error: BaseException) -> None:
    """The traceback, before the message: raising it again would end in exit code 1, which is a verdict."""
    from traceback import format_exception

    from doctor.report.escape import escape

    lines = "".join(format_exception(error)).splitlines()
    sys.stderr.write("".join(f"{escape(line)}\n" for line in lines))


def _bug(error: Exception, *, debug: bool) -> int:
    if debug:
        _trace(error)
    from doctor.report.escape import escape

    words = escape(f"{type(error).__name__}: {error}")
    sys.stderr.write(
        f"mopt-doctor: a bug in mopt-doctor {__version__}: {words}\n"
        "  hint: `--debug` shows where; a bundle from `mopt-doctor collect` makes it repeatable\n"
    )
    return 70
