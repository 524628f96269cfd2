"""The distribution by `/etc/issue`, for reports that hold neither os-release nor a release file."""

from __future__ import annotations

from doctor.core.evidence import Evidence
from doctor.core.host import Fact, Known, Os
from doctor.core.pattern import pattern
from doctor.facts.source import line_of

__all__ = ["os_by_issue"]

#: getty's escapes: `\n` is the host name, `\l` the line, `\S` the name that os-release has.
_ESCAPE = pattern(r"\\[A-Za-z](?:\{[^}]{0,40}\})?|\(\s*\)")
_VERSION = pattern(r"\d+(?:\.\d+)*")
#: How the name in front of the version is written -> the `ID` of os-release.
_IDS = {
    "ubuntu": "ubuntu",
    "debian": "debian",
    "parrot": "parrot",
    "kali": "kali",
    "arch": "arch",
    "manjaro": "manjaro",
    "fedora": "fedora",
    "centos": "centos",
    "rocky": "rocky",
    "almalinux": "almalinux",
    "red": "rhel",
    "pop!_os": "pop",
    "linux": "linuxmint",
    "opensuse": "opensuse",
}


def os_by_issue(evidence: Evidence) -> Fact[Os] | None:
    """Name and version as the login screen shows them; None when it names no distribution that is known."""
    reading = evidence.file("/etc/issue")
    text = " ".join(_ESCAPE.sub(" ", line_of(reading)).split()) if reading.has_data else ""
    words = text.removeprefix("Welcome to ").split()
    name = _IDS.get(words[0].lower()) if words else None
    if name is None or (name == "linuxmint" and words[1:2] != ["Mint"]):
        return None
    found = _VERSION.search(" ".join(words[1:]))
    version = found.group(0) if found is not None else ""
    if name == "opensuse":
        name = "opensuse-leap" if version else "opensuse-tumbleweed"
    if name in ("ubuntu", "pop"):
        # `22.04.5`: the point release is no part of os-release's VERSION_ID.
        version = ".".join(version.split(".")[:2])
    return Known(value=Os(id=name, version=version, pretty_name=text[:200]), origin=reading.origin)
