"""All checks, one file an area, in the order in which they are judged."""

from __future__ import annotations

from doctor.core.check import Check
from doctor.core.checks import cuda, driver, fabric, goal, gpu, history, kernel, security, system

__all__ = ["CHECKS"]

CHECKS: tuple[Check, ...] = (
    *system.CHECKS[:1],  # without a card nothing else matters
    *kernel.CHECKS,
    *history.CHECKS,
    *driver.CHECKS,
    *gpu.CHECKS,
    *fabric.CHECKS,
    *cuda.CHECKS,
    *system.CHECKS[1:],
    *security.CHECKS,
    *goal.CHECKS,
)
