"""Which rows are due to be read again, where an edition has gaps, and what its rows rest on."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from doctor.core.edition import Edition
from doctor.edition.keys import label

__all__ = ["gaps", "overdue", "sizes", "statistics", "unreachable"]


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
    return (*_pins(edition), *_series(edition), *_toolkits(edition), *_kernels(edition))


def unreachable(edition: Edition) -> tuple[str, ...]:
    """Rows about versions of which no release is known: no question ever comes to them."""
    # The solver's view of what is known; only the linter asks.
    from doctor.core.matrix import Matrix
    from doctor.core.solve.universe import Universe

    universe = Universe(Matrix(edition))
    found = [
        f"relations: {row.id}: no known {name} is in `{spec}`"
        for row in edition.relations
        for name, spec in row.when.items()
        if universe.known(name) and not any(universe.set_of(name, spec).has(v) for v in universe.known(name))
    ]
    for table in ("hardware", "quantization_gates", "quantization_support", "commands"):
        for row in edition.rows()[table]:
            name, spec = row.component, row.versions  # type: ignore[attr-defined]
            known = universe.known(name)
            if known and not any(universe.set_of(name, spec).has(version) for version in known):
                found.append(f"{table}: {label(table, row)}: no known {name} is in `{spec}`")
    return tuple(found)


def _series(edition: Edition) -> tuple[str, ...]:
    """Numbers left out in a component whose final releases are all said to be here."""
    found = []
    for component in edition.components:
        rows = [row.version for row in edition.releases if row.component == component.component]
        finals = [version for version in rows if not version.key.is_prerelease]
        if not component.complete_since or not finals:
            continue
        numbers = sorted({(*version.key.release, 0, 0, 0)[:3] for version in finals})
        for before, after in pairwise(numbers):
            if after not in _next_to(before):
                one, other = (".".join(map(str, number)) for number in (before, after))
                found.append(f"{component.component} has no row between {one} and {other}")
    return tuple(found)


def _next_to(number: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    major, minor, patch = number
    return (major, minor, patch + 1), (major, minor + 1, 0), (major + 1, 0, 0)


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
