"""The vendors' repositories of each system, signed, at the paths of their addresses; built once a change of their sources."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.lab import deb, rpm
from tests.lab.authority import Authority, ensure_authority, user_id
from tests.lab.base import digest_of, once
from tests.lab.fakegpu.build import ensure_libraries
from tests.lab.graph import Stub, deb_stubs
from tests.lab.graph_rpm import module_streams, rpm_stubs
from tests.lab.payload import entries, scripts
from tests.lab.places import CACHE, LAB
from tests.lab.systems import SYSTEM_FACTS, SystemFacts

__all__ = ["Repositories", "ensure_repositories"]

CUDA = "developer.download.nvidia.com/compute/cuda/repos"
TOOLKIT = "nvidia.github.io/libnvidia-container"


@dataclass(frozen=True, kw_only=True)
class Repositories:
    """Folders whose files are served, `HOST/PATH`, and who signed them."""

    folders: tuple[Path, ...]
    authority: Authority


def ensure_repositories(systems: Sequence[str] = ("ubuntu-24.04", "rocky-9")) -> Repositories:
    """Build what is missing for these systems."""
    authority, libraries = ensure_authority(), ensure_libraries()
    folders = tuple(_ensure(s, authority, libraries) for s in systems)
    return Repositories(folders=folders, authority=authority)


def _ensure(system: str, authority: Authority, libraries: Path) -> Path:
    facts = SYSTEM_FACTS[system]
    stubs = rpm_stubs(system) if facts.is_rocky else deb_stubs(system)
    sources = [
        LAB / f"{n}.py" for n in ("payload", "modulefile", "rpm" if facts.is_rocky else "deb", "repository")
    ]
    sources += [LAB / "guest" / n for n in ("dkms", "nvidia-smi", "nvidia-ctk", "container-engine")]
    digest = digest_of(*sources, text=repr((stubs, authority.folder.name, libraries.name)))
    target = CACHE / f"repositories-{system}-{digest}"
    with once(target) as part:
        if part is not None:
            print(f"lab: building {len(stubs)} packages of {system}", file=sys.stderr, flush=True)
            (_build_rpms if facts.is_rocky else _build_debs)(part, facts, stubs, authority, libraries)
    return target


def _build_debs(
    part: Path, facts: SystemFacts, stubs: Iterable[Stub], authority: Authority, libraries: Path
) -> None:
    built = [deb.build(s, entries(s, facts, libraries), scripts(s, facts)) for s in stubs]
    shelves = {
        name: [b for b in built if b.stub.repository == name]
        for name in ("cuda", "container-toolkit", "archive")
    }
    with authority.signing() as environment:
        cuda = part / CUDA / facts.cuda_dir / "x86_64"
        # The toolkit is carried by both: one name, two origins.
        deb.flat_layout(
            cuda, shelves["cuda"] + shelves["container-toolkit"], "NVIDIA CUDA", environment, user_id("cuda")
        )
        shutil.copy(authority.public_key("cuda"), cuda / "3bf863cc.pub")
        toolkit = part / TOOLKIT / "stable/deb/amd64"
        deb.flat_layout(toolkit, shelves["container-toolkit"], "", environment, user_id("container-toolkit"))
        shutil.copy(authority.public_key("container-toolkit"), part / TOOLKIT / "gpgkey")
        deb.archive_layout(
            part / "archive.ubuntu.com/ubuntu", shelves["archive"], facts.code, environment, user_id("system")
        )


def _build_rpms(
    part: Path, facts: SystemFacts, stubs: list[Stub], authority: Authority, libraries: Path
) -> None:
    packages = [
        rpm.Package(stub=s, entries=entries(s, facts, libraries), scripts=scripts(s, facts)) for s in stubs
    ]
    with (
        tempfile.TemporaryDirectory(prefix="mopt-lab-", dir="/dev/shm") as scratch,
        authority.signing() as environment,
    ):
        files = rpm.build_all(packages, Path(scratch))
        for name, (place, vendor) in _places(facts).items():
            folder = part / place
            folder.mkdir(parents=True)
            ours = [s for s in stubs if s.repository == name]
            chosen = [Path(shutil.copy(files[s.name, s.version], folder)) for s in ours]
            if chosen:
                rpm.sign(chosen, environment, user_id(vendor))
            streams = module_streams(facts, stubs) if name == "cuda" else {}
            rpm.index(folder, environment, user_id(vendor), streams, "latest-dkms")
    cuda = part / CUDA / facts.cuda_dir / "x86_64"
    for key in ("CDF6BA43.pub",) if facts.major == "10" else ("D42D0685.pub",):
        shutil.copy(authority.public_key("cuda"), cuda / key)
    shutil.copy(authority.public_key("container-toolkit"), part / TOOLKIT / "gpgkey")
    shutil.copy(
        authority.public_key("epel"), part / f"dl.fedoraproject.org/pub/epel/RPM-GPG-KEY-EPEL-{facts.major}"
    )
    shutil.copy(
        authority.public_key("system"), part / f"dl.rockylinux.org/pub/rocky/RPM-GPG-KEY-Rocky-{facts.major}"
    )


def _places(facts: SystemFacts) -> dict[str, tuple[str, str]]:
    major = facts.major
    own = f"dl.rockylinux.org/pub/rocky/{major}"
    builder = "PowerTools" if major == "8" else "CRB"
    return {
        "cuda": (f"{CUDA}/{facts.cuda_dir}/x86_64", "cuda"),
        "container-toolkit": (f"{TOOLKIT}/stable/rpm/x86_64", "container-toolkit"),
        "epel": (f"dl.fedoraproject.org/pub/epel/{major}/Everything/x86_64", "epel"),
        "baseos": (f"{own}/BaseOS/x86_64/os", "system"),
        "appstream": (f"{own}/AppStream/x86_64/os", "system"),
        "extras": (f"{own}/extras/x86_64/os", "system"),
        "crb": (f"{own}/{builder}/x86_64/os", "system"),
    }
