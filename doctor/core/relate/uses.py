"""What a host is to be used for: data types, compiling, building engines; and names of flags and metrics."""

from __future__ import annotations

from doctor.core.goal import NamedThing
from doctor.core.rows.base import Row
from doctor.core.rows.engine import CommandRow, NameRow
from doctor.core.rows.hardware import Architecture
from doctor.core.solve.frame import lead
from doctor.core.solve.model import Link, Model
from doctor.core.solve.universe import minor_of
from doctor.core.versions import Pep440, Version

__all__ = ["relate_uses"]

#: The field of an architecture's row that a use asks for, what it is called, and its field for weak rows.
_PRECISIONS: dict[str, tuple[str, str]] = {
    "fp8": ("fp8", "FP8 arithmetic (W8A8)"),
    "int8": ("int8_tensor", "INT8 tensor arithmetic"),
    "kv-fp8": ("fp8", "FP8 hardware"),
}

_NAME = "name-in-release"


def relate_uses(model: Model) -> None:
    """All relations of the goal's uses and names."""
    for use in model.goal.uses:
        if use in _PRECISIONS:
            _precision(model, use)
        if use == "kv-fp8":
            _kv_cache(model)
        if use == "nvcc":
            _compiles(model)
        if use == "engine-build":
            _builds_engines(model)
    for named in model.goal.names:
        _named(model, named)


# --- data types -----------------------------------------------------------------------------------


def _precision(model: Model, use: str) -> None:
    """The GPUs whose architecture has the arithmetic."""
    field, name = _PRECISIONS[use]
    families = {c: row for row in model.universe.matrix.edition.architectures for c in row.compute_capability}
    for kind, _card, capability in model.gpus:
        sure = model.where(capability, lambda v: getattr(families.get(v.raw), field, None) is True)
        refused = model.where(capability, lambda v: _refuses(families.get(v.raw), field))
        own = families.get(kind.compute_capability)
        floor = next(iter(model.texts(capability, sure)), "")
        says = f"{name} begins at compute capability {floor}"
        rows: tuple[Row, ...] = tuple(row for row in (own, families.get(floor)) if row is not None)
        wish = f"use={use}"
        near, words = f"compute capability {floor}", (wish, "precision-cc", says)
        if use != "kv-fp8":  # whether an engine refuses the data type on older GPUs was not read
            perhaps = (capability, model.full(capability) & ~refused)
            _say(model, words, perhaps, rows, is_soft=False, nearest=near)
        _say(model, words, (capability, sure), rows, is_soft=True, nearest=near)


def _refuses(family: Architecture | None, field: str) -> bool:
    return family is not None and getattr(family, field) is False and field not in family.unverified


def _say(  # noqa: PLR0913 - the last two are for one caller each
    model: Model,
    words: tuple[str, str, str],
    met: tuple[str, int],
    rows: tuple[Row, ...],
    *,
    is_soft: bool,
    nearest: str | None = None,
) -> None:
    """A relation that the wish alone triggers: `words` are the wish, the relation's name, and a sentence."""
    wish, relation, says = words
    link = Link(
        relation=relation,
        says=says,
        source=tuple(dict.fromkeys(text for row in rows for text in row.source)),
        is_soft=is_soft,
        nearest=nearest if nearest is not None else next(iter(model.texts(*met)), ""),
    )
    model.say(link, [(wish, 2), met])


def _kv_cache(model: Model) -> None:
    """The first release of an engine with the data type, and the capability it asks for."""
    for row in model.universe.matrix.edition.kv_cache:
        if row.dtype != "fp8" or row.component not in model:
            continue
        first = row.first
        since = model.where(row.component, lambda version, f=first: version >= f)  # type: ignore[misc]
        says = f"KV cache type fp8 is there from {row.component} {first} on"
        words = ("use=kv-fp8", "kv-cache-dtype", says)
        _say(model, words, (row.component, since), (row,), is_soft=False)


# --- building -------------------------------------------------------------------------------------


def _compiles(model: Model) -> None:
    """Nvcc is a program of the toolkit: the driver brings none, whatever nvidia-smi prints."""
    matrix = model.universe.matrix
    column, compiler = matrix.rule("cuda-column-of-nvidia-smi"), matrix.rule("nvcc-ignores-driver")
    for value in model.domain("cuda") if "cuda" in model else ():
        if isinstance(value, Version):
            same = model.where("cuda-toolkit", lambda v, o=value: minor_of(v) == minor_of(o))  # type: ignore[misc]
            subject = ("cuda", model.one("cuda", value))
            about = (compiler,) if compiler else ()
            met = ("cuda-toolkit", same)
            model.relate("nvcc-not-driver", subject, "is compiled with that toolkit", met, rows=about)
    there = model.full("cuda-toolkit") & ~model.absent("cuda-toolkit")
    says = "nvcc comes with a CUDA toolkit; the CUDA column of nvidia-smi is the driver's ceiling"
    words = ("use=nvcc", "smi-column-is-driver", says)
    rows = tuple(row for row in (column, compiler) if row is not None)
    _say(model, words, ("cuda-toolkit", there), rows, is_soft=False)


def _builds_engines(model: Model) -> None:
    """TensorRT-LLM's engine backend stood by default, then as legacy, then went."""
    component = "tensorrt-llm"
    if component not in model:
        return
    rows = {row.version: row for row in model.universe.releases(component)}
    gone = [row for row in rows.values() if row.engine_backend == "removed"]
    there = model.where(component, lambda v: v in rows and rows[v].engine_backend in ("default", "legacy"))  # type: ignore[index]
    removed = model.where(component, lambda v: v in {row.version for row in gone})
    words = ("use=engine-build", "trtllm-engine-backend")
    says = f"the TensorRT engine backend was removed: {gone[0].version} has none any more" if gone else ""
    _say(model, (*words, says), (component, model.full(component) & ~removed), tuple(gone[:1]), is_soft=False)
    says = "no row tells of the engine backend of other releases"
    _say(model, (*words, says), (component, there), (), is_soft=True)


# --- names ----------------------------------------------------------------------------------------


def _named(model: Model, named: NamedThing) -> None:
    """A flag or metric: in which releases of the engine it is."""
    edition = model.universe.matrix.edition
    rows = [row for row in edition.names if (row.kind, row.name) == (named.kind, named.name)]
    engine = lead(model.target, model.goal) or (rows[0].component if rows else "vllm")
    mine = [row for row in rows if row.component == engine]
    if engine not in model:
        return
    if mine:
        for row in mine[:1]:
            _by_row(model, engine, named, row)
        return
    listed = [row for row in edition.commands if row.component == engine and named.name in row.flags]
    if listed and named.kind == "flag":
        _by_command(model, engine, named, listed[0])
        return
    near = _near_names(model, engine, named)
    says = f"{named.text} has no row for {engine}"
    _say(model, (named.text, _NAME, says), (engine, 0), (), is_soft=True, nearest=near)


def _by_row(model: Model, engine: str, named: NamedThing, row: NameRow) -> None:
    instead = f"; {', '.join(row.instead)} in its place" if row.instead else ""
    says = f"{named.text} {_status(row)}{instead}"
    words, near = (named.text, _NAME, says), ", ".join(row.instead)
    if row.status == "invented":
        _say(model, words, (engine, 0), (row,), is_soft=False, nearest=near)
    elif row.status == "removed":
        last, gone = (Pep440(text) if text else None for text in (row.last, row.removed_in))
        had = model.where(engine, lambda v: last is None or v <= last)
        perhaps = model.where(engine, lambda v: _may_have(v, last, gone))
        _say(model, words, (engine, perhaps), (row,), is_soft=False, nearest=near)
        _say(model, words, (engine, had), (row,), is_soft=True, nearest=near)


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
    _say(model, (named.text, _NAME, says), (engine, inside), (row,), is_soft=True, nearest="")


def _near_names(model: Model, engine: str, named: NamedThing) -> str:
    from difflib import get_close_matches  # 2 ms, where a name is not known only

    names = {row.name for row in model.universe.matrix.edition.names if row.component == engine}
    names |= {
        f for row in model.universe.matrix.edition.commands if row.component == engine for f in row.flags
    }
    return ", ".join(get_close_matches(named.name, sorted(names), n=2, cutoff=0.5))
