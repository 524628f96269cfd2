"""All checks, one file an area, in the order in which they are judged."""

from __future__ import annotations

from doctor.core.check import Check
from doctor.core.checks import (
    build,
    container,
    cuda,
    driver,
    engine,
    fabric,
    goal,
    gpu,
    history,
    injection,
    kernel,
    machine,
    network,
    security,
    settings,
    sources,
    system,
    use,
    xids,
)

__all__ = ["CHECKS"]

CHECKS: tuple[Check, ...] = (
    *system.CHECKS[:1],  # without a card nothing else matters
    *kernel.CHECKS,
    *build.CHECKS,
    *history.CHECKS,
    *driver.CHECKS,
    *settings.CHECKS,
    *gpu.CHECKS,
    *xids.CHECKS,
    *use.CHECKS,
    *fabric.CHECKS,
    *cuda.CHECKS,
    *container.CHECKS,
    *injection.CHECKS,
    *engine.CHECKS,
    *system.CHECKS[1:],
    *machine.CHECKS,
    *sources.CHECKS,
    *network.CHECKS,
    *security.CHECKS,
    *goal.CHECKS,
)
