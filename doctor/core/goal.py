"""The goal a host is judged against. Without a wish it is `present`: does what is there fit together?"""

from __future__ import annotations

import msgspec

__all__ = ["PRESENT", "Goal"]


class Goal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the host is for. `present` fixes each installed component at its version; age never fails."""

    text: str = "present"


PRESENT = Goal()
