"""CUDA on the host: the probe's answers and the toolkits on disk."""

from __future__ import annotations

import re

from doctor.core.evidence import Evidence, Item, Reading
from doctor.core.host import Absent, Cuda, CudaProbe, Fact, Known, Toolkit
from doctor.core.pattern import pattern
from doctor.core.versions import Dotted
from doctor.facts.collectenv import env_field, env_reading, env_text
from doctor.facts.source import (
    absent,
    at,
    document,
    dotted,
    driver_version_in,
    exists,
    integer,
    parent,
    runs,
    string,
)

__all__ = ["cuda_version", "read_cuda"]

_TOP = "/usr/local/cuda"
_DIRECTORY = pattern(r"/usr/local/cuda(?:-(\d{1,3}(?:\.\d{1,3}){0,2}))?")
_NO_CUDA = pattern(r"(?:CUDA (?:UMD )?Version *: *|<cuda_version>)(N/A|ERR!)")
_TOO_OLD = "driver on your system is too old"
_RELEASE = pattern(r"release (\d{1,3}\.\d{1,3})(?:, V(\d{1,3}(?:\.\d{1,5}){1,3}))?")


def read_cuda(evidence: Evidence) -> Cuda:
    """The facts of `Host.cuda`."""
    asked = evidence.read("cuinit")
    probe = (_doubt(evidence) if asked.status is None else None) or _probe(asked)
    caller = evidence.read("cuinit-caller")
    probe_caller: Fact[CudaProbe] = _probe(caller)
    if caller.status is None and not isinstance(probe, Absent):
        # The collector asks a second time only where the caller's variables lead elsewhere.
        probe_caller = Absent(
            reason="not_installed", origin=caller.origin, detail="it would load the same file"
        )
    return Cuda(probe=probe, probe_caller=probe_caller, toolkits=_toolkits(evidence))


def _doubt(evidence: Evidence) -> Absent | None:
    """Signs that CUDA may not start, in reports that never asked cuInit: enough not to call it ready.

    nvidia-smi asks libcuda for its version; torch asks it for devices.
    """
    for reading in runs(evidence, "nvidia-smi"):
        found = _NO_CUDA.search(reading.text[:100_000]) if reading.has_data else None
        if found is not None:
            detail = f"nvidia-smi shows `CUDA Version: {found.group(1)}`: it could not ask libcuda"
            return Absent(reason="failed", origin=reading.origin, detail=detail)
    is_too_old = _TOO_OLD in env_text(evidence)
    is_for_cuda = is_too_old or bool(env_field(evidence, "CUDA used to build PyTorch"))
    if is_for_cuda and env_field(evidence, "Is CUDA available").lower() == "false":
        said = " (it calls the driver too old)" if is_too_old else ""
        detail = f"torch found no CUDA in the environment that was asked{said}; why, it does not say"
        return Absent(reason="failed", origin=env_reading(evidence).origin, detail=detail)
    return None


def _probe(reading: Reading) -> Fact[CudaProbe]:
    # A library that could not be loaded is an answer, one that is not there an absence.
    is_answer = reading.has_data or reading.status == "error"
    doc = document(reading.data) if is_answer and reading.data else None
    if doc is None:
        call = (
            string(at(document(reading.data), "at")) if reading.status == "timeout" and reading.data else None
        )
        return absent(
            reading, "not a JSON object" if reading.has_data else f"no answer from {call}" if call else ""
        )
    result, error = integer(at(doc, "result")), string(at(doc, "error")) or ""
    if result is None and not error:
        return absent(reading, "" if not reading.has_data else "neither a result nor an error")
    path = string(at(doc, "library_path")) or ""
    value = CudaProbe(
        result=result,
        name=string(at(doc, "name")) or "",
        error=error,
        library_path=path,
        library_version=driver_version_in(path),
        driver_version=cuda_version(integer(at(doc, "driver_version"))),
        device_count=integer(at(doc, "device_count")),
    )
    return Known(value=value, origin=reading.origin)


def cuda_version(number: int | None) -> Dotted | None:
    """CUDA's packed number (13000, 12080) as a version; None for 0 and for nonsense."""
    if number is None or not 1000 <= number < 1_000_000:
        return None
    return dotted(f"{number // 1000}.{number % 1000 // 10}")


def _toolkits(evidence: Evidence) -> Fact[tuple[Toolkit, ...]]:
    releases = _nvcc_releases(evidence)
    items = {
        item.key.removeprefix("stat:"): item
        for item in evidence.below(_TOP, "stat")
        if _DIRECTORY.fullmatch(item.key.removeprefix("stat:"))
    }
    paths = _paths(evidence, items, releases)
    if not items and not paths:
        return Absent(reason="not_collected", origin=f"stat:{_TOP}")
    found = [_toolkit(evidence, path, releases.get(path)) for path in paths]
    default = _default(evidence, items.get(_TOP), found, releases)
    toolkits = tuple(
        Toolkit(
            path=t.path,
            version=t.version,
            nvcc_release=t.nvcc_release or (releases.get(_TOP) if t.path == default else None),
            is_default=t.path == default,
        )
        for t in found
    )
    return Known(value=toolkits, origin=f"stat:{_TOP}")


def _paths(evidence: Evidence, items: dict[str, Item], releases: dict[str, Dotted]) -> list[str]:
    """Directories that are a toolkit of their own: no links, and more than a place for compat libraries."""
    candidates = {p for p, item in items.items() if item.status == "ok" and item.exists is not False}
    files = [i for i in evidence.below(_TOP) if i.status in ("ok", "truncated")]
    candidates |= {parent(i.key.removeprefix("file:")) for i in files if "/version." in i.key}
    candidates |= set(releases)
    links = {path for path, item in items.items() if item.kind == "link" or item.link}
    others = candidates - links
    if len(others) > 1 and _TOP in others and _TOP not in items:
        others.discard(_TOP)
    kept = (p for p in others if p in releases or not _is_compat_only(evidence, p, releases.get(_TOP)))
    return _without_wrappers(sorted(kept), releases)


def _without_wrappers(paths: list[str], releases: dict[str, Dotted]) -> list[str]:
    """`/usr/local/bin/nvcc` may lead into a toolkit that is listed already; a link there is not followed."""
    own = {path for path in paths if _DIRECTORY.fullmatch(path)}
    told = {releases.get(path) or dotted(path.rpartition("-")[2]) for path in own}
    return [path for path in paths if path in own or releases.get(path) not in told]


def _is_compat_only(evidence: Evidence, path: str, through: Dotted | None) -> bool:
    """`cuda-compat-X-Y` makes the directory of a toolkit that is not there.

    `through` is the nvcc seen behind `/usr/local/cuda`, whose directory is no link's empty shell.
    """
    named = _DIRECTORY.fullmatch(path)
    version = dotted(named.group(1)) if named is not None else None
    if through is not None and version is not None and _same(version, through):
        return False
    has_version = any(evidence.file(f"{path}/version.{kind}").has_data for kind in ("json", "txt"))
    has_compat = any(item.status == "ok" for item in evidence.below(f"{path}/compat/", "stat"))
    return has_compat and not has_version


def _nvcc_releases(evidence: Evidence) -> dict[str, Dotted]:
    """Toolkit directory -> release of its nvcc."""
    releases: dict[str, Dotted] = {}
    for reading in runs(evidence, "nvcc"):
        found = _RELEASE.search(reading.text) if reading.has_data else None
        release = dotted(found.group(1)) if found is not None else None
        argv = reading.item.argv if reading.item is not None else ()
        path = argv[0] if argv and argv[0].startswith("/") else f"{_TOP}/bin/nvcc"
        if release is not None:
            releases.setdefault(parent(path, 2), release)
    return releases


def _toolkit(evidence: Evidence, path: str, release: Dotted | None) -> Toolkit:
    """Its own files are exact; nvcc and the directory's name give major and minor."""
    described = evidence.file(f"{path}/version.json")
    text = evidence.file(f"{path}/version.txt")
    version = dotted(string(at(document(described.data), "cuda", "version"))) if described.has_data else None
    if version is None and text.has_data:
        found = re.search(r"CUDA Version (\d{1,3}(?:\.\d{1,5}){1,3})", text.text)
        version = dotted(found.group(1)) if found is not None else None
    named = _DIRECTORY.fullmatch(path)
    return Toolkit(
        path=path,
        version=version or release or dotted(named.group(1) if named else None),
        nvcc_release=release,
    )


def _default(
    evidence: Evidence, top: Item | None, toolkits: list[Toolkit], releases: dict[str, Dotted]
) -> str | None:
    """What `/usr/local/cuda` leads to: itself, its target, or the one whose version it shows."""
    paths = [toolkit.path for toolkit in toolkits]
    if _TOP in paths:
        return _TOP
    target = top.link if top is not None else None
    name = (target or "").rstrip("/").rpartition("/")[2]
    if f"/usr/local/{name}" in paths:
        return f"/usr/local/{name}"
    if exists(evidence, _TOP) is False:
        return None
    # Through `/etc/alternatives` the link's text does not say; the files seen through it do.
    through = _toolkit(evidence, _TOP, releases.get(_TOP)).version
    alike = [
        t.path
        for t in toolkits
        if t.version is not None and through is not None and _same(t.version, through)
    ]
    if len(alike) == 1:
        return alike[0]
    return paths[0] if len(paths) == 1 and top is not None else None


def _same(left: Dotted, right: Dotted) -> bool:
    shared = min(len(left.parts), len(right.parts))
    return left.parts[:shared] == right.parts[:shared]
