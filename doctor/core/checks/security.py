"""Checks of what could change or open the host behind the admin's back."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.core.check import Case, Outcome, check, passed, skipped, unknown, warned
from doctor.core.checks.applies import on_gpu_host, on_own_kernel
from doctor.core.claims.running import updates_unfenced
from doctor.core.host import known
from doctor.core.views import DRIVER_PACKAGE

__all__ = ["CHECKS"]


@check(
    "security.automatic_updates",
    "driver fenced from automatic updates",
    needs=("packages",),
    applies=(on_gpu_host, on_own_kernel),
)
def automatic_updates(case: Case) -> Iterator[Outcome]:
    """An unattended upgrade replaces the libraries under a loaded module: the mismatch of next Monday."""
    packages = known(case.host.packages)
    if packages is None or not any(DRIVER_PACKAGE.match(p.name) for p in packages.installed):
        yield skipped("the driver does not come from packages")
        return
    claim = updates_unfenced(case)
    wanted = "driver packages held, or left out of automatic updates"
    if claim.holds:
        changes = known(packages.changes) or ()
        seen = [
            f"{c.when} {c.command}: {', '.join(c.names[:2])}" for c in changes if "unattended" in c.command
        ]
        yield warned(claim.because, wanted=wanted, why=tuple(seen[:1]))
    elif claim.holds is False:
        yield passed("held, excluded, or nothing updates by itself", wanted=wanted)
    else:
        yield unknown("whether updates run by themselves was not read", wanted=wanted)


CHECKS = (automatic_updates,)
