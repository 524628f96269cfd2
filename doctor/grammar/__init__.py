"""The grammar of the command line: commands, options, help. A command's modules are imported when it runs."""

from __future__ import annotations

import argparse

from doctor import __version__
from doctor.grammar.base import epilog

__all__ = ["build_parser"]

#: Module -> its commands, in the order of the help.
_FAMILIES = {
    "host": ("check", "collect", "explain", "report"),
    "stack": ("matrix",),
    "change": ("plan", "apply", "resume", "rollback", "work"),
    "measure": ("model", "bench"),
    "shell": ("config", "completion"),
}
_COMMANDS = frozenset(name for names in _FAMILIES.values() for name in names)


def build_parser(only: str = "") -> argparse.ArgumentParser:
    """The whole command line, or the part for one command: the others cost 5 ms of CPU (CPython 3.11)."""
    parser = argparse.ArgumentParser(
        prog="mopt-doctor",
        description="Judges an NVIDIA inference host: does its stack fit together, and what is the one cause"
        " if it does not. Without a command: `check`.",
        epilog=epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"mopt-doctor {__version__}")
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    commands = parser.add_subparsers(metavar="COMMAND")
    for family, names in _FAMILIES.items():
        wanted = [name for name in names if only in (name, "") or only not in _COMMANDS]
        if wanted:
            # importlib would be half a millisecond of every start.
            module = __import__(f"doctor.grammar.{family}", fromlist=["*"])
            for name in wanted:
                getattr(module, f"add_{name}")(commands)
    return parser
