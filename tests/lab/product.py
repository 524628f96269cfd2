"""`mopt-doctor` on a lab host: the tree's own code, with what it needs of the development environment."""

from __future__ import annotations

import json
import shutil
import sysconfig
from pathlib import Path
from typing import Any

from tests.lab.hosts import Host
from tests.lab.places import TREE

__all__ = ["check", "collect", "copy_into", "install"]

PLACE = "opt/mopt-doctor"
LAUNCHER = f"#!/usr/bin/python3 -IB\nimport sys\nsys.path.insert(0, '/{PLACE}')\nfrom doctor.cli import program\nsys.exit(program())\n"
NEEDS = ("msgspec", "packaging", "yaml", "_yaml", "pynvml.py", "distro", "psutil")


def install(host: Host) -> None:
    """Copy the product into the host, once."""
    if not (host.root / PLACE).exists():
        copy_into(host.root)


def copy_into(root: Path) -> None:
    """The product below `root`: the guest's Python is the one that the environment here was made for."""
    target = root / PLACE
    target.mkdir(parents=True)
    for name in ("doctor", "optimize", "matrices"):
        shutil.copytree(TREE / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    site = Path(sysconfig.get_path("purelib"))
    for name in NEEDS:
        source = site / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__", "tests"))
        elif source.is_file():
            shutil.copy(source, target / name)
    launcher = root / "usr/local/bin/mopt-doctor"
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)


def _run(host: Host, arguments: str) -> tuple[int, str]:
    install(host)
    done = host.ssh(f"mopt-doctor {arguments}", check=False)
    if done.returncode not in (0, 1, 3):
        raise RuntimeError(
            f"`mopt-doctor {arguments}` on {host.name} ended with {done.returncode}:\n{done.stderr[-3000:]}"
        )
    return done.returncode, done.stdout


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
