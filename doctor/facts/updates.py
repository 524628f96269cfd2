"""Whether packages change without a person, and which are left alone then."""

from __future__ import annotations

import re

from doctor.core.evidence import Evidence, Reading
from doctor.core.host import Absent, Fact, Known, Unit
from doctor.core.pattern import pattern
from doctor.facts.aptconf import Settings, parse_apt_conf
from doctor.facts.history import Manager
from doctor.facts.source import absent

__all__ = ["read_automatic_updates", "read_exclusions"]

_APT_DIR = "/etc/apt/apt.conf.d/"
_DNF_CONF = "/etc/dnf/automatic.conf"
_SWITCH = "apt::periodic::unattended-upgrade"
_ENABLE = "apt::periodic::enable"
_BLACKLIST = "unattended-upgrade::package-blacklist"
_OFF = frozenset(("", "0", "no", "false", "off", "disable", "without"))
#: Files that dpkg leaves behind and apt does not read.
_IGNORED = pattern(r"\.(?:dpkg-\w+|ucf-\w+|save|bak|disabled|orig|distUpgrade)$|~$")


def read_automatic_updates(evidence: Evidence, manager: Manager, units: Fact[tuple[Unit, ...]]) -> Fact[bool]:
    """True when a timer installs updates by itself; downloading alone does not count."""
    if manager == "dpkg":
        return _apt_updates(evidence, units)
    return _dnf_updates(evidence, units)


def _timers(units: Fact[tuple[Unit, ...]]) -> dict[str, Unit]:
    return {unit.name: unit for unit in units.value} if isinstance(units, Known) else {}


def _is_off(unit: Unit | None) -> bool:
    """True for a unit that is known never to start: masked, not there, or disabled and not running."""
    if unit is None:
        return False
    if unit.load in ("masked", "not-found") or unit.enabled == "masked":
        return True
    return unit.enabled == "disabled" and unit.active not in ("active", "activating")


def _apt_files(evidence: Evidence) -> list[Reading]:
    items = evidence.below(_APT_DIR)
    return [evidence.read(i.key) for i in items if not _IGNORED.search(i.key)]


def _apt_settings(evidence: Evidence) -> tuple[Settings, str] | Absent:
    readings = _apt_files(evidence)
    usable = [reading for reading in readings if reading.has_data]
    if not usable:
        return absent(readings[0]) if readings else Absent(reason="not_collected", origin=f"file:{_APT_DIR}")
    settings = parse_apt_conf(reading.text for reading in usable)
    naming = next((r for r in usable if b"unattended" in r.data.lower()), usable[0])
    return settings, naming.origin


def _apt_updates(evidence: Evidence, units: Fact[tuple[Unit, ...]]) -> Fact[bool]:
    settings = _apt_settings(evidence)
    if isinstance(settings, Absent):
        return settings
    values, origin = settings
    # unattended-upgrades brings its own unit; without it the switch moves nothing.
    for name in ("apt-daily-upgrade.timer", "unattended-upgrades.service"):
        unit = _timers(units).get(name)
        if unit is not None and (unit.load == "not-found" or (name.endswith(".timer") and _is_off(unit))):
            return Known(value=False, origin=units.origin)
    is_on = values.get(_SWITCH, ["0"])[-1].lower() not in _OFF
    is_enabled = values.get(_ENABLE, ["1"])[-1].lower() not in _OFF
    return Known(value=is_on and is_enabled, origin=origin)


def _dnf_updates(evidence: Evidence, units: Fact[tuple[Unit, ...]]) -> Fact[bool]:
    """`dnf-automatic-install.timer` always installs; `dnf-automatic.timer` does what the file says."""
    timers = _timers(units)
    install, plain = timers.get("dnf-automatic-install.timer"), timers.get("dnf-automatic.timer")
    if install is not None and install.active == "active":
        return Known(value=True, origin=units.origin)
    reading = evidence.file(_DNF_CONF)
    if reading.status == "missing":
        return Known(value=False, origin=reading.origin)
    if not reading.has_data:
        return absent(reading)
    found = re.search(r"^[ \t]*apply_updates[ \t]*=[ \t]*(\w+)", reading.text, re.MULTILINE)
    applies = found is not None and found.group(1).lower() in ("yes", "true", "1", "on")
    if not applies or (plain is not None and (_is_off(plain) or plain.active != "active")):
        return Known(value=False, origin=reading.origin)
    if plain is not None:
        return Known(value=True, origin=reading.origin)
    return Absent(
        reason="not_collected", origin="command:systemctl", detail="the state of dnf-automatic.timer"
    )


def read_exclusions(evidence: Evidence, manager: Manager) -> Fact[tuple[str, ...]]:
    """Patterns that automatic updates leave alone, as the configuration has them."""
    if manager == "dpkg":
        settings = _apt_settings(evidence)
        if isinstance(settings, Absent):
            return settings
        return Known(value=tuple(v[:300] for v in settings[0].get(_BLACKLIST, [])), origin=settings[1])
    reading = evidence.file(_DNF_CONF)
    if not reading.has_data:
        return absent(reading)
    lines = re.findall(r"^[ \t]*(?:exclude|excludepkgs)[ \t]*=[ \t]*(.*)$", reading.text, re.MULTILINE)
    words = tuple(word for line in lines for word in re.split(r"[,\s]+", line.strip()) if word)
    return Known(value=words[:1000], origin=reading.origin)
