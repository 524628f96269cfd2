"""A command line of an engine, word by word, of nothing but flags that its release is known to take.

Pure. The grammar is data (`matrices/engine_flags.yaml`): what was read for a release, or for both of its
neighbours. Of a release beyond those that were read nothing is printed; the answer names the nearest one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from doctor.core.edition import Edition
from doctor.core.rows.flag import EngineFlag, EngineGrammar
from doctor.core.serving import Argument, Certainty, CommandLine, NotPrinted
from doctor.core.versions import Pep440

__all__ = [
    "Argument",
    "CommandLine",
    "Flag",
    "NotPrinted",
    "command_line",
    "flags_of",
    "grammar_of",
    "misfit",
]

#: A shape list of trtexec: `input_ids:1x128,attention_mask:1x128`.
_SHAPE = re.compile(r"[A-Za-z0-9_.:/-]{1,200}:[0-9]{1,9}(x[0-9]{1,9}){0,15}")


class Flag(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of a flag in one release."""

    row: EngineFlag
    choices: tuple[str, ...] = ()
    default: str = ""


def grammar_of(edition: Edition, component: str, command: str) -> EngineGrammar | None:
    """The grammar of a command; None where the matrix has none."""
    rows = edition.engine_grammars
    return next((row for row in rows if (row.component, row.command) == (component, command)), None)


def flags_of(edition: Edition, grammar: EngineGrammar, version: Pep440) -> dict[str, Flag]:
    """The flags that a release is known to take, by name.

    Of a release between two that were read: those of both, with the values and the default that they share.
    """
    found: dict[str, list[EngineFlag]] = {}
    for row in edition.engine_flags:
        if (row.component, row.command) == (grammar.component, grammar.command):
            found.setdefault(row.flag, []).append(row)
    before = max((read for read in grammar.read if read <= version), default=None)
    after = min((read for read in grammar.read if read >= version), default=None)
    if before is None or after is None:
        return {}
    known = {name: _shared(edition, rows, (before, after), version) for name, rows in found.items()}
    return {name: flag for name, flag in known.items() if flag is not None}


def _shared(
    edition: Edition, rows: Sequence[EngineFlag], around: tuple[Pep440, Pep440], version: Pep440
) -> Flag | None:
    """What both neighbours know of a flag; None where one of them lacks it."""
    first, last = (next((row for row in rows if row.first <= end <= row.last), None) for end in around)
    if first is None or last is None or first.kind != last.kind:
        return None
    one, other = (_choices(edition, row, version) for row in (first, last))
    default = first.default if first.default == last.default else ""
    return Flag(row=last, choices=tuple(value for value in one if value in other), default=default)


def _choices(edition: Edition, row: EngineFlag, version: Pep440) -> tuple[str, ...]:
    """The values of a flag in a release. Tables of names were read for every minor, more often than flags."""
    if row.choices_of == "kv-cache":
        dtypes = edition.kv_cache
        return tuple(d.dtype for d in dtypes if d.component == row.component and d.first <= version)
    if row.choices_of == "quantization":
        methods = [m for m in edition.quantization if m.component == row.component]
        return tuple(m.method for m in methods if m.first <= version <= m.last)
    return row.choices


def misfit(flag: Flag, value: str) -> str:
    """Why a value is none for a flag; empty where it is one."""
    row = flag.row
    if row.kind == "switch":
        return f"`{row.flag}` takes no value" if value else ""
    if not value:
        return f"`{row.flag}` takes a value"
    if row.kind == "choice":
        known = ", ".join(flag.choices)
        return "" if value in flag.choices else f"`{row.flag}` takes one of {known}; not `{value}`"
    if row.kind in ("int", "float"):
        return _no_number(row, value)
    if row.kind == "shapes":
        good = all(_SHAPE.fullmatch(part) for part in value.split(","))
        return "" if good else f"`{row.flag}` takes shapes such as `input_ids:1x128`; not `{value}`"
    return "" if value.isprintable() else f"`{row.flag}` takes printable text"


def _no_number(row: EngineFlag, value: str) -> str:
    pattern = r"-?\d{1,18}" if row.kind == "int" else r"-?\d{1,18}(\.\d{1,18})?"
    if not re.fullmatch(pattern, value):
        return f"`{row.flag}` takes a number of kind {row.kind}; not `{value}`"
    number = float(value)
    if row.minimum is not None and number < row.minimum:
        return f"`{row.flag}` begins with {row.minimum:g}; not {value}"
    if row.maximum is not None and number > row.maximum:
        return f"`{row.flag}` ends with {row.maximum:g}; not {value}"
    return ""


def command_line(  # noqa: PLR0913 - the engine, its release, the command, and what it is given
    edition: Edition,
    component: str,
    version: str,
    command: str,
    arguments: Iterable[Argument],
    *,
    positional: str = "",
) -> CommandLine | NotPrinted:
    """The command line of a release, or why there is none."""
    no = _Refusal(component, version, command)
    grammar = grammar_of(edition, component, command)
    if grammar is None:
        return no.because(f"the matrix has no grammar of `{command}`")
    try:
        release = Pep440(version)
    except ValueError:
        return no.because(f"`{version}` is no version of {component}")
    refusal = _beyond(no, grammar, release)
    if refusal is not None:
        return refusal
    if bool(positional) != bool(grammar.positional) or positional.startswith("-"):
        wanted = grammar.positional or "nothing"
        return no.because(f"`{command}` takes {wanted} behind its words, not `{positional}`")
    known = flags_of(edition, grammar, release)
    certainty, says = _standing(grammar, release)
    lacks = "has no" if certainty == "read" else "is not known to have"
    given, left_out = [], []
    for argument in arguments:
        flag = known.get(argument.flag)
        problem = misfit(flag, argument.value) if flag else f"{component} {version} {lacks} `{argument.flag}`"
        if not problem:
            given.append(argument)
        elif argument.is_needed:
            return no.because(problem)
        else:
            left_out.append(f"{problem}; left out: {argument.because}" if argument.because else problem)
    return CommandLine(
        component=component,
        version=version,
        command=command,
        argv=_words(grammar, known, positional, given),
        arguments=tuple(given),
        left_out=tuple(left_out),
        certainty=certainty,
        says=says,
        source=tuple(dict.fromkeys((*grammar.source, *(t for a in given for t in known[a.flag].row.source)))),
    )


class _Refusal:
    """Makes refusals of one question."""

    def __init__(self, component: str, version: str, command: str) -> None:
        self._of = {"component": component, "version": version, "command": command}

    def because(self, why: str, *, nearest: str = "", hint: str = "") -> NotPrinted:
        return NotPrinted(**self._of, why=why, nearest=nearest, hint=hint)


def _beyond(no: _Refusal, grammar: EngineGrammar, release: Pep440) -> NotPrinted | None:
    """A refusal for a release that lies outside those that were read, or has the command no more."""
    name, oldest, newest = f"{grammar.component} {release}", grammar.read[0], grammar.read[-1]
    if grammar.until and release >= Pep440(grammar.until):
        why = f"`{grammar.command}` is gone from {grammar.component} {grammar.until} on"
        return no.because(why, nearest=newest.raw)
    if oldest <= release <= newest:
        return None
    end = newest if release > newest else oldest
    return no.because(
        f"the flags of {name} were not read: the matrix has those of {oldest} to {newest}",
        nearest=end.raw,
        hint=f"`--engine {grammar.component}=={end}` shows the command of {end}; "
        f"`{grammar.command} --help` of {name} shows what became of its flags",
    )


def _standing(grammar: EngineGrammar, release: Pep440) -> tuple[Certainty, str]:
    name = f"{grammar.component} {release}"
    if "read" in grammar.unverified:
        return "derived", f"the flags rest on sources and pages of the time of {name}, not on itself"
    if release in grammar.read:
        return "read", f"the flags of {name} itself were read"
    before = max(read for read in grammar.read if read < release)
    after = min(read for read in grammar.read if read > release)
    return "between", f"the flags of {before} and {after} were read, and both have these"


def _words(
    grammar: EngineGrammar, known: dict[str, Flag], positional: str, given: Sequence[Argument]
) -> tuple[str, ...]:
    words = grammar.command.split()
    early = [argument for argument in given if known[argument.flag].row.is_before]
    late = [argument for argument in given if not known[argument.flag].row.is_before]
    head, tail = (words[:-1], words[-1:]) if early else (words, [])
    behind = [positional] if positional else []
    return (*head, *_given(grammar, early), *tail, *behind, *_given(grammar, late))


def _given(grammar: EngineGrammar, arguments: Sequence[Argument]) -> tuple[str, ...]:
    words: list[str] = []
    for argument in arguments:
        if not argument.value:
            words.append(argument.flag)
        elif grammar.style == "equals":
            words.append(f"{argument.flag}={argument.value}")
        else:
            words += [argument.flag, argument.value]
    return tuple(words)
