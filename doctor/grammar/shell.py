"""The commands about the program itself: completion, man page, settings."""

from __future__ import annotations

from doctor.grammar.base import Commands, add_look, command

__all__ = ["add_completion", "add_config"]


def add_completion(commands: Commands) -> None:  # type: ignore[valid-type]
    """`completion` and `man`."""
    from doctor.grammar import build_parser  # it imports this module

    one = command(commands, "completion", "print the completion script of a shell", "shell:completion")
    one.add_argument("shell", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")
    page = command(commands, "man", "print the man page (roff)", "shell:man")
    one.set_defaults(grammar=build_parser)
    page.set_defaults(grammar=build_parser)
    page.add_argument("-o", dest="output", metavar="FILE", help="write it to FILE")


def add_config(commands: Commands) -> None:  # type: ignore[valid-type]
    """`config`."""
    one = command(commands, "config", "look at the settings", "config:show")
    one.set_defaults(json=False, timeout=None, no_color=False, ascii=False)
    inner = one.add_subparsers(metavar="COMMAND")
    show = command(inner, "config show", "show each setting and where it came from", "config:show")
    show.add_argument("--json", action="store_true", help="as JSON")
    show.add_argument("--timeout", metavar="S", help="seconds, as `check --timeout` would take them")
    add_look(show)
