"""Locks of engine environments: every package at one version, with the hashes of its files.

A lock comes from `uv pip compile --generate-hashes`, from `pip-compile`, or from `mopt-lock.txt` of a host on
which the engine was installed. Only pins with SHA-256 are taken: an option in it would decide where from.
"""

from __future__ import annotations

import re

import msgspec

from doctor.errors import UsageError

__all__ = ["Pin", "lock_of", "pins_of"]

#: vLLM 0.33 has some 180 packages with up to 60 files each: 700 kB.
_TEXT_MAX = 4 << 20
_FAULTS_SHOWN = 5

_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,100})(?P<extras>\[[A-Za-z0-9,._ -]{0,200}\])?"
    r" ?== ?(?P<version>[A-Za-z0-9][A-Za-z0-9.+!_-]{0,60})(?: ?; ?(?P<marker>[^;#]{1,300}))?"
)
_HASH = re.compile(r"sha256:[0-9a-f]{64}")


class Pin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One package of a lock."""

    name: str
    """As names are compared: `tensorrt-llm`."""
    version: str
    extras: str = ""
    marker: str = ""
    hashes: tuple[str, ...]

    @property
    def line(self) -> str:
        """The requirement as pip and uv read it."""
        marker = f" ; {self.marker}" if self.marker else ""
        return f"{self.name}{self.extras}=={self.version}{marker} " + " ".join(
            f"--hash={one}" for one in self.hashes
        )


def pins_of(text: str, where: str) -> tuple[Pin, ...]:
    """The pins of a lock, by name. Raises UsageError with everything in it that is none."""
    if len(text) > _TEXT_MAX:
        raise UsageError(f"`{where}` has {len(text):,} characters, a lock at most {_TEXT_MAX:,}")
    found: list[Pin] = []
    faults: list[str] = []
    for number, line in _logical(text):
        one = _pin(line)
        if isinstance(one, Pin):
            found.append(one)
        else:
            faults.append(f"line {number}: {one}: `{line[:60]}`")
    if not found and not faults:
        faults.append("it has no requirement")
    if faults:
        more = f" (and {len(faults) - _FAULTS_SHOWN} more)" if len(faults) > _FAULTS_SHOWN else ""
        raise UsageError(
            f"`{where}` is no lock: {'; '.join(faults[:_FAULTS_SHOWN])}{more}",
            hints=("`uv pip compile --generate-hashes requirements.in -o lock.txt` makes one",),
        )
    return tuple(sorted(found, key=lambda pin: (pin.name, pin.version, pin.marker)))


def lock_of(locks: dict[str, tuple[Pin, ...]], engine: str, version: str) -> str:
    """The lock that has the engine at this version, as text; empty where none was given for the engine.

    Raises UsageError where a lock has it at another version: the plan would not be what the lock installs.
    """
    for where, pins in locks.items():
        pin = next((pin for pin in pins if pin.name == engine), None)
        if pin is None:
            continue
        if _public(pin.version) != version:
            raise UsageError(
                f"`{where}` has {engine} {pin.version}, the plan {version}",
                hints=(f"plan for `{engine}=={_public(pin.version)}`, or lock {engine}=={version}",),
            )
        return "".join(f"{pin.line}\n" for pin in pins)
    return ""


def _public(version: str) -> str:
    """Without the local part: wheels for another CUDA are the same version (`0.33.0+cu129`)."""
    return version.partition("+")[0]


def _logical(text: str) -> list[tuple[int, str]]:
    """Lines with their continuations, without comments: number of the first, one blank between words."""
    found: list[tuple[int, str]] = []
    parts: list[str] = []
    first = 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = "" if raw.lstrip().startswith("#") else raw.partition(" #")[0].strip()
        first = first if parts else number
        parts.append(line.removesuffix("\\").strip())
        if not line.endswith("\\"):
            joined = " ".join(" ".join(parts).split())
            found += [(first, joined)] if joined else []
            parts = []
    rest = " ".join(" ".join(parts).split())
    return [*found, (first, rest)] if rest else found


def _pin(line: str) -> Pin | str:
    """The pin; or why the line is none."""
    if line.startswith("-"):
        return "an option, which `plan` decides (`--index-url`, `--wheelhouse`)"
    head, *hashes = line.split(" --hash=")
    match = _REQUIREMENT.fullmatch(head.strip())
    if match is None:
        return "not a package at one version"
    if not hashes:
        return "no hash"
    wrong = [word for word in hashes if not _HASH.fullmatch(word)]
    if wrong:
        return "a hash that is not SHA-256"
    return Pin(
        name=re.sub(r"[-_.]+", "-", match["name"]).lower(),
        extras=(match["extras"] or "").replace(" ", ""),
        version=match["version"],
        marker=(match["marker"] or "").strip(),
        hashes=tuple(sorted(hashes)),
    )
