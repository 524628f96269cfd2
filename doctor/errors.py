"""The error family and the one table of exit codes that help, README and schema are made from."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "EXIT_CODES",
    "ConfigError",
    "DoctorError",
    "EvidenceError",
    "MatrixError",
    "ProbeError",
    "UsageError",
    "exit_code_table",
]

#: code -> what it means to whoever reads it. `check` uses 0, 1, 2, 3, 70 and the signals.
EXIT_CODES: dict[int, str] = {
    0: "ready, done, or a cause named",
    1: "not ready, or a conflict",
    2: "usage, configuration or matrix error",
    3: "could not tell",
    4: "a change failed, or the host is locked by another run",
    5: "proof below its floor",
    70: "a bug in mopt-doctor",
    130: "interrupted (SIGINT)",
    143: "interrupted (SIGTERM)",
}


class DoctorError(Exception):
    """Something that stops a command. `hints` each name one thing that would change the outcome."""

    exit_code = 70

    def __init__(self, message: str, *, hints: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hints = tuple(hints)


class UsageError(DoctorError):
    """The command line asks for something that does not exist or does not fit together."""

    exit_code = 2


class ConfigError(DoctorError):
    """A setting, an ownership rule or a path is wrong."""

    exit_code = 2


class MatrixError(DoctorError):
    """The matrix source or edition cannot be used. `problems` lists every fault with file and line."""

    exit_code = 2

    def __init__(self, message: str, *, problems: Sequence[str] = (), hints: Sequence[str] = ()) -> None:
        super().__init__(message, hints=hints)
        self.problems = tuple(problems)


class EvidenceError(DoctorError):
    """A bundle cannot be read: not a bundle, hostile, or damaged beyond use."""

    exit_code = 2


class ProbeError(DoctorError):
    """Collecting could not start or ended without a report: nothing can be told."""

    exit_code = 3


def exit_code_table() -> str:
    """The table as text, one code a line, for `--help`."""
    return "\n".join(f"  {code:>3}  {meaning}" for code, meaning in EXIT_CODES.items())
