"""For every check a case small enough to read on which it passes, fails or warns, is unknown, does not apply.

A check that cannot give one of these answers says so in `never.py`, and nowhere else.
"""

from __future__ import annotations

from tests.core.checks.states import container, cuda, driver, engine, fabric, gpu, kernel, system
from tests.core.checks.states.base import KINDS, Kind, Shown, States, case_for
from tests.core.checks.states.never import NEVER

__all__ = ["KINDS", "NEVER", "STATES", "Kind", "Shown", "States", "case_for"]

_AREAS = (kernel, driver, gpu, fabric, cuda, container, engine, system)

STATES: dict[str, States] = {check_id: row for area in _AREAS for check_id, row in area.STATES.items()}
