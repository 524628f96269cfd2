"""What a host had before and after, as its own tools tell it and its disk shows it."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.lab.hosts import Host

__all__ = ["capsule", "difference", "is_as", "packages"]

#: Where packages, tools and roles write what lasts. The rest of `/var` is caches, logs and databases, asked of their tools.
PLACES = (
    "boot",
    "etc",
    "opt",
    "root",
    "srv",
    "usr",
    "var/lib/dkms",
    "var/lib/shim-signed",
    "var/lib/systemd",
)

#: Logs, build times, databases that are asked of their tools, caches that are derived from the rest, and what is this test's own. The key that dkms signs with stays:
#: a person may have enrolled it since, and the next build takes it up.
PASSING = re.compile(
    r"(?:.*/)?__pycache__(?:/.*)?|.*/modules\.[a-z.]+|.*\.pyc|boot/(?:initrd|initramfs)[^/]*|etc/(?:ld\.so\.cache|machine-id|\.pwd\.lock|\.updated)"
    r"|opt/mopt-doctor(?:/.*)?|root/(?:\.cache|\.ansible|\.local|bundle)(?:.*)?|usr/local/bin/mopt-doctor|usr/lib/udev/hwdb\.bin"
    r"|var/lib/systemd/(?:random-seed|timers/.*|catalog/.*|timesync/.*|deb-systemd-user-helper-enabled/?)"
    r"|var/lib/(?:shim-signed/mok|dkms)/(?:MOK|mok)\.[a-z]+"
    r"|etc/(?:passwd|group|shadow|gshadow|subuid|subgid)-|usr/share/mime/.*"
)


def packages(host: Host) -> dict[str, str]:
    """Installed packages and their versions, epoch included; those on hold too."""
    if host.is_rocky:
        text = host.say(
            "rpm -qa --qf '%{NAME} %{EPOCH}:%{VERSION}-%{RELEASE}\\n' | grep -v ^gpg-pubkey | sed 's/(none)://' | sort"
        )
    else:
        text = host.say(
            "dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\\n' | awk 'substr($3, 2, 1) == \"i\" {print $1, $2}' | sort"
        )
    return dict(line.split(" ", 1) for line in text.splitlines())


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Name to what it was and is, of those that differ."""
    names = before.keys() | after.keys()
    return {n: (before.get(n, ""), after.get(n, "")) for n in sorted(names) if before.get(n) != after.get(n)}


def capsule(host: Host) -> dict[str, str]:
    """Everything that an undo has to bring back, by a name that says what it is: `package x`, `file /etc/x`, `unit x`.

    Independent of the product's own capsule: its code is not used, and more of the disk is looked at.
    """
    rows = {f"package {name}": version for name, version in packages(host).items()}
    for kind, command in (_APT, _DNF)[host.is_rocky].items():
        rows |= {f"{kind} {line}": "yes" for line in host.say(command).splitlines() if line.strip()}
    for line in host.say("systemctl list-unit-files --no-legend --no-pager").splitlines():
        name, state = line.split()[:2]
        rows[f"unit {name}"] = state
    running = "systemctl list-units --type=service --state=running,failed --no-legend --no-pager --plain"
    for line in host.say(running).splitlines():
        name, _, active = line.split()[:3]
        if not name.startswith(("user@", "user-runtime-dir@", "ssh@", "getty@")):
            rows[f"service {name}"] = active
    loaded = "cd /sys/module && for m in nvidia*; do [ -e $m ] && echo $m $(cat $m/version 2>/dev/null); done; true"
    rows |= {f"module {line}": "loaded" for line in host.say(loaded).splitlines()}
    return rows | dict(_files(host.root))


_APT = {
    "manual": "apt-mark showmanual",
    "hold": "apt-mark showhold",
    "config": "dpkg-query -W -f '${db:Status-Abbrev} ${Package}\\n' | grep -v '^.i' || true",
}
_DNF = {
    "manual": "dnf -q -C repoquery --userinstalled --qf '%{name}' | grep -v ^gpg-pubkey",
    "key": "rpm -q gpg-pubkey || true",
    "source": "dnf -q -C repolist || true",
}


def is_as(before: Mapping[str, str], host: Host, what: str = "") -> None:
    """The host has the capsule of before, to the last file; else an AssertionError with each difference."""
    left = difference(before, capsule(host))
    assert not left, f"{host.system}{what}: " + "; ".join(
        f"{n}: {a or 'none'} -> {b or 'none'}" for n, (a, b) in left.items()
    )


def _files(root: Path) -> Iterator[tuple[str, str]]:
    for place in PLACES:
        for folder, folders, files in os.walk(root / place):
            # A link to a folder is itself a thing; walk() counts it among the folders.
            links = [name for name in folders if (Path(folder) / name).is_symlink()]
            for name in [*files, *links]:
                path = Path(folder) / name
                short = str(path.relative_to(root))
                if not PASSING.fullmatch(short):
                    yield f"file /{short}", _state(path)


def _state(path: Path) -> str:
    info = path.lstat()
    if stat.S_ISLNK(info.st_mode):
        return f"-> {path.readlink()}"
    if not stat.S_ISREG(info.st_mode):
        return f"kind {stat.S_IFMT(info.st_mode):o}"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return f"{stat.S_IMODE(info.st_mode):04o} {info.st_uid}:{info.st_gid} {digest}"
