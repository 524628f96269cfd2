"""Names that a goal asks about: flags, metrics, models, methods, defaults; and sentences in plain words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from doctor.core.folklore import read_sentence
from doctor.core.goal import SENTENCE, NamedThing
from doctor.core.relate.uses import say_wish
from doctor.core.rows.base import Row
from doctor.core.rows.engine import CommandRow, NameRow
from doctor.core.rows.folklore import FolkloreRow
from doctor.core.solve.frame import lead
from doctor.core.solve.model import Link, Model
from doctor.core.versions import Pep440, Version

__all__ = ["behind", "fact_of", "relate_names"]

_NAME = "name-in-release"


def relate_names(model: Model) -> None:
    """All relations of the goal's names."""
    for named in model.goal.names:
        if named.kind == SENTENCE:
            _sentence(model, named)
        elif named.kind in _LISTED:
            _listed(model, named, _LISTED[named.kind])
        elif named.kind == "default":
            _default(model, named)
        else:
            _named(model, named)


def _engine(model: Model, owners: Iterable[str]) -> str:
    """Whose names are meant: the engine that is asked about, where it has such a name or nobody has."""
    known = tuple(dict.fromkeys(owners))
    asked = lead(model.target, model.goal)
    if asked and (asked in known or not known):
        return asked
    return next((owner for owner in known if owner in model), asked or "vllm")


def _unknown(model: Model, engine: str, named: NamedThing, near: str) -> None:
    """No row has the name: not known to be there, nor known not to be."""
    says = f"{named.text} has no row for {engine}"
    model.say(Link(relation=_NAME, says=says, is_soft=True, nearest=near), [(named.text, 2)])


def _near(name: str, names: Iterable[str]) -> str:
    from difflib import get_close_matches  # 2 ms, where a name is not known only

    return ", ".join(get_close_matches(name, sorted(set(names)), n=2, cutoff=0.5))


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
    engine = _engine(model, owners)
    mine = [row for row in rows if row.component == engine]
    listed = [row for row in commands if row.component == engine]
    if engine in model and mine:
        _by_row(model, engine, named, mine[0])
        if value:
            _takes(model, engine, named, mine[0], value)
    elif engine in model and listed and not value:
        _by_command(model, engine, named, listed[0])
    else:
        _unknown(model, engine, named, _near_names(model, engine, named))


def _by_row(model: Model, engine: str, named: NamedThing, row: NameRow) -> None:
    instead = f"; {', '.join(row.instead)} in its place" if row.instead else ""
    says = f"{named.text} {_status(row)}{instead}"
    words, near = (named.text, _NAME, says), ", ".join(row.instead)
    if row.status == "invented":
        say_wish(model, words, (engine, 0), (row,), is_soft=False, nearest=near)
    elif row.status == "removed":
        last, gone = (Pep440(text) if text else None for text in (row.last, row.removed_in))
        had = model.where(engine, lambda v: v <= last if last is not None else gone is not None)
        # With neither end known, all that was seen is that the newest release is without it.
        newest = model.universe.known(engine)[-1:] if last is None and gone is None else ()
        perhaps = model.where(engine, lambda v: v not in newest if newest else _may_have(v, last, gone))
        say_wish(model, words, (engine, perhaps), (row,), is_soft=False, nearest=near)
        say_wish(model, words, (engine, had), (row,), is_soft=True, nearest=near)


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
    say_wish(model, (named.text, _NAME, says), (engine, inside), (row,), is_soft=True, nearest="")


def _takes(model: Model, engine: str, named: NamedThing, row: NameRow, value: str) -> None:
    """The values of a flag, where its row lists all of them."""
    if not row.choices:
        _unknown(model, engine, named, f"{row.name}: {row.meaning}" if row.meaning else row.name)
        return
    if value not in row.choices:
        says = f"{row.name} takes {', '.join(row.choices)}"
        say_wish(model, (named.text, "flag-value", says), (engine, 0), (row,), is_soft=False, nearest="")


def _near_names(model: Model, engine: str, named: NamedThing) -> str:
    edition = model.universe.matrix.edition
    names = [row.name for row in edition.names if row.component == engine]
    names += [flag for row in edition.commands if row.component == engine for flag in row.flags]
    return _near(named.name, names)


# --- defaults -------------------------------------------------------------------------------------


def _default(model: Model, named: NamedThing) -> None:
    """`default:FLAG=VALUE`: what a flag is when nobody sets it."""
    flag, _is, value = named.name.partition("=")
    rows = [row for row in model.universe.matrix.edition.names if row.kind == "flag" and row.name == flag]
    engine = _engine(model, [row.component for row in rows])
    row = next((row for row in rows if row.component == engine and row.default), None)
    if row is None or engine not in model:
        _unknown(model, engine, named, flag if rows else _near_names(model, engine, named))
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


# --- models, methods, data types ------------------------------------------------------------------


class _Span(NamedTuple):
    """A name with the first and the last sampled release that has it."""

    row: Row
    component: str
    name: str
    first: Pep440
    last: Pep440 | None


def _models(model: Model) -> list[_Span]:
    rows = model.universe.matrix.edition.models
    return [_Span(row, row.component, row.architecture, row.first, row.last) for row in rows]


def _methods(model: Model) -> list[_Span]:
    rows = model.universe.matrix.edition.quantization
    return [_Span(row, row.component, row.method, row.first, row.last) for row in rows]


def _dtypes(model: Model) -> list[_Span]:
    rows = model.universe.matrix.edition.kv_cache
    return [_Span(row, row.component, row.dtype, row.first, None) for row in rows]


#: What each kind is called, and where its rows are.
_LISTED: dict[str, tuple[str, Callable[[Model], list[_Span]]]] = {
    "model": ("model architecture", _models),
    "quantization": ("quantization method", _methods),
    "kv-cache": ("type of the KV cache", _dtypes),
}


def _listed(model: Model, named: NamedThing, kind: tuple[str, Callable[[Model], list[_Span]]]) -> None:
    """A name with a span of releases; the change lies within one minor of either end."""
    spans = [span for span in kind[1](model) if span.name.casefold() == named.name.casefold()]
    engine = _engine(model, [span.component for span in spans])
    span = next((span for span in spans if span.component == engine), None)
    if span is None or engine not in model:
        _unlisted(model, engine, named, kind)
        return
    ends = [other.last for other in kind[1](model) if other.component == engine and other.last]
    newest = max(ends, default=None)
    until = f" to {span.last}" if span.last is not None and span.last != newest else ""
    words = (named.text, _NAME, f"the {kind[0]} {span.name} is in {engine} from {span.first} on{until}")
    perhaps = model.where(engine, lambda v: _may_be_in(v, span, newest))
    sure = model.where(engine, lambda v: v >= span.first and (not until or v <= span.last))
    # Without an end of any, the pages that were read begin at `first`: what was before, they do not say.
    if ends or named.kind == "kv-cache":
        say_wish(model, words, (engine, perhaps), (span.row,), is_soft=False)
    say_wish(model, words, (engine, sure), (span.row,), is_soft=True)


def _may_be_in(version: Version, span: _Span, newest: Pep440 | None) -> bool:
    """The sampled releases are last patches: a name came within the minor of the first that has it."""
    came = bool(version >= span.first) or version.key.release[:2] == span.first.key.release[:2]
    last = None if span.last == newest else span.last
    return came and (last is None or bool(version <= last) or _is_next(version, last))


def _is_next(version: Version, last: Pep440) -> bool:
    """Whether a release is of the minor after the last one that has a name: it went somewhere in there."""
    major, minor = (*version.key.release, 0)[:2]
    return (major, minor) <= (last.key.release[0], last.key.release[1] + 1)


def _unlisted(
    model: Model, engine: str, named: NamedThing, kind: tuple[str, Callable[[Model], list[_Span]]]
) -> None:
    """A name without a row; a refusal where rows list every one that a release takes."""
    spans = [span for span in kind[1](model) if span.component == engine]
    near = _near(named.name, [span.name for span in spans])
    if named.kind != "kv-cache" or not spans or engine not in model:
        _unknown(model, engine, named, near)
        return
    # The types of the KV cache are a closed list in the sources, read for each sampled release.
    names = ", ".join(span.name for span in spans)
    says = f"{engine} knows these types of the KV cache: {names}"
    rows = tuple(span.row for span in spans)
    say_wish(model, (named.text, _NAME, says), (engine, 0), rows, is_soft=False, nearest=near)


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
    return _NAME, f"{own.name} is there: {own.meaning}".removesuffix(": "), own, own.source


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
