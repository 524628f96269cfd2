"""The error family and the one table of exit codes that help, README and schema are made from."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "COMMAND_CODES",
    "EXIT_CODES",
    "ApplyError",
    "ConfigError",
    "DoctorError",
    "EvidenceError",
    "MatrixError",
    "ProbeError",
    "UsageError",
    "exit_code_table",
]

#: code -> what it means to whoever reads it, whatever the command. 4 is of commands that change a host, 5 of
#: those that measure.
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

#: command -> the codes that are its own, in its own words; every command has `_OF_EVERY_COMMAND` besides.
COMMAND_CODES: dict[str, dict[int, str]] = {
    "check": {0: "ready", 1: "not ready", 3: "could not tell"},
    "collect": {0: "written", 3: "could not tell: the collector gave no report"},
    "explain": {0: "a cause named, or a page shown", 3: "nothing in the text is known"},
    "matrix": {0: "done", 1: "no such row, or a conflict", 3: "could not tell"},
    "matrix show": {0: "shown", 1: "the matrix has no such row"},
    "matrix pick": {0: "a stack", 1: "a conflict: no stack", 3: "could not tell"},
    "matrix why": {0: "it holds", 1: "it does not hold", 3: "could not tell"},
    "matrix validate": {0: "no fault", 2: "faults, or nothing to validate"},
    "matrix diff": {0: "compared"},
    "matrix import": {0: "drafted, or nothing to draft", 3: "pip gave no answer"},
    "plan": {0: "a plan", 1: "a conflict, or refused", 3: "could not tell"},
    "bench": {0: "measured, or the SLO is met", 3: "could not tell", 5: "the SLO is not met"},
    "apply": {
        0: "the host is as planned, nothing was to be done, or it restarts and the run goes on by itself",
        1: "refused, or done and a finding that it was to cure stands",
        3: "could not tell what the host is, or whether it is cured",
        4: "failed (the message says unchanged, rolled back or half-way), or locked by another run",
    },
    "resume": {
        0: "the host is as planned, or it restarts and the run goes on by itself",
        1: "done, and a finding that it was to cure stands",
        3: "done, and whether a finding is cured could not be told",
        4: "failed (the message says unchanged, rolled back or half-way), or locked by another run",
    },
    "rollback": {
        0: "the host is as it was before the run",
        4: "failed (the message says how the host is), or locked by another run",
    },
    "model": {0: "whole, and fits if that was asked", 1: "broken, or does not fit", 3: "could not tell"},
    "report": {0: "written"},
    "completion": {0: "printed"},
    "man": {0: "printed"},
    "config": {0: "shown"},
    "config show": {0: "shown"},
}
_OF_EVERY_COMMAND = (2, 70, 130, 143)


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


class ApplyError(DoctorError):
    """A change failed, or may not begin. `end`: it left the host `unchanged`, `rolled_back` or `half_way`."""

    exit_code = 4

    def __init__(self, message: str, *, end: str, hints: Sequence[str] = ()) -> None:
        super().__init__(message, hints=hints)
        self.end = end


class ProbeError(DoctorError):
    """Collecting could not start or ended without a report: nothing can be told."""

    exit_code = 3


def exit_code_table(command: str = "") -> str:
    """The codes as text, one a line, for `--help`: those of one command, or all that any command uses."""
    if command:
        codes = {code: EXIT_CODES[code] for code in _OF_EVERY_COMMAND} | COMMAND_CODES[command]
    else:
        used = {*_OF_EVERY_COMMAND, *(code for own in COMMAND_CODES.values() for code in own)}
        codes = {code: EXIT_CODES[code] for code in used}
    return "\n".join(f"  {code:>3}  {meaning}" for code, meaning in sorted(codes.items()))
