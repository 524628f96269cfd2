"""What a host had before and after, as its own tools tell it."""

from __future__ import annotations

from tests.lab.hosts import Host

__all__ = ["difference", "packages"]


def packages(host: Host) -> dict[str, str]:
    """Installed packages and their versions, epoch included."""
    if host.is_rocky:
        text = host.say(
            "rpm -qa --qf '%{NAME} %{EPOCH}:%{VERSION}-%{RELEASE}\\n' | grep -v ^gpg-pubkey | sed 's/(none)://' | sort"
        )
    else:
        text = host.say(
            "dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\\n' | awk '$3 == \"ii\" {print $1, $2}' | sort"
        )
    return dict(line.split(" ", 1) for line in text.splitlines())


def difference(before: dict[str, str], after: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Name to what it was and is, of those that differ."""
    names = before.keys() | after.keys()
    return {n: (before.get(n, ""), after.get(n, "")) for n in sorted(names) if before.get(n) != after.get(n)}
