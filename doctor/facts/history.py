"""What the package manager logged about the GPU stack, newest first."""

from __future__ import annotations

import re
from typing import Literal

from doctor.core.evidence import Evidence
from doctor.core.host import Fact, Known, PackageChange
from doctor.core.pattern import pattern
from doctor.facts.source import absent

__all__ = ["Manager", "read_changes"]

Manager = Literal["dpkg", "rpm"]

_STACK = pattern(
    r"nvidia|cuda|libnccl|libcudnn|cudnn|nvinfer|tensorrt|nvlsm|nvlink|datacenter-gpu|gdrcopy|libnvsdm|libxnvctrl"
)
_CHANGES_MAX = 500
_NAMES_MAX = 200
_APT_FIELD = pattern(r"^(Install|Upgrade|Downgrade|Remove|Purge|Reinstall): (.*)$", re.MULTILINE)
#: `NAME:ARCH (OLD, NEW)`, `NAME:ARCH (NEW, automatic)`, `NAME:ARCH (OLD)`.
_APT_PACKAGE = pattern(r"([^\s,():]{1,200})(?::\w+)? \(([^()]{0,300})\)")
_DNF_LINE = pattern(
    r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S{0,6}) \w+ "
    r"(Installed|Upgraded?|Downgraded?|Erased?|Removed|Obsoleted|Reinstalled): (\S{1,300})"
)
#: `NAME-[EPOCH:]VERSION-RELEASE.ARCH`
_NEVRA = pattern(r"(.+)-([^-]+-[^-]+)\.[^.]+")


def read_changes(evidence: Evidence, manager: Manager) -> Fact[tuple[PackageChange, ...]]:
    """Transactions that touched the stack; a host without such a log gives the reason."""
    path = "/var/log/apt/history.log" if manager == "dpkg" else "/var/log/dnf.rpm.log"
    reading = evidence.file(path)
    if not reading.has_data:
        return absent(reading)
    changes = _apt(reading.text) if manager == "dpkg" else _dnf(reading.text)
    return Known(value=tuple(changes[::-1][:_CHANGES_MAX]), origin=reading.origin)


def _apt(text: str) -> list[PackageChange]:
    """Stanzas between blank lines; times are the host's local ones."""
    changes = []
    for stanza in re.split(r"\n\s*\n", text):
        start = re.search(r"^Start-Date: (.*)$", stanza, re.MULTILINE)
        command = re.search(r"^Commandline: (.*)$", stanza, re.MULTILINE)
        names = [n for kind, rest in _APT_FIELD.findall(stanza) for n in _apt_names(kind, rest)]
        if start is not None and names:
            changes.append(
                PackageChange(
                    when=" ".join(start.group(1).split())[:40],
                    command=command.group(1).strip()[:500] if command is not None else "",
                    names=tuple(names[:_NAMES_MAX]),
                )
            )
    return changes


def _apt_names(kind: str, rest: str) -> list[str]:
    names = []
    for name, inside in _APT_PACKAGE.findall(rest):
        if _STACK.search(name):
            versions = [part.strip() for part in inside.split(",") if part.strip() != "automatic"]
            old, new = (*versions, "")[:2]
            if kind in ("Install", "Reinstall"):
                names.append(f"{name} none -> {old}" if kind == "Install" else f"{name} {old} -> {old}")
            elif kind in ("Remove", "Purge"):
                names.append(f"{name} {old} -> none")
            else:
                names.append(f"{name} {old} -> {new}")
    return names


def _dnf(text: str) -> list[PackageChange]:
    """One line a package; lines of the same minute are one transaction, as near as the log tells."""
    transactions: dict[str, tuple[str, dict[str, list[str]]]] = {}
    for when, kind, nevra in _DNF_LINE.findall(text):
        parts = _NEVRA.fullmatch(nevra)
        if parts is None or not _STACK.search(parts.group(1)):
            continue
        _, packages = transactions.setdefault(when[:16], (when, {}))
        versions = packages.setdefault(parts.group(1), ["none", "none"])
        # dnf logs the arrival as `Upgrade` and the departure as `Upgraded`.
        is_new = kind in ("Installed", "Upgrade", "Downgrade", "Reinstalled")
        versions[1 if is_new else 0] = parts.group(2)
    changes = []
    for when, packages in transactions.values():
        names = [f"{name} {old} -> {new}" for name, (old, new) in packages.items()]
        changes.append(PackageChange(when=when, command="dnf", names=tuple(names[:_NAMES_MAX])))
    return changes
