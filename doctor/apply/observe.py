"""What a host is now: evidence of this one by the collector, of another one by the collector over Ansible."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable
from pathlib import Path

from doctor.apply.ansible import Told, play
from doctor.apply.order import LOCALHOST
from doctor.config import data_dir
from doctor.core.evidence import Evidence
from doctor.errors import ApplyError

__all__ = ["inventory_of", "observe"]

#: Pure Python that answers better than files alone; it travels, and nothing of it stays.
_WITNESSES = ("pynvml", "distro")


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
            is_dry=False,
            on_task=_heard,
            should_stop=should_stop,
        )
        if not played.is_good or not target.exists():
            raise ApplyError(
                f"`{host}` gave no evidence: {'; '.join(played.failures) or played.tail or played.status}",
                end="unchanged",
                hints=(f"`ansible -i {inventory} {host} -m ping -b` shows whether Ansible reaches it",),
            )
        return evidence_from_stream(target.read_bytes())


def _heard(told: Told) -> None:
    """Collecting is no part of the story that a journal tells."""


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
