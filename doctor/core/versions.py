"""Versions as the field writes them: the raw text is kept for ever, a key gives the order.

`580.126.09` must never become `580.126.9`: package names and file names are built from the raw
text. Each component says which scheme its versions follow; versions of different schemes do not
compare.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from functools import total_ordering
from typing import Any, ClassVar, Literal

from doctor.core.pattern import pattern

__all__ = ["SCHEMES", "Deb", "Dotted", "Name", "Pep440", "Rpm", "Scheme", "Version", "parse"]

Scheme = Literal["pep440", "dotted", "deb", "rpm", "name"]


@total_ordering
class Version(ABC):
    """A version: `raw` as written, `key` for order. Subclasses name the scheme."""

    __slots__ = ("key", "raw")
    scheme: ClassVar[Scheme]
    raw: str
    key: Any

    def __init__(self, raw: str) -> None:
        text = raw.strip()
        if not text:
            raise ValueError("a version cannot be empty")
        self.raw = text
        self.key = self._key(text)

    @staticmethod
    @abstractmethod
    def _key(raw: str) -> Any:
        """What orders this version; `ValueError` when the text does not follow the scheme."""

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool(self.key == other.key)

    def __lt__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool(self.key < other.key)

    def __hash__(self) -> int:
        return hash((self.scheme, self.key))

    def __str__(self) -> str:
        return self.raw

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.raw!r})"


# `[0-9]`, not `\d`: digits of other scripts are no part of any scheme here.
_DOTTED = pattern(r"[vVrR]?([0-9]+(?:\.[0-9]+)*)")
_DEB_TEXT = pattern(r"[A-Za-z0-9.+~:-]+")
_RPM_TEXT = pattern(r"[!-~]+")


class Dotted(Version):
    """Numbers between dots: driver, CUDA, TensorRT, glibc, gcc, the upstream part of a kernel.

    Trailing zeros do not count (`12.0` equals `12`), and neither do leading ones (`580.126.09`
    equals `580.126.9`). Text after the leading run of numbers and dots is ignored for the order:
    `6.8.0-124-generic` orders as `6.8.0`. Use `rpm` or `deb` where the revision matters.
    """

    __slots__ = ()
    scheme = "dotted"

    @staticmethod
    def _key(raw: str) -> tuple[int, ...]:
        head = _DOTTED.match(raw)
        if head is None:
            raise ValueError(f"`{raw}` is not a dotted version: it has no leading number")
        numbers = [int(part) for part in head.group(1).split(".")]
        while len(numbers) > 1 and numbers[-1] == 0:
            numbers.pop()
        return tuple(numbers)

    @property
    def parts(self) -> tuple[int, ...]:
        """All leading numbers as written: `(12, 0)` for `12.0`."""
        head = _DOTTED.match(self.raw)
        return tuple(int(p) for p in head.group(1).split(".")) if head else ()

    @property
    def major(self) -> int:
        """The first number: the branch of a driver, the major of CUDA."""
        return self.parts[0]


class Pep440(Version):
    """A Python package version, ordered by `packaging`; a local label (`+cu130`) is kept in `raw`."""

    __slots__ = ()
    scheme = "pep440"

    @staticmethod
    def _key(raw: str) -> Any:
        # 15 ms of CPU at import; nothing on the host's check path needs it.
        from packaging.version import InvalidVersion
        from packaging.version import Version as PackagingVersion

        try:
            return PackagingVersion(raw)
        except InvalidVersion:
            raise ValueError(f"`{raw}` is not a PEP 440 version") from None


class Name(Version):
    """A name without order (`ubuntu-24.04`, `x86_64`): only equality means something."""

    __slots__ = ()
    scheme = "name"

    @staticmethod
    def _key(raw: str) -> str:
        return raw

    def __lt__(self, other: object) -> bool:
        raise TypeError(f"`{self.raw}` is a name: names have no order")


def _deb_order(char: str) -> int:
    """Order of one non-digit character as dpkg's verrevcmp has it: `~`, end, letters, the rest."""
    if char == "~":
        return -1
    return ord(char) if char.isalpha() else ord(char) + 256


def _deb_part(text: str) -> tuple[tuple[tuple[int, ...], int], ...]:
    """A comparable form of one part: pairs of (non-digit run closed by 0, number)."""
    pairs = []
    for run, digits in re.findall(r"([^0-9]*)([0-9]*)", text):
        if run or digits:
            pairs.append(((*(_deb_order(c) for c in run), 0), int(digits or 0)))
    # An end counts like an empty run: `1.0` < `1.0-x`, but `1.0~x` < `1.0`.
    pairs.append(((0,), 0))
    return tuple(pairs)


class Deb(Version):
    """A Debian package version: epoch, upstream part, revision, in dpkg's order (`deb-version(7)`)."""

    __slots__ = ()
    scheme = "deb"

    @staticmethod
    def _key(raw: str) -> Any:
        if not _DEB_TEXT.fullmatch(raw):
            raise ValueError(f"`{raw}` is not a Debian version: letters, digits and `.+~:-` only")
        epoch, rest = _split_epoch(raw)
        upstream, _, revision = rest.rpartition("-")
        if not upstream:
            upstream, revision = rest, "0"
        return (epoch, _deb_part(upstream), _deb_part(revision))


def _split_epoch(raw: str) -> tuple[int, str]:
    epoch, colon, rest = raw.partition(":")
    if not colon:
        return 0, raw
    if not (epoch.isascii() and epoch.isdigit()):
        raise ValueError(f"`{raw}` has an epoch that is not a number")
    if not rest:
        raise ValueError(f"`{raw}` has nothing after its epoch")
    return int(epoch), rest


def _rpm_part(text: str) -> tuple[tuple[int, int, str], ...]:
    """A comparable form of one part in rpmvercmp's order: `~` < end < `^` < letters < numbers."""
    segments: list[tuple[int, int, str]] = []
    for part in re.findall(r"[0-9]+|[A-Za-z]+|~|\^", text):
        if part == "~":
            segments.append((-1, 0, ""))
        elif part == "^":
            segments.append((1, 0, ""))
        elif part.isdigit():
            segments.append((3, int(part), ""))
        else:
            segments.append((2, 0, part))
    segments.append((0, 0, ""))
    return tuple(segments)


class Rpm(Version):
    """An RPM version `[epoch:]version[-release]`, in rpmvercmp's order.

    A missing release compares equal to none given, as the empty string.
    """

    __slots__ = ()
    scheme = "rpm"

    @staticmethod
    def _key(raw: str) -> Any:
        if not _RPM_TEXT.fullmatch(raw):
            raise ValueError(f"`{raw}` is not an RPM version: printable ASCII without spaces only")
        epoch, rest = _split_epoch(raw)
        version, _, release = rest.partition("-")
        return (epoch, _rpm_part(version), _rpm_part(release))


SCHEMES: dict[Scheme, type[Version]] = {
    "pep440": Pep440,
    "dotted": Dotted,
    "deb": Deb,
    "rpm": Rpm,
    "name": Name,
}


def parse(raw: str, scheme: Scheme) -> Version:
    """A version of the given scheme. Raises `ValueError` when the text does not follow it."""
    return SCHEMES[scheme](raw)
