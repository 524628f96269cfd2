"""Builds the one Debian userland that every host shares, and keeps it.

A host is that base, a thin layer that makes it present as Ubuntu or Rocky (`personality/`), and an empty
layer of its own on top.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tests.lab.places import CACHE, LAB, SUITE

__all__ = [
    "DEPENDENCIES",
    "ensure_base",
    "ensure_dependencies",
    "locked",
    "once",
    "prune",
    "require_root",
    "run",
]

#: Debian packages that a machine needs to run the lab, and what `make lab-vm` wants besides.
DEPENDENCIES = {
    "hosts": (
        "mmdebstrap", "systemd-container", "openssh-client", "iproute2", "util-linux", "gpg", "dpkg-dev", "rpm",
        "createrepo-c", "openssl", "gcc", "libc6-dev", "debian-archive-keyring",
    ),
    "vm": ("qemu-system-x86", "ovmf", "sbsigntool", "e2fsprogs"),
}  # fmt: skip

PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "udev", "openssh-server", "sudo", "procps", "iproute2", "kmod", "pciutils",
    "ca-certificates", "curl", "gpg", "gpgv", "lsb-release", "python3", "python3-apt", "python3-debian", "python3-venv",
    "openssl", "dnf", "python3-dnf", "dnf-plugins-core", "rpm", "libc-bin",
)  # fmt: skip

# None of these does anything for a host that lives for a minute.
MASKED = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "fstrim.timer", "e2scrub_all.timer",
    "e2scrub_reap.service", "systemd-networkd-wait-online.service", "console-getty.service", "getty.target",
    "systemd-firstboot.service", "motd-news.timer", "dnf-makecache.timer",
)  # fmt: skip

SSHD = "HostKey /etc/ssh/ssh_host_ed25519_key\nUseDNS no\nPermitRootLogin prohibit-password\nMaxSessions 50\n"


def run(*argv: str | Path, check: bool = True, **how: object) -> subprocess.CompletedProcess[str]:
    """Run a command; its output is shown only when it fails."""
    done = subprocess.run([str(a) for a in argv], check=False, text=True, capture_output=True, **how)  # type: ignore[call-overload]
    if check and done.returncode != 0:
        said = f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}".strip()
        raise RuntimeError(f"`{' '.join(str(a) for a in argv)}` ended with {done.returncode}:\n{said}")
    return done


#: What this process took or made: kept by a shared lock for as long as it lives, so that nobody prunes it away.
_in_use: dict[str, int] = {}


def _acquired(name: str, how: int) -> TextIO:
    """An open lock file; whoever waited for one that was pruned meanwhile takes the next."""
    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / f"{name}.lock"
    while True:
        handle = path.open("a")
        try:
            fcntl.flock(handle, how)
            if path.exists() and os.fstat(handle.fileno()).st_ino == path.stat().st_ino:
                return handle
        except OSError:
            handle.close()
            raise
        handle.close()


@contextmanager
def locked(name: str) -> Iterator[None]:
    """One session at a time."""
    with _acquired(name, fcntl.LOCK_EX):
        yield


@contextmanager
def once(target: Path) -> Iterator[Path | None]:
    """A folder to be filled, or None when it is there already; half-made ones are never seen.

    Two sessions that want the same thing built: the second waits and finds it done. What older sources made is
    pruned when something new is.
    """
    if target.name in _in_use:
        yield None
        return
    with _acquired(target.name, fcntl.LOCK_SH) as handle:
        if _is_complete(target):
            _keep(target, handle)
            yield None
            return
    with _acquired(target.name, fcntl.LOCK_EX) as handle:
        if _is_complete(target):
            yield None
        else:
            part = target.with_name(target.name + ".part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            yield part
            (part / ".complete").touch()
            shutil.rmtree(target, ignore_errors=True)
            part.rename(target)
        _keep(target, handle)
    prune(target.name)


def _is_complete(target: Path) -> bool:
    return (target / ".complete").exists()


def _keep(target: Path, handle: TextIO) -> None:
    """Nobody takes it away while this process lives; the order of pruning is that of use."""
    (target / ".complete").touch()
    _in_use[target.name] = os.dup(handle.fileno())
    # A lock belongs to the open file, which both descriptors share.
    fcntl.flock(handle, fcntl.LOCK_SH)


def prune(name: str, keep: int = 2) -> None:
    """Remove what was built from older sources, `KIND-DIGEST`, but for the last used ones and what a session uses now."""
    kind, dash, digest = name.rpartition("-")
    if not dash or not re.fullmatch(r"[0-9a-f]{12}", digest):
        return
    folders = [
        p for p in CACHE.glob(f"{kind}-*") if re.fullmatch(r"[0-9a-f]{12}(\.part)?", p.name[len(kind) + 1 :])
    ]
    whole = [p for p in folders if _is_complete(p)]
    whole.sort(key=lambda p: (p / ".complete").stat().st_mtime, reverse=True)
    for folder in folders:
        stem = folder.name.removesuffix(".part")
        if folder in whole[:keep] or stem in _in_use:
            continue
        with contextlib.suppress(OSError), _acquired(stem, fcntl.LOCK_EX | fcntl.LOCK_NB):
            shutil.rmtree(folder, ignore_errors=True)
            if not (CACHE / stem).exists():
                (CACHE / f"{stem}.lock").unlink(missing_ok=True)


def digest_of(*paths: Path, text: str = "") -> str:
    """Twelve digits that change when one of these files does."""
    total = hashlib.sha256(text.encode())
    for path in paths:
        total.update(path.read_bytes())
    return total.hexdigest()[:12]


def require_root() -> None:
    """End with one sentence where the lab cannot be."""
    if os.geteuid() != 0:
        raise SystemExit(
            "the lab needs root: it boots hosts in mount, network and process namespaces of their own. Run as root."
        )


def ensure_dependencies(*groups: str) -> None:
    """Install the Debian packages that are missing; does nothing when none is."""
    require_root()
    wanted = [name for group in groups for name in DEPENDENCIES[group]]
    if shutil.which("dpkg-query") is None or shutil.which("apt-get") is None:
        raise SystemExit(f"the lab needs Debian 12 or its like, with apt: it is made of {', '.join(wanted)}.")
    state = run("dpkg-query", "-W", "-f", "${Package} ${db:Status-Abbrev}\n", *wanted, check=False).stdout
    here = {line.split()[0] for line in state.splitlines() if line.split()[1:] == ["ii"]}
    missing = [name for name in wanted if name not in here]
    if not missing:
        return
    print(f"lab: installing {' '.join(missing)}", file=sys.stderr, flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        run("apt-get", "update", "-qq", env=environment)
        run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing, env=environment)
    except RuntimeError as fault:
        raise SystemExit(
            f"the lab needs packages that cannot be installed here: {', '.join(missing)}.\n{fault}"
        ) from None


def ensure_base() -> Path:
    """The shared userland; 42 seconds on a quiet machine the first time."""
    base = CACHE / f"base-{SUITE}-{digest_of(text=repr((PACKAGES, MASKED, SSHD)))}"
    with once(base) as part:
        if part is not None:
            _build(part)
    return base


def _build(part: Path) -> None:
    print(f"lab: building the {SUITE} userland in {CACHE}", file=sys.stderr, flush=True)
    # In memory, where fsync costs nothing; onto disk as one stream.
    with tempfile.TemporaryDirectory(prefix="mopt-lab-", dir="/dev/shm") as scratch:
        root = Path(scratch) / "root"
        excluded = [f"--dpkgopt=path-exclude=/usr/share/{d}/*" for d in ("man", "doc", "locale")]
        run(
            "mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}",
            '--aptopt=Acquire::Languages "none"', *excluded, "--dpkgopt=force-unsafe-io", SUITE, root,
        )  # fmt: skip
        _settle(root)
        subprocess.run(
            [
                "bash",
                "-ec",
                'set -o pipefail; tar -C "$1" --xattrs -c . | tar -C "$2" --xattrs -x',
                "x",
                str(root),
                str(part),
            ],
            check=True,
        )


def _settle(root: Path) -> None:
    units = root / "etc/systemd/system"
    for unit in MASKED:
        link = units / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    (root / "etc/machine-id").write_text("")
    # One host key for all, made now: none is generated at each boot.
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", root / "etc/ssh/ssh_host_ed25519_key")
    (root / "etc/ssh/sshd_config.d/10-lab.conf").write_text(SSHD)
    run("chroot", root, "useradd", "-m", "-s", "/bin/bash", "-G", "sudo", "admin")
    sudoers = root / "etc/sudoers.d/admin"
    sudoers.write_text("admin ALL=(ALL) NOPASSWD: ALL\n")
    sudoers.chmod(0o440)


SOURCES_OF_LAYERS = sorted((LAB / "personality").glob("*"))
