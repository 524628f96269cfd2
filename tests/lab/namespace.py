"""Runs a command in mount, network and process namespaces of its own, out of which no route leads.

The process that was started becomes `unshare` itself: when it is killed, by -9 too, the kernel ends its
child, which is process 1 of the namespace, and with it every host, mount, address and interface. Only empty
control groups can stay behind; a watcher outside takes them away as soon as the last process is gone.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

if __name__ != "__main__":  # the watcher runs this file alone, without the tree on its path
    from tests.lab.places import RUN, TREE
else:
    RUN = TREE = Path("/")

__all__ = ["INSIDE", "cgroup_tops", "enter", "is_inside", "sweep"]

#: Set inside: the name of this session's control groups.
INSIDE = "MOPT_LAB_SESSION"
HIERARCHIES = ("/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup")
PREFIX = "mopt-lab-"

# The outside's /run/netns must not be touched, and tmpfs makes the fsyncs of dpkg and rpm free.
SETUP = f"""
mkdir -p /run/netns {RUN}
mount -t tmpfs -o mode=755 lab /run/netns
mount -t tmpfs -o size=12g,mode=755 lab {RUN}
ip link set lo up
exec "$@"
"""


def is_inside() -> bool:
    """Whether this process runs in a lab of its own."""
    return INSIDE in os.environ


def cgroup_tops(session: str) -> list[Path]:
    """This session's folder in each control group hierarchy that systemd can live in."""
    return [Path(top) / session for top in HIERARCHIES if (Path(top) / "cgroup.procs").exists()]


def enter(argv: list[str]) -> None:
    """Replace this process by `argv` inside new namespaces. Needs root; does not return."""
    from tests.lab.base import require_root

    require_root()
    kinds = ["--mount", "--net", "--ipc", "--pid", "--fork"]
    tried = subprocess.run(
        ["unshare", *kinds, "--mount-proc", "true"], check=False, capture_output=True, text=True
    )
    if tried.returncode != 0:
        raise SystemExit(
            f"the lab cannot make namespaces of its own here: {tried.stderr.strip()}. A container without CAP_SYS_ADMIN? "
            "Run on a machine, or in a privileged container."
        )
    sweep_stale()
    session = f"{PREFIX}{uuid.uuid4().hex[:8]}"
    read_end, write_end = os.pipe()
    _watch(session, read_end, write_end)
    os.close(read_end)
    os.set_inheritable(write_end, True)  # noqa: FBT003 - every process of the session holds it: its end is their end
    environment = {**os.environ, INSIDE: session, "PYTHONPATH": str(TREE), "PYTHONDONTWRITEBYTECODE": "1"}
    unshare = ["unshare", *kinds, "--kill-child", "--mount-proc"]
    os.execvpe("unshare", [*unshare, "bash", "-ec", SETUP, "lab", *argv], environment)


def _watch(session: str, read_end: int, write_end: int) -> None:
    """A process outside that waits until nobody holds the pipe, then removes the session's groups."""
    subprocess.Popen(
        [sys.executable, "-I", __file__, str(read_end), *map(str, cgroup_tops(session))],
        pass_fds=(read_end,),
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    del write_end


def sweep_stale() -> None:
    """Remove what sessions left whose watcher was killed, too: groups of an hour ago without a process."""
    for hierarchy in HIERARCHIES:
        for top in Path(hierarchy).glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):
                if time.time() - top.stat().st_mtime > 3600:
                    sweep(top, patience_s=0.0)


def sweep(top: Path, *, patience_s: float = 2.0) -> bool:
    """Remove a tree of control groups, once no process is left in it. False: something still is."""
    end = time.monotonic() + patience_s
    while top.exists():
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # noqa: PTH106 - the watcher stays light
        if time.monotonic() > end:
            break
        time.sleep(0.02)
    return not top.exists()


def _watcher() -> None:
    os.read(int(sys.argv[1]), 1)
    for top in sys.argv[2:]:
        sweep(Path(top))


if __name__ == "__main__":
    _watcher()
