"""What a host is now: evidence of this one by the collector, of another one by the collector over Ansible."""

from __future__ import annotations

import importlib.util
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from doctor.apply.ansible import play
from doctor.apply.order import LOCALHOST
from doctor.apply.told import Played
from doctor.config import data_dir, refuse_untrusted
from doctor.core.evidence import Evidence
from doctor.errors import ApplyError, UsageError
from doctor.timeouts import BUNDLE_UNPACKED_BYTES_MAX

__all__ = ["inventory_of", "named_host", "observe"]

#: A name, not a pattern: `--limit` would take `web*`, `a:b`, `@FILE` and `!c`, too.
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}\Z")

#: What Ansible, ssh and sudo say when they do not come through: in short, and what to do about it.
_WAYS: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        re.compile(r"REMOTE HOST IDENTIFICATION HAS CHANGED"),
        "its host key is another one than known_hosts holds",
        "compare the key with the host's console; only then `ssh-keygen -R {host}` and `ssh {host}`",
    ),
    (
        re.compile(r"Host key verification failed"),
        "its host key is not known here",
        "`ssh {host}` shows the key: compare it with the host's console, then accept it",
    ),
    (
        re.compile(r"Permission denied|Too many authentication failures"),
        "ssh was refused: no key that it accepts",
        "`ssh-copy-id {host}`, or name the key: ANSIBLE_PRIVATE_KEY_FILE, ansible_ssh_private_key_file",
    ),
    (
        re.compile(r"Missing sudo password|sudo: a password is required|Incorrect sudo password"),
        "sudo there wants a password",
        "name a file that holds it: ANSIBLE_BECOME_PASSWORD_FILE",
    ),
    (
        re.compile(r"Could not resolve hostname|Name or service not known"),
        "its name is not known to the resolver",
        "set `ansible_host` in `{inventory}`, or mend the name",
    ),
    (
        re.compile(
            r"Connection refused|timed out|No route to host|Network is unreachable|timeout", re.IGNORECASE
        ),
        "the network does not lead there",
        "`ssh {host}` from here; then the address, the port and the firewall",
    ),
    (
        re.compile(
            r"leaves us with no hosts|Could not match supplied host pattern|no hosts matched", re.IGNORECASE
        ),
        "`{inventory}` does not name it",
        "`ansible-inventory -i {inventory} --list` shows whom it names",
    ),
)

#: Pure Python that answers better than files alone; it travels, and nothing of it stays.
_WITNESSES = ("pynvml", "distro")


def named_host(host: str, inventory: str) -> None:
    """Refuses what is not one host of an inventory that is there. Raises UsageError, ConfigError."""
    if not inventory:
        return
    if not host:
        raise UsageError(
            f"`{inventory}` may name many hosts, and one is changed at a time",
            hints=("`--host NAME` says which",),
        )
    if not _HOST.match(host):
        raise UsageError(
            f"`{ascii(host)[1:-1]}` is a pattern, or no name of a host",
            hints=("one host at a time: its name as in the inventory",),
        )
    if not Path(inventory).exists():
        raise UsageError(
            f"the inventory `{inventory}` does not exist", hints=("`-i FILE` names an Ansible inventory",)
        )
    refuse_untrusted(inventory, "the inventory")


def observe(
    *,
    host: str,
    inventory: str,
    timeout_s: float,
    folder: Path,
    should_stop: Callable[[], bool] = lambda: False,
) -> Evidence:
    """Evidence of a host. Raises ProbeError or ApplyError (`unchanged`) when there is none."""
    if not inventory:
        from doctor.evidence.live import collect_live

        return collect_live(budget_s=timeout_s, sysroot=None)
    from doctor.evidence.live import evidence_from_stream

    with tempfile.TemporaryDirectory(prefix="evidence-", dir=folder) as place:
        target = Path(place) / "evidence.tar"
        variables = {
            "collect_files": [str(path) for path in _travelling()],
            "collect_timeout_s": timeout_s,
            "collect_target": str(target),
        }
        played = play(
            Path(data_dir("playbooks")) / "collect.yml",
            folder=folder,
            inventory=Path(inventory),
            limit=host,
            variables=variables,
            should_stop=should_stop,
        )
        if played.hosts not in ((), (host,)):
            raise UsageError(
                f"`{host}` is a group of `{inventory}`: {', '.join(played.hosts[:5])}",
                hints=("one host at a time: its name as in the inventory",),
            )
        if not played.is_good or not target.exists():
            raise _silent(host, inventory, played)
        if target.stat().st_size > BUNDLE_UNPACKED_BYTES_MAX:
            raise ApplyError(
                f"`{host}` sent more evidence than {BUNDLE_UNPACKED_BYTES_MAX} bytes", end="unchanged"
            )
        return evidence_from_stream(target.read_bytes())


def _silent(host: str, inventory: str, played: Played) -> ApplyError:
    """Why a host gave no evidence, in one sentence, and the next command."""
    said = "; ".join(played.failures) or played.tail or played.status
    for pattern, short, way in _WAYS:
        if pattern.search(said):
            names = {"host": host, "inventory": inventory}
            last = said.strip().splitlines()[-1][:300]
            return ApplyError(
                f"`{host}` gave no evidence: {short.format(**names)} ({last})",
                end="unchanged",
                hints=(way.format(**names),),
            )
    return ApplyError(
        f"`{host}` gave no evidence: {said}",
        end="unchanged",
        hints=(f"`ansible -i {inventory} {host} -m ping -b` shows whether Ansible reaches it",),
    )


def _travelling() -> list[Path]:
    """The collector, its witnesses, and the packages that they use."""
    spec = importlib.util.find_spec("doctor.evidence")
    assert spec is not None
    assert spec.origin is not None
    own = Path(spec.origin).parent
    found = [own / "collector.py", *sorted(own.glob("witness_*.py"))]
    for name in _WITNESSES:
        package = importlib.util.find_spec(name)
        if package is not None and package.origin:
            path = Path(package.origin)
            found.append(path.parent if package.submodule_search_locations else path)
    return found


def inventory_of(folder: Path, inventory: str) -> Path:
    """The inventory as Ansible is given it: the site's own, or one that names this host alone."""
    if inventory:
        return Path(inventory)
    target = folder / "inventory.json"
    target.write_text(f'{{"all":{{"hosts":{{"{LOCALHOST}":{{"ansible_connection":"local"}}}}}}}}\n')
    return target
