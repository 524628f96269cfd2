"""The running kernel: release, compiler, command line, Secure Boot, lockdown."""

from __future__ import annotations

import re
from typing import Literal

from doctor.core.evidence import Evidence, Reading
from doctor.core.host import Absent, BootLog, Fact, Kernel, Known
from doctor.facts.bootlogs import read_logs, secure_boot_line
from doctor.facts.collectenv import release_by_env
from doctor.facts.dkms import read_dkms
from doctor.facts.kernels import read_installed, read_next_release
from doctor.facts.modules import read_modules, read_options
from doctor.facts.source import absent, exists, first_usable, line_of

__all__ = ["read_kernel"]

_EFI = "/sys/firmware/efi"
_SECURE_BOOT = f"{_EFI}/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

SecureBoot = Literal["enabled", "disabled", "unsupported"]


def read_kernel(evidence: Evidence, *, in_container: bool) -> Kernel:
    """The facts of `Host.kernel`. A container sees neither firmware nor boot files of its host."""
    installed = read_installed(evidence)
    logs: Fact[tuple[BootLog, ...]] = read_logs(evidence)
    return Kernel(
        release=_release(evidence),
        compiler=_compiler(evidence),
        command_line=_command_line(evidence),
        secure_boot=_secure_boot(evidence, in_container=in_container),
        lockdown=_lockdown(evidence),
        installed=installed,
        next_release=read_next_release(evidence, installed),
        modules=read_modules(evidence),
        module_options=read_options(evidence),
        dkms=read_dkms(evidence),
        logs=logs,
        compiler_on_path=_compiler_on_path(evidence),
    )


def _release(evidence: Evidence) -> Fact[str]:
    reading = evidence.file("/proc/sys/kernel/osrelease")
    if reading.has_data and line_of(reading):
        return Known(value=line_of(reading)[:200], origin=reading.origin)
    version = evidence.file("/proc/version")
    uname = evidence.command("uname", "-a")
    for other, pattern in ((version, r"Linux version (\S+)"), (uname, r"Linux \S+ (\S+)")):
        found = re.match(pattern, line_of(other)) if other.has_data else None
        if found is not None:
            return Known(value=found.group(1)[:200], origin=other.origin)
    return release_by_env(evidence) or absent(first_usable(reading, version, uname))


def _compiler(evidence: Evidence) -> Fact[str]:
    """The part of `/proc/version` between the builder and the linker."""
    reading = evidence.file("/proc/version")
    if not reading.has_data:
        return absent(reading)
    for group in _groups(line_of(reading)):
        if re.search(r"\b(?:gcc|clang)\b", group):
            compiler = re.split(r",\s*(?:GNU ld|LLD|ld\b)", group)[0].strip()
            return Known(value=compiler, origin=reading.origin)
    return absent(reading, "it names no compiler")


def _groups(text: str) -> list[str]:
    """What stands in the outermost parentheses of a text."""
    groups, depth, start = [], 0, 0
    for position, char in enumerate(text):
        if char == "(":
            start = position + 1 if depth == 0 else start
            depth += 1
        elif char == ")" and depth:
            depth -= 1
            if depth == 0:
                groups.append(text[start:position])
    return groups


def _command_line(evidence: Evidence) -> Fact[tuple[str, ...]]:
    reading = evidence.file("/proc/cmdline")
    if not reading.has_data:
        return absent(reading)
    words = re.findall(r'(?:[^\s"]|"[^"]*"?)+', line_of(reading))
    return Known(value=tuple(words), origin=reading.origin)


def _secure_boot(evidence: Evidence, *, in_container: bool) -> Fact[SecureBoot]:
    variable = evidence.file(_SECURE_BOOT)
    if variable.has_data:
        # Four bytes of attributes, then one byte of value.
        last = variable.data[-1:] if len(variable.data) in (1, 5) else b""
        if last in (b"\0", b"\1"):
            return Known(value="enabled" if last == b"\1" else "disabled", origin=variable.origin)
        return absent(variable, f"{len(variable.data)} bytes are not the value of an EFI flag")
    for found in (_by_mokutil(evidence), secure_boot_line(evidence)):
        if found is not None:
            return found
    return _without_efi(evidence, variable, in_container=in_container)


def _by_mokutil(evidence: Evidence) -> Fact[SecureBoot] | None:
    reading = evidence.command("mokutil", "--sb-state")
    said = f"{reading.text}\n{evidence.stderr(reading)}" if reading.has_data else ""
    found = re.search(r"^SecureBoot (enabled|disabled)", said, re.MULTILINE)
    if found is not None:
        return Known(value="enabled" if found.group(1) == "enabled" else "disabled", origin=reading.origin)
    if "EFI variables are not supported" in said:
        return Known(value="unsupported", origin=reading.origin)
    return None


def _without_efi(evidence: Evidence, variable: Reading, *, in_container: bool) -> Fact[SecureBoot]:
    """Without `/sys/firmware/efi` the machine did not boot through EFI, unless a container hides it."""
    firmware = exists(evidence, _EFI)
    origin = f"stat:{_EFI}"
    if firmware is False and in_container:
        return Absent(reason="not_collected", origin=origin, detail="a container does not see the firmware")
    if firmware is False:
        return Known(value="unsupported", origin=origin)
    if firmware and variable.status == "missing":
        detail = "booted through EFI, but the firmware has no SecureBoot variable or it is not mounted"
        return Absent(reason="unreadable", origin=variable.origin, detail=detail)
    return absent(variable)


def _lockdown(evidence: Evidence) -> Fact[str]:
    reading = evidence.file("/sys/kernel/security/lockdown")
    if not reading.has_data:
        return absent(reading)
    found = re.search(r"\[(\w+)\]", line_of(reading))
    if found is None:
        return absent(reading, "no mode is marked")
    return Known(value=found.group(1), origin=reading.origin)


def _compiler_on_path(evidence: Evidence) -> Fact[str]:
    reading = evidence.command("gcc", "--version")
    if reading.has_data and line_of(reading) and not reading.rc:
        return Known(value=line_of(reading)[:300], origin=reading.origin)
    verbose = evidence.command("gcc", "-v")
    found = re.search(r"^gcc \S+ \d+\.\d.*", verbose.text, re.MULTILINE) if verbose.has_data else None
    if found is not None:
        return Known(value=found.group(0).strip()[:300], origin=verbose.origin)
    return absent(reading, f"exit status {reading.rc}" if reading.has_data else "")
