"""Relations that no single release carries: conditions between components, advisories, tested sets."""

from __future__ import annotations

from typing import Literal

import msgspec

from doctor.core.rows.base import Row
from doctor.core.versions import Dotted

__all__ = ["Advisory", "ReferenceStack", "Relation"]


class Relation(Row, frozen=True, kw_only=True):
    """Where every component of `when` is there at such a version, `requires` must hold as well."""

    id: str
    when: dict[str, str]
    requires: dict[str, str] = msgspec.field(default_factory=dict)
    same_version: tuple[str, ...] = ()
    """Components that must have one and the same version."""
    otherwise: str = ""
    """What may be done instead."""
    delivery: Literal["venv", "container", "system", ""] = ""
    """Where it holds for one way of delivery only."""


class Advisory(Row, frozen=True, kw_only=True):
    """A security bulletin, and the releases that no longer have its faults."""

    id: str
    """`5821-data-center`: the bulletin's number, with the products where it has several floors."""
    bulletin: str
    component: str
    products: Literal["all", "data-center", "geforce-rtx"]
    """The GPUs whose driver floors these are: one bulletin can have different floors for each."""
    published: str
    """Day, or `after` a day where the copy read bore no date of its own."""
    cves: tuple[str, ...] = ()
    affected: str = ""
    """PEP 440 set; for drivers it follows from `fixed_in`, branch by branch."""
    fixed_in: tuple[Dotted, ...] = ()
    """One release; for drivers one a branch that still got a correction."""
    fixed_release: str = ""
    """The same for a Python package, by its PEP 440 version."""
    cvss_max: float | None = None
    """The highest base score among the faults on Linux."""


class ReferenceStack(Row, frozen=True, kw_only=True):
    """Versions that a vendor tested together."""

    id: str
    components: dict[str, str]
    drivers: tuple[Dotted, ...] = ()
    recommended_driver: Dotted | None = None
