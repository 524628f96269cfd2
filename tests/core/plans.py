"""Plans for tests: of recorded hosts, and of hosts that have changed since."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from doctor.commands.derive import Derived, derive
from doctor.core.evidence import Evidence
from doctor.core.lower import Choices
from doctor.core.plan import Asked, Plan, PlannedHost
from doctor.evidence.open import open_evidence
from tests.core.lowering import matrix

HOSTS = Path(__file__).parent.parent / "hosts"
HEALTHY, BROKEN = "hgx-h100-healthy", "snap-open-1"
NEWER, OLDER = "driver==595.71.05", "driver==580.126.20"


@cache
def evidence(name: str) -> Evidence:
    return open_evidence(str(HOSTS / name))


def asked(goal: str = NEWER, **more: object) -> Asked:
    return Asked(goal=(goal,), **{"choices": Choices(origin="nvidia"), **more})  # type: ignore[arg-type]


@cache
def derived(name: str = HEALTHY, goal: str = NEWER, origin: str = "nvidia") -> Derived:
    question = asked(goal, choices=Choices(origin=origin))  # type: ignore[arg-type]
    return derive(matrix(), evidence(name), question, PlannedHost())


def plan(name: str = HEALTHY, goal: str = NEWER, origin: str = "nvidia") -> Plan:
    found = derived(name, goal, origin).plan
    assert found is not None
    return found


def changed(name: str, blob: str, old: bytes, new: bytes) -> Evidence:
    """The same host with one of its files changed."""
    was = evidence(name)
    assert old in was.blobs[blob], blob
    return Evidence(was.meta, {**was.blobs, blob: was.blobs[blob].replace(old, new)}, hand_made=was.hand_made)
