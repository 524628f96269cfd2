"""Where packages come from: entries of apt and dnf that matter for the GPU stack; module streams of dnf."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.core.evidence import Evidence, Reading
from doctor.core.host import Fact, Known
from doctor.core.host_machine import ModuleStream, Repository
from doctor.core.pattern import pattern
from doctor.facts.source import absent, first_usable, is_present, stat_of

__all__ = ["read_module_streams", "read_repositories"]

_APT = "/etc/apt/sources.list"
_DNF = "/etc/yum.repos.d"
_MODULES = "/etc/dnf/modules.d"
_ENTRIES_MAX = 400
_LINES_MAX = 20_000
_TEXT_MAX = 500
#: Of dnf's hundreds of sections those that bring a driver, CUDA, a container engine or what they need.
_MATTERS = pattern(
    r"(?i)nvidia|cuda|epel|crb|powertools|codeready|baseos|appstream|elrepo|rpmfusion|negativo|docker"
    r"|kubernetes|mellanox|doca|tensorrt|fedora|updates|extras"
)
_LOGIN = pattern(r"(://)[^/@\s]{1,300}@")
_ONE_LINE = pattern(
    r"(#\s{0,4})?deb(?:-src)?\s+(?:\[([^\]]{0,1000})\]\s+)?(\S+)\s+(\S+)((?:\s+[^\s#]+){0,30})"
)
_Fields = dict[str, str]


def read_repositories(evidence: Evidence) -> Fact[tuple[Repository, ...]]:
    """All entries of apt, and those of dnf that matter; passwords in addresses are left out."""
    readings = [evidence.file(_APT)]
    readings += [evidence.read(item.key) for item in evidence.below(f"{_APT}.d/")]
    readings += [evidence.read(item.key) for item in evidence.below(f"{_DNF}/")]
    found = [entry for reading in readings if reading.has_data for entry in _entries(evidence, reading)]
    if found or any(reading.has_data for reading in readings):
        origin = next(reading.origin for reading in readings if reading.has_data)
        return Known(value=tuple(found[:_ENTRIES_MAX]), origin=origin)
    return absent(first_usable(*readings, stat_of(evidence, f"{_APT}.d"), stat_of(evidence, _DNF)))


def _entries(evidence: Evidence, reading: Reading) -> Iterator[Repository]:
    path = reading.origin.removeprefix("file:")
    if path.endswith(".repo"):
        yield from _by_dnf(evidence, path, reading.text)
    elif path.endswith(".sources"):
        yield from _by_stanzas(evidence, path, reading.text)
    elif path.endswith(".list"):
        yield from _by_lines(evidence, path, reading.text)


def _without_login(uri: str) -> str:
    return _LOGIN.sub(r"\1", uri)[:_TEXT_MAX]


def _has_key(evidence: Evidence, signed_by: str) -> bool | None:
    """Of a key that is named by its path; with several, all must be there."""
    paths = [part for part in re.split(r"[\s,]+", signed_by)[:8] if part.startswith("/")]
    said = [is_present(evidence, path) for path in paths]
    return False if False in said else True if said and None not in said else None


# --- apt ------------------------------------------------------------------------------------------


def _by_lines(evidence: Evidence, path: str, text: str) -> Iterator[Repository]:
    """One entry a line: `deb [signed-by=KEY arch=amd64] URI SUITE COMPONENT…`; `#` switches one off."""
    for line in text.splitlines()[:_LINES_MAX]:
        match = _ONE_LINE.fullmatch(line.partition(" #")[0].strip()[:4096])
        if match is None:
            continue
        off, options, uri, suite, components = match.groups()
        if off and "://" not in uri:
            continue  # a sentence that begins with `deb`
        fields = dict(re.findall(r"([\w-]{1,40})[+-]?=(\S{1,400})", options or ""))
        signed_by = fields.get("signed-by", "")
        yield Repository(
            file=path,
            uri=_without_login(uri),
            suite=suite[:_TEXT_MAX],
            components=tuple(components.split()),
            signed_by=signed_by,
            is_enabled=not off,
            checks_signature=_trust(fields.get("trusted", "")),
            key_present=_has_key(evidence, signed_by),
        )


def _trust(word: str) -> bool | None:
    """`trusted=yes` switches the check of signatures off."""
    return False if word.lower() in ("yes", "true", "1", "on") else None


def _by_stanzas(evidence: Evidence, path: str, text: str) -> Iterator[Repository]:
    """Entries of deb822 form; several addresses or suites in one stanza are several repositories."""
    for fields in _stanzas(text):
        signed_by = fields.get("signed-by", "")
        is_inline = "BEGIN PGP" in signed_by
        for uri in fields.get("uris", "").split()[:8]:
            for suite in fields.get("suites", "").split()[:16]:
                yield Repository(
                    file=path,
                    uri=_without_login(uri),
                    suite=suite[:_TEXT_MAX],
                    components=tuple(fields.get("components", "").split()[:30]),
                    signed_by="inline key" if is_inline else signed_by[:_TEXT_MAX],
                    is_enabled=fields.get("enabled", "yes").lower() not in ("no", "false", "0", "off"),
                    checks_signature=_trust(fields.get("trusted", "")),
                    key_present=None if is_inline else _has_key(evidence, signed_by),
                )


def _stanzas(text: str) -> Iterator[_Fields]:
    fields: _Fields = {}
    key = ""
    for line in [*text.splitlines()[:_LINES_MAX], ""]:
        if line.startswith("#"):
            continue
        if not line.strip():
            if fields:
                yield fields
            fields, key = {}, ""
        elif line[0] in " \t":
            if key and len(fields[key]) < 20_000:
                fields[key] += f" {line.strip()}"
        else:
            name, colon, value = line.partition(":")
            key = name.strip().lower() if colon else ""
            if key:
                fields[key] = value.strip()


# --- dnf ------------------------------------------------------------------------------------------


def _by_dnf(evidence: Evidence, path: str, text: str) -> Iterator[Repository]:
    """Sections of a `.repo` file; `enabled` is 1 and `gpgcheck` untold where they do not stand."""
    for name, fields in _sections(text):
        uri = next((fields[k] for k in ("baseurl", "mirrorlist", "metalink") if fields.get(k)), "")
        if not _MATTERS.search(f"{name} {uri}"):
            continue
        key = fields.get("gpgkey", "")
        paths = re.sub(r"file://(?=/)", "", key)
        yield Repository(
            file=path,
            name=name[:_TEXT_MAX],
            uri=_without_login(uri.split()[0] if uri.split() else ""),
            signed_by=_without_login(paths),
            is_enabled=_switch(fields.get("enabled", "1")) is not False,
            checks_signature=_switch(fields.get("gpgcheck", "")),
            # Names with variables (`$releasever`) are known to dnf alone.
            key_present=None if "$" in paths else _has_key(evidence, paths),
        )


def _switch(word: str) -> bool | None:
    words = {
        "1": True,
        "yes": True,
        "true": True,
        "on": True,
        "0": False,
        "no": False,
        "false": False,
        "off": False,
    }
    return words.get(word.strip().lower())


def _sections(text: str) -> Iterator[tuple[str, _Fields]]:
    """Sections of an INI file: a line with a margin goes on with the value above it."""
    name, fields, key = "", _Fields(), ""
    for line in [*text.splitlines()[:_LINES_MAX], "[]"]:
        said = line.strip()
        if said.startswith("[") and said.endswith("]"):
            if name:
                yield name, fields
            name, fields, key = said[1:-1].strip(), {}, ""
        elif not said or said[0] in "#;":
            continue
        elif line[0] in " \t" and key:
            fields[key] = f"{fields[key]} {said}"[:4000]
        else:
            left, sign, right = said.partition("=")
            key = left.strip().lower() if sign else ""
            if key:
                fields[key] = right.strip()[:4000]


def read_module_streams(evidence: Evidence) -> Fact[tuple[ModuleStream, ...]]:
    """Streams that dnf keeps a state of; an empty tuple where its directory was read and holds none."""
    readings = [evidence.read(item.key) for item in evidence.below(f"{_MODULES}/")]
    usable = [reading for reading in readings if reading.has_data]
    if usable:
        found = [
            ModuleStream(
                module=(fields.get("name") or name)[:200],
                stream=fields.get("stream", "")[:200],
                state=fields.get("state", "")[:40],
            )
            for reading in usable
            for name, fields in _sections(reading.text)
        ]
        return Known(value=tuple(found[:_ENTRIES_MAX]), origin=usable[0].origin)
    folder = stat_of(evidence, _MODULES)
    if folder.status == "ok":
        return Known(value=(), origin=folder.origin)
    return absent(first_usable(*readings, folder))
