"""Kernels on disk: which are there, with headers and image, which NVIDIA modules each has."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.core.evidence import Evidence, Item
from doctor.core.host import Absent, Fact, Flavour, InstalledKernel, Known, ModuleFile
from doctor.core.pattern import pattern
from doctor.core.versions import Rpm
from doctor.facts.moduletraces import read_traces
from doctor.facts.source import absent, dotted, exists, line_of, runs, stat_of

__all__ = ["flavour_of_licence", "read_installed", "read_next_release"]

_ROOT = "/lib/modules"
_MODULE = pattern(r"/lib/modules/([^/]+)/(?:.*/)?(nvidia[^/]*)\.ko(?:\.(?:xz|zst|gz))?")
#: Debian and old Ubuntu packages put their branch into the file's name: `nvidia-current-uvm.ko`.
_PACKAGED_NAME = pattern(r"^nvidia_(?:current|legacy_\w+?xx|tesla(?:_\d+)?|\d{3})(?=_|$)")
_KERNELS_MAX = 200
_MODULES_MAX = 2000

Fields = dict[str, str]


def read_installed(evidence: Evidence) -> Fact[tuple[InstalledKernel, ...]]:
    """Every directory below `/lib/modules`, oldest name first; none is an answer too."""
    files = _module_files(evidence)
    names = _names(evidence, files)
    root = stat_of(evidence, _ROOT)
    if not names and root.status not in ("ok", "missing"):
        return read_traces(evidence) or absent(root)
    kernels = tuple(_kernel(evidence, name, files.get(name, [])) for name in names[:_KERNELS_MAX])
    origin = root.origin if root.status is not None else f"stat:{_ROOT}/"
    return Known(value=kernels, origin=origin)


def _names(evidence: Evidence, files: dict[str, list[ModuleFile]]) -> list[str]:
    names = set(files)
    for item in evidence.below(f"{_ROOT}/", "stat"):
        name = item.key.removeprefix(f"stat:{_ROOT}/").partition("/")[0]
        if name and item.status == "ok" and item.exists is not False:
            names.add(name)
    # A directory that was asked for by name and is missing is no kernel, whatever lies below it.
    return sorted(n for n in names if exists(evidence, f"{_ROOT}/{n}") is not False)


def _kernel(evidence: Evidence, name: str, files: list[ModuleFile]) -> InstalledKernel:
    top = f"{_ROOT}/{name}"
    directory = evidence.item(f"stat:{top}")
    modules: Fact[tuple[ModuleFile, ...]]
    if directory is not None and directory.status == "denied":
        modules = Absent(reason="denied", origin=f"stat:{top}", detail=directory.detail or "")
    elif directory is None and not files:
        modules = Absent(reason="not_collected", origin=f"stat:{top}")
    else:
        modules = Known(value=tuple(files), origin=f"stat:{top}")
    return InstalledKernel(
        release=name,
        is_bootable=_any(exists(evidence, f"{top}/vmlinuz"), exists(evidence, f"/boot/vmlinuz-{name}")),
        has_headers=_headers(evidence, top),
        nvidia_modules=modules,
    )


def _any(*answers: bool | None) -> bool | None:
    if True in answers:
        return True
    return False if False in answers else None


def _headers(evidence: Evidence, top: str) -> bool | None:
    """A `build` link that leads to a tree with a Makefile; the link alone may dangle."""
    if exists(evidence, f"{top}/build") is False:
        return False
    return exists(evidence, f"{top}/build/Makefile")


def _module_files(evidence: Evidence) -> dict[str, list[ModuleFile]]:
    """Module files by kernel: those listed on disk, and those that `modinfo` alone names."""
    described = dict(_modinfo(evidence))
    paths: dict[str, Item | None] = {}
    for item in evidence.below(f"{_ROOT}/", "stat"):
        path = item.key.removeprefix("stat:")
        if item.status == "ok" and item.exists is not False and _MODULE.fullmatch(path):
            paths[path] = item
    found: dict[str, list[ModuleFile]] = {}
    for path in sorted({*paths, *described})[:_MODULES_MAX]:
        match = _MODULE.fullmatch(path)
        if match is not None:
            file = _module_file(path, match.group(1), match.group(2), described.get(path, {}))
            found.setdefault(file.kernel, []).append(file)
    return found


def _modinfo(evidence: Evidence) -> Iterator[tuple[str, Fields]]:
    """What `modinfo` said of each file, by path; its own words name the file where argv does not."""
    for reading in runs(evidence, "modinfo"):
        if not reading.has_data or reading.rc:
            continue
        fields: Fields = {}
        for line in reading.text.splitlines()[:2000]:
            key, colon, value = line.partition(":")
            if colon:
                fields.setdefault(key.strip(), value.strip()[:1000])
        argv = reading.item.argv if reading.item else ()
        path = argv[-1] if len(argv) > 1 and argv[-1].startswith("/") else fields.get("filename", "")
        yield path.removeprefix("/usr") if path.startswith(f"/usr{_ROOT}") else path, fields


def _module_file(path: str, kernel: str, stem: str, fields: Fields) -> ModuleFile:
    name = (fields.get("name") or stem).replace("-", "_")
    name = _PACKAGED_NAME.sub("nvidia", name)
    licence = fields.get("license", "")
    return ModuleFile(
        name=name,
        kernel=kernel,
        path=path,
        version=dotted(fields.get("version")),
        license=licence,
        # Some builds of kmod cannot read the signer out of a PKCS#7 signature, but show that there is one.
        signer=fields.get("signer") or fields.get("sig_key") or fields.get("sig_id", ""),
        vermagic=fields.get("vermagic", ""),
        flavour=flavour_of_licence(licence) if name == "nvidia" else None,
    )


def flavour_of_licence(licence: str) -> Flavour | None:
    """`Dual MIT/GPL` is the open module, `NVIDIA` the proprietary one; None for an empty field."""
    if "MIT" in licence or "GPL" in licence:
        return "open"
    return "proprietary" if licence.strip().upper() == "NVIDIA" else None


def read_next_release(evidence: Evidence, installed: Fact[tuple[InstalledKernel, ...]]) -> Fact[str]:
    """The boot loader's default where it says so, else the newest kernel that has an image."""
    found = _by_grubby(evidence) or _by_grubenv(evidence, installed)
    if found is not None:
        return found
    if isinstance(installed, Absent):
        return installed
    answers = [k.is_bootable for k in installed.value]
    bootable = [k.release for k in installed.value if k.is_bootable]
    if bootable:
        return Known(value=max(bootable, key=_order), origin=installed.origin)
    if answers and None not in answers:
        return Absent(reason="not_installed", origin=installed.origin, detail="no kernel image lies in /boot")
    return Absent(reason="not_collected", origin=installed.origin)


def _order(release: str) -> Rpm:
    """Releases of deb and rpm hosts alike order by runs of digits and letters.

    A colon would be read as an epoch, and no kernel release has one.
    """
    return Rpm(release.replace(":", ".") or "0")


def _by_grubby(evidence: Evidence) -> Fact[str] | None:
    reading = evidence.command("grubby", "--default-kernel")
    found = re.search(r"vmlinuz-(\S+)", line_of(reading)) if reading.has_data and not reading.rc else None
    return None if found is None else Known(value=found.group(1), origin=reading.origin)


def _by_grubenv(evidence: Evidence, installed: Fact[tuple[InstalledKernel, ...]]) -> Fact[str] | None:
    """`saved_entry` names a boot entry: MACHINE-RELEASE where entries are files, else a menu title."""
    reading = evidence.file("/boot/grub2/grubenv")
    found = re.search(r"^saved_entry=(.+)$", reading.text, re.MULTILINE) if reading.has_data else None
    if found is None or isinstance(installed, Absent):
        return None
    entry = found.group(1).strip()
    matches = [
        k.release
        for k in installed.value
        if re.search(rf"(?:^|[^\w.]){re.escape(k.release)}(?:$|[^\w.])", entry)
    ]
    return Known(value=max(matches, key=len), origin=reading.origin) if matches else None
