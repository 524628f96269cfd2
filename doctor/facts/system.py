"""Operating system: name, architecture, clock of the boot, units, the caller's environment."""

from __future__ import annotations

import re

from doctor.core.evidence import Evidence
from doctor.core.host import Absent, Fact, Known, Os, System, Unit
from doctor.facts.collectenv import os_by_env
from doctor.facts.issue import os_by_issue
from doctor.facts.place import read_platform, read_virtualisation
from doctor.facts.resources import read_resources
from doctor.facts.source import absent, at, document, first_usable, line_of, runs, string

__all__ = ["read_architecture", "read_system", "utc"]

_ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
_OTHER_ARCHITECTURES = ("ppc64le", "riscv64", "s390x", "i686", "armv7l", "loongarch64")
_NO_SYSTEMD = ("not been booted with systemd", "Failed to connect to bus", "Failed to get D-Bus")


def read_system(evidence: Evidence) -> System:
    """The facts of `Host.system`."""
    return System(
        os=_os(evidence),
        platform=read_platform(evidence),
        architecture=read_architecture(evidence),
        virtualisation=read_virtualisation(evidence),
        resources=read_resources(evidence),
        units=_units(evidence),
        boot_time=_boot_time(evidence),
        hostname=_hostname(evidence),
        environment=_environment(evidence),
    )


def _os(evidence: Evidence) -> Fact[Os]:
    reading = first_usable(evidence.file("/etc/os-release"), evidence.file("/usr/lib/os-release"))
    fields = _assignments(reading.text) if reading.has_data else {}
    if fields.get("ID"):
        value = Os(
            id=fields["ID"].lower(),
            version=fields.get("VERSION_ID", ""),
            pretty_name=fields.get("PRETTY_NAME") or fields.get("NAME") or fields["ID"],
            id_like=tuple(fields.get("ID_LIKE", "").lower().split()),
            codename=fields.get("VERSION_CODENAME") or fields.get("UBUNTU_CODENAME", ""),
        )
        return Known(value=value, origin=reading.origin)
    for fallback in (_os_by_distro(evidence), _os_by_release_file(evidence), os_by_env(evidence)):
        if fallback is not None:
            return fallback
    return absent(reading)


def _assignments(text: str) -> dict[str, str]:
    """`KEY=value` lines as os-release(5) has them; quotes go, a backslash guards one character."""
    fields = {}
    for line in text.splitlines():
        key, sign, value = line.strip().partition("=")
        if sign and not key.startswith("#"):
            value = value.strip()
            if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
                value = value[1:-1]
            fields[key] = re.sub(r"\\(.)", r"\1", value)[:500]
    return fields


def _os_by_distro(evidence: Evidence) -> Fact[Os] | None:
    reading = evidence.read("distro")
    doc = document(reading.data) if reading.has_data else None
    name = string(at(doc, "id"))
    if name is None:
        return None
    version = string(at(doc, "version")) or ""
    like = string(at(doc, "like")) or ""
    pretty = f"{string(at(doc, 'name')) or name} {version}".strip()
    codename = string(at(doc, "codename")) or ""
    value = Os(
        id=name.lower(),
        version=version,
        pretty_name=pretty,
        id_like=tuple(like.lower().split()),
        codename=codename,
    )
    return Known(value=value, origin=reading.origin)


def _os_by_release_file(evidence: Evidence) -> Fact[Os] | None:
    """Hosts older than os-release, and trees that lack it."""
    redhat = evidence.file("/etc/redhat-release")
    found = (
        re.match(r"(.{1,80}?)\s+(?:Linux\s+)?release\s+([0-9.]+)", line_of(redhat))
        if redhat.has_data
        else None
    )
    if found is not None:
        word = found.group(1).split()[0].lower()
        name = {"red": "rhel"}.get(word, word)
        value = Os(id=name, version=found.group(2), pretty_name=line_of(redhat))
        return Known(value=value, origin=redhat.origin)
    issue = os_by_issue(evidence)
    if issue is not None:
        # Derivatives keep their parent's debian_version.
        return issue
    debian = evidence.file("/etc/debian_version")
    version = line_of(debian) if debian.has_data else ""
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", version):
        # Only the major counts, as in Debian's own VERSION_ID.
        major = version.split(".", maxsplit=1)[0]
        value = Os(id="debian", version=major, pretty_name=f"Debian {version}")
        return Known(value=value, origin=debian.origin)
    return None


def read_architecture(evidence: Evidence) -> Fact[str]:
    """`x86_64` or `aarch64`, from `uname -a`, else from the release's suffix or the processor."""
    uname = evidence.command("uname", "-a")
    if uname.has_data:
        for word in reversed(line_of(uname).split()):
            if word in _ARCHITECTURES or word in _OTHER_ARCHITECTURES:
                return Known(value=_ARCHITECTURES.get(word, word), origin=uname.origin)
    release = evidence.file("/proc/sys/kernel/osrelease")
    suffix = line_of(release).rpartition(".")[2] if release.has_data else ""
    if suffix in _ARCHITECTURES:
        return Known(value=_ARCHITECTURES[suffix], origin=release.origin)
    cpu = evidence.file("/proc/cpuinfo")
    if cpu.has_data and re.search(rb"^vendor_id\s*:", cpu.data, re.MULTILINE):
        return Known(value="x86_64", origin=cpu.origin)
    if cpu.has_data and re.search(rb"^CPU implementer\s*:", cpu.data, re.MULTILINE):
        return Known(value="aarch64", origin=cpu.origin)
    return absent(first_usable(uname, cpu))


def _hostname(evidence: Evidence) -> Fact[str]:
    reading = evidence.file("/proc/sys/kernel/hostname")
    if reading.has_data and line_of(reading):
        return Known(value=line_of(reading)[:255], origin=reading.origin)
    uname = evidence.command("uname", "-a")
    words = line_of(uname).split() if uname.has_data else []
    if len(words) > 2 and words[0] == "Linux":
        return Known(value=words[1][:255], origin=uname.origin)
    return absent(first_usable(reading, uname))


def _boot_time(evidence: Evidence) -> Fact[str]:
    reading = evidence.file("/proc/stat")
    found = re.search(rb"^btime ([0-9]{1,11})\s*$", reading.data, re.MULTILINE) if reading.has_data else None
    if found is None:
        return absent(reading, "it has no `btime` line" if reading.has_data else "")
    return Known(value=utc(int(found.group(1))), origin=reading.origin)


def utc(seconds: int) -> str:
    """Seconds since 1970 as ISO 8601 with `Z`; computed, because parsers have no clock library.

    The day count follows the civil calendar in eras of 400 years, which begin on 1 March.
    """
    days, rest = divmod(seconds, 86_400)
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{year:04d}-{month:02d}-{day:02d}T{clock}Z"


def _units(evidence: Evidence) -> Fact[tuple[Unit, ...]]:
    readings = list(runs(evidence, "systemctl"))
    units = tuple(u for r in readings if r.has_data for u in _unit_blocks(r.text))
    if units:
        return Known(value=units, origin=readings[0].origin)
    if not readings:
        return Absent(reason="not_collected", origin="command:systemctl")
    said = (evidence.stderr(readings[0]) or readings[0].text).strip()
    if any(phrase in said for phrase in _NO_SYSTEMD):
        return Absent(reason="not_installed", origin=readings[0].origin, detail=said[:300])
    if readings[0].has_data and readings[0].rc:
        return Absent(reason="failed", origin=readings[0].origin, detail=said[:300])
    return absent(readings[0], said[:300])


def _unit_blocks(text: str) -> list[Unit]:
    """`systemctl show` of several units: blocks of `Key=value`, a blank line between them."""
    units = []
    for block in re.split(r"\n\s*\n", text)[:500]:
        fields = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if fields.get("Id"):
            unit = Unit(
                name=fields["Id"].strip(),
                load=fields.get("LoadState", "").strip(),
                active=fields.get("ActiveState", "").strip(),
                sub=fields.get("SubState", "").strip(),
                enabled=fields.get("UnitFileState", "").strip(),
                result=fields.get("Result", "").strip(),
            )
            units.append(unit)
    return units


def _environment(evidence: Evidence) -> dict[str, str]:
    return {
        item.key.removeprefix("env:"): item.value
        for item in evidence.meta.items
        if item.key.startswith("env:") and item.status == "ok" and item.value is not None
    }
