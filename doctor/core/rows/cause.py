"""Root causes and their remedies."""

from __future__ import annotations

import msgspec

from doctor.core.rows.base import Row

__all__ = ["CauseRow", "RemedyRow"]


class RemedyRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What to do about a cause. Commands are argv lists; they never switch off a security feature."""

    summary: str
    commands: tuple[tuple[str, ...], ...] = ()
    needs_root: bool = True
    cost: str
    """`none`, `drain`, `reload`, `reboot`, `reinstall`, `hardware`: what it interrupts at most."""
    undo: str = ""
    blast_radius: str = ""
    """Whom or what it hits, in a sentence."""


class CauseRow(Row, frozen=True, kw_only=True):
    """A root cause: when it holds, what it explains, what rules it out, what to do."""

    id: str
    """Of the taxonomy: `driver.userspace_kernel_mismatch`."""
    layer: str
    title: str
    """One sentence an admin understands."""
    when: tuple[str, ...] = ()
    """Claims that must all hold; `not NAME` negates. See `doctor.core.claims`."""
    ruled_out_by: tuple[str, ...] = ()
    """Claims any of which rules it out."""
    yields_to: tuple[str, ...] = ()
    """Claims of a closer cause: one that holds rules it out; untold, they leave it true but not certain."""
    explains: tuple[str, ...] = ()
    """Finding ids that follow from it."""
    refines: str = ""
    """The more general cause that this one names more closely."""
    deciding_facts: tuple[str, ...] = ()
    """What would settle it when it is open, as a person would look it up."""
    remedy: RemedyRow | None = None
