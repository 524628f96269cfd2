"""Writes .deb files and apt repositories. A .deb is an `ar` of two tar files: written here, a thousand take seconds."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.lab.base import run
from tests.lab.graph import Stub
from tests.lab.payload import Entry

__all__ = ["Built", "archive_layout", "build", "flat_layout"]

FIELDS = {
    "depends": "Depends", "recommends": "Recommends", "provides": "Provides", "conflicts": "Conflicts", "replaces": "Replaces", "breaks": "Breaks",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Built:
    """A package's bytes and what its index says of it."""

    stub: Stub
    control: str
    content: bytes

    @property
    def file_name(self) -> str:
        return f"{self.stub.name}_{self.stub.version.rpartition(':')[2]}_{_architecture(self.stub)}.deb"


def _architecture(stub: Stub) -> str:
    return "all" if stub.architecture in ("all", "noarch") else "amd64"


def source_of(name: str) -> str:
    """The source package: what `src:*nvidia*` in a preference matches."""
    if name.startswith(("cuda-drivers", "cuda-compat")):
        return name.partition("-")[0] + "-" + name.split("-")[1]
    if name.startswith(("nvidia-", "libnvidia-", "xserver-xorg-video-nvidia")) and "container" not in name:
        return "nvidia-graphics-drivers" if "fabricmanager" not in name else "nvidia-fabricmanager"
    return ""


def _maintainer(stub: Stub) -> str:
    """By its domain `check` and `plan` tell whose a package is."""
    if stub.repository in ("cuda", "container-toolkit"):
        return "cudatools <cudatools@nvidia.com>"
    return "Ubuntu Developers <ubuntu-devel-discuss@lists.ubuntu.com>"


def build(stub: Stub, entries: Sequence[Entry], scripts: Mapping[str, str]) -> Built:
    """One package."""
    lines = [f"Package: {stub.name}", f"Version: {stub.version}", f"Architecture: {_architecture(stub)}"]
    if source := source_of(stub.name):
        lines.insert(1, f"Source: {source}")
    lines += [
        f"Maintainer: {_maintainer(stub)}",
        "Section: misc",
        "Priority: optional",
        f"Installed-Size: {len(entries)}",
    ]
    lines += [f"{FIELDS[k]}: {', '.join(v)}" for k, v in stub.relations.items() if k in FIELDS]
    lines.append(f"Description: stub of {stub.name}")
    control = "\n".join(lines) + "\n"
    control_files = [Entry(path="/control", content=control.encode())]
    configs = "".join(f"{e.path}\n" for e in entries if e.path.startswith("/etc/"))
    if configs:
        control_files.append(Entry(path="/conffiles", content=configs.encode()))
    control_files += [
        Entry(path=f"/{name}", content=f"#!/bin/sh\nset -e\n{_guard(name)}{text}\n".encode(), mode=0o755)
        for name, text in scripts.items()
    ]
    content = b"!<arch>\n" + b"".join(
        _member(name, data)
        for name, data in (
            ("debian-binary", b"2.0\n"),
            ("control.tar.gz", _tar(control_files)),
            ("data.tar.gz", _tar(entries)),
        )
    )
    return Built(stub=stub, control=control, content=content)


def _guard(name: str) -> str:
    """dpkg calls these scripts for other reasons, too."""
    return {
        "postinst": '[ "$1" = configure ] || exit 0\n',
        "prerm": '[ "$1" != failed-upgrade ] || exit 0\n',
        "postrm": '[ "$1" = remove ] || [ "$1" = purge ] || exit 0\n',
    }[name]


def _tar(entries: Iterable[Entry]) -> bytes:
    room = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=room, mode="wb", compresslevel=1, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):  # type: ignore[arg-type]
        folders: set[str] = set()
        for entry in sorted(entries, key=lambda e: e.path):
            parts = entry.path.strip("/").split("/")
            for depth in range(1, len(parts)):
                folder = "./" + "/".join(parts[:depth])
                if folder not in folders:
                    folders.add(folder)
                    info = tarfile.TarInfo(folder)
                    info.type, info.mode = tarfile.DIRTYPE, 0o755
                    archive.addfile(info)
            info = tarfile.TarInfo("./" + entry.path.strip("/"))
            info.mode = entry.mode
            if entry.link:
                info.type, info.linkname, info.mode = tarfile.SYMTYPE, entry.link, 0o777
                archive.addfile(info)
            else:
                info.size = len(entry.content)
                archive.addfile(info, io.BytesIO(entry.content))
    return room.getvalue()


def _member(name: str, data: bytes) -> bytes:
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
    return head + data + (b"\n" if len(data) % 2 else b"")


def _index(packages: Iterable[Built], prefix: str) -> str:
    return "\n".join(
        p.control
        + f"Filename: {prefix}{p.file_name}\nSize: {len(p.content)}\nSHA256: {hashlib.sha256(p.content).hexdigest()}\n"
        for p in packages
    )


def _release(
    folder: Path, fields: Mapping[str, str], names: Sequence[str], environment: Mapping[str, str], user: str
) -> None:
    sums = "".join(
        f" {hashlib.sha256((folder / n).read_bytes()).hexdigest()} {(folder / n).stat().st_size} {n}\n"
        for n in names
    )
    head = "".join(f"{k}: {v}\n" for k, v in fields.items())
    (folder / "Release").write_text(f"{head}Date: Mon, 30 Nov 2026 00:00:00 UTC\nSHA256:\n{sums}")
    sign(folder / "Release", folder / "InRelease", environment, user)


def sign(source: Path, target: Path, environment: Mapping[str, str], user: str) -> None:
    run(
        "gpg",
        "--batch",
        "--yes",
        "--local-user",
        user,
        "--clearsign",
        "-o",
        target,
        source,
        env=dict(environment),
    )


def flat_layout(
    folder: Path, packages: Sequence[Built], label: str, environment: Mapping[str, str], user: str
) -> None:
    """As NVIDIA's: everything in one folder, suite `/`."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in packages:
        (folder / package.file_name).write_bytes(package.content)
    (folder / "Packages").write_text(_index(packages, "./"))
    _release(
        folder,
        {"Origin": "NVIDIA", "Label": label, "Architectures": "amd64"},
        ["Packages"],
        environment,
        user,
    )


def archive_layout(
    folder: Path, packages: Sequence[Built], code: str, environment: Mapping[str, str], user: str
) -> None:
    """As Ubuntu's: `dists` and `pool`. NVIDIA's packages are restricted, the newer kernel is an update."""
    # A pool of its own for each release: two of them can be served at once.
    pool = folder / "pool" / code
    pool.mkdir(parents=True, exist_ok=True)
    for package in packages:
        (pool / package.file_name).write_bytes(package.content)
    for suite in (code, f"{code}-updates"):
        names = []
        for component in ("main", "restricted", "universe", "multiverse"):
            place = folder / "dists" / suite / component / "binary-amd64"
            place.mkdir(parents=True)
            chosen = [p for p in packages if _shelf(p.stub) == (suite.endswith("-updates"), component)]
            (place / "Packages").write_text(_index(chosen, f"pool/{code}/"))
            names.append(f"{component}/binary-amd64/Packages")
        fields = {
            "Origin": "Ubuntu", "Label": "Ubuntu", "Suite": suite, "Codename": code, "Architectures": "amd64",
            "Components": "main restricted universe multiverse",
        }  # fmt: skip
        _release(folder / "dists" / suite, fields, names, environment, user)


def _shelf(stub: Stub) -> tuple[bool, str]:
    is_driver = "nvidia" in stub.name
    return is_driver, "restricted" if is_driver else "main"
