"""`mopt-doctor completion` and `man`: both are made from the grammar, so neither can be behind it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from doctor import __version__
from doctor.commands.output import write_answer

__all__ = ["completion", "man"]


def completion(options: argparse.Namespace) -> int:
    """The completion script for a shell; 0."""
    tree = list(_commands(options.grammar(), ()))
    write_answer({"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell](tree).encode(), None)
    return 0


def man(options: argparse.Namespace) -> int:
    """The man page in roff; 0."""
    write_answer(_roff(options.grammar()).encode(), options.output)
    return 0


_Tree = list[tuple[tuple[str, ...], argparse.ArgumentParser]]


def _commands(
    parser: argparse.ArgumentParser, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Each command of the grammar with the words that lead to it, the whole line first."""
    yield words, parser
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to walk a parser
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            # One without help is the doctor's own, started by a run: nobody is offered it.
            shown = {str(choice.dest) for choice in action._choices_actions}  # noqa: SLF001
            for name, inner in action.choices.items():
                if name in shown:
                    yield from _commands(inner, (*words, name))


def _options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [a for a in parser._actions if a.option_strings and a.help != argparse.SUPPRESS]  # noqa: SLF001


def _inner(parser: argparse.ArgumentParser) -> list[tuple[str, str]]:
    """(name, what it does) of the commands below a parser."""
    found = []
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            found += [(str(c.dest), str(c.help or "")) for c in action._choices_actions]  # noqa: SLF001
    return found


def _words(parser: argparse.ArgumentParser) -> list[str]:
    """What may stand next: inner commands, options, the choices of a positional."""
    words = [name for name, _ in _inner(parser)]
    words += [name for action in _options(parser) for name in action.option_strings]
    for action in parser._actions:  # noqa: SLF001
        if not action.option_strings and action.choices and not _is_commands(action):
            words += [str(choice) for choice in action.choices]
    return words


def _is_commands(action: argparse.Action) -> bool:
    return isinstance(action, argparse._SubParsersAction)  # noqa: SLF001


def _bash(tree: _Tree) -> str:
    cases = "".join(
        f'    "{" ".join(words)}") known="{" ".join(_words(parser))}" ;;\n' for words, parser in tree
    )
    values = "".join(
        f'    "{" ".join(words)} {name}") known="{" ".join(map(str, action.choices))}" ;;\n'
        for words, parser in tree
        for action in _options(parser)
        if action.choices
        for name in action.option_strings
    )
    paths = "".join(
        f'    "{" ".join(("", *words))}") path="{" ".join(("", *words))}" ;;\n' for words, _ in tree if words
    )
    return f"""# bash completion for mopt-doctor {__version__}: source it, or write it to
# /usr/share/bash-completion/completions/mopt-doctor
_mopt_doctor() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" path="" known="" one
  for one in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$path $one" in
{paths}    esac
  done
  path="${{path# }}"
  case "$path" in
{cases}  esac
  case "$path $before" in
{values}  esac
  COMPREPLY=($(compgen -W "$known" -- "$word"))
  if [ ${{#COMPREPLY[@]}} -eq 0 ]; then COMPREPLY=($(compgen -f -- "$word")); fi
}}
complete -o filenames -F _mopt_doctor mopt-doctor
"""


def _zsh(tree: _Tree) -> str:
    head = f"#compdef mopt-doctor\n# zsh completion for mopt-doctor {__version__}\n"
    return f"{head}autoload -U bashcompinit && bashcompinit\n{_bash(tree)}"


def _fish(tree: _Tree) -> str:
    lines = [f"# fish completion for mopt-doctor {__version__}"]
    for words, parser in tree:
        seen = " ; and ".join(f"__fish_seen_subcommand_from {w}" for w in words)
        inner = [name for name, _ in _inner(parser)]
        below = f"not __fish_seen_subcommand_from {' '.join(inner)}" if inner else ""
        when = " ; and ".join(part for part in (seen, below) if part)
        head = f"complete -c mopt-doctor -n '{when}'" if when else "complete -c mopt-doctor"
        lines += [f"{head} -f -a {name} -d {_fish_quoted(text)}" for name, text in _inner(parser)]
        lines += [_fish_option(head, action) for action in _options(parser)]
    return "\n".join(lines) + "\n"


def _fish_option(head: str, action: argparse.Action) -> str:
    names = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in action.option_strings)
    takes = (
        f" -x -a '{' '.join(map(str, action.choices))}'"
        if action.choices
        else " -r"
        if action.nargs != 0
        else ""
    )
    return f"{head} {names}{takes} -d {_fish_quoted(str(action.help or ''))}"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _roff(parser: argparse.ArgumentParser) -> str:
    lines = [
        f'.TH MOPT-DOCTOR 1 "" "mopt-doctor {__version__}" "User Commands"',
        ".SH NAME",
        "mopt\\-doctor \\- judge an NVIDIA inference host and name the one cause",
        ".SH DESCRIPTION",
        _plain(parser.description or ""),
    ]
    for words, one in _commands(parser, ()):
        lines += [f".SH {_plain(' '.join(('mopt-doctor', *words)).upper())}"]
        lines += [_plain(one.description or "") if words else "The whole command line.", ".PP", ".nf"]
        lines += [_plain(line) for line in one.format_usage().removeprefix("usage: ").splitlines()] + [".fi"]
        for action in one._actions:  # noqa: SLF001
            if not _is_commands(action) and action.help != argparse.SUPPRESS:
                lines += [".TP", f"\\fB{_plain(_invocation(action))}\\fR", _plain(action.help or "")]
        lines += [
            entry for name, text in _inner(one) for entry in (".TP", f"\\fB{_plain(name)}\\fR", _plain(text))
        ]
    lines += [".SH EXIT STATUS", ".nf", *map(_plain, _exit_codes().splitlines()), ".fi"]
    return "\n".join(lines) + "\n"


def _exit_codes() -> str:
    from doctor.errors import exit_code_table

    return exit_code_table()


def _invocation(action: argparse.Action) -> str:
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest)
    if not action.option_strings:
        return str(value)
    return ", ".join(action.option_strings) + (f" {value}" if action.nargs != 0 else "")


def _plain(text: str) -> str:
    """The text as roff takes it: no line begins with a control character, no hyphen becomes a dash."""
    text = text.replace("%%", "%").replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"(?m)^([.'])", r"\\&\1", text)
