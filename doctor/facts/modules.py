"""Kernel modules in memory, and the options that modprobe gives them."""

from __future__ import annotations

from doctor.core.evidence import Evidence, Reading
from doctor.core.host import Absent, Fact, Known, LoadedModule, ModprobeLine
from doctor.core.pattern import pattern
from doctor.facts.source import absent, dotted, exists, line_of, whole

__all__ = ["read_modules", "read_options"]

_MATTERS = pattern(r"(?:nvidia|nouveau|nova|vfio|ib_|mlx5|drm|nv_peer_mem|gdrdrv)")
_ROW = pattern(r"(\S+) (\d{1,12}) (\d{1,9}|-) (\S+) \w+ \S+(?: \((\w+)\))?")
#: Earlier directories hide files of the same name in later ones (modprobe.d(5)).
_CONF_DIRS = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
_DIRECTIVES = frozenset(["alias", "options", "install", "remove", "blacklist", "softdep", "weakdep"])
_SYS = "/sys/module/"


def read_modules(evidence: Evidence) -> Fact[tuple[LoadedModule, ...]]:
    """Loaded modules of the GPU stack, newest first as the kernel lists them.

    A kernel without `/proc/modules` may still show modules under `/sys/module`.
    """
    reading = evidence.file("/proc/modules")
    extra = _sys_modules(evidence)
    if reading.has_data:
        return Known(value=_rows(reading, extra), origin=reading.origin)
    if reading.status == "missing" and (extra or exists(evidence, "/sys/module/nvidia") is False):
        named = tuple(_with_sys(LoadedModule(name=name), files) for name, files in sorted(extra.items()))
        return Known(value=named, origin="stat:/sys/module/nvidia")
    return absent(reading)


def _rows(reading: Reading, extra: dict[str, dict[str, str]]) -> tuple[LoadedModule, ...]:
    rows = []
    for line in reading.text.splitlines():
        row = _ROW.match(line)
        if row is None or not _MATTERS.match(row.group(1)):
            continue
        name, size, refcount, users, taint = row.groups()
        module = LoadedModule(
            name=name,
            size_bytes=int(size),
            refcount=whole(refcount),
            used_by=tuple(u for u in users.split(",") if u and u != "-" and not u.startswith("[")),
            taint=taint or "",
        )
        rows.append(_with_sys(module, extra.get(name, {})))
    return tuple(rows)


def _with_sys(module: LoadedModule, files: dict[str, str]) -> LoadedModule:
    """A module with what `/sys/module/NAME` adds: version, taint, parameters."""
    prefix = "parameters/"
    refcount = module.refcount if module.refcount is not None else whole(files.get("refcnt"))
    return LoadedModule(
        name=module.name,
        size_bytes=module.size_bytes,
        refcount=refcount,
        used_by=module.used_by,
        taint=module.taint or files.get("taint", ""),
        version=dotted(files.get("version")),
        parameters={k.removeprefix(prefix): v for k, v in files.items() if k.startswith(prefix)},
    )


def _sys_modules(evidence: Evidence) -> dict[str, dict[str, str]]:
    """Module -> file below its `/sys/module` directory -> first line."""
    found: dict[str, dict[str, str]] = {}
    for item in evidence.below(_SYS):
        module, _, name = item.key.removeprefix(f"file:{_SYS}").partition("/")
        reading = evidence.read(item.key)
        if reading.has_data and name and _MATTERS.match(module):
            found.setdefault(module, {})[name] = line_of(reading)
    for item in evidence.below(_SYS, "stat"):
        module = item.key.removeprefix(f"stat:{_SYS}").partition("/")[0]
        if item.status == "ok" and item.exists is not False and _MATTERS.match(module):
            found.setdefault(module, {})
    return found


def read_options(evidence: Evidence) -> Fact[tuple[ModprobeLine, ...]]:
    """Directives about modules of the GPU stack, in the order modprobe reads the files."""
    readings = _conf_files(evidence)
    if not readings:
        return Absent(reason="not_collected", origin="file:/etc/modprobe.d/")
    if not any(r.has_data for r in readings.values()):
        return absent(next(iter(readings.values())))
    lines = []
    for name in sorted(readings):
        path = readings[name].origin.removeprefix("file:")
        lines += [line for line in _directives(path, readings[name].text) if _is_relevant(line)]
    return Known(value=tuple(lines), origin="file:/etc/modprobe.d/")


def _conf_files(evidence: Evidence) -> dict[str, Reading]:
    """File name -> the file that counts under that name."""
    found: dict[str, Reading] = {}
    for directory in _CONF_DIRS:
        prefix = f"{directory}/modprobe.d/"
        for item in evidence.below(prefix):
            name = item.key.removeprefix(f"file:{prefix}")
            if name.endswith(".conf") and item.status != "missing":
                found.setdefault(name, evidence.read(item.key))
    return found


def _directives(path: str, text: str) -> list[ModprobeLine]:
    lines = []
    for line in text.replace("\\\n", " ").splitlines()[:5000]:
        words = line.split(maxsplit=2)
        if len(words) > 1 and words[0] in _DIRECTIVES:
            module = words[1].replace("-", "_") if words[0] != "alias" else words[1]
            arguments = words[2].strip()[:1000] if len(words) > 2 else ""
            lines.append(
                ModprobeLine(file=path, directive=words[0], module=module[:200], arguments=arguments)
            )
    return lines


def _is_relevant(line: ModprobeLine) -> bool:
    if _MATTERS.match(line.module):
        return True
    return any(_MATTERS.match(word.replace("-", "_")) for word in line.arguments.split())
