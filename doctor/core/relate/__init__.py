"""Rows of the matrix as clauses of a model, one file for each kind of relation; versions stay in the rows."""

from __future__ import annotations

from doctor.core.relate.driver import relate_driver
from doctor.core.relate.hardware import relate_hardware
from doctor.core.relate.host import relate_host
from doctor.core.relate.kernel import relate_kernel
from doctor.core.relate.names import relate_names
from doctor.core.relate.packages import relate_packages
from doctor.core.relate.site import relate_site
from doctor.core.relate.standing import relate_standing
from doctor.core.relate.uses import relate_uses
from doctor.core.solve.model import Model

__all__ = ["relate"]


def relate(model: Model) -> None:
    """Add every relation that the rows state between the model's variables."""
    relate_packages(model)
    relate_hardware(model)
    relate_driver(model)
    relate_kernel(model)
    relate_host(model)
    relate_uses(model)
    relate_names(model)
    relate_standing(model)
    relate_site(model)
