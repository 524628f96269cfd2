"""What a detached run is told, in one file of its folder: the plan, the host, and what to do about them."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from doctor.core.plan import Plan, Promise
from doctor.core.run import Act
from doctor.errors import ApplyError

__all__ = [
    "LOCALHOST",
    "ORDER",
    "Order",
    "promises_beside",
    "read_order",
    "stop_asked",
    "write_order",
    "write_stop",
]

ORDER = "order.json"
_STOP = "stop"
LOCALHOST = "localhost"


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An act on one host."""

    run: str
    act: Act
    plan: Plan
    host: str = LOCALHOST
    """Its name in the inventory."""
    inventory: str = ""
    """Absolute path; empty for the host that the doctor runs on."""
    variable_files: tuple[str, ...] = ()
    """Files of the site's own variables (hooks, proxies), by absolute path."""
    overlays: tuple[str, ...] = ()
    """Folders of the overlays that the plan was made with, by absolute path."""
    timeout_s: float = 15.0
    """For one collection."""

    @property
    def is_local(self) -> bool:
        return not self.inventory


def write_order(folder: Path, order: Order) -> None:
    """Whole or not at all. Raises ApplyError when it cannot be written."""
    beside, target = folder / f".{ORDER}", folder / ORDER
    try:
        with beside.open("wb") as out:
            os.fchmod(out.fileno(), 0o600)
            out.write(msgspec.json.encode(order))
            out.flush()
            os.fsync(out.fileno())
        beside.replace(target)
        # What somebody asked of an earlier act is not asked of this one.
        (folder / _STOP).unlink(missing_ok=True)
    except OSError as error:
        text = f"the run's order `{target}` cannot be written: {error.strerror}"
        raise ApplyError(text, end="unchanged") from None


def read_order(folder: Path) -> Order:
    """Raises ApplyError when there is none that can be read."""
    try:
        return msgspec.json.decode((folder / ORDER).read_bytes(), type=Order)
    except (OSError, msgspec.DecodeError) as error:
        raise ApplyError(
            f"the order of the run in `{folder}` cannot be read: {error}",
            end="half_way",
            hints=(
                "the edition of mopt-doctor that wrote it reads it",
                f"`{folder / 'journal.jsonl'}` tells what was done",
            ),
        ) from None


def promises_beside(path: str) -> tuple[Promise, ...]:
    """What the run of a journal was to cure; none where its order is not beside it."""
    try:
        return read_order(Path(path).parent).plan.promises
    except ApplyError:
        return ()


def write_stop(folder: Path, how: str) -> None:
    """Ask a run to end: `step`, after the one under way; `now`. Raises OSError."""
    beside = folder / f".{_STOP}"
    beside.write_text(how)
    beside.replace(folder / _STOP)


def stop_asked(folder: Path) -> str:
    """`step`, `now`, or empty."""
    try:
        return (folder / _STOP).read_text().strip()[:8]
    except OSError:
        return ""
