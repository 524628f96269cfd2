"""How long provisioning takes: a dry run, a first run and a repeat, on one and on eight lab hosts.

`python benchmarks/provision.py [PLAN…] [--hosts 1,8] [--core 2.21] [--result FILE]`, as root, on lab hosts.
A row has tasks, what changed, wall time, CPU and the load average before and after.
CPU is that of the controller and all its children, not that of the hosts: they share this machine's cores.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.lab.hosts import Lab

TREE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TREE))


def measure(
    lab: Lab, plans: Mapping[str, Mapping[str, Any]], core: str, *, check: bool
) -> dict[str, float | int]:
    """One run of site.yml."""
    from tests.lab.controller import play

    load, before, start = os.getloadavg()[0], resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    outcome = play(lab, plans, "site.yml", core=core, check=check, timeout_s=3600)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if outcome.code != 0:
        raise SystemExit(f"the run ended with {outcome.code}:\n{outcome.failures() or outcome.said[-2000:]}")
    return {
        "tasks": len(outcome.events),
        "changed": sum(s["changed"] for s in outcome.stats.values()),
        "wall_s": round(time.monotonic() - start, 1),
        "controller_cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        "load_before": round(load, 1),
        "load_after": round(os.getloadavg()[0], 1),
    }


def bench(name: str, numbers: list[int], core: str) -> list[dict[str, Any]]:
    """Inside the lab: a row a number of hosts and kind of run."""
    from tests.lab.fakegpu.plant import MODELS
    from tests.lab.hosts import Lab
    from tests.lab.keys import with_lab_keys
    from tests.lab.places import BRIDGE_ADDRESS
    from tests.lab.repository import ensure_repositories
    from tests.lab.server import Server

    system, card = "-".join(name.split("-")[:2]), MODELS[name.split("-")[2].upper()]
    variables = json.loads(with_lab_keys((TREE / "tests/data/vars" / f"{name}.json").read_text()))
    repositories = ensure_repositories([system])
    lab = Lab(repositories.authority)
    server = Server(repositories.folders, repositories.authority, BRIDGE_ADDRESS)
    rows: list[dict[str, Any]] = []
    try:
        for number in numbers:
            hosts = [lab.host(f"b{number}-{i}", system, gpus=[card] * 2, boot=False) for i in range(number)]
            lab.boot_all(hosts)
            plans = {h.name: variables for h in hosts}
            for kind, check in (("dry run", True), ("first run", False), ("repeat", False)):
                row = {
                    "plan": name,
                    "core": core,
                    "hosts": number,
                    "run": kind,
                    **measure(lab, plans, core, check=check),
                }
                rows.append(row)
                print(json.dumps(row), flush=True)
            for host in hosts:
                lab.destroy(host)
    finally:
        server.close()
        lab.close()
    return rows


def keep(path: Path, rows: list[dict[str, Any]]) -> None:
    """The rows, and the machine that they were measured on; rows of other plans or numbers of hosts stay."""
    old = json.loads(path.read_text())["rows"] if path.exists() else []
    new = {tuple(row[k] for k in ("plan", "core", "hosts", "run")): row for row in [*old, *rows]}
    machine = {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
    path.write_text(json.dumps({"machine": machine, "rows": list(new.values())}, indent=1) + "\n")


def main() -> None:
    """Outside it builds and enters the lab; inside it measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "plan",
        nargs="*",
        default=["ubuntu-24.04-h100-580-open"],
        help="files of tests/data/vars, without .json",
    )
    parser.add_argument("--hosts", default="1,8")
    parser.add_argument("--core", default="2.21")
    parser.add_argument("--result", type=Path, help="keep the rows in this file, too")
    asked = parser.parse_args()
    from tests.lab.namespace import enter, is_inside

    if is_inside():
        for name in asked.plan:
            rows = bench(name, [int(n) for n in asked.hosts.split(",")], asked.core)
            if asked.result:
                keep(asked.result, rows)
        return None
    from tests.lab.__main__ import build

    build(sorted({"-".join(name.split("-")[:2]) for name in asked.plan}))
    os.environ["PYTHONPATH"] = str(TREE)
    return enter([sys.executable, str(Path(__file__).resolve()), *sys.argv[1:]])


if __name__ == "__main__":
    main()
