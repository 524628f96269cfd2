"""Fixtures of the lab. Its tests are collected only inside `python -m tests.lab run` (`make lab`), where there is no way out."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.controller import default_core
from tests.lab.fakegpu.plant import MODELS
from tests.lab.hosts import Host, Lab
from tests.lab.keys import with_lab_keys
from tests.lab.namespace import is_inside
from tests.lab.places import BRIDGE_ADDRESS, RUN, TREE
from tests.lab.repository import Repositories, ensure_repositories
from tests.lab.server import Server

if not is_inside():
    collect_ignore_glob = ["test_*.py"]

#: The systems of which everything is shown; the others follow by data.
COMPLETE = ("ubuntu-24.04", "rocky-9")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/lab" in str(item.path):
            item.add_marker(pytest.mark.lab)


@pytest.fixture(scope="session")
def repositories() -> Repositories:
    return ensure_repositories(COMPLETE)


@pytest.fixture(scope="session")
def lab(repositories: Repositories) -> Iterator[Lab]:
    lab = Lab(repositories.authority)
    yield lab
    lab.close()


@pytest.fixture(scope="session")
def session_server(lab: Lab, repositories: Repositories) -> Iterator[Server]:
    server = Server(repositories.folders, repositories.authority, BRIDGE_ADDRESS)
    yield server
    server.close()


@pytest.fixture
def server(session_server: Server) -> Iterator[Server]:
    """The vendors' server, well again after the test."""
    yield session_server
    session_server.faults.clear()
    session_server.overlay = None
    session_server.released.set()
    session_server.released.clear()


Make = Callable[..., Host]
_numbers = itertools.count()


@pytest.fixture
def make(lab: Lab, session_server: Server, request: pytest.FixtureRequest) -> Iterator[Make]:
    """A fresh host: `make("rocky-9", "H100", "H100")`. Destroyed with the test; its console is shown when that fails."""
    made: list[Host] = []

    def host(system: str, *cards: str, boot: bool = True) -> Host:
        host = lab.host(f"h{next(_numbers)}", system, gpus=[MODELS[c] for c in cards], boot=boot)
        made.append(host)
        return host

    yield host
    for each in made:
        lab.destroy(each)


@pytest.fixture(scope="session")
def variables() -> Callable[[str], dict[str, Any]]:
    """Reference variables by name, with the lab's keys."""

    def load(name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            with_lab_keys((TREE / "tests/data/vars" / f"{name}.json").read_text())
        )
        return found

    return load


@pytest.fixture(scope="session")
def plan() -> Callable[..., dict[str, Any]]:
    """Variables made from a bundle of a host, as an operator makes them: `plan(bundle, "driver==580.126.20")`."""

    def make_plan(bundle: Path, goal: str, *arguments: str) -> dict[str, Any]:
        target = RUN / "plan.json"
        done = subprocess.run(
            [sys.executable, "-I", str(Path(sys.executable).with_name("mopt-doctor")), "plan", "--goal", goal, "--from", str(bundle),
             "--format", "ansible-vars", "-o", str(target), *arguments],
            capture_output=True, text=True, check=False, cwd="/",
        )  # fmt: skip
        if done.returncode not in (0, 1, 3):
            raise RuntimeError(f"plan ended with {done.returncode}: {done.stderr[-3000:]}")
        found: dict[str, Any] = json.loads(with_lab_keys(target.read_text()))
        return found

    return make_plan


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--core",
        action="append",
        default=[],
        help="ansible-core to run playbooks with: 2.19, 2.21, newest that this machine can run; repeatable",
    )
    parser.addoption("--seed", type=int, default=None, help="of the first kill trial (random, printed)")
    parser.addoption("--count", type=int, default=1, help="so many trials a kind of kill (1)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kill_seed" in metafunc.fixturenames:
        given = metafunc.config.getoption("seed")
        first = random.randrange(10**6) if given is None else given
        metafunc.parametrize("kill_seed", range(first, first + metafunc.config.getoption("count")))
    if "core" in metafunc.fixturenames:
        asked = metafunc.config.getoption("core") or ["newest"]
        metafunc.parametrize("core", [default_core() if core == "newest" else core for core in asked])
