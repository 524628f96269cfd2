"""What goes through the pipe between the command and its measuring processes. Pure."""

from __future__ import annotations

from array import array

import msgspec

from optimize.load.bodies import BodySpec
from optimize.load.connection import Times
from optimize.load.ending import Expectation
from optimize.load.schedule import Pattern, Schedule
from optimize.load.target import Address

__all__ = ["FRAME_BYTES_MAX", "Job", "Said", "pack_schedule", "unpack_schedule"]

#: A million requests are 100 MB.
FRAME_BYTES_MAX = 1 << 30


class PackedSchedule(msgspec.Struct, frozen=True, kw_only=True):
    pattern: Pattern
    seed: int
    concurrency: int
    span_s: float
    due_s: bytes
    n_in: bytes
    n_out: bytes


def pack_schedule(schedule: Schedule) -> PackedSchedule:
    """The columns as bytes."""
    return PackedSchedule(
        pattern=schedule.pattern,
        seed=schedule.seed,
        concurrency=schedule.concurrency,
        span_s=schedule.span_s,
        due_s=schedule.due_s.tobytes(),
        n_in=schedule.n_in.tobytes(),
        n_out=schedule.n_out.tobytes(),
    )


def unpack_schedule(packed: PackedSchedule) -> Schedule:
    """The same schedule again, with the same digest."""
    return Schedule(
        pattern=packed.pattern,
        seed=packed.seed,
        concurrency=packed.concurrency,
        span_s=packed.span_s,
        due_s=array("d", packed.due_s),
        n_in=array("I", packed.n_in),
        n_out=array("I", packed.n_out),
    )


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One process's part of a run. It goes through a pipe, for it carries the key."""

    address: Address
    ca_file: str = ""
    key: str = ""
    run_id: str
    user_agent: str
    body: BodySpec
    schedule: PackedSchedule
    #: this process, of so many
    index: int
    of: int
    expectation: Expectation
    limits: Times
    stagger_s: float = 0.0
    #: a calibration: chunks carry the time of sending
    is_marked: bool = False


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What a measuring process says: `ready`, `progress` twice a second, `result` at the end, or `error`."""

    kind: str
    sent: int = 0
    ok: int = 0
    failed: int = 0
    in_flight: int = 0
    tokens: float = 0.0
    samples: bytes = b""
    examples: dict[str, list[str]] = {}
    cpu_s: float = 0.0
    wall_s: float = 0.0
    retried: int = 0
    connections: int = 0
    loop: str = ""
    words: str = ""
