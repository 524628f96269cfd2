"""Names of which an engine has a list: model architectures, quantization methods, types of the KV cache.

A method or type is asked of a GPU too, where one is named: an engine loads it from a compute capability on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from doctor.core.relate.named import NAME, engine_of, near_of, say_unknown
from doctor.core.relate.uses import say_wish
from doctor.core.rows.base import Row
from doctor.core.rows.engine import KvCacheDtype, QuantizationGate
from doctor.core.solve.model import Link, Model
from doctor.core.versions import Dotted, Pep440, Version

__all__ = ["LISTED", "relate_listed"]

_GATE = "quantization-gate"


class _Span(NamedTuple):
    """A name with the first and the last sampled release that has it."""

    row: Row
    component: str
    name: str
    first: Pep440
    last: Pep440 | None
    instead: str = ""


def _models(model: Model) -> list[_Span]:
    rows = model.universe.matrix.edition.models
    return [_Span(row, row.component, row.architecture, row.first, row.last) for row in rows]


def _methods(model: Model) -> list[_Span]:
    rows = model.universe.matrix.edition.quantization
    return [_Span(row, row.component, row.method, row.first, row.last, row.instead) for row in rows]


def _dtypes(model: Model) -> list[_Span]:
    rows = model.universe.matrix.edition.kv_cache
    return [_Span(row, row.component, row.dtype, row.first, None) for row in rows]


#: What each kind is called, and where its rows are.
LISTED: dict[str, tuple[str, Callable[[Model], list[_Span]]]] = {
    "model": ("model architecture", _models),
    "quantization": ("quantization method", _methods),
    "kv-cache": ("type of the KV cache", _dtypes),
}


def relate_listed(model: Model, wish: str, kind: str, name: str) -> None:
    """A name with a span of releases; the change lies within one minor of either end.

    `wish` is how it was asked for: by its own kind, or as the value of a flag.
    """
    word, find = LISTED[kind]
    spans = find(model)
    mine = [span for span in spans if span.name.casefold() == name.casefold()]
    engine = engine_of(model, [span.component for span in mine])
    span = next((span for span in mine if span.component == engine), None)
    if span is None or engine not in model:
        _unlisted(model, (wish, kind, name), engine, [span for span in spans if span.component == engine])
        return
    ends = [other.last for other in spans if other.component == engine and other.last]
    newest = max(ends, default=None)
    until = f" to {span.last}" if span.last is not None and span.last != newest else ""
    words = (wish, NAME, f"the {word} {span.name} is in {engine} from {span.first} on{until}")
    perhaps = model.where(engine, lambda v: _may_be_in(v, span, newest))
    sure = model.where(engine, lambda v: v >= span.first and (not until or v <= span.last))
    left = (span.instead or f"{engine} {span.last}") if until else ""
    # Without an end of any, the pages that were read begin at `first`: what was before, they do not say.
    if ends or kind == "kv-cache":
        say_wish(model, words, (engine, perhaps), (span.row,), is_soft=False, nearest=left)
    near = f"{engine} {span.last if until else span.first}"
    say_wish(model, words, (engine, sure), (span.row,), is_soft=True, nearest=near)
    if kind == "quantization":
        _gated(model, wish, engine, span.name)
    elif isinstance(span.row, KvCacheDtype):
        _typed(model, wish, span.row)


def _may_be_in(version: Version, span: _Span, newest: Pep440 | None) -> bool:
    """The sampled releases are last patches: a name came within the minor of the first that has it."""
    came = bool(version >= span.first) or version.key.release[:2] == span.first.key.release[:2]
    last = None if span.last == newest else span.last
    return came and (last is None or bool(version <= last) or _is_next(version, last))


def _is_next(version: Version, last: Pep440) -> bool:
    """Whether a release is of the minor after the last one that has a name: it went somewhere in there."""
    major, minor = (*version.key.release, 0)[:2]
    return (major, minor) <= (last.key.release[0], last.key.release[1] + 1)


def _unlisted(model: Model, asked: tuple[str, str, str], engine: str, spans: list[_Span]) -> None:
    """A name without a row; a refusal where rows list every one that a release takes."""
    wish, kind, name = asked
    near = near_of(name, [span.name for span in spans])
    if kind != "kv-cache" or not spans or engine not in model:
        say_unknown(model, engine, wish, near)
        return
    # The types of the KV cache are a closed list in the sources, read for each sampled release.
    names = ", ".join(span.name for span in spans)
    says = f"{engine} knows these types of the KV cache: {names}"
    rows = tuple(span.row for span in spans)
    say_wish(model, (wish, NAME, says), (engine, 0), rows, is_soft=False, nearest=near)


# --- the GPU --------------------------------------------------------------------------------------


def _gated(model: Model, wish: str, engine: str, method: str) -> None:
    """The capability from which on an engine loads a method at all; of what no row tells, that it is so."""
    names = (method, method.replace("-", "_"))
    gates = [
        row
        for row in model.universe.matrix.edition.quantization_gates
        if row.component == engine and (row.scheme in names or method in row.methods)
    ]
    untold = model.full(engine)
    for row in gates:
        mine = model.mask(engine, row.versions)
        untold &= ~mine
        for _kind, _card, capability in model.gpus:
            _least(model, wish, (engine, mine), row, capability)
    if gates and untold:
        _borrowed(model, wish, (engine, untold), gates)
    elif not gates:
        _by_table(model, wish, engine, method)


def _least(model: Model, wish: str, subject: tuple[str, int], row: QuantizationGate, capability: str) -> None:
    """A gate of the releases that were read: below it the engine refuses the method."""
    floor = Dotted(row.min_compute_capability)
    engine, mine = subject
    says = f"{engine} {row.versions} loads {row.scheme} from compute capability {floor} on"
    model.say(
        Link(
            relation=_GATE,
            says=says,
            source=row.source,
            confidence=row.confidence,
            is_soft="min_compute_capability" in row.unverified,
            nearest=f"compute capability {floor}",
        ),
        [
            (wish, 2),
            (engine, model.full(engine) & ~mine),
            (capability, model.where(capability, lambda version: version >= floor)),
        ],
    )


def _borrowed(model: Model, wish: str, subject: tuple[str, int], gates: list[QuantizationGate]) -> None:
    """Releases whose gate was not read: what another release refuses, they may take or refuse."""
    engine, untold = subject
    row = max(gates, key=lambda gate: Dotted(gate.min_compute_capability))
    floor = Dotted(row.min_compute_capability)
    says = (
        f"{engine} {row.versions} loads {row.scheme} from compute capability {floor} on; "
        "of other releases no row tells"
    )
    link = Link(
        relation=_GATE, says=says, source=row.source, is_soft=True, nearest=f"{engine} {row.versions}"
    )
    for _kind, _card, capability in model.gpus:
        enough = model.where(capability, lambda version: version >= floor)
        clause = [(wish, 2), (engine, model.full(engine) & ~untold), (capability, enough)]
        model.say(link, clause)


def _by_table(model: Model, wish: str, engine: str, method: str) -> None:
    """An engine's own table of families, where the source has no gate; else nothing is known of the GPU."""
    rows = [
        row
        for row in model.universe.matrix.edition.quantization_support
        if row.component == engine and row.family == method
    ]
    covered = 0
    for row in rows:
        covered |= model.mask(engine, row.versions)
        outside = (engine, model.full(engine) & ~model.mask(engine, row.versions))
        table = f"the table of {engine} {row.versions} has {row.family} for compute capability "
        for _kind, _card, capability in model.gpus:
            fits = model.where(capability, lambda v, r=row: v.raw in r.supported)  # type: ignore[misc]
            refused = model.where(capability, lambda v, r=row: v.raw in r.unsupported)  # type: ignore[misc]
            link = Link(relation=_GATE, says=f"{table}{', '.join(row.supported)}", source=row.source)
            may = model.full(capability) & ~refused
            model.say(link, [(wish, 2), outside, (capability, may)])
            soft = Link(relation=_GATE, says=link.says, source=row.source, is_soft=True)
            model.say(soft, [(wish, 2), outside, (capability, fits)])
    if model.gpus and model.full(engine) & ~covered:
        says = f"no row tells which GPUs {engine} loads {method} on"
        model.say(
            Link(
                relation=_GATE,
                says=says,
                is_soft=True,
                nearest=f"quantization:{method} of {engine} without a GPU",
            ),
            [(wish, 2), (engine, covered)],
        )


def _typed(model: Model, wish: str, row: KvCacheDtype) -> None:
    """A type of the KV cache on a GPU: only the hardware's own format is told, not what else is refused."""
    if row.dtype == "auto":
        return  # the model's own type
    floor = row.min_compute_capability
    for _kind, _card, capability in model.gpus:
        enough = model.where(capability, lambda v: bool(floor) and v >= Dotted(floor)) if floor else 0
        says = (
            f"{row.dtype} is a format of compute capability {floor} and newer"
            if floor
            else f"no row tells which GPUs take the KV cache type {row.dtype}"
        )
        near = f"compute capability {floor}" if floor else f"kv-cache {row.dtype}"
        link = Link(relation="kv-cache-dtype", says=says, source=row.source, is_soft=True, nearest=near)
        model.say(link, [(wish, 2), (capability, enough)])
