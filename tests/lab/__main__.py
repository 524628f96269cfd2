"""`python -m tests.lab COMMAND`: deps, base, repos, run, up."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.lab.base import DEPENDENCIES, ensure_base, ensure_dependencies
from tests.lab.namespace import enter, is_inside
from tests.lab.places import SYSTEMS

__all__ = ["build", "main"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description="Disposable hosts to provision.")
    commands = parser.add_subparsers(dest="command", required=True)
    deps = commands.add_parser("deps", help="install the Debian packages that the lab needs")
    deps.add_argument("group", nargs="*", default=["hosts"], help=f"of {', '.join(DEPENDENCIES)}")
    base = commands.add_parser(
        "base", help="build what is kept: userland, layers, keys, repositories, controllers"
    )
    base.add_argument("systems", nargs="*", metavar="SYSTEM", help=f"of {', '.join(SYSTEMS)}; all without")
    base.add_argument(
        "--core", action="append", help="ansible-core of the controllers; `newest` that this machine can run"
    )
    inside = commands.add_parser("run", help="run a command in namespaces of its own")
    inside.add_argument("argv", nargs=argparse.REMAINDER)
    up = commands.add_parser("up", help="boot hosts and open a shell beside them")
    up.add_argument("hosts", nargs="+", metavar="[NAME=]SYSTEM", help=f"one of {', '.join(SYSTEMS)}")
    up.add_argument(
        "--gpu",
        action="append",
        default=[],
        help="a card for each host: H200, B200, L4, T4, V100; repeatable",
    )
    up.add_argument("--secure-boot", action="store_true", help="firmware with Secure Boot on")
    up.add_argument(
        "--command",
        dest="shell",
        help="run this instead of a shell; $LAB, $INVENTORY and ./ssh lead to the hosts",
    )
    asked = parser.parse_args()
    if asked.command == "deps":
        if unknown := set(asked.group) - set(DEPENDENCIES):
            parser.error(f"no group of packages: {', '.join(sorted(unknown))}")
        ensure_dependencies(*asked.group)
    elif asked.command == "base":
        if unknown := set(asked.systems) - set(SYSTEMS):
            parser.error(f"no system of the lab: {', '.join(sorted(unknown))}")
        build(asked.systems or SYSTEMS, asked.core)
    elif asked.command == "run":
        enter([a for i, a in enumerate(asked.argv) if (i, a) != (0, "--")])
    elif not is_inside():
        build(sorted({word.rpartition("=")[2] for word in asked.hosts}))
        enter([sys.executable, "-m", "tests.lab", *sys.argv[1:]])
    else:
        from tests.lab.shell import up as start

        return start(asked.hosts, asked.gpu, secure_boot=asked.secure_boot, command=asked.shell)
    return 0


def build(systems: Sequence[str], cores: Sequence[str] | None = None) -> None:
    """Outside, where the package registry answers."""
    from tests.lab.controller import CONTROLLERS, default_core, ensure_controller
    from tests.lab.personality import ensure_layer
    from tests.lab.repository import ensure_repositories

    ensure_dependencies("hosts")
    ensure_base()
    for system in systems:
        ensure_layer(system)
    ensure_repositories(systems)
    for core in cores or CONTROLLERS:
        ensure_controller(default_core() if core == "newest" else core)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    sys.exit(main())
