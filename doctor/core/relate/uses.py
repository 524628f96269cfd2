"""What a host is to be used for: data types, compiling, building engines."""

from __future__ import annotations

from doctor.core.rows.base import Row
from doctor.core.rows.hardware import Architecture
from doctor.core.solve.model import Link, Model
from doctor.core.solve.universe import minor_of
from doctor.core.versions import Version

__all__ = ["relate_uses", "say_wish"]

#: The field of an architecture's row that a use asks for, what it is called, and its field for weak rows.
_PRECISIONS: dict[str, tuple[str, str]] = {
    "fp8": ("fp8", "FP8 arithmetic (W8A8)"),
    "int8": ("int8_tensor", "INT8 tensor arithmetic"),
    "kv-fp8": ("fp8", "FP8 hardware"),
}


def relate_uses(model: Model) -> None:
    """All relations of the goal's uses."""
    for use in model.goal.uses:
        if use in _PRECISIONS:
            _precision(model, use)
        if use == "kv-fp8":
            _kv_cache(model)
        if use == "nvcc":
            _compiles(model)
        if use == "engine-build":
            _builds_engines(model)


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
            say_wish(model, words, perhaps, rows, is_soft=False, nearest=near)
        say_wish(model, words, (capability, sure), rows, is_soft=True, nearest=near)


def _refuses(family: Architecture | None, field: str) -> bool:
    return family is not None and getattr(family, field) is False and field not in family.unverified


def say_wish(  # noqa: PLR0913 - the last two are for one caller each
    model: Model,
    words: tuple[str, str, str],
    met: tuple[str, int],
    rows: tuple[Row, ...],
    *,
    is_soft: bool,
    nearest: str | None = None,
    doubt: str = "",
) -> None:
    """A relation that the wish alone triggers: `words` are the wish, the relation's name, and a sentence."""
    wish, relation, says = words
    link = Link(
        relation=relation,
        says=says,
        source=tuple(dict.fromkeys(text for row in rows for text in row.source)),
        is_soft=is_soft,
        nearest=nearest if nearest is not None else next(iter(model.texts(*met)), ""),
        doubt=doubt,
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
        say_wish(model, words, (row.component, since), (row,), is_soft=False)


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
    say_wish(model, words, ("cuda-toolkit", there), rows, is_soft=False)


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
    say_wish(
        model, (*words, says), (component, model.full(component) & ~removed), tuple(gone[:1]), is_soft=False
    )
    says = "no row tells of the engine backend of other releases"
    say_wish(model, (*words, says), (component, there), (), is_soft=True)
