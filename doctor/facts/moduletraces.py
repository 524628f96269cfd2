"""Kernel modules on disk where nobody listed `/lib/modules`: what `modinfo`, `lspci` and DKMS logs give away.

`modinfo nvidia` prints nothing for modules of another name (`nvidia-current`, `nvidia_352`), so an empty
answer counts only together with `lspci`, which reads the aliases of the running kernel's modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.core.evidence import Evidence
from doctor.core.host import Absent, Fact, InstalledKernel, Known, ModuleFile
from doctor.core.pattern import pattern
from doctor.core.versions import Dotted
from doctor.facts.dkms import first_error
from doctor.facts.profiles import version_by_profile
from doctor.facts.source import dotted, line_of, runs

__all__ = ["read_traces", "running_release"]

_LOG = pattern(r"(/var/lib/dkms/(nvidia[\w.+-]*)/([^/]+)/([^/]+)/[^/]+)/log/make\.log")
_VERMAGIC = pattern(r"^vermagic:\s+(\S+.*)$", re.MULTILINE)
_GPU_BLOCK = pattern(r"(?:VGA compatible controller|3D controller|\[030[02]\])")
#: The driver's own modules; `nvidiafb` and `i2c_nvidia_gpu` belong to the kernel.
_OURS = pattern(r"^nvidia(?:$|[-_](?!gpu|wmi)|\d)")
_COMPILED = re.compile(r"^ +(?:CC|LD) (?:\[M\] )?", re.MULTILINE)
_EARLIER = "the kernel of an earlier boot"
_LOADING = ("NVRM: loading NVIDIA", "NVIDIA UNIX")


def read_traces(evidence: Evidence) -> Fact[tuple[InstalledKernel, ...]] | None:
    """The running kernel and those that DKMS built for; None where there is no trace to read."""
    asked = _vermagic(evidence)
    running = running_release(evidence)
    if asked is None or not running:
        return None
    magic, origin = asked
    built = dict(_dkms_files(evidence))
    kernels = [
        InstalledKernel(release=release, nvidia_modules=Known(value=(file,), origin=f"file:{file.path}"))
        for release, file in sorted(built.items())
        if release != running
    ]
    modules = _running_modules(evidence, running, magic, built)
    if isinstance(modules, Known) and not modules.value and not kernels:
        kernels += _of_earlier_boots(evidence)
    headers = _has_headers(evidence, running)
    kernels.append(InstalledKernel(release=running, has_headers=headers, nvidia_modules=modules))
    return Known(value=tuple(kernels), origin=origin)


def _of_earlier_boots(evidence: Evidence) -> list[InstalledKernel]:
    """A module that an earlier boot loaded and this kernel lacks; for which kernel, the logs do not say.

    With the driver's user space still in place it was left behind; without, it may have been removed.
    """
    if not _was_loaded_before(evidence):
        return []
    user = version_by_profile(evidence)
    modules: Fact[tuple[ModuleFile, ...]] = Absent(reason="not_collected", origin=_EARLIER)
    if isinstance(user, Known):
        modules = Known(value=(ModuleFile(name="nvidia", kernel=_EARLIER, path=""),), origin=user.origin)
    return [InstalledKernel(release=_EARLIER, nvidia_modules=modules)]


def _has_headers(evidence: Evidence, release: str) -> bool | None:
    """True when a build against that kernel came as far as the compiler, however it ended."""
    for item in evidence.below("/var/lib/dkms/nvidia"):
        place = _LOG.fullmatch(item.key.removeprefix("file:"))
        if place is not None and place.group(4) == release and _COMPILED.search(evidence.read(item.key).text):
            return True
    return None


def running_release(evidence: Evidence) -> str:
    """The running kernel as `uname -a` has it; empty when it was not asked."""
    uname = evidence.command("uname", "-a")
    found = re.match(r"Linux \S+ (\S{1,200})", line_of(uname)) if uname.has_data else None
    return found.group(1) if found is not None else ""


def _vermagic(evidence: Evidence) -> tuple[str, str] | None:
    """(vermagic of module `nvidia`, origin), empty where modinfo knew none; None when it was not asked."""
    for reading in runs(evidence, "modinfo"):
        argv = reading.item.argv if reading.item is not None else ()
        if argv[1:2] == ("nvidia",) and "vermagic" in argv and reading.status == "ok":
            found = _VERMAGIC.search(reading.text)
            return (found.group(1).strip() if found is not None else ""), reading.origin
    return None


def _running_modules(
    evidence: Evidence, running: str, magic: str, built: dict[str, ModuleFile]
) -> Fact[tuple[ModuleFile, ...]]:
    named = _named_by_lspci(evidence)
    origin = "command:modinfo nvidia"
    if magic or any(_OURS.match(name) for name in named or ()):
        version = _version_by_table(evidence) or (built[running].version if running in built else None)
        path = f"/lib/modules/{running}"
        file = ModuleFile(name="nvidia", kernel=running, path=path, version=version, vermagic=magic)
        return Known(value=(file,), origin=origin)
    if named is None:
        detail = "`modinfo nvidia` is silent, and the module may have another name"
        return Absent(reason="not_collected", origin=origin, detail=detail)
    return Known(value=(), origin=origin)


def _named_by_lspci(evidence: Evidence) -> set[str] | None:
    """Modules that claim a GPU by the running kernel's aliases; None when `lspci` showed none for any GPU."""
    names: set[str] = set()
    for reading in runs(evidence, "lspci"):
        block = ""
        for line in reading.text.splitlines() if reading.has_data else ():
            block = line if line[:1].strip() else block
            label, colon, rest = line.strip().partition(": ")
            if colon and label == "Kernel modules" and _GPU_BLOCK.search(block) and _is_ours(block):
                names.update(name.strip() for name in rest.split(","))
    return names or None


def _is_ours(head: str) -> bool:
    return "NVIDIA" in head or "[10de:" in head.lower()


def _dkms_files(evidence: Evidence) -> Iterator[tuple[str, ModuleFile]]:
    """A log without an error stands for a module that was built."""
    for item in evidence.below("/var/lib/dkms/nvidia"):
        place = _LOG.fullmatch(item.key.removeprefix("file:"))
        reading = evidence.read(item.key)
        if place is None or not reading.has_data or first_error(reading.text):
            continue
        path, _, version, kernel = place.groups()
        yield kernel, ModuleFile(name="nvidia", kernel=kernel, path=path, version=dotted(version))


def _version_by_table(evidence: Evidence) -> Dotted | None:
    """In safe mode newer scripts print the version on disk."""
    table = evidence.command("nvidia-bug-report.sh", "--versions-table")
    found = (
        re.search(r"Driver version \(from modinfo\): ([0-9.]{3,30})", table.text) if table.has_data else None
    )
    return dotted(found.group(1)) if found is not None else None


def _was_loaded_before(evidence: Evidence) -> bool:
    readings = [evidence.command("journalctl", "-k", "-b", str(boot)) for boot in (0, -1, -2)]
    readings += [evidence.file("/var/log/kern.log"), evidence.file("/var/log/messages")]
    return any(all(words in r.text for words in _LOADING) for r in readings if r.has_data)
