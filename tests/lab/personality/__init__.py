"""Layers that make the shared userland present as one of the systems."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.base import digest_of, ensure_base, once, run
from tests.lab.personality import rocky, ubuntu
from tests.lab.personality.common import prepare
from tests.lab.places import CACHE, LAB, SUITE
from tests.lab.systems import SYSTEM_FACTS

__all__ = ["ensure_layer"]


def ensure_layer(system: str) -> Path:
    """The layer of this system over `ensure_base()`; a second to make, then kept."""
    base = ensure_base()
    sources = (
        sorted((LAB / "personality").glob("*.py")) + sorted((LAB / "guest").glob("*")) + [LAB / "systems.py"]
    )
    layer = CACHE / f"layer-{SUITE}-{system}-{digest_of(*sources, text=base.name)}"
    with once(layer) as part:
        if part is not None:
            with _overlay(base, part) as root:
                facts = SYSTEM_FACTS[system]
                prepare(root, facts)
                (rocky if facts.is_rocky else ubuntu).make(root, facts)
    return layer


@contextmanager
def _overlay(base: Path, upper: Path) -> Iterator[Path]:
    """A writable view of the base whose changes land in `upper`, seen by this process's children alone."""
    work = upper.with_name(upper.name + ".work")
    work.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mopt-lab-", dir="/dev/shm") as point:
        run(
            "mount",
            "-t",
            "overlay",
            "overlay",
            "-o",
            f"lowerdir={base},upperdir={upper},workdir={work}",
            point,
        )
        try:
            yield Path(point)
        finally:
            run("umount", "-l", point)
            subprocess.run(["rm", "-rf", str(work)], check=True)
