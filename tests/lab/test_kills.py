"""Killed at random moments: the run is resumed to exactly the plan, or rolled back to exactly what was before.

`make lab-kills ARGS='--seed 7 --count 25'` is the long suite; each trial is a line of `benchmarks/results/kill.jsonl`.
"""

from __future__ import annotations

import json
import random
import time
from datetime import datetime, timezone

import pytest

from tests.lab import product
from tests.lab.applier import doctor, ended, install, journal, plan_on, run_name
from tests.lab.capsules import capsule, difference, packages
from tests.lab.places import TREE

GOAL = "driver==580.126.20"
KINDS = ("controller", "connection", "power")
WAYS = ("resume", "rollback")
RESULTS = TREE / "benchmarks/results/kill.jsonl"
SYSTEMS = ("ubuntu-24.04", "rocky-9")

#: After so many seconds of a run that nobody disturbs, every package is there; found by the first trial of a session.
_whole: dict[str, tuple[float, dict[str, str]]] = {}


def undisturbed(make, system: str) -> tuple[float, dict[str, str]]:
    """How long a run takes here, and the packages that it ends with."""
    if system not in _whole:
        host = make(system, "H100")
        install(host)
        plan_on(host, GOAL)
        started = time.monotonic()
        doctor(host, "apply /root/plan.json --yes --no-watch", 0)
        end = ended(host, run_name(host))
        assert end["end"] == "done", end
        _whole[system] = (time.monotonic() - started, packages(host))
    return _whole[system]


def kill(host, kind: str) -> None:
    if kind == "controller":
        host.ssh("pkill -KILL -f 'doctor work' || true", check=False)
    elif kind == "connection":
        # Every session of this moment, as a router that forgets its states; the run has none of its own.
        host.ssh("pkill -KILL -f 'sshd: ' || true", check=False)
    else:
        host.unplug()
        host.boot()


def settle(host, name: str, way: str) -> dict:
    """Go on, or back, as the message of the last act says; a run that is at work is waited for."""
    acts = len([row for row in journal(host, name) if row["kind"] == "closed"])
    for _ in range(40):
        done = doctor(host, f"{way} {name} --yes --no-watch")
        if done.returncode in (0, 1) or "is changing" not in done.stderr:
            break
        time.sleep(3)
    if way == "resume" and "at work" not in done.stdout and done.returncode == 0:
        return [row for row in journal(host, name) if row["kind"] == "closed"][-1]
    assert done.returncode == 0, done.stderr
    return ended(host, name, after=acts)


def trial(make, seed: int, kind: str, way: str) -> None:
    dice = random.Random(f"{seed} {kind} {way}")
    system = SYSTEMS[seed % 2]
    took_s, planned = undisturbed(make, system)
    host = make(system, "H100")
    install(host)
    plan_on(host, GOAL)
    before, first = packages(host), capsule(host)
    at_s = dice.uniform(0.0, took_s)
    row = {
        "seed": seed,
        "kind": kind,
        "way": way,
        "system": system,
        "at_s": round(at_s, 2),
        "of_s": round(took_s, 1),
    }
    print(f"seed {seed}: {kind} at {at_s:.2f} s of {took_s:.1f} s on {system}, then {way}")
    doctor(host, "apply /root/plan.json --yes --no-watch", 0)
    name = run_name(host)
    time.sleep(at_s)
    told = journal(host, name)
    row["stage"] = next((r["stage"] for r in reversed(told) if "stage" in r), "")
    kill(host, kind)
    host.wait_ssh(90)
    outcome = "exact"
    try:
        if kind == "connection":
            ended(host, name)
        end = settle(host, name, way)
        row["end"] = end["end"]
        if way == "resume":
            assert end["end"] == "done", end
            assert difference(planned, packages(host)) == {}
            assert product.check(host)["verdict"] == "ready"
        else:
            assert end["end"] in ("rolled_back", "unchanged"), end
            assert difference(before, packages(host)) == {}
            host.reboot()  # a card that lost its driver finds nouveau again at a boot
            assert difference(first, capsule(host)) == {}
    except AssertionError as fault:
        outcome = f"wrong: {str(fault)[:200]}"
        raise
    finally:
        row |= {"outcome": outcome, "at": datetime.now(timezone.utc).isoformat(timespec="seconds")}
        with RESULTS.open("a") as out:
            out.write(json.dumps(row) + "\n")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_a_random_moment(make, kind, way, kill_seed):
    trial(make, kill_seed, kind, way)
