"""What the tests of causes are made of: a host that has a cause, and one that is merely like it."""

from __future__ import annotations

from typing import NamedTuple

from doctor.core.host import Host


class Pair(NamedTuple):
    """A host with one fault, and a host like it that has another one, or none."""

    sick: Host
    near_miss: Host
    first: str = ""
    """The cause that is first instead on the near miss; empty for none."""
    is_advice: bool = False
    """The sick host serves all the same: the cause stands in the advice."""


class Three(NamedTuple):
    """Hosts on which a claim is true, false and untold; None where it is always told."""

    true: Host
    false: Host
    untold: Host | None
