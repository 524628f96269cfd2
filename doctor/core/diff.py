"""What differs between two editions of the matrix: rows, their fields, and answers (`mopt.matrix-diff/1`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from doctor.core.edition import Edition, enc_version
from doctor.core.rows.base import Row

__all__ = [
    "BOOKKEEPING",
    "DIFF_SCHEMA",
    "AnswerChange",
    "EditionName",
    "FieldChange",
    "MatrixDiff",
    "RowChange",
    "RowName",
    "compare_rows",
    "name_of",
]

DIFF_SCHEMA = "mopt.matrix-diff/1"

#: Fields that say when and where a row was read. A row in which only these differ says what it said.
BOOKKEEPING = ("source", "as_of", "confidence", "review_by", "unverified", "note")

#: What a person calls a row; see `doctor.edition.keys`.
Label = Callable[[str, Row], str]


class _Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every value here."""


class EditionName(_Value, frozen=True, kw_only=True):
    """Which edition."""

    name: str
    as_of: str
    digest: str


class RowName(_Value, frozen=True, kw_only=True):
    """A row, by its table and by what a person calls it."""

    table: str
    row: str


class FieldChange(_Value, frozen=True, kw_only=True):
    """A field that says something else; null where a side leaves it out."""

    field: str
    before: Any = None
    after: Any = None


class RowChange(_Value, frozen=True, kw_only=True):
    """A row that both editions have."""

    table: str
    row: str
    fields: tuple[FieldChange, ...]


class AnswerChange(_Value, frozen=True, kw_only=True):
    """A question that the two editions answer differently."""

    question: str
    before: str
    after: str


class MatrixDiff(_Value, frozen=True, kw_only=True):
    """What `matrix diff` answers."""

    schema: str = DIFF_SCHEMA
    before: EditionName
    after: EditionName
    added: tuple[RowName, ...]
    removed: tuple[RowName, ...]
    changed: tuple[RowChange, ...]
    answers: tuple[AnswerChange, ...]
    asked: int
    """How many questions were put to both."""


def name_of(edition: Edition) -> EditionName:
    """Which edition it is."""
    return EditionName(name=edition.name, as_of=edition.as_of, digest=edition.digest)


def compare_rows(
    before: Edition, after: Edition, label: Label
) -> tuple[tuple[RowName, ...], tuple[RowName, ...], tuple[RowChange, ...]]:
    """Rows added, removed and changed, table by table, in the order in which the editions hold them."""
    added: list[RowName] = []
    removed: list[RowName] = []
    changed: list[RowChange] = []
    old, new = before.rows(), after.rows()
    for table in new:
        for name, was, now in _pairs(table, old[table], new[table], label):
            if was is None:
                added.append(RowName(table=table, row=name))
            elif now is None:
                removed.append(RowName(table=table, row=name))
            else:
                changed.append(RowChange(table=table, row=name, fields=_fields(was, now)))
    return tuple(added), tuple(removed), tuple(changed)


def _pairs(
    table: str, old: Sequence[Row], new: Sequence[Row], label: Label
) -> Iterator[tuple[str, Row | None, Row | None]]:
    """Rows that differ, each with its other self: the one of the same name; None where there is none."""
    was, now = _by_name(table, old, label), _by_name(table, new, label)
    for name in dict.fromkeys((*was, *now)):
        before, after = _unlike(was.get(name, []), now.get(name, []))
        # Several boards of one PCI id have one name here: their own names tell which is which.
        for row in before:
            other = next((one for one in after if _own_name(one) == _own_name(row)), None)
            if other is None and len(before) == len(after) == 1:
                other = after[0]
            if other is not None:
                after = [one for one in after if one is not other]
            yield name, row, other
        yield from ((name, None, row) for row in after)


def _by_name(table: str, rows: Sequence[Row], label: Label) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(label(table, row), []).append(row)
    return found


def _unlike(before: list[Row], after: list[Row]) -> tuple[list[Row], list[Row]]:
    return [row for row in before if row not in after], [row for row in after if row not in before]


def _own_name(row: Row) -> tuple[Any, ...]:
    return getattr(row, "name", ""), getattr(row, "subsystem_ids", ())


def _fields(was: Row, now: Row) -> tuple[FieldChange, ...]:
    """The fields that differ, in the order of the row's type."""
    return tuple(
        FieldChange(field=field, before=_plain(getattr(was, field)), after=_plain(getattr(now, field)))
        for field in now.__struct_fields__
        if getattr(was, field) != getattr(now, field)
    )


def _plain(value: Any) -> Any:
    """A value as JSON has it; empty text and empty lists are what a row leaves out."""
    plain = msgspec.to_builtins(value, enc_hook=enc_version)
    return None if plain in ("", [], (), {}) else plain
