"""Names that a goal asks about: flags, metrics, models, methods, defaults; and sentences in plain words."""

from __future__ import annotations

from doctor.core.folklore import read_sentence
from doctor.core.goal import SENTENCE, NamedThing
from doctor.core.relate.listed import LISTED, relate_listed
from doctor.core.relate.named import NAME, engine_of, near_of, say_unknown
from doctor.core.relate.uses import say_wish
from doctor.core.rows.base import Row
from doctor.core.rows.engine import CommandRow, NameRow
from doctor.core.rows.folklore import FolkloreRow
from doctor.core.solve.model import Link, Model
from doctor.core.versions import Pep440, Version

__all__ = ["behind", "fact_of", "relate_names"]


def relate_names(model: Model) -> None:
    """All relations of the goal's names."""
    for named in model.goal.names:
        if named.kind == SENTENCE:
            _sentence(model, named)
        elif named.kind in LISTED:
            relate_listed(model, named.text, named.kind, named.name)
        elif named.kind == "default":
            _default(model, named)
        else:
            _named(model, named)


# --- flags, metrics, routes, variables, programs, paths -------------------------------------------


def _named(model: Model, named: NamedThing) -> None:
    """In which releases of the engine a name is; with `=VALUE`, whether a flag takes the value."""
    edition = model.universe.matrix.edition
    name, value = named.name, ""
    rows = [row for row in edition.names if (row.kind, row.name) == (named.kind, name)]
    if not rows and "=" in name:
        name, _is, value = name.partition("=")
        rows = [row for row in edition.names if (row.kind, row.name) == (named.kind, name)]
    commands = [row for row in edition.commands if name in row.flags] if named.kind == "flag" else []
    owners = [*(row.component for row in rows), *(row.component for row in commands)]
    engine = engine_of(model, owners)
    mine = [row for row in rows if row.component == engine]
    listed = [row for row in commands if row.component == engine]
    if engine in model and mine:
        _by_row(model, engine, named, mine[0])
        if value:
            _takes(model, engine, named, mine[0], value)
    elif engine in model and listed and not value:
        _by_command(model, engine, named, listed[0])
    else:
        say_unknown(model, engine, named.text, _near_names(model, engine, named))


def _by_row(model: Model, engine: str, named: NamedThing, row: NameRow) -> None:
    instead = f"; {', '.join(row.instead)} in its place" if row.instead else ""
    says = f"{named.text} {_status(row)}{instead}"
    words, near = (named.text, NAME, says), ", ".join(row.instead)
    if row.status == "invented":
        say_wish(model, words, (engine, 0), (row,), is_soft=False, nearest=near)
        return
    if row.status == "removed":
        last, gone = (Pep440(text) if text else None for text in (row.last, row.removed_in))
        # With neither end known, all that was seen is that the newest release is without it.
        newest = model.universe.known(engine)[-1:] if last is None and gone is None else ()
        perhaps = model.where(engine, lambda v: v not in newest if newest else _may_have(v, last, gone))
        say_wish(model, words, (engine, perhaps), (row,), is_soft=False, nearest=near)
    read = _read(model, engine, row)
    nearest = f"{engine} {next(iter(model.texts(engine, read)))}" if read else near
    doubt = f"; of {_others(row)} no row tells"
    say_wish(model, words, (engine, read), (row,), is_soft=True, nearest=nearest, doubt=doubt)


def _read(model: Model, engine: str, row: NameRow) -> int:
    """The releases that are known to have a name: those that were read, and of a removed one its last."""
    if row.versions:
        return model.mask(engine, row.versions)
    last = Pep440(row.last) if row.last else None
    if last is None and row.removed_in:
        gone = Pep440(row.removed_in)
        # What a release dropped, the one before it had.
        last = max((v for v in model.universe.known(engine) if v < gone), default=None)  # type: ignore[assignment]
    if last is None:
        return 0
    minor = last.key.release[:2]
    # A name is seldom older than its minor, and never known to be: a sample tells nothing of those before.
    return model.where(engine, lambda v: v <= last and v.key.release[:2] == minor)


def _others(row: NameRow) -> str:
    """The releases of which a row says nothing."""
    if row.versions or row.last:
        return f"other releases than {row.versions or f'those of the minor of {row.last}'}"
    return "a release by its number" if row.status == "current" else "older releases"


def _may_have(version: Version, last: Pep440 | None, gone: Pep440 | None) -> bool:
    """Sampled releases are the last patches of a minor: the change lies before the next minor's."""
    if gone is not None:
        return version < gone
    if last is None:
        return False
    return bool(version <= last) or version.key.release[:2] == last.key.release[:2]


def _status(row: NameRow) -> str:
    if row.status == "invented":
        return f"is in no release of {row.component} that was read"
    if row.status == "removed":
        when = f" in {row.removed_in}" if row.removed_in else f" after {row.last}" if row.last else ""
        return f"was removed{when}"
    return "is there"


def _by_command(model: Model, engine: str, named: NamedThing, row: CommandRow) -> None:
    inside = model.mask(engine, row.versions)
    says = f"{named.text} is a flag of `{row.command}` in {engine} {row.versions}"
    say_wish(model, (named.text, NAME, says), (engine, inside), (row,), is_soft=True, nearest="")


def _takes(model: Model, engine: str, named: NamedThing, row: NameRow, value: str) -> None:
    """The values of a flag, where its row lists all of them or a table has them."""
    if row.choices_of:
        relate_listed(model, named.text, row.choices_of, value)
        return
    if not row.choices:
        say_unknown(model, engine, named.text, f"{row.name}: {row.meaning}" if row.meaning else row.name)
        return
    if value not in row.choices:
        says = f"{row.name} takes {', '.join(row.choices)}"
        say_wish(model, (named.text, "flag-value", says), (engine, 0), (row,), is_soft=False, nearest="")


def _near_names(model: Model, engine: str, named: NamedThing) -> str:
    edition = model.universe.matrix.edition
    names = [row.name for row in edition.names if row.component == engine]
    names += [flag for row in edition.commands if row.component == engine for flag in row.flags]
    return near_of(named.name, names)


# --- defaults -------------------------------------------------------------------------------------


def _default(model: Model, named: NamedThing) -> None:
    """`default:FLAG=VALUE`: what a flag is when nobody sets it."""
    flag, _is, value = named.name.partition("=")
    rows = [row for row in model.universe.matrix.edition.names if row.kind == "flag" and row.name == flag]
    engine = engine_of(model, [row.component for row in rows])
    row = next((row for row in rows if row.component == engine and row.default), None)
    if row is None or engine not in model:
        say_unknown(model, engine, named.text, flag if rows else _near_names(model, engine, named))
        return
    inside = model.where(engine, lambda v: not row.default_since or v >= Pep440(row.default_since))
    says = f"the default of {flag} is {row.default}"
    words = (named.text, "flag-default", says)
    if value.strip() != row.default:
        other = model.full(engine) & ~inside
        say_wish(model, words, (engine, other), (row,), is_soft=False, nearest=row.default)
    doubt = (named.text, "flag-default", f"{says} from {row.default_since} on; before, no row tells it")
    if row.default_since:
        say_wish(model, doubt, (engine, inside), (row,), is_soft=True, nearest=row.default)


# --- sentences ------------------------------------------------------------------------------------


def fact_of(model: Model, row: FolkloreRow) -> tuple[str, tuple[str, ...]]:
    """What is the case, and its sources: the row's own words, or the rule that it names."""
    rule = model.universe.matrix.rule(row.rule) if row.rule else None
    if rule is None:
        return row.fact, row.source
    return rule.fact, tuple(dict.fromkeys((*row.source, *rule.source)))


def behind(model: Model, named: NamedThing) -> tuple[str, str, Row, tuple[str, ...]] | None:
    """What stands behind a yes to a name that no clause binds: relation, sentence, row and its sources."""
    edition = model.universe.matrix.edition
    if named.kind == SENTENCE:
        row = read_sentence(edition.folklore, named.name).row
        return None if row is None or not row.holds else (row.id, *_told(model, row))
    names = (named.name, named.name.partition("=")[0])
    mine = [row for row in edition.names if row.name in names and row.kind in (named.kind, "flag")]
    own = next((row for row in mine if row.status in ("current", "changed") and row.component in model), None)
    if own is None or named.kind not in (own.kind, "default"):
        return None
    return NAME, f"{own.name} is there: {own.meaning}".removesuffix(": "), own, own.source


def _told(model: Model, row: FolkloreRow) -> tuple[str, Row, tuple[str, ...]]:
    fact, source = fact_of(model, row)
    return fact, row, source


def _sentence(model: Model, named: NamedThing) -> None:
    """A sentence that a row is about is what the row says; of a contrary only the fact is told."""
    rows = model.universe.matrix.edition.folklore
    reading = read_sentence(rows, named.name)
    row = reading.row
    if row is None:
        _unread(model, named, reading.contrary, reading.near)
        return
    fact, source = fact_of(model, row)
    if row.holds:
        return  # the row stands behind the yes as a note
    link = Link(
        relation=row.id,
        says=fact,
        source=source,
        confidence=row.confidence,
        nearest=", ".join(row.instead),
    )
    model.say(link, [(named.text, 2)])


def _unread(
    model: Model, named: NamedThing, contrary: tuple[FolkloreRow, ...], near: tuple[FolkloreRow, ...]
) -> None:
    for row in contrary:
        fact, source = fact_of(model, row)
        says = f"whether the sentence says or denies what {row.id} is about cannot be told; {fact}"
        link = Link(relation=row.id, says=says, source=source, is_soft=True, nearest=f"`{row.claim}`")
        model.say(link, [(named.text, 2)])
    if not contrary:
        says = "no row of this matrix is about this sentence"
        claims = "; ".join(f"`{row.claim}`" for row in near)
        link = Link(relation="nearest-known-row", says=says, is_soft=True, nearest=claims)
        model.say(link, [(named.text, 2)])
