"""Builds stub rpms and dnf repositories: many packages a spec file, one signature each, modules where the system has them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.base import run
from tests.lab.graph import Stub
from tests.lab.payload import Entry

__all__ = ["Package", "build_all", "index", "nevra"]

TAGS = {
    "requires": "Requires", "recommends": "Recommends", "provides": "Provides", "conflicts": "Conflicts", "obsoletes": "Obsoletes",
}  # fmt: skip
DEFINES = {
    "debug_package": "%{nil}", "__os_install_post": "%{nil}", "_binary_payload": "w1.gzdio", "_build_id_links": "none",
    "_rpmfilename": "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Package:
    """A stub with what it unpacks and runs."""

    stub: Stub
    entries: Sequence[Entry]
    scripts: Mapping[str, str]


@dataclass
class _Batch:
    """Packages of one spec file: no name and no path twice."""

    packages: list[Package] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)

    def take(self, package: Package) -> bool:
        own = {package.stub.name, *(e.path for e in package.entries)}
        if self.taken & own or len(self.packages) >= 60:
            return False
        self.taken |= own
        self.packages.append(package)
        return True


def evr(version: str) -> tuple[str, str, str]:
    epoch, _, rest = version.rpartition(":")
    number, _, release = rest.rpartition("-")
    return epoch, number, release


def arch_of(stub: Stub) -> str:
    return "noarch" if stub.architecture in ("noarch", "all") else "x86_64"


def nevra(stub: Stub) -> str:
    """As a module lists its artefacts."""
    epoch, number, release = evr(stub.version)
    return f"{stub.name}-{epoch or '0'}:{number}-{release}.{arch_of(stub)}"


def build_all(packages: Sequence[Package], scratch: Path) -> dict[tuple[str, str], Path]:
    """Build each; (name, version) to its file."""
    batches: list[_Batch] = []
    for package in packages:
        if not any(batch.take(package) for batch in batches):
            batches.append(_Batch())
            batches[-1].take(package)
    for number, batch in enumerate(batches):
        _build_batch(batch, scratch / f"batch{number}", scratch / "rpms")
    found = {}
    for package in packages:
        _, number_, release = evr(package.stub.version)
        found[package.stub.name, package.stub.version] = (
            scratch / "rpms" / f"{package.stub.name}-{number_}-{release}.{arch_of(package.stub)}.rpm"
        )
    return found


def _build_batch(batch: _Batch, top: Path, out: Path) -> None:
    files = top / "files"
    for package in batch.packages:
        for entry in package.entries:
            target = files / entry.path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if entry.link:
                target.symlink_to(entry.link)
            else:
                target.write_bytes(entry.content)
                target.chmod(entry.mode)
    files.mkdir(parents=True, exist_ok=True)
    spec = top / "batch.spec"
    spec.write_text(
        "Name: lab-batch\nVersion: 1\nRelease: 1\nSummary: stubs\nLicense: MIT\nAutoReqProv: no\n%description\nstubs\n"
        + "".join(_section(p) for p in batch.packages)
        + f"%install\ncp -a {files}/. %{{buildroot}}/\n"
    )
    defines = [
        w
        for k, v in {**DEFINES, "_topdir": str(top), "_rpmdir": str(out)}.items()
        for w in ("--define", f"{k} {v}")
    ]
    run(
        "rpmbuild",
        "-bb",
        "--quiet",
        "--target",
        "x86_64",
        *defines,
        spec,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )


def _section(package: Package) -> str:
    stub = package.stub
    epoch, number, release = evr(stub.version)
    name = stub.name
    lines = [
        f"%package -n {name}",
        f"Version: {number}",
        f"Release: {release}",
        f"Summary: stub of {name}",
        "AutoReqProv: no",
    ]
    if epoch:
        lines.insert(1, f"Epoch: {epoch}")
    if arch_of(stub) == "noarch":
        lines.append("BuildArch: noarch")
    lines += [
        f"{TAGS[kind]}: {word}" for kind, words in stub.relations.items() if kind in TAGS for word in words
    ]
    lines += [f"%description -n {name}", "stub"]
    for ours, theirs, guard in (
        ("postinst", "post", ""),
        ("posttrans", "posttrans", ""),
        ("prerm", "preun", ""),
        ("postrm", "postun", '[ "$1" = 0 ] || exit 0\n'),
    ):
        if text := package.scripts.get(ours):
            lines += [f"%{theirs} -n {name}", guard + text.replace("%", "%%"), "exit 0"]
    lines.append(f"%files -n {name}")
    lines += [("%config(noreplace) " if e.path.startswith("/etc/") else "") + e.path for e in package.entries]
    return "\n".join(lines) + "\n\n"


def sign(files: Sequence[Path], environment: Mapping[str, str], user: str) -> None:
    """Sign in place. rpm of Debian looks for a gpg2 that is not there."""
    define = ("--define", f"_gpg_name {user}", "--define", "__gpg /usr/bin/gpg")
    for start in range(0, len(files), 100):
        run("rpmsign", "--addsign", *define, *files[start : start + 100], env=dict(environment))


def index(
    folder: Path,
    environment: Mapping[str, str],
    user: str,
    streams: Mapping[str, Sequence[Stub]] | None = None,
    default: str = "",
) -> None:
    """Metadata of the packages in `folder`, with modules, and its signature."""
    run("createrepo_c", "--quiet", "--no-database", "--compress-type=gz", folder)
    if streams:
        # A modules.yaml in the folder would be served: it lies beside until it is in the metadata.
        source = folder.parent / "modules.yaml"
        source.write_text(_modules(streams, default))
        run("modifyrepo_c", "--mdtype=modules", source, folder / "repodata")
        source.unlink()
    signature = folder / "repodata/repomd.xml.asc"
    run("gpg", "--batch", "--yes", "--local-user", user, "--armor", "--detach-sign", "-o", signature, folder / "repodata/repomd.xml",
        env=dict(environment))  # fmt: skip


def _modules(streams: Mapping[str, Sequence[Stub]], default: str) -> str:
    documents = []
    for stream, stubs in streams.items():
        names = sorted({s.name for s in stubs})
        artefacts = "".join(f"      - {nevra(s)}\n" for s in stubs)
        profiles = {"default": names, "ks": [n for n in names if n != "cuda-drivers"]}
        shown = "".join(f"    {p}:\n      rpms: [{', '.join(ns)}]\n" for p, ns in profiles.items())
        documents.append(
            f'---\ndocument: modulemd\nversion: 2\ndata:\n  name: nvidia-driver\n  stream: "{stream}"\n  version: 20260101\n'
            "  context: lab00000\n  arch: x86_64\n  summary: stub\n  description: >-\n    stub\n  license:\n    module: [MIT]\n"
            f"  profiles:\n{shown}  artifacts:\n    rpms:\n{artefacts}...\n"
        )
    rows = "".join(f'    "{s}": [default]\n' for s in streams)
    documents.append(
        "---\ndocument: modulemd-defaults\nversion: 1\ndata:\n  module: nvidia-driver\n"
        f'  stream: "{default}"\n  profiles:\n{rows}...\n'
    )
    return "".join(documents)
