"""Builds the one Debian userland that every host shares, and keeps it.

A host is that base, a thin layer that makes it present as Ubuntu or Rocky (`personality/`), and an empty
layer of its own on top.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.places import CACHE, LAB, SUITE

__all__ = ["DEPENDENCIES", "ensure_base", "ensure_dependencies", "locked", "once", "run"]

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


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Two sessions that want the same thing built: the second waits and finds it done."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def once(target: Path) -> Iterator[Path | None]:
    """A folder to be filled, or None when it is there already; half-made ones are never seen."""
    with locked(target.name):
        if (target / ".complete").exists():
            yield None
            return
        part = target.with_name(target.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        yield part
        (part / ".complete").touch()
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)


def digest_of(*paths: Path, text: str = "") -> str:
    """Twelve digits that change when one of these files does."""
    total = hashlib.sha256(text.encode())
    for path in paths:
        total.update(path.read_bytes())
    return total.hexdigest()[:12]


def ensure_dependencies(*groups: str) -> None:
    """Install the Debian packages that are missing; does nothing when none is."""
    wanted = [name for group in groups for name in DEPENDENCIES[group]]
    state = run("dpkg-query", "-W", "-f", "${Package} ${db:Status-Abbrev}\n", *wanted, check=False).stdout
    here = {line.split()[0] for line in state.splitlines() if line.split()[1:] == ["ii"]}
    missing = [name for name in wanted if name not in here]
    if not missing:
        return
    print(f"lab: installing {' '.join(missing)}", file=sys.stderr, flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run("apt-get", "update", "-qq", env=environment)
    run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing, env=environment)


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
