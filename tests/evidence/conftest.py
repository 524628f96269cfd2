"""Fixtures of the collector's tests: a planted root, compiled stand-ins for the driver, its runs."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import which

import msgspec
import pytest

from doctor.core.evidence import Evidence, Meta
from doctor.evidence import live

REPOSITORY = Path(__file__).parents[2]
COLLECTOR = REPOSITORY / "doctor" / "evidence" / "collector.py"
FAKELIBS = REPOSITORY / "tests" / "data" / "fakelibs"


def old_python() -> str | None:
    """A real Python 3.6: on PATH, or where pyenv keeps its versions."""
    home = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    found = sorted(home.glob("versions/3.6.*/bin/python"))
    return which("python3.6") if not found else str(found[-1])


@pytest.fixture(params=["this", "3.6"])
def python(request: pytest.FixtureRequest) -> str:
    if request.param == "this":
        return sys.executable
    return old_python() or pytest.skip("no Python 3.6 here: neither python3.6 on PATH nor one of pyenv's")


def load_collector():
    """The collector as a module, for its constants and pure functions."""
    spec = importlib.util.spec_from_file_location("mopt_collector", COLLECTOR)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Run:
    """One run of the collector as a program: its evidence, read by `tarfile`, and how long it took."""

    def __init__(self, process: subprocess.CompletedProcess[bytes], elapsed_s: float) -> None:
        self.elapsed_s = elapsed_s
        self.stream = process.stdout
        with tarfile.open(fileobj=io.BytesIO(process.stdout)) as archive:
            blobs = {m.name: archive.extractfile(m).read() for m in archive.getmembers()}
        self.meta = json.loads(blobs.pop("meta.json"))
        self.evidence = Evidence(msgspec.convert(self.meta, Meta), blobs)

    def document(self, name: str) -> dict:
        return json.loads(self.evidence.blobs[f"{name}.json"])


def collector_argv(python: str, *arguments: str) -> list[str]:
    sites = [f"--site={directory}" for directory in live._sites()]
    return [python, "-I", "-S", str(COLLECTOR), *sites, *arguments]


@pytest.fixture
def collect() -> Callable[..., Run]:
    def run(
        python: str,
        *arguments: str,
        env: dict[str, str] | None = None,
        before: Sequence[str] = (),
        user: int | None = None,
    ) -> Run:
        began = time.monotonic()
        process = subprocess.run(
            [*before, *collector_argv(python, "--output=-", *arguments)],
            capture_output=True,
            check=False,
            timeout=60,
            env={"PATH": "/usr/bin:/bin"} if env is None else env,
            user=user,
        )
        elapsed_s = time.monotonic() - began
        assert process.returncode == 0, process.stderr.decode()
        assert process.stderr == b""
        return Run(process, elapsed_s)

    return run


class Planted:
    """A root made for a test: files, links and programs."""

    def __init__(self, top: Path) -> None:
        self.top = top
        top.mkdir(mode=0o755)

    def __str__(self) -> str:
        return str(self.top)

    def place(self, path: str) -> Path:
        place = self.top / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def file(self, path: str, data: str | bytes = "") -> Path:
        place = self.place(path)
        place.write_bytes(data if isinstance(data, bytes) else data.encode())
        return place

    def link(self, path: str, target: str) -> None:
        self.place(path).symlink_to(target)

    def tool(self, name: str, script: str) -> Path:
        """A shell program; a name without a slash lies in /usr/bin."""
        place = self.file(name if "/" in name else f"/usr/bin/{name}", f"#!/bin/sh\n{script}\n")
        place.chmod(0o755)
        return place

    def library(self, path: str, source: str, *defines: str) -> Path:
        """One of the stand-ins in tests/data/fakelibs, compiled."""
        if which("gcc") is None:
            pytest.skip("no gcc here to compile the stand-in libraries")
        place = self.place(path)
        flags = [f"-D{define}" for define in defines]
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", place, *flags, FAKELIBS / source], check=True)
        return place

    def pci(self, address: str, **attributes: str) -> None:
        values = {"vendor": "0x10de", "device": "0x2335", "class": "0x030200", "numa_node": "0"} | attributes
        for name, value in values.items():
            self.file(f"/sys/bus/pci/devices/{address}/{name}", f"{value}\n")
        self.file(f"/sys/bus/pci/devices/{address}/config", bytes(range(256)))


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    """An empty root with a running kernel's look: `/proc/version` is there."""
    root = Planted(tmp_path / "root")
    root.file(
        "/proc/version",
        "Linux version 6.8.0-45-generic (buildd@lcy02) (x86_64-linux-gnu-gcc-13) #45-Ubuntu SMP\n",
    )
    return root


def processes_with(marker: str) -> list[str]:
    """Command lines of the living processes that carry `marker`."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if marker in line and state not in "ZX":
            found.append(f"{entry.name} {state} {line}")
    return found
