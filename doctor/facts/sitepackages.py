"""The witness `environments`: what lies in the site directories of each Python environment that it found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from doctor.core.evidence import Evidence
from doctor.core.host import Environment, Known
from doctor.core.host_engine import Bundled, EnvironmentKind, Requirement, TorchBuild
from doctor.core.pattern import pattern
from doctor.core.versions import Dotted
from doctor.facts.source import Document, at, document, dotted, string

__all__ = ["canonical", "cuda_of", "read_environments", "torch_build"]

_ENVIRONMENTS_MAX = 16
_ITEMS_MAX = 400

_DISTRIBUTION = pattern(
    r"([A-Za-z0-9][\w.]{0,100}?)-(\d[\w.+!]{0,60}?)(?:-py3[.\d]{0,5}\w{0,20})?\.(?:dist|egg)-info"
)
_REQUIREMENT = pattern(
    r"([A-Za-z0-9][\w.-]{0,100})(?:\[[\w,. -]{0,100}\])?[ \t]*\(?([\w.,<>=!~*+ \t]{0,120})\)?[ \t]*"
    r"(?:;(.{0,200}))?"
)
_CLAUSE = pattern(r"(sys_platform|platform_system|platform_machine)\s*(==|!=)\s*[\"']([\w-]{1,20})[\"']")
_MANYLINUX = pattern(r"manylinux(?:_2_(\d{1,3})|(1|2010|2014))_(?:x86_64|aarch64)")
_NAMED_TAGS = {"1": "2.5", "2010": "2.12", "2014": "2.17"}
_KINDS: tuple[EnvironmentKind, ...] = ("venv", "conda", "system")


def read_environments(evidence: Evidence) -> dict[str, Known[Environment]]:
    """Environments by prefix. One that was named and holds nothing is among them, and empty."""
    reading = evidence.read("environments")
    if not reading.data:
        return {}
    doc = document(reading.data) or {}
    listed = doc.get("environments")
    found: dict[str, Known[Environment]] = {}
    for prefix, said in list(listed.items())[:_ENVIRONMENTS_MAX] if isinstance(listed, dict) else ():
        if (
            isinstance(said, dict)
            and isinstance(prefix, str)
            and prefix.startswith("/")
            and len(prefix) < 500
        ):
            value = _environment(prefix, said, dotted(string(doc.get("glibc"))))
            found[prefix] = Known(value=value, origin=reading.origin)
    return found


def canonical(name: str) -> str:
    """A package's name as the index spells it: `nvidia_nccl_cu12` is `nvidia-nccl-cu12`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _environment(prefix: str, said: Document, glibc: Dotted | None) -> Environment:
    versions = _distributions(said)
    packages = {name: each[0] for name, each in versions.items()}
    architecture = _architecture(said)
    tag, tag_of = _glibc_tag(said)
    torch = _strings(said.get("torch"))
    mpi, headers = said.get("mpi"), _headers(said)
    kind = string(said.get("kind")) or ""
    return Environment(
        kind=kind if kind in _KINDS else "",
        prefix=prefix,
        is_meant=said.get("named") is True,
        python=_python(said),
        glibc=glibc,
        torch=torch.get("__version__", "") or packages.get("torch", ""),
        torch_cuda=dotted(torch.get("cuda")) or cuda_of(packages.get("torch", "")),
        torch_build=torch_build(torch) or ("cuda" if cuda_of(packages.get("torch", "")) else ""),
        vllm=packages.get("vllm", ""),
        tensorrt=_tensorrt(packages),
        tensorrt_llm=packages.get("tensorrt-llm", ""),
        wheels={name: packages[name] for name in sorted(packages) if name.startswith("nvidia-")},
        packages=dict(sorted(packages.items())),
        doubled={name: each for name, each in sorted(versions.items()) if len(each) > 1},
        is_listed=True,
        requires=tuple(_requirements(said, architecture)),
        glibc_tag=tag,
        glibc_tag_of=tag_of,
        bundled=tuple(_bundled(said)),
        libraries=tuple(_texts(said.get("libraries"))),
        libcuda=tuple(_texts(said.get("libcuda"))),
        ptxas=_newest(_strings(said.get("ptxas")).values()),
        libstdcxx=dotted(string(said.get("standard_library"))),
        has_headers=headers,
        compilers=tuple(_texts(said.get("programs"))),
        mpi=mpi[:500] if isinstance(mpi, str) else None,
        architecture=architecture,
    )


# --- fields ---------------------------------------------------------------------------------------


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, list):
        yield from (text[:500] for text in value[:_ITEMS_MAX] if isinstance(text, str))


def _strings(value: object) -> dict[str, str]:
    """An object's text fields; empty for anything else."""
    pairs = list(value.items())[:_ITEMS_MAX] if isinstance(value, dict) else []
    return {name[:300]: text[:300] for name, text in pairs if isinstance(name, str) and isinstance(text, str)}


def _by_distribution(said: Document, field: str) -> Iterator[tuple[str, list[str]]]:
    """Package name and texts of a field that is told for each distribution."""
    value = said.get(field)
    for folder, texts in list(value.items())[:_ITEMS_MAX] if isinstance(value, dict) else ():
        found = _DISTRIBUTION.fullmatch(folder) if isinstance(folder, str) else None
        if found is not None:
            yield canonical(found.group(1)), list(_texts(texts))


def _distributions(said: Document) -> dict[str, tuple[str, ...]]:
    """Name to versions, the one first that an import finds."""
    found: dict[str, list[str]] = {}
    for folder in _texts(said.get("distributions")):
        match = _DISTRIBUTION.fullmatch(folder)
        if match is not None:
            versions = found.setdefault(canonical(match.group(1)), [])
            versions += [match.group(2)] if match.group(2) not in versions else []
    return {name: tuple(versions) for name, versions in found.items()}


def _python(said: Document) -> Dotted | None:
    config = _strings(said.get("config"))
    named = dotted(
        re.sub(r"[^\d.].*", "", config.get("version", "") or config.get("version_info", "")).rstrip(".")
    )
    minors = [
        found.group(1)
        for site in _texts(said.get("sites"))
        if (found := re.search(r"/python(3\.\d{1,2})/", site))
    ]
    return named or dotted(minors[0] if minors else None)


def _headers(said: Document) -> bool | None:
    """Of its own interpreter; None where several or none were looked at and they differ."""
    value = said.get("headers")
    answers = (
        {told for told in value.values() if isinstance(told, bool)} if isinstance(value, dict) else set()
    )
    return answers.pop() if len(answers) == 1 else None


def cuda_of(version: str) -> Dotted | None:
    """The CUDA in a version's local part, as PyTorch's own index writes it: `2.9.1+cu129` is 12.9."""
    found = re.fullmatch(r"cu(\d{2})(\d)", version.partition("+")[2])
    return Dotted(f"{found.group(1)}.{found.group(2)}") if found is not None else None


def torch_build(fields: Mapping[str, str]) -> TorchBuild:
    """What torch's `version.py` says it was built for; empty where it says nothing."""
    if "cuda" not in fields:
        return ""
    told = {name: fields.get(name, "None") for name in ("cuda", "hip", "xpu")}
    builds: dict[str, TorchBuild] = {"cuda": "cuda", "hip": "rocm", "xpu": "xpu"}
    return next((builds[name] for name, value in told.items() if value not in ("None", "")), "cpu")


def _tensorrt(packages: Mapping[str, str]) -> str:
    names = (
        "tensorrt",
        "tensorrt-cu13",
        "tensorrt-cu12",
        "tensorrt-cu13-libs",
        "tensorrt-cu12-libs",
        "tensorrt-libs",
    )
    return next((packages[name] for name in names if name in packages), "")


def _architecture(said: Document) -> str:
    tags = [tag for _name, texts in _by_distribution(said, "tags") for tag in texts]
    kinds = {arch for tag in tags for arch in ("x86_64", "aarch64") if tag.endswith(arch)}
    return kinds.pop() if len(kinds) == 1 else ""


def _glibc_tag(said: Document) -> tuple[Dotted | None, str]:
    """The newest C library that a wheel's name asks for; of several tags of one wheel the oldest will do."""
    best: Dotted | None = None
    whose = ""
    for name, tags in _by_distribution(said, "tags"):
        floors = [floor for tag in tags for floor in _floors(tag)]
        if floors and (best is None or min(floors) > best):
            best, whose = min(floors), name
    return best, whose


def _floors(tag: str) -> Iterator[Dotted]:
    for minor, named in _MANYLINUX.findall(tag):
        yield Dotted(f"2.{minor}" if minor else _NAMED_TAGS[named])


def _requirements(said: Document, architecture: str) -> Iterator[Requirement]:
    """Requirements that hold here; one whose marker cannot be told is left out."""
    for by, texts in _by_distribution(said, "requires"):
        for text in texts:
            found = _REQUIREMENT.fullmatch(text)
            if found is not None and _applies(found.group(3) or "", architecture):
                yield Requirement(
                    by=by, name=canonical(found.group(1)), spec=re.sub(r"\s", "", found.group(2))
                )


def _applies(marker: str, architecture: str) -> bool:
    """Whether an environment marker holds on this Linux: `and` of plain comparisons only."""
    here = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": architecture}
    for part in marker.split(" and ") if marker.strip() else ():
        found = _CLAUSE.fullmatch(part.strip())
        if found is None or not here[found.group(1)]:
            return False
        if (here[found.group(1)] == found.group(3)) != (found.group(2) == "=="):
            return False
    return True


def _bundled(said: Document) -> Iterator[Bundled]:
    value = said.get("linked")
    for path, told in list(value.items())[:64] if isinstance(value, dict) else ():
        if isinstance(path, str) and isinstance(told, dict):
            yield Bundled(
                path=path[:300],
                needs=tuple(_texts(told.get("needs"))),
                glibc=dotted(string(at(told, "glibc"))),
                glibcxx=dotted(string(at(told, "glibcxx"))),
            )


def _newest(texts: Iterable[str]) -> Dotted | None:
    return max((version for text in texts if (version := dotted(text)) is not None), default=None)
