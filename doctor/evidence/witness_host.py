"""The host witnesses: `distro` and `resources` are what packages answer, `machine` and `docker` need none.

Each runs in a child of the collector. Python 3.6 syntax; the packages are looked for where the
collector was told, and an absent one is an item of status `missing`.
"""

import ctypes
import json
import os
import re
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


#: Locks of the package managers, each an advisory lock on its file: dpkg and apt, rpm, dnf 5.
LOCKS = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
    "/var/lib/rpm/.rpm.lock",
    "/usr/lib/sysimage/rpm/.rpm.lock",
    "/run/dnf/rpmtransaction.lock",
)
#: Files that hold the number of the process that has the lock: dnf 4.
LOCK_PIDS = (
    "/var/cache/dnf/metadata_lock.pid",
    "/var/cache/dnf/download_lock.pid",
    "/var/lib/dnf/rpmdb_lock.pid",
)
CPUS_MAX = 1024
#: `adjtimex(2)` calls a clock unsynchronised from here on, in microseconds, as `timedatectl` does.
CLOCK_ERROR_MAX_US = 16000000
DOCKER_SOCKET = "/run/docker.sock"
#: Of the packages, and of the snap.
DOCKER_PID_FILES = ("/run/docker.pid", "/run/snap.docker/docker.pid")
DOCKER_ANSWER_MAX = 1024 * 1024
DOCKER_TIMEOUT_S = 3.0
#: Of Docker's answer only these: it also holds names, labels, proxies and registries.
DOCKER_KEYS = (
    "ServerVersion",
    "Runtimes",
    "DefaultRuntime",
    "CgroupDriver",
    "CgroupVersion",
    "SecurityOptions",
    "CDISpecDirs",
    "DiscoveredDevices",
    "Driver",
    "Warnings",
)


def testify(name: str, say: "Say", where: "Where") -> None:
    """Puts one witness's questions. `say` sends a piece to the parent, `where` tells where to look."""
    if name in ("machine", "docker"):
        {"machine": _machine, "docker": _docker}[name](say, where)
        return
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


# --- the machine ----------------------------------------------------------------------------------


def _machine(say: "Say", where: "Where") -> None:
    """Counts over many small files, the kernel's clock, and who holds a package manager's lock."""
    say(say={"at": "counting the processors' governors"})
    governors = _governors(where.root)
    say(say={"governors": governors} if governors is not None else {})
    say(say={"at": "counting IOMMU groups"})
    groups = _names(where.root, "/sys/kernel/iommu_groups")
    say(say={"iommu_groups": len(groups)} if groups is not None else {})
    say(say={"at": "asking the kernel's clock"})
    say(say={"clock": _clock()})
    say(say={"at": "looking for locks"})
    say(say={"package_locks": _locks(where.root)})


def _names(root: "Root", path: str) -> "list[str] | None":
    """The names in a directory; None when it cannot be read."""
    try:
        return root.names(path)
    except OSError:
        return None


def _text(root: "Root", path: str, cap: int = 4096) -> str:
    """A small file; empty when it cannot be read."""
    try:
        return root.read(path, cap).decode("utf-8", "replace")
    except OSError:
        return ""


def _governors(root: "Root") -> "dict[str, int] | None":
    """Governor of cpufreq -> number of processors; empty: there is no cpufreq here; None: not read."""
    top = "/sys/devices/system/cpu"
    names = _names(root, top)
    if names is None:
        return None
    found = {}  # type: dict[str, int]
    if "cpufreq" in names:
        for name in [n for n in names if re.match(r"cpu[0-9]+\Z", n)][:CPUS_MAX]:
            governor = _text(root, top + "/" + name + "/cpufreq/scaling_governor").strip()[:40]
            if governor:
                found[governor] = found.get(governor, 0) + 1
    return found


class _Timex(ctypes.Structure):
    """`struct timex` of linux/timex.h, as far as it is read; the kernel writes behind it, too."""

    _fields_ = (  # ctypes's own name
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


def _clock() -> "dict[str, object]":
    """What `adjtimex(2)` says when it is told to change nothing; the error in microseconds."""
    told = _Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(told))
    if state < 0:
        return {"error": os.strerror(ctypes.get_errno())}
    is_synchronised = told.maxerror < CLOCK_ERROR_MAX_US
    return {
        "state": state,
        "status": told.status,
        "max_error_us": told.maxerror,
        "synchronised": is_synchronised,
    }


def _locks(root: "Root") -> "list[dict[str, object]]":
    """The locks that somebody holds: `{lock, pid, process_name}`."""
    wanted = {}  # type: dict[int, tuple[str, int]]
    for path in LOCKS:
        try:
            fd = root.open(path)
        except OSError:
            continue
        status = os.fstat(fd)
        os.close(fd)
        wanted[status.st_ino] = (path, status.st_dev)
    found = []  # type: list[dict[str, object]]
    table = _text(root, "/proc/locks", 256 * 1024) if wanted else ""
    for line in table.splitlines():
        # `1: POSIX  ADVISORY  WRITE 4242 fd:01:131 0 EOF`; a line with `->` is one who waits.
        words = re.match(r"\d+: \S+ +\S+ +\S+ +(\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ", line)
        path, device = wanted.get(int(words.group(4)), ("", 0)) if words else ("", 0)
        if not words or not path:
            continue
        pid = int(words.group(1))
        is_same = os.makedev(int(words.group(2), 16), int(words.group(3), 16)) == device
        # btrfs and overlayfs show another device number here than stat(2) does.
        if is_same or _has_open(pid, path):
            found.append({"lock": path, "pid": pid, "process_name": _process_name(root, pid)})
    for path in LOCK_PIDS:
        number = _text(root, path, 32).strip()
        name = _process_name(root, int(number)) if re.match(r"[0-9]{1,9}\Z", number) else ""
        if name:
            found.append({"lock": path, "pid": int(number), "process_name": name})
    return found[:32]


def _has_open(pid: int, path: str) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        return any(os.readlink(folder + "/" + n) == path for n in os.listdir(folder)[:256])  # noqa: PTH115, PTH208 - pathlib is not loaded here
    except OSError:
        return False


def _process_name(root: "Root", pid: int) -> str:
    return _text(root, f"/proc/{pid}/comm", 64).strip()


# --- Docker ---------------------------------------------------------------------------------------


def _docker(say: "Say", where: "Where") -> None:
    """Docker's own `/info`, over its socket: the command `docker info` starts a process a plugin.

    Only a daemon that runs is asked: systemd listens on that socket, too, and would start it.
    """
    if not where.root.exists(DOCKER_SOCKET):
        say(item={"status": "missing", "detail": DOCKER_SOCKET + " is not there"})
        return
    pid_file = next((path for path in DOCKER_PID_FILES if _is_dockerd(where.root, path)), "")
    if not pid_file:
        detail = "not asked: no daemon runs ({})".format(", ".join(DOCKER_PID_FILES))
        say(item={"status": "missing", "detail": detail})
        return
    say(say={"pid_file": pid_file})
    say(say={"at": "connecting to " + DOCKER_SOCKET})
    try:
        head, body = _ask_docker()
    except OSError as exc:
        is_denied = isinstance(exc, PermissionError)
        say(item={"status": "denied" if is_denied else "error", "detail": str(exc)})
        return
    _say_docker(say, head, body)


def _is_dockerd(root: "Root", pid_file: str) -> bool:
    pid = _text(root, pid_file, 32).strip()
    return re.match(r"[0-9]{1,9}\Z", pid) is not None and _process_name(root, int(pid)) == "dockerd"


def _ask_docker() -> "tuple[str, bytes]":
    """(first line, body) of its answer. Raises OSError."""
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(DOCKER_TIMEOUT_S)
        link.connect(DOCKER_SOCKET)
        link.sendall(b"GET /info HTTP/1.0\r\nHost: docker\r\n\r\n")
        answer = b""
        while len(answer) < DOCKER_ANSWER_MAX:
            part = link.recv(65536)
            if not part:
                break
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.split(b"\r\n", 1)[0].decode("latin-1"), body


def _say_docker(say: "Say", head: str, body: bytes) -> None:
    try:
        told = json.loads(body.decode("utf-8", "replace"))
    except ValueError:
        told = None
    if " 200 " not in head + " " or not isinstance(told, dict):
        say(item={"status": "error", "detail": "it answered: " + head[:200]})
        return
    say(say={key: told[key] for key in DOCKER_KEYS if told.get(key) is not None})
