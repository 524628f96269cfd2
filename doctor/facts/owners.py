"""Which package owns a file: the answers of `dpkg -S` and `rpm -qf`."""

from __future__ import annotations

from doctor.core.evidence import Evidence, Reading
from doctor.core.pattern import pattern
from doctor.facts.source import runs

__all__ = ["read_owners"]

_DPKG = pattern(r"([a-z0-9][\w.+-]*(?::\w+)?(?:, [a-z0-9][\w.+-]*(?::\w+)?)*): (/.+)")
_NOT_OWNED = pattern(r"file (/.+) is not owned by any package|error: file (/.+?): ")


def read_owners(evidence: Evidence) -> dict[str, str]:
    """File -> package; the empty string for a file that was asked about and that no package owns."""
    owners: dict[str, str] = {}
    for reading in runs(evidence, "dpkg"):
        if reading.has_data:
            owners |= _by_dpkg(reading)
    for reading in runs(evidence, "rpm"):
        argv = reading.item.argv if reading.item is not None else ()
        if reading.has_data and "-qf" in argv:
            owners |= _by_rpm(reading, [word for word in argv if word.startswith("/")])
    return owners


def _by_dpkg(reading: Reading) -> dict[str, str]:
    argv = reading.item.argv if reading.item is not None else ()
    owners = {word: "" for word in argv if word.startswith("/")}
    # With a merged /usr a file has two names: it may be listed under the old one, and be asked about by both.
    asked: dict[str, list[str]] = {}
    for path in owners:
        asked.setdefault(path.removeprefix("/usr"), []).append(path)
    for line in reading.text.splitlines():
        row = _DPKG.fullmatch(line.strip())
        if row is not None and not line.startswith("diversion "):
            package = row.group(1).split(",")[0].partition(":")[0]
            path = row.group(2)
            owners |= dict.fromkeys(asked.get(path.removeprefix("/usr"), [path]), package)
    return owners


def _by_rpm(reading: Reading, paths: list[str]) -> dict[str, str]:
    """`rpm -qf` answers in the order it was asked, in one line a file unless several packages own it."""
    lines = [line.strip() for line in reading.text.splitlines() if line.strip()]
    owners = {}
    for line in lines:
        lost = _NOT_OWNED.match(line)
        if lost is not None:
            owners[lost.group(1) or lost.group(2)] = ""
    names = [line for line in lines if not _NOT_OWNED.match(line)]
    rest = [path for path in paths if path not in owners]
    if len(names) == len(rest):
        owners |= dict(zip(rest, names, strict=True))
    elif len(set(names)) == 1:
        owners |= dict.fromkeys(rest, names[0])
    return owners
