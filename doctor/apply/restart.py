"""The restart of the host that a run works on: announced, bounded, and followed by a unit that goes on."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from doctor.apply.ansible import controller_environment, play
from doctor.apply.observe import inventory_of
from doctor.apply.order import Order
from doctor.apply.told import Played
from doctor.config import data_dir
from doctor.core.run import ClosedEntry, Entry, RebootEntry

__all__ = ["boot_id", "is_unit_left", "unit", "was_restarted_for"]

_UNITS = Path("/etc/systemd/system")


def boot_id() -> str:
    """Of this boot of the host that the run works from; empty where the kernel does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def was_restarted_for(stage: str, entries: Iterable[Entry]) -> bool:
    """Whether the host has gone through a restart for this stage: another one would do no more.

    Restarts before the run's last end do not count: whoever resumed it may have mended something.
    """
    here, found = boot_id(), False
    for entry in entries:
        if isinstance(entry, ClosedEntry):
            found = False
        elif isinstance(entry, RebootEntry) and entry.stage == stage:
            found = entry.boot_id != here
    return found


def is_unit_left(run: str) -> bool:
    """Whether the unit that goes on after a restart is there still."""
    return (_UNITS / f"mopt-resume-{run}.service").exists()


def unit(state: str, folder: Path, order: Order, should_stop: Callable[[], bool]) -> Played:
    """Leave the unit and restart (`present`), or take it away (`absent`)."""
    # A unit's file has no way to write these in an environment.
    unwritable = ('"', "\\", "\n")
    environment = {
        name: value.replace("%", "%%")
        for name, value in controller_environment().items()
        if not any(mark in value for mark in unwritable)
    }
    return play(
        Path(data_dir("playbooks")) / "reboot.yml",
        folder=folder,
        inventory=inventory_of(folder, ""),
        limit=order.host,
        variables={
            "mopt_run": order.run,
            "reboot_unit_state": state,
            "reboot_argv": [sys.executable, "-I", "-m", "doctor", "work", "--resume", str(folder)],
            "reboot_user": pwd.getpwuid(os.geteuid()).pw_name,
            "reboot_environment": environment,
        },
        should_stop=should_stop,
    )
