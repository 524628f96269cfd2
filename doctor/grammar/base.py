"""What every command has in common: its epilog with the exit codes, and options that several take."""

from __future__ import annotations

import argparse

from doctor.errors import exit_code_table

__all__ = ["Commands", "add_look", "add_overlay", "add_target", "command", "epilog", "later"]

TYPE_CHECKING = False  # the import of typing is not free
if TYPE_CHECKING:
    from collections.abc import Callable

_PROMISE = "It changes nothing on the host, and asks no network."
_PROMISE_OF_BENCH = (
    "It changes nothing on the host. It puts a load on the server that it is given, and asks nobody else."
)
_PROMISE_OF_PLAN = "It changes nothing on the host; with `--host` it asks that host, through Ansible."
_PROMISES_OF_CHANGE = {
    "apply": "It changes the host, as the plan says, after it has asked; `--dry-run` changes nothing.",
    "resume": "It goes on with what was consented to, and changes the host as that plan says.",
    "rollback": "It brings the host back, after it has asked and rehearsed.",
}
_PROMISE_OF_IMPORT = "It changes nothing on the host. It asks the package index, as pip is set up to."

Commands = "argparse._SubParsersAction[argparse.ArgumentParser]"


def epilog(command: str = "") -> str:
    """Exit codes of a command, and what it promises."""
    promises = {"matrix import": _PROMISE_OF_IMPORT, "bench": _PROMISE_OF_BENCH}
    promises |= {"plan": _PROMISE_OF_PLAN, **_PROMISES_OF_CHANGE}
    promise = promises.get(command, _PROMISE)
    if command in ("", "matrix"):
        promise = f"{promise[:-1]}; `matrix import` alone asks the package index."
    return f"exit codes:\n{exit_code_table(command)}\n\n{promise}"


def command(commands: Commands, name: str, summary: str, run: str) -> argparse.ArgumentParser:  # type: ignore[valid-type]
    """One command, `matrix show` for an inner one; `run` is `MODULE:FUNCTION` below doctor.commands."""
    one: argparse.ArgumentParser = commands.add_parser(  # type: ignore[attr-defined]
        name.rpartition(" ")[2],
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=epilog(name),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    one.set_defaults(run=later(run))
    one.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks")
    return one


def later(target: str) -> Callable[[argparse.Namespace], int]:
    """A function that imports `MODULE:FUNCTION` below doctor.commands when it is called."""
    module, _, function = target.partition(":")

    def run(options: argparse.Namespace) -> int:
        from importlib import import_module

        return int(getattr(import_module(f"doctor.commands.{module}"), function)(options))

    return run


def add_look(one: argparse.ArgumentParser) -> None:
    """Options of how text looks."""
    one.add_argument("--no-color", action="store_true", help="no colour (also: NO_COLOR)")
    one.add_argument("--ascii", action="store_true", help="no character beyond ASCII (also: MOPT_ASCII)")


def add_overlay(one: argparse.ArgumentParser) -> None:
    """The option that names site overlays."""
    one.add_argument(
        "--overlay",
        action="append",
        default=[],
        metavar="DIR",
        help="rows and rules of this site, on top of the matrix (repeatable; also: MOPT_OVERLAY)",
    )


def add_target(one: argparse.ArgumentParser, *, has_json: bool = True) -> None:
    """A machine that need not be there; without any of these it is this host."""
    one.add_argument(
        "--from", dest="bundle", metavar="FILE", help="that host: a bundle, or a report as of `check`"
    )
    one.add_argument("--gpu", action="append", default=[], metavar="NAME", help="H200, 10de:2335, B200x8")
    one.add_argument("--os", metavar="NAME", help="ubuntu-24.04, rocky-9, …")
    one.add_argument("--kernel", metavar="RELEASE", help="6.8")
    one.add_argument("--python", metavar="VERSION", help="the interpreter that is there")
    one.add_argument("--arch", choices=("x86_64", "aarch64"), help="the processor (x86_64, or the GPU's)")
    one.add_argument(
        "--have", action="append", default=[], metavar="NAME==VERSION", help="what is installed (repeatable)"
    )
    one.add_argument(
        "--hold", action="append", default=[], metavar="NAME", help="what must stay as it is (repeatable)"
    )
    one.add_argument(
        "--goal", action="append", default=[], metavar="GOAL", help="vllm==0.33.0,use=fp8, …, or a goal file"
    )
    add_overlay(one)
    if has_json:
        one.add_argument("--json", action="store_true", help="the answer as JSON")
