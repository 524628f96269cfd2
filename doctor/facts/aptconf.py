"""apt's configuration language, as far as switches and lists go (apt.conf(5))."""

from __future__ import annotations

import re
from collections.abc import Iterable

from doctor.core.pattern import pattern

__all__ = ["Settings", "parse_apt_conf"]

#: Lower-case key with `::` -> its values in order; a plain key has its last value at the end.
Settings = dict[str, list[str]]

_TOKEN = pattern(
    r'//[^\n]*|/\*(?:.*?\*/|.*)|#(?!clear\b)[^\n]*|"((?:\\.|[^"\\\n]){0,1000})"|([{};])|([^\s{};"]+)',
    re.DOTALL,
)
_TOKENS_MAX = 50_000
_DEPTH_MAX = 30


def parse_apt_conf(texts: Iterable[str]) -> Settings:
    """Settings of several files read in order; `#clear` forgets, a later value of a plain key wins."""
    settings: Settings = {}
    for text in texts:
        _read(text, settings)
    return settings


def _read(text: str, settings: Settings) -> None:
    stack: list[str] = []
    words: list[str] = []
    values: list[str] = []
    for number, token in enumerate(_TOKEN.finditer(text)):
        if number > _TOKENS_MAX:
            return
        quoted, mark, word = token.groups()
        if mark == "{" and len(stack) < _DEPTH_MAX:
            stack.append(_key(stack, words))
            words, values = [], []
        elif mark in ("}", ";"):
            _store(settings, stack, words, values)
            words, values = [], []
            if mark == "}" and stack:
                stack.pop()
        elif quoted is not None:
            values.append(quoted)
        elif word is not None:
            words.append(word)


def _key(stack: list[str], words: list[str]) -> str:
    name = "::".join(part for part in ([stack[-1]] if stack else []) + words[:1] if part)
    return name.lower()


def _store(settings: Settings, stack: list[str], words: list[str], values: list[str]) -> None:
    """One statement: a list entry without a key of its own, `key value`, or `#clear key`."""
    if words[:1] == ["#clear"]:
        for word in words[1:2]:
            cleared = word.lower().rstrip(":")
            for key in [k for k in settings if k == cleared or k.startswith(f"{cleared}::")]:
                del settings[key]
        return
    # An unquoted value is a word after the key.
    found = values or words[1:2]
    key = _key(stack, words).rstrip(":")
    if found and key:
        settings.setdefault(key, []).append(found[-1])
