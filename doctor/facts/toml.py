"""TOML as container engines write it, read line by line: tables, strings, numbers, booleans, arrays.

`tomllib` is there from Python 3.11 on only and costs 23 ms of CPU at import. What this reader does not
know (dates, multi-line strings, inline tables beyond their text) it keeps as nothing; what no TOML reader
would take it names, because then the engine does not start with that file either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.core.pattern import pattern

__all__ = ["Entry", "Toml", "TomlValue", "read_toml"]

TomlValue = str | bool | int | tuple[str, ...] | None
Entry = tuple[tuple[str, ...], TomlValue]

_LINES_MAX = 20_000
_TABLES_MAX = 4000
_LINE_MAX = 8192
_ARRAY_LINES_MAX = 2000
_DEPTH_MAX = 16
_KEY = pattern(r"\s*(?:\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|([A-Za-z0-9_-]+))\s*")
_BASIC = pattern(r'"((?:[^"\\]|\\.)*)"')
_LITERAL = pattern(r"'([^']*)'")
_WORD = pattern(r"[A-Za-z0-9+._:-]+")
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "r": "\r", "b": "\b", "f": "\f"}


class _FaultError(ValueError):
    """The text breaks TOML's grammar."""


class Toml:
    """A file's keys, each with its whole path; `fault` says where it stops being TOML."""

    __slots__ = ("entries", "fault", "tables")

    def __init__(self) -> None:
        self.entries: dict[tuple[str, ...], TomlValue] = {}
        self.tables: dict[tuple[str, ...], None] = {}
        self.fault = ""

    def begin_again(self, table: tuple[str, ...]) -> None:
        """Another element of an array of tables: the last one counts, nobody here needs the others."""
        depth = len(table)
        if table in self.tables:
            self.entries = {k: v for k, v in self.entries.items() if k[:depth] != table}
            self.tables = {k: None for k in self.tables if k[:depth] != table}

    def get(self, *path: str) -> TomlValue:
        """The value at a path of keys; None where there is none."""
        return self.entries.get(path)

    def text(self, *path: str) -> str | None:
        value = self.entries.get(path)
        return value if isinstance(value, str) else None

    def flag(self, *path: str) -> bool | None:
        value = self.entries.get(path)
        return value if isinstance(value, bool) else None

    def texts(self, *path: str) -> tuple[str, ...] | None:
        value = self.entries.get(path)
        return value if isinstance(value, tuple) else None

    def below(self, *path: str) -> Iterator[Entry]:
        """Keys under a table, by what is left of their path."""
        depth = len(path)
        for key, value in self.entries.items():
            if len(key) > depth and key[:depth] == path:
                yield key[depth:], value

    def names_below(self, *path: str) -> tuple[str, ...]:
        """The names of the tables and keys right under a table, in the file's order."""
        depth = len(path)
        keys = [*self.tables, *self.entries]
        return tuple(dict.fromkeys(k[depth] for k in keys if len(k) > depth and k[:depth] == path))


def read_toml(text: str) -> Toml:
    """The file as far as it is TOML. Never raises: the first fault stands in `fault`, with its line."""
    found = Toml()
    lines = text.splitlines()[:_LINES_MAX]
    table: tuple[str, ...] = ()
    number = 0
    try:
        while number < len(lines):
            line = lines[number][:_LINE_MAX].strip()
            number += 1
            if not line or line.startswith("#"):
                continue
            if line.startswith("["):
                table = _table(line, found)
                continue
            keys, rest = _keys(line, "=")
            number = _skip_multiline(rest, lines, number)
            rest, number = _whole_array(rest, lines, number)
            _put(found, table + keys, rest)
    except _FaultError as fault:
        found.fault = f"line {number}: {fault}"
    return found


def _table(line: str, found: Toml) -> tuple[str, ...]:
    is_array = line.startswith("[[")
    keys, rest = _keys(line[2 if is_array else 1 :], "]")
    rest = rest.removeprefix("]") if is_array else rest
    if rest.strip() and not rest.strip().startswith("#"):
        raise _FaultError(f"`{rest.strip()[:60]}` stands behind a table's name")
    if is_array:
        found.begin_again(keys)
    elif keys in found.tables:
        raise _FaultError(f"table `{'.'.join(keys)[:120]}` stands twice")
    found.tables[keys] = None
    if len(found.tables) > _TABLES_MAX:
        raise _FaultError(f"more than {_TABLES_MAX} tables")
    return keys


def _keys(text: str, end: str) -> tuple[tuple[str, ...], str]:
    """A dotted key and what follows the sign that ends it."""
    keys: list[str] = []
    while len(keys) < _DEPTH_MAX:
        match = _KEY.match(text)
        if match is None:
            raise _FaultError(f"no key where one must be: `{text.strip()[:60]}`")
        basic, literal, bare = match.groups()
        keys.append(_unescape(basic) if basic is not None else literal if literal is not None else bare)
        text = text[match.end() :]
        if text.startswith(end):
            return tuple(keys), text[1:]
        if not text.startswith("."):
            raise _FaultError(f"`{end}` is missing behind the key `{'.'.join(keys)[:120]}`")
        text = text[1:]
    raise _FaultError("a key is nested too deeply")


def _skip_multiline(rest: str, lines: list[str], number: int) -> int:
    """The number of the line behind a text in three quotes; such a text is kept as nothing."""
    opened = rest.strip()[:3]
    if opened not in ('"""', "'''") or opened in rest.strip()[3:]:
        return number
    for index in range(number, len(lines)):
        if opened in lines[index]:
            return index + 1
    raise _FaultError("a text in three quotes does not end")


def _whole_array(rest: str, lines: list[str], number: int) -> tuple[str, int]:
    """An array with the lines on which it goes on, comments left out; anything else as it is."""
    if not rest.lstrip().startswith("["):
        return rest, number
    parts, depth = [], 0
    while True:
        bare = _without_strings(rest)
        end = bare.find("#")
        bare = bare if end < 0 else bare[:end]
        parts.append(rest[: len(bare)])
        depth += bare.count("[") - bare.count("]")
        if depth <= 0:
            return " ".join(parts), number
        if number >= len(lines) or len(parts) > _ARRAY_LINES_MAX:
            raise _FaultError("an array does not end")
        rest = lines[number][:_LINE_MAX]
        number += 1


def _without_strings(text: str) -> str:
    """The text with strings blanked, position by position."""
    text = _BASIC.sub(lambda m: "_" * len(m[0]), text)
    return _LITERAL.sub(lambda m: "_" * len(m[0]), text)


def _put(found: Toml, path: tuple[str, ...], rest: str) -> None:
    if path in found.entries:
        raise _FaultError(f"key `{'.'.join(path)[:120]}` stands twice")
    found.entries[path] = _value(rest.strip())


def _value(text: str) -> TomlValue:
    if not text or text.startswith("#"):
        raise _FaultError("a value is missing")
    if text.startswith(('"""', "'''", "{")):
        return None
    if text.startswith("["):
        return tuple(
            _unescape(m[1]) if m[0].startswith('"') else m[2]
            for m in re.finditer(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'", text)
        )
    if text[0] in "\"'":
        return _string(text)
    word = _WORD.match(text)
    if word is None or not _is_end(text[word.end() :]):
        raise _FaultError(f"`{text[:60]}` is no value: a text needs quotes")
    return _scalar(word[0])


def _string(text: str) -> str:
    match = (_BASIC if text[0] == '"' else _LITERAL).match(text)
    if match is None:
        raise _FaultError("a text does not end")
    if not _is_end(text[match.end() :]):
        raise _FaultError(f"`{text[match.end() :].strip()[:60]}` stands behind a value")
    return _unescape(match[1]) if text[0] == '"' else match[1]


def _is_end(rest: str) -> bool:
    return not rest.strip() or rest.lstrip().startswith("#")


def _scalar(word: str) -> TomlValue:
    if word in ("true", "false"):
        return word == "true"
    if re.fullmatch(r"[+-]?[0-9][0-9_]{0,17}", word):
        return int(word.replace("_", ""))
    if re.match(r"[+-]?(?:[0-9]|inf|nan)", word):
        return None
    raise _FaultError(f"`{word[:60]}` is no value: a text needs quotes")


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[0]), text)
