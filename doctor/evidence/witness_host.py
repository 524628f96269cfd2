"""The host witnesses `distro` and `resources`: what the packages of these names answer.

Each runs in a child of the collector. Python 3.6 syntax; the packages are looked for where the
collector was told, and an absent one is an item of status `missing`.
"""

import os
import sys

TYPE_CHECKING = False  # the import of typing costs 3 ms
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from doctor.evidence.collector import Root, Where

    Say = Callable[..., None]

#: Where engines and package managers put their bytes.
FILESYSTEMS = ("/", "/var", "/var/lib/docker", "/var/lib/containerd", "/home", "/opt", "/tmp", "/dev/shm")  # noqa: S108 - looked at, not written to
LIMITS = ("memlock", "nofile", "stack", "nproc")


def testify(name: str, say: "Say", where: "Where") -> None:
    """Puts one witness's questions. `say` sends a piece to the parent, `where` tells where to look."""
    package = {"distro": "distro", "resources": "psutil"}[name]
    say(say={"at": "importing " + package})
    try:
        module = _lightly(package)
    except ImportError as exc:
        say(item={"status": "missing", "detail": str(exc)})
        return
    {"distro": _distribution, "resources": _resources}[name](say, where, module)


def _lightly(package: str) -> "Any":
    """The package, imported without `argparse` and `logging`, which `distro` needs for its own command line.

    They cost 9 of the 15 ms of CPU that it takes beside psutil (CPython 3.11). A release that uses them
    at import gets them.
    """
    spared = [name for name in ("argparse", "logging") if package == "distro" and name not in sys.modules]
    sys.modules.update((name, type(sys)(name)) for name in spared)
    try:
        return __import__(package)
    except AttributeError:
        sys.modules.pop(package, None)
    finally:
        for name in spared:
            sys.modules.pop(name, None)
    return __import__(package)


def _distribution(say: "Say", where: "Where", distro: "Any") -> None:
    """The distribution by the package `distro`, from files only: `lsb_release` would be a command."""
    say(say={"at": "reading os-release"})
    files = {} if where.root.is_outer else _below(where.root)
    told = distro.LinuxDistribution(include_lsb=False, include_uname=False, **files)
    say(
        say={
            "id": told.id(),
            "version": told.version(),
            "name": told.name(),
            "codename": told.codename(),
            "like": told.like(),
        }
    )


def _below(root: "Root") -> "dict[str, str]":
    """The package's two file arguments for a sysroot, opened here: it would follow links out of it."""
    files = {"os_release_file": os.devnull, "distro_release_file": os.devnull}
    for argument, paths in (
        ("os_release_file", ("/etc/os-release", "/usr/lib/os-release")),
        ("distro_release_file", ("/etc/redhat-release", "/etc/centos-release")),
    ):
        for path in paths:
            try:
                files[argument] = f"/proc/self/fd/{root.open_file(path)}"
                break
            except OSError:
                continue
    return files


def _resources(say: "Say", _where: "Where", psutil: "Any") -> None:
    """Memory, processors, limits and filesystems, each said as soon as it is known."""
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    say(
        say={
            "memory": {"total": memory.total, "available": memory.available},
            "swap": {"total": swap.total},
            "cpu_count": psutil.cpu_count(),
            "limits": _limits(),
            "filesystems": [],
        }
    )
    kinds = {p.mountpoint: p.fstype for p in psutil.disk_partitions(all=True)}
    found, devices = [], set()
    for path in FILESYSTEMS:
        say(say={"at": "the filesystem of " + path})
        try:
            device = os.stat(path).st_dev  # noqa: PTH116 - pathlib is not loaded here
            usage = psutil.disk_usage(path)
        except OSError:
            continue
        if device in devices:
            continue
        devices.add(device)
        found.append({"path": path, "total": usage.total, "free": usage.free, "kind": kinds.get(path, "")})
        say(say={"filesystems": found})


def _limits() -> "dict[str, list[int]]":
    """Soft and hard limits of this process, inherited from whoever asked; -1 is unlimited."""
    import resource

    return {name: list(resource.getrlimit(getattr(resource, "RLIMIT_" + name.upper()))) for name in LIMITS}
