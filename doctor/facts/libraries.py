"""The driver's user space on disk: which libraries, whose, and which one the loader takes."""

from __future__ import annotations

from doctor.core.evidence import Evidence
from doctor.core.host import Absent, AbsentReason, Fact, GpuReport, Known, Library
from doctor.core.pattern import pattern
from doctor.core.versions import Dotted
from doctor.facts.owners import read_owners
from doctor.facts.profiles import version_by_profile
from doctor.facts.source import absent, at, document, driver_version_in, runs, string

__all__ = ["read_container_root", "read_libraries", "userspace_version"]

SONAMES = ("libnvidia-ml.so.1", "libcuda.so.1")
_FILE = pattern(r"(libnvidia-ml|libcuda)\.so(?:\.(\d[\w.]*))?")
_CACHE_ROW = pattern(r"\s*(\S+) \(([^)]*)\) => (\S+)")
_LINKS_MAX = 8
#: Roots of driver containers as the host sees them: the GPU Operator's, and GKE's.
_CONTAINER_ROOTS = ("/run/nvidia/driver", "/home/kubernetes/bin/nvidia")
#: NixOS links its library directory into the store, whose files nobody lists.
_STORE = "/nix/store/"


def read_libraries(evidence: Evidence) -> Fact[tuple[Library, ...]]:
    """Every libcuda and libnvidia-ml found, one row a real file."""
    found_by_name = (i for i in evidence.below("/", "stat") if _FILE.fullmatch(_name(i.key)))
    items = {i.key.removeprefix("stat:"): i for i in found_by_name if not _container_of(i.key)}
    links = {
        path: item.link or ""
        for path, item in items.items()
        if item.status == "ok" and item.exists is not False
    }
    cache = _cache(evidence)
    asked = bool(items) or cache is not None
    if not asked:
        return Absent(reason="not_collected", origin="command:ldconfig-p")
    if not items and cache is not None:
        links = {path: "" for rows in cache.values() for path in rows}
    files: dict[str, str] = {}
    for path in sorted(links):
        real = _real(path, links)
        soname = _soname(path)
        if real is not None and soname and not _is_alias(real, links):
            files.setdefault(real, soname)
    owners = read_owners(evidence)
    defaults = {soname: _real(rows[0], links) for soname, rows in (cache or {}).items() if rows}
    found = [
        Library(
            soname=soname,
            path=path,
            version=driver_version_in(path),
            package=owners.get(path),
            is_compat="/compat/" in path,
            is_default=None if cache is None else defaults.get(soname) == path,
        )
        for path, soname in files.items()
    ]
    return Known(value=tuple(found), origin="stat:/" if items else "command:ldconfig-p")


def read_container_root(evidence: Evidence) -> Fact[str]:
    """The root of a driver container that holds a libcuda; programs of the host do not load that one."""
    seen = False
    for root in _CONTAINER_ROOTS:
        items = [*evidence.below(f"{root}/", "stat")]
        if any(i.status == "ok" and i.exists is not False and _FILE.fullmatch(_name(i.key)) for i in items):
            return Known(value=root, origin=f"stat:{root}")
        silent = next((i for i in items if i.status not in ("ok", "missing")), None)
        if silent is not None:
            return absent(evidence.read(silent.key))
        seen = seen or bool(items)
    reason: AbsentReason = "not_installed" if seen else "not_collected"
    return Absent(reason=reason, origin=f"stat:{_CONTAINER_ROOTS[0]}")


def _container_of(key: str) -> bool:
    return key.removeprefix("stat:").startswith(tuple(f"{root}/" for root in _CONTAINER_ROOTS))


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _soname(path: str) -> str:
    found = _FILE.fullmatch(_name(path))
    return f"{found.group(1)}.so.1" if found is not None else ""


def _real(path: str, links: dict[str, str]) -> str | None:
    """The file a path leads to through known links; None where it dangles or leaves what was asked.

    Distributions that merged `/lib` into `/usr/lib` show the same file under both names.
    """
    for _ in range(_LINKS_MAX):
        if path.startswith("/lib") and f"/usr{path}" in links:
            path = f"/usr{path}"
        if path not in links:
            return None
        target = links[path]
        if not target:
            return path
        if target.startswith(_STORE):
            # Of the three names of one library only the last says its version.
            return target if driver_version_in(target) is not None else None
        path = target if target.startswith("/") else _joined(path.rpartition("/")[0], target)
    return None


def _joined(directory: str, target: str) -> str:
    parts = directory.split("/")
    for part in target.split("/"):
        if part == ".." and len(parts) > 1:
            parts.pop()
        elif part not in ("", ".", ".."):
            parts.append(part)
    return "/".join(parts)


def _is_alias(path: str, links: dict[str, str]) -> bool:
    """True for `/lib/…` where `/usr/lib/…` holds the same name."""
    return path.startswith("/lib") and f"/usr{path}" in links


def _cache(evidence: Evidence) -> dict[str, list[str]] | None:
    """Of each soname, the files in the order the loader tries them; None when the cache was not read."""
    reading = next((r for r in runs(evidence, "ldconfig") if r.has_data and not r.rc), None)
    if reading is None:
        return None
    wide: dict[str, list[str]] = {name: [] for name in SONAMES}
    narrow: dict[str, list[str]] = {name: [] for name in SONAMES}
    for line in reading.text.splitlines():
        row = _CACHE_ROW.match(line) if "libcuda.so.1" in line or "libnvidia-ml.so.1" in line else None
        if row is not None and row.group(1) in wide:
            # `libc6` alone marks 32-bit files on 64-bit hosts.
            is_wide = any(mark in row.group(2) for mark in ("x86-64", "AArch64", "64bit"))
            (wide if is_wide else narrow)[row.group(1)].append(row.group(3))
    return {name: wide[name] or narrow[name] for name in SONAMES}


def userspace_version(
    evidence: Evidence,
    libraries: Fact[tuple[Library, ...]],
    nvml: Fact[GpuReport],
    smi: Fact[GpuReport],
) -> Fact[Dotted]:
    """Of the library that programs get: by file name, else by what the library says of itself.

    Libraries of a toolkit's `compat` directory never count. When several versions lie on disk and
    the loader's cache does not decide, the file that NVML or CUDA mapped does.
    """
    if isinstance(libraries, Known):
        chosen = _default(evidence, libraries.value)
        if chosen is not None:
            return Known(value=chosen, origin=libraries.origin)
    for key in ("nvml", "cuinit"):
        path = _mapped(evidence, key)
        version = driver_version_in(path) if "/compat/" not in path else None
        if version is not None:
            return Known(value=version, origin=key)
    for fact in (nvml, smi):
        if isinstance(fact, Known) and fact.value.library_version is not None:
            return Known(value=fact.value.library_version, origin=fact.origin)
        # NVML refuses to work beside a module of another version, so its answer tells both.
        if isinstance(fact, Known) and not fact.value.error and fact.value.driver_version is not None:
            return Known(value=fact.value.driver_version, origin=fact.origin)
    if isinstance(libraries, Absent):
        return version_by_profile(evidence) or libraries
    return _undecided(libraries)


def _undecided(libraries: Known[tuple[Library, ...]]) -> Absent:
    ordinary = [library for library in libraries.value if not library.is_compat]
    if not ordinary:
        return Absent(reason="not_installed", origin=libraries.origin)
    names = ", ".join(library.path for library in ordinary)[:400]
    return Absent(reason="unreadable", origin=libraries.origin, detail=f"no version can be told from {names}")


def _default(evidence: Evidence, libraries: tuple[Library, ...]) -> Dotted | None:
    ordinary = [library for library in libraries if not library.is_compat and library.version is not None]
    for soname in SONAMES:
        mine = [library for library in ordinary if library.soname == soname]
        for library in mine:
            if library.is_default:
                return library.version
        first = _first_ordinary(evidence, soname, mine)
        if first is not None:
            return first
    versions = {library.version for library in ordinary}
    return versions.pop() if len(versions) == 1 else None


def _first_ordinary(evidence: Evidence, soname: str, mine: list[Library]) -> Dotted | None:
    """Behind a compat library that comes first, the next file of the cache is the host's own."""
    rows = (_cache(evidence) or {}).get(soname, [])
    for path in rows:
        directory = path.rpartition("/")[0].removeprefix("/usr")
        for library in mine:
            if library.path.rpartition("/")[0].removeprefix("/usr") == directory:
                return library.version
    return None


def _mapped(evidence: Evidence, key: str) -> str:
    """The path of the library that a witness really mapped."""
    reading = evidence.read(key)
    return string(at(document(reading.data), "library_path")) or "" if reading.data else ""
