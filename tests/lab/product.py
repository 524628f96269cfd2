"""`mopt-doctor` on a lab host: the tree's own code, with what it needs of the development environment."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from tests.lab.base import run
from tests.lab.hosts import Host
from tests.lab.namespace import is_inside
from tests.lab.places import RUN, TREE

__all__ = ["check", "collect", "copy_into", "here", "install"]

PLACE = "opt/mopt-doctor"
LAUNCHER = f"#!/usr/bin/python3 -IB\nimport sys\nsys.path.insert(0, '/{PLACE}')\nfrom doctor.cli import program\nsys.exit(program())\n"
NEEDS = ("msgspec", "packaging", "yaml", "_yaml", "pynvml.py", "distro", "psutil")


def install(host: Host) -> None:
    """Copy the product into the host, once."""
    if not (host.root / PLACE).exists():
        copy_into(host.root)


def copy_into(root: Path) -> None:
    """The product below `root`: the guest's Python is the one that the environment here was made for."""
    run("cp", "-a", _snapshot(), root / PLACE)
    launcher = root / "usr/local/bin/mopt-doctor"
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)


@functools.cache
def _snapshot() -> Path:
    """The tree as it is when the session first asks, its matrix and byte code compiled once for all hosts."""
    scratch = Path(tempfile.mkdtemp(prefix="product-", dir=RUN if is_inside() else None))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    target = scratch / "product"
    unwanted = shutil.ignore_patterns("__pycache__", "tests", "edition.json")
    for name in ("doctor", "optimize", "matrices"):
        shutil.copytree(TREE / name, target / name, ignore=unwanted)
    site = Path(sysconfig.get_path("purelib"))
    for name in NEEDS:
        source = site / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=unwanted)
        elif source.is_file():
            shutil.copy(source, target / name)
    compile_matrix = (
        "import sys; sys.path.insert(0, '.'); from pathlib import Path; from doctor.edition.build import build, write; "
        "write(build(Path('matrices')), Path('matrices/edition.json'))"
    )
    run(sys.executable, "-IB", "-c", compile_matrix, cwd=target)
    run(sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", target)
    return target


def _run(host: Host, arguments: str) -> tuple[int, str]:
    install(host)
    done = host.ssh(f"mopt-doctor {arguments}", check=False)
    if done.returncode not in (0, 1, 3):
        raise RuntimeError(
            f"`mopt-doctor {arguments}` on {host.name} ended with {done.returncode}:\n{done.stderr[-3000:]}"
        )
    return done.returncode, done.stdout


def here(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The same product on the controller: `here("explain", "prov.disk_full")`."""
    program = f"import sys; sys.path.insert(0, {str(_snapshot())!r}); from doctor.cli import program; sys.exit(program())"
    argv = [sys.executable, "-IB", "-c", program, *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def check(host: Host, arguments: str = "") -> dict[str, Any]:
    """The report of `mopt-doctor check --format json`, with its exit code under `exit`."""
    code, text = _run(host, f"check --format json {arguments}")
    report: dict[str, Any] = json.loads(text)
    return {**report, "exit": code}


def collect(host: Host, target: Path) -> Path:
    """A bundle of the host, as `plan --from` takes it."""
    _run(host, "collect -o /root/bundle.tar.gz")
    shutil.copy(host.root / "root/bundle.tar.gz", target)
    return target
