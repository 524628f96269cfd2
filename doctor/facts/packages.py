"""The package manager's view of the GPU stack: what is installed, held, changed, updated by itself."""

from __future__ import annotations

import re

from doctor.core.evidence import Evidence, Reading
from doctor.core.host import Absent, Fact, Known, Package, Packages, Unit
from doctor.core.pattern import pattern
from doctor.facts.history import read_changes
from doctor.facts.source import absent, exists, first_usable, runs
from doctor.facts.updates import read_automatic_updates, read_exclusions

__all__ = ["read_packages"]

_PACKAGES_MAX = 20_000
#: The collector's patterns are wider than the stack: `libcu*` also finds `libcurl4` and `libcups2`.
_STRANGER = pattern(r"libcu(?!bla|da|dla|dnn|dss|fft|file|inj|obj|pti|rand|solver|sparse|tensor)")
#: Second letter of dpkg's status abbreviation. `n` and `c` are not installed.
_DPKG_STATES = {
    "i": "installed",
    "U": "unpacked",
    "F": "half-configured",
    "H": "half-installed",
    "W": "triggers-awaited",
    "t": "triggers-pending",
}
_LOCK_FILES = ("/etc/dnf/plugins/versionlock.list", "/etc/yum/pluginconf.d/versionlock.list")
_REBOOT = "/run/reboot-required"


def read_packages(evidence: Evidence, units: Fact[tuple[Unit, ...]]) -> Fact[Packages]:
    """One manager's answer; where both tools are there, the one that knows packages."""
    dpkg = next(runs(evidence, "dpkg-query"), evidence.command("dpkg-query"))
    rpm = _rpm_query(evidence)
    rows, held = _dpkg_rows(dpkg.text) if dpkg.has_data else ([], [])
    rpm_rows = _rpm_rows(rpm.text) if rpm.has_data and not rows else []
    if rpm_rows or (rpm.has_data and not dpkg.has_data and not rpm.rc):
        return Known(value=_rpm(evidence, rpm_rows, units), origin=rpm.origin)
    # dpkg-query exits 1 when one of many patterns matches nothing.
    if rows or (dpkg.has_data and dpkg.rc in (0, 1, None)):
        return Known(value=_dpkg(evidence, rows, held, units), origin=dpkg.origin)
    return absent(first_usable(dpkg, rpm))


def _rpm_query(evidence: Evidence) -> Reading:
    for reading in runs(evidence, "rpm"):
        if "-qa" in (reading.item.argv if reading.item else ()) or reading.origin.startswith(
            "command:rpm-qa"
        ):
            return reading
    return evidence.command("rpm", "-qa")


def _dpkg(
    evidence: Evidence, rows: list[Package], held: list[str], units: Fact[tuple[Unit, ...]]
) -> Packages:
    return Packages(
        manager="dpkg",
        installed=tuple(rows),
        holds=Known(value=tuple(held), origin="command:dpkg-query"),
        changes=read_changes(evidence, "dpkg"),
        automatic_updates=read_automatic_updates(evidence, "dpkg", units),
        automatic_update_exclusions=read_exclusions(evidence, "dpkg"),
        reboot_required=_reboot_required(evidence),
    )


def _rpm(evidence: Evidence, rows: list[Package], units: Fact[tuple[Unit, ...]]) -> Packages:
    flag = exists(evidence, _REBOOT)
    return Packages(
        manager="rpm",
        installed=tuple(rows),
        holds=_version_locks(evidence),
        changes=read_changes(evidence, "rpm"),
        automatic_updates=read_automatic_updates(evidence, "rpm", units),
        automatic_update_exclusions=read_exclusions(evidence, "rpm"),
        # dnf leaves no such file, so its absence says nothing.
        reboot_required=Known(value=True, origin=f"stat:{_REBOOT}")
        if flag
        else Absent(reason="not_collected", origin=f"stat:{_REBOOT}"),
    )


def _dpkg_rows(text: str) -> tuple[list[Package], list[str]]:
    """Installed packages, and the names on hold. Later columns may be missing."""
    rows, held = [], []
    for line in text.splitlines()[:_PACKAGES_MAX]:
        name, version, architecture, status, origin = (*line.split("\t"), "", "", "", "", "")[:5]
        name = name.strip().partition(":")[0]
        wanted, state = (status[:1], status[1:2]) if status.strip() else ("i", "i")
        if wanted == "h" and name:
            held.append(name)
        if not name or not version.strip() or state not in _DPKG_STATES or _STRANGER.match(name):
            continue
        rows.append(
            Package(
                name=name[:200],
                version=version.strip()[:200],
                architecture=architecture.strip(),
                origin=origin.strip()[:300],
                state=_DPKG_STATES[state],
            )
        )
    return rows, sorted(set(held))


def _rpm_rows(text: str) -> list[Package]:
    rows = []
    for line in text.splitlines()[:_PACKAGES_MAX]:
        name, version, architecture, state, vendor = (*line.split("\t"), "", "", "", "", "")[:5]
        # An epoch that is not set prints as `(none)`.
        version = version.strip().removeprefix("(none):")
        if name.strip() and version and not _STRANGER.match(name):
            origin = vendor.strip() if vendor.strip() != "(none)" else ""
            rows.append(
                Package(
                    name=name.strip()[:200],
                    version=version[:200],
                    architecture=architecture.strip(),
                    origin=origin[:300],
                    state=state.strip() or "installed",
                )
            )
    return rows


def _version_locks(evidence: Evidence) -> Fact[tuple[str, ...]]:
    """Patterns of dnf's versionlock plugin; `!` lines keep a version out and hold nothing."""
    readings = [evidence.file(path) for path in _LOCK_FILES]
    chosen = first_usable(*readings)
    if not chosen.has_data:
        return absent(chosen)
    lines = [re.sub(r"\s*#.*", "", line).strip() for line in chosen.text.splitlines()[:5000]]
    held = tuple(line[:300] for line in lines if line and not line.startswith("!"))
    return Known(value=held, origin=chosen.origin)


def _reboot_required(evidence: Evidence) -> Fact[bool]:
    answer = exists(evidence, _REBOOT)
    if answer is not None:
        return Known(value=answer, origin=f"stat:{_REBOOT}")
    names = evidence.file(f"{_REBOOT}.pkgs")
    if names.has_data:
        return Known(value=True, origin=names.origin)
    return absent(evidence.read(f"stat:{_REBOOT}"))
