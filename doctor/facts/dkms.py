"""DKMS: what it says it built, and the first error of builds that failed."""

from __future__ import annotations

import re

from doctor.core.evidence import Evidence, Reading
from doctor.core.host import DkmsBuild, Fact, Known
from doctor.core.pattern import pattern
from doctor.facts.profiles import version_by_profile
from doctor.facts.source import absent

__all__ = ["first_error", "read_dkms"]

#: `nvidia/580.95.05, 6.8.0-45-generic, x86_64: installed`; DKMS 2 wrote `nvidia, 580.95.05, …`.
_ROW = pattern(
    r"(?P<module>[\w.+-]+)(?:/|,\s*)(?P<version>[^\s,:/]+)"
    r"(?:,\s*(?P<kernel>[^\s,:]+))?(?:,\s*(?P<arch>[\w-]+))?\s*:\s*(?P<state>[a-z-]+)(?P<note>.*)"
)
_LOG = pattern(r"/var/lib/dkms/([^/]+)/([^/]+)/(?:build/make\.log|([^/]+)/([^/]+)/log/make\.log)")
_HEAD = pattern(r"make\.log for \S+ for kernel (\S+)(?: \(([\w-]+)\))?")
_ERROR = pattern(
    r"(?:^|\s)(?:fatal )?error: |^ERROR: |: command not found"
    r"|unrecognized command[- ]line option|Unable to (?:find|locate) the kernel source|CC version check",
    re.IGNORECASE,
)
_SUCCESS = pattern(r"^# exit code: 0\b", re.MULTILINE)
_KINDS = ("nvidia", "gdrdrv", "mlnx", "doca", "nv-p")


def read_dkms(evidence: Evidence) -> Fact[tuple[DkmsBuild, ...]]:
    """Rows of `dkms status` for the GPU stack, each with the error of its log.

    A log that ends in an error for a kernel without a row of its own gives a row in state `failed`.
    """
    reading = evidence.command("dkms", "status")
    rows = _rows(reading.text) if reading.has_data else []
    failed = [log for log in map(_failure, _logs(evidence)) if log is not None]
    if reading.status is None:
        # A report that holds the logs alone: one without an error is a module that was built.
        rows = [row for row in map(_success, _logs(evidence)) if row is not None]
        searched = evidence.command("find", "/var/lib/dkms/nvidia", "-name", "make.log")
        if searched.status == "ok" and not searched.data.strip() and version_by_profile(evidence) is None:
            # No log, and nothing of the driver's user space either: nothing was ever registered.
            reading = searched
    if not rows and not failed and (not reading.has_data or reading.rc):
        return absent(reading, evidence.stderr(reading).strip()[:300])
    return Known(value=tuple(_joined(rows, failed)), origin=reading.origin)


def _rows(text: str) -> list[DkmsBuild]:
    rows = []
    for line in text.splitlines()[:2000]:
        row = _ROW.match(line.strip())
        if row is not None and row["module"].startswith(_KINDS):
            rows.append(
                DkmsBuild(
                    module=row["module"],
                    version=row["version"],
                    kernel=row["kernel"] or "",
                    architecture=row["arch"] or "",
                    state=row["state"],
                )
            )
    return rows


def _logs(evidence: Evidence) -> list[Reading]:
    found = (evidence.read(item.key) for item in evidence.below("/var/lib/dkms/"))
    return [reading for reading in found if reading.has_data]


def _failure(reading: Reading) -> DkmsBuild | None:
    """What a make.log tells of a failed build; None for a log without an error."""
    path = reading.origin.removeprefix("file:")
    place = _LOG.fullmatch(path)
    text = reading.text
    error = first_error(text)
    if place is None or not error or not place.group(1).startswith(_KINDS):
        return None
    module, version, kernel, architecture = place.groups()
    head = _HEAD.search(text[:2000])
    if kernel is None and head is not None:
        kernel, architecture = head.groups()
    return DkmsBuild(
        module=module,
        version=version,
        kernel=kernel or "",
        architecture=architecture or "",
        state="failed",
        failure=error,
        log=path,
    )


def _success(reading: Reading) -> DkmsBuild | None:
    place = _LOG.fullmatch(reading.origin.removeprefix("file:"))
    if place is None or first_error(reading.text) or not place.group(1).startswith(_KINDS):
        return None
    module, version, kernel, architecture = place.groups()
    if kernel is None:
        return None
    return DkmsBuild(module=module, version=version, kernel=kernel, architecture=architecture, state="built")


def first_error(text: str) -> str:
    """The first line of a make.log that says why the build ended; empty for a build that did not fail.

    A compiler's warning may hold the word, and so may a symbol's name in a note of objtool.
    """
    if _SUCCESS.search(text):
        return ""
    lines = [line.strip() for line in text.splitlines()]
    is_failed = any(map(_is_make_error, lines))
    for line in lines:
        if _ERROR.search(line) and "warning:" not in line:
            return line[:500] if is_failed or "exit code" in text else ""
    return next((line[:500] for line in lines if _is_make_error(line)), "")


def _is_make_error(line: str) -> bool:
    """`make[3]: *** [nv.o] Error 1` and `make: *** …  Stop.`; no pattern, which a long line would slow."""
    rest = line.partition("*** ")[2]
    return "Error " in rest or "Stop" in rest


def _joined(rows: list[DkmsBuild], failed: list[DkmsBuild]) -> list[DkmsBuild]:
    logs = {(log.module, log.version, log.kernel): log for log in failed}
    joined = []
    for row in rows:
        log = logs.pop((row.module, row.version, row.kernel), None)
        # A row that is installed was built after its old log failed.
        if log is None or row.state == "installed":
            joined.append(row)
            continue
        joined.append(
            DkmsBuild(
                module=row.module,
                version=row.version,
                kernel=row.kernel,
                architecture=row.architecture or log.architecture,
                state=row.state,
                failure=log.failure,
                log=log.log,
            )
        )
    return joined + list(logs.values())
