"""METADATA of a package: what it asks for on a Linux host with an x86-64 processor."""

from __future__ import annotations

import re
from email.parser import HeaderParser
from typing import NamedTuple

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

__all__ = ["Asked", "Metadata", "both", "read_metadata", "set_text"]

_REQUIREMENTS_MAX = 2000


class Asked(NamedTuple):
    """What is asked of one package: a set as the matrix writes it, and the extras."""

    spec: str
    extras: frozenset[str]


class Metadata(NamedTuple):
    """What counts of it. `unread` says which requirements could not be understood, and why."""

    name: str
    version: str
    requires_python: str
    asks: dict[str, Asked]
    """By the package's normalised name."""
    unread: tuple[str, ...]


def read_metadata(text: str, python: str) -> Metadata:
    """METADATA or PKG-INFO, its markers judged under a Python such as `3.12`."""
    # A name that the description has a line of is none of the header's: it ends at the first empty line.
    headers = HeaderParser().parsestr(text, headersonly=True)
    asks: dict[str, Asked] = {}
    unread: list[str] = []
    lines = [str(line) for line in headers.get_all("Requires-Dist", [])]
    if len(lines) > _REQUIREMENTS_MAX:
        unread.append(f"{len(lines)} requirements: only {_REQUIREMENTS_MAX} were read")
    unread += filter(None, (_read_line(line, python, asks) for line in lines[:_REQUIREMENTS_MAX]))
    return Metadata(
        name=canonicalize_name(str(headers.get("Name", ""))),
        version=str(headers.get("Version", "")),
        requires_python=_python(str(headers.get("Requires-Python", "")), unread),
        asks=asks,
        unread=tuple(unread),
    )


class _NoVersionError(Exception):
    pass


def _short(line: str) -> str:
    return re.sub(r"[^\x20-\x7e]+", "?", line)[:100]


def _python(text: str, unread: list[str]) -> str:
    try:
        return set_text(SpecifierSet(text))
    except InvalidSpecifier:
        unread.append(f"Requires-Python `{_short(text)}` is no set of versions")
        return ""


def _read_line(line: str, python: str, asks: dict[str, Asked]) -> str:
    """Take a requirement into `asks`; returns why it could not be understood, or the empty string."""
    try:
        _read_requirement(line, python, asks)
    except _NoVersionError:
        return f"`{_short(line)}` names an address, not a version"
    except (
        InvalidRequirement,
        InvalidSpecifier,
        InvalidVersion,
        UndefinedComparison,
        UndefinedEnvironmentName,
    ):
        return f"`{_short(line)}` is no requirement that pip would understand"
    return ""


def _read_requirement(line: str, python: str, asks: dict[str, Asked]) -> None:
    one = Requirement(line)
    if one.marker is not None and not one.marker.evaluate(_host(python)):
        return
    if one.url:
        raise _NoVersionError
    name = canonicalize_name(one.name)
    before = asks.get(name, Asked("*", frozenset()))
    asks[name] = Asked(both(before.spec, set_text(one.specifier)), before.extras | one.extras)


def _host(python: str) -> dict[str, str]:
    """Every variable of PEP 508, so that the machine that drafts has no say."""
    full = f"{python}.0"
    return {
        "extra": "",
        "implementation_name": "cpython",
        "implementation_version": full,
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_release": "6.8.0",
        "platform_system": "Linux",
        "platform_version": "#1 SMP",
        "python_full_version": full,
        "python_version": python,
        "sys_platform": "linux",
    }


def both(first: str, second: str) -> str:
    """The set of versions that are in two sets, as a row writes it."""
    sets = [SpecifierSet(text) for text in (first, second) if text != "*"]
    return set_text(sets[0] & sets[-1]) if sets else "*"


def set_text(spec: SpecifierSet) -> str:
    """`>=3.11,<3.15,!=3.12`: lower ends first, as rows write them; `*` where any version will do."""
    parts = sorted(spec, key=lambda one: (_ORDER[one.operator], one.version))
    return ",".join(dict.fromkeys(str(part) for part in parts)) or "*"


_ORDER = {"===": 0, "==": 0, "~=": 0, ">": 1, ">=": 1, "<=": 2, "<": 2, "!=": 3}
