"""Which rows are due to be read again, where an edition has gaps, and what its rows rest on."""

from __future__ import annotations

from collections import Counter

from doctor.core.edition import Edition
from doctor.edition.keys import label

__all__ = ["gaps", "overdue", "sizes", "statistics"]


def overdue(edition: Edition, today: str) -> tuple[str, ...]:
    """Rows whose `review_by` lies before `today` (`2027-03-01`): a warning to whoever keeps the matrix."""
    return tuple(
        f"{table}: {label(table, row)}: to be reviewed by {row.review_by}"
        for table, rows in edition.rows().items()
        for row in rows
        if row.review_by < today
    )


def statistics(edition: Edition) -> dict[str, Counter[str]]:
    """For each table, how many rows have which confidence, and how many fields are `unverified`."""
    counts: dict[str, Counter[str]] = {}
    for table, rows in edition.rows().items():
        counts[table] = Counter(row.confidence for row in rows)
        counts[table]["unverified fields"] = sum(len(row.unverified) for row in rows)
    return counts


def sizes(edition: Edition) -> tuple[int, int]:
    """How many rows there are, and how many besides those of PCI ids."""
    counts = {table: len(rows) for table, rows in edition.rows().items()}
    return sum(counts.values()), sum(counts.values()) - counts["gpus"]


def gaps(edition: Edition) -> tuple[str, ...]:
    """What rows point at and no row describes: warnings, since an edition is never whole."""
    return (*_pins(edition), *_toolkits(edition), *_kernels(edition))


def _pins(edition: Edition) -> tuple[str, ...]:
    """Exact pins into a table that has other releases of the component, but not this one."""
    # PEP 440 costs 15 ms at import; only the linter asks.
    from doctor.edition.package_relations import exact_pin

    known: dict[str, set[str]] = {}
    for row in edition.releases:
        known.setdefault(row.component, set()).add(row.version.raw)
    wanted: dict[tuple[str, str], list[str]] = {}
    for row in edition.releases:
        for name, text in row.requires.items():
            pin = exact_pin(text)
            if pin and name in known and pin not in known[name]:
                wanted.setdefault((name, pin), []).append(f"{row.component} {row.version}")
    return tuple(f"{name} {pin} has no row; pinned by {', '.join(by)}" for (name, pin), by in wanted.items())


def _toolkits(edition: Edition) -> tuple[str, ...]:
    return tuple(f"toolkit {row.cuda} has no driver" for row in edition.toolkits if row.driver is None)


def _kernels(edition: Edition) -> tuple[str, ...]:
    """Kernels that a supported system ships, and of which no build is known."""
    known = {row.kernel for row in edition.kernels}
    return tuple(
        f"kernel {kernel} of {row.system} has no row"
        for row in edition.systems
        if row.support_ends >= edition.as_of
        for kernel in (row.kernel, *row.later_kernels)
        if kernel not in known
    )
