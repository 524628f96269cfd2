"""`matrix diff`: what another edition says otherwise, row by row, and which answers change."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from doctor.commands.output import write_answer
from doctor.core.answers import GPUS, answers
from doctor.core.diff import BOOKKEEPING, AnswerChange, MatrixDiff, RowChange, compare_rows, name_of
from doctor.core.edition import Edition
from doctor.core.matrix import Matrix
from doctor.core.solve.universe import Universe
from doctor.edition.keys import label
from doctor.edition.load import decode, load_matrix
from doctor.errors import MatrixError
from doctor.report.escape import escape_line
from doctor.timeouts import MATRIX_EDITION_BYTES_MAX

__all__ = ["diff", "run"]

#: Cards that only one edition has are asked about as well, so many of them.
_NEW_GPUS_MAX = 8
_VALUE_WIDTH = 60


def run(options: argparse.Namespace) -> int:
    """Compare `options.before` with `options.after` (None: the installed matrix); always 0."""
    after = _edition(options.after) if options.after else load_matrix().edition
    found = diff(_edition(options.before), after)
    if options.json:
        from doctor.report.machine import to_json

        write_answer(to_json(found), options.output)
    else:
        text = "".join(f"{_escaped(line)}\n" for line in _lines(found))
        write_answer(text.encode(), options.output)
    return 0


def _escaped(line: str) -> str:
    """A line made safe with its indent."""
    return " " * (len(line) - len(line.lstrip(" "))) + escape_line(line)


def _edition(place: str) -> Edition:
    """The edition of a folder, from its YAML where it has any, or of a compiled file. Raises MatrixError."""
    path = Path(place)
    if path.is_dir() and any(path.glob("*.yaml")):
        # PyYAML costs 20 ms at import, and 1 s for the whole matrix.
        from doctor.edition.build import build

        return build(path)
    file = path / "edition.json" if path.is_dir() else path
    try:
        with file.open("rb") as stream:
            data = stream.read(MATRIX_EDITION_BYTES_MAX + 1)
    except OSError as error:
        raise MatrixError(
            f"there is no edition at `{place}`: {error.strerror}",
            hints=("name a matrices folder (YAML), or an `edition.json`",),
        ) from None
    if len(data) > MATRIX_EDITION_BYTES_MAX:
        raise MatrixError(f"`{place}` is larger than {MATRIX_EDITION_BYTES_MAX} bytes")
    return decode(data, str(file))


def diff(before: Edition, after: Edition) -> MatrixDiff:
    """The document."""
    added, removed, changed = compare_rows(before, after, label)
    gpus = (*GPUS, *_cards_of_one(before, after))
    old, new = answers(Universe(Matrix(before)), gpus), answers(Universe(Matrix(after)), gpus)
    questions = dict.fromkeys((*old, *new))
    return MatrixDiff(
        before=name_of(before),
        after=name_of(after),
        added=added,
        removed=removed,
        changed=changed,
        answers=tuple(
            AnswerChange(question=question, before=old.get(question, ""), after=new.get(question, ""))
            for question in questions
            if old.get(question) != new.get(question)
        ),
        asked=len(questions),
    )


def _cards_of_one(before: Edition, after: Edition) -> tuple[str, ...]:
    """PCI ids that one edition alone has, as `10de:2335`: a name may stand for several."""
    old, new = ({row.pci_device_id for row in edition.gpus} for edition in (before, after))
    return tuple(sorted(old ^ new)[:_NEW_GPUS_MAX])


# --- as text --------------------------------------------------------------------------------------


def _lines(found: MatrixDiff) -> Iterator[str]:
    before, after = found.before, found.after
    yield (
        f"matrix {before.name} of {before.as_of} ({before.digest[:12]})"
        f" -> {after.name} of {after.as_of} ({after.digest[:12]})"
    )
    if not (found.added or found.removed or found.changed):
        yield "no row differs"
        return
    for sign, rows in (("+", found.added), ("-", found.removed)):
        yield from (f"{sign} {row.table}: {row.row}" for row in rows)
    telling = [row for row in found.changed if _is_telling(row)]
    for row in telling:
        yield f"~ {row.table}: {row.row}"
        yield from _changes(row)
    reread = len(found.changed) - len(telling)
    yield (
        f"rows: {len(found.added)} added, {len(found.removed)} removed, {len(telling)} changed"
        + (f"; {reread} changed in {', '.join(BOOKKEEPING)} only (see --json)" if reread else "")
    )
    yield f"answers: {len(found.answers)} of {found.asked} change"
    for answer in found.answers:
        yield f"  {answer.question}"
        yield f"    before: {answer.before or '(not there)'}"
        yield f"    after: {answer.after or '(not there)'}"


def _is_telling(row: RowChange) -> bool:
    return any(change.field not in BOOKKEEPING for change in row.fields)


def _changes(row: RowChange) -> Iterator[str]:
    for change in row.fields:
        if change.field in BOOKKEEPING:
            continue
        before, after = change.before, change.after
        if isinstance(before, list | tuple) and isinstance(after, list | tuple):
            yield from _of_lists(change.field, before, after)
        elif isinstance(before, dict) and isinstance(after, dict):
            for key in dict.fromkeys((*before, *after)):
                if before.get(key) != after.get(key):
                    name = f"{change.field}.{key}"
                    yield f"    {name}: {_short(before.get(key))} -> {_short(after.get(key))}"
        else:
            yield f"    {change.field}: {_short(before)} -> {_short(after)}"


def _of_lists(field: str, before: Any, after: Any) -> Iterator[str]:
    """Only what came and went; in another order when nothing did."""
    gone = [value for value in before if value not in after]
    new = [value for value in after if value not in before]
    parts = [f"+{_short(value)}" for value in new] + [f"-{_short(value)}" for value in gone]
    yield f"    {field}: {' '.join(parts) or 'in another order'}"


def _short(value: Any) -> str:
    if value is None:
        return "(left out)"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _VALUE_WIDTH else f"{text[: _VALUE_WIDTH - 1]}…"
