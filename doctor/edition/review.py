"""Which rows are due to be read again, and what the rows of an edition rest on."""

from __future__ import annotations

from collections import Counter

from doctor.core.matrix import Edition, Row

__all__ = ["label", "overdue", "statistics"]

#: Fields that name a row, in order of preference.
_NAMES = ("id", "product", "pci_device_id", "chip", "branch", "cuda", "architecture")


def overdue(edition: Edition, today: str) -> tuple[str, ...]:
    """Rows whose `review_by` lies before `today` (`2027-03-01`): a warning to whoever keeps the matrix."""
    return tuple(
        f"{table}: {label(row)}: to be reviewed by {row.review_by}"
        for table, rows in edition.rows().items()
        for row in rows
        if row.review_by < today
    )


def label(row: Row) -> str:
    """What a person calls a row: its id, product, branch, …"""
    return next(str(getattr(row, name)) for name in _NAMES if hasattr(row, name))


def statistics(edition: Edition) -> dict[str, Counter[str]]:
    """For each table, how many rows have which confidence, and how many fields are `unverified`."""
    counts: dict[str, Counter[str]] = {}
    for table, rows in edition.rows().items():
        counts[table] = Counter(row.confidence for row in rows)
        counts[table]["unverified fields"] = sum(len(row.unverified) for row in rows)
    return counts
