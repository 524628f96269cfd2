"""Look-ups for `matrix show` that need no knowledge of a table: by version, by name, by part of a name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from doctor.commands.matrix_rows import row_line, row_text
from doctor.core.matrix import Matrix
from doctor.core.rows.base import Row
from doctor.core.rows.package import Component
from doctor.core.versions import Dotted, Pep440, Version

__all__ = ["Answer", "around", "find", "kinds", "near"]

#: So many rows are shown in full; more are listed by line.
_FULL_MAX = 3


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a query found: rows for `--json`, text for people. No rows is a miss."""

    rows: tuple[tuple[str, Row], ...] = ()
    body: str = ""
    near: tuple[str, ...] = ()
    """On a miss: what comes nearest."""
    is_newer: bool = False
    """On a miss: the matrix ends before it, which says nothing against it."""


class _Named(NamedTuple):
    """A table whose rows are found by one of some texts."""

    table: str
    texts: Callable[[Any], tuple[str, ...]]


#: What each kind looks through. Kinds of names and of components come from the data.
_BY_NAME: dict[str, tuple[_Named, ...]] = {
    "os": (_Named("systems", lambda row: (row.system, *row.same_as, row.codename)),),
    "floor": (
        _Named("speeds", lambda row: (row.gpu, *row.pci_device_ids)),
        _Named("speed_ranges", lambda row: (row.id, row.quantity, row.applies_to)),
    ),
    "quantization": (
        _Named("quantization", lambda row: (row.method,)),
        _Named("quantization_gates", lambda row: (row.scheme,)),
        _Named("quantization_support", lambda row: (row.family,)),
    ),
    "kv-cache": (_Named("kv_cache", lambda row: (row.dtype,)),),
    "model": (_Named("models", lambda row: (row.architecture,)),),
    "published": (
        _Named("published", lambda row: (row.model, row.model.rpartition("/")[2], row.model_type)),
    ),
    "advisory": (_Named("advisories", lambda row: (row.id, row.bulletin, row.component, *row.cves)),),
    "xid": (_Named("xids", lambda row: (str(row.xid), row.mnemonic)),),
    "sxid": (_Named("sxids", lambda row: (row.id, *map(str, row.codes))),),
    "driver-bug": (_Named("driver_bugs", lambda row: (row.id, *(str(r.branch) for r in row.ranges))),),
    "rule": (_Named("driver_rules", lambda row: (row.id,)),),
    "relation": (_Named("relations", lambda row: (row.id, *row.when, *row.requires, *row.same_version)),),
    "hardware": (_Named("hardware", lambda row: (row.component,)),),
    "command": (_Named("commands", lambda row: (row.command, row.component)),),
    "grammar": (
        _Named("engine_grammars", lambda row: (row.command, row.component)),
        _Named("engine_flags", lambda row: (row.flag, row.command, row.component)),
        _Named("engine_batches", lambda row: (row.component,)),
        _Named("engine_dtypes", lambda row: (row.dtype, row.component)),
    ),
    "component": (_Named("components", lambda row: (row.component, row.package)),),
    "stack": (_Named("stacks", lambda row: (row.id, *row.components)),),
}

#: Tables whose rows are minor releases: `6.8.0-124` finds `6.8`.
_BY_MINOR = {"kernel": ("kernels", "kernel"), "ansible-core": ("ansible", "line")}


def kinds(matrix: Matrix) -> tuple[str, ...]:
    """Everything that can be asked for, besides GPUs, drivers, CUDA toolkits and single components."""
    names = (row.kind for row in matrix.edition.names)
    return tuple(dict.fromkeys((*_packages(matrix), *_BY_MINOR, *_BY_NAME, *names)))


def find(matrix: Matrix, kind: str, query: str) -> Answer | None:
    """The rows of a kind that a query means, all of them where it is empty; None for an unknown kind."""
    if kind in _BY_NAME:
        tables = [(named.table, named.texts) for named in _BY_NAME[kind]]
        return _by_name(matrix, tables, query)
    if kind in _BY_MINOR:
        return _by_minor(matrix, *_BY_MINOR[kind], query)
    if kind in _packages(matrix):
        return _release(matrix, kind, query)
    if any(row.kind == kind for row in matrix.edition.names):
        return _name(matrix, kind, query)
    component = matrix.component(kind)
    return _component(matrix, component, query) if component else None


def _packages(matrix: Matrix) -> dict[str, tuple[tuple[str, Row], ...]]:
    """The releases of each component that has any, and their table."""
    found: dict[str, list[tuple[str, Row]]] = {}
    for table in ("releases", "tools"):
        for row in matrix.edition.rows()[table]:
            found.setdefault(str(getattr(row, "component", "")), []).append((table, row))
    return {component: tuple(rows) for component, rows in found.items()}


def _answer(rows: Sequence[tuple[str, Row]], *, first_in_full: bool = False) -> Answer:
    if len(rows) <= _FULL_MAX:
        return Answer(rows=tuple(rows), body="\n\n".join(row_text(*row) for row in rows))
    blocks = [row_text(*rows[0]), ""] if first_in_full else []
    return Answer(
        rows=tuple(rows), body="\n".join([*blocks, *(row_line(*row) for row in rows[len(blocks) // 2 :])])
    )


# --- by name --------------------------------------------------------------------------------------


def _by_name(
    matrix: Matrix, tables: Iterable[tuple[str, Callable[[Any], tuple[str, ...]]]], query: str
) -> Answer:
    rows = [(table, row, texts(row)) for table, texts in tables for row in matrix.edition.rows()[table]]
    wanted = query.casefold()
    folded = [(table, row, [text.casefold() for text in texts]) for table, row, texts in rows]
    for chosen in (
        [(table, row) for table, row, texts in folded if not wanted or wanted in texts],
        [(table, row) for table, row, texts in folded if _has_word(wanted, texts)],
        [(table, row) for table, row, texts in folded if any(wanted in text for text in texts)],
    ):
        if chosen:
            return _answer(chosen)
    return Answer(near=near(query, (text for _, _, texts in rows for text in texts)))


def _has_word(wanted: str, texts: Iterable[str]) -> bool:
    """Whether a text holds `wanted` between borders of words: `h200` in `h200 sxm`, `l4` not in `l40s`."""
    return any(re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", text) for text in texts)


def _component(matrix: Matrix, row: Component, query: str) -> Answer:
    """A component without releases of its own: what it is, and the relations that speak of it."""
    if query:
        return Answer()
    named = [r for r in matrix.edition.relations if row.component in (*r.when, *r.requires, *r.same_version)]
    return _answer([("components", row), *(("relations", r) for r in named)], first_in_full=True)


def _name(matrix: Matrix, kind: str, query: str) -> Answer:
    """Flags, metrics and the like: with or without dashes, the engine's prefix, and `_total`."""
    rows = [row for row in matrix.edition.names if row.kind == kind]
    wanted = query.casefold()
    for chosen in (
        [row for row in rows if not wanted or row.name.casefold() == wanted],
        [row for row in rows if _bare(row.name) == _bare(query)],
        [row for row in rows if len(wanted) > 2 and wanted in row.name.casefold()],
    ):
        if chosen:
            return _answer([("names", row) for row in chosen])
    return Answer(near=near(query, (row.name for row in rows)))


def _bare(name: str) -> str:
    text = re.sub(r"^(-+|vllm:|trtllm_)", "", name.casefold()).replace("-", "_")
    return text.removesuffix("_total").partition("=")[0]


def near(query: str, names: Iterable[str]) -> tuple[str, ...]:
    """The three names that come nearest."""
    folded = {name.casefold(): name for name in names if name}
    return tuple(folded[m] for m in difflib.get_close_matches(query.casefold(), folded, n=3, cutoff=0.5))


# --- by version -----------------------------------------------------------------------------------


def around(version: Version, known: Iterable[Version]) -> tuple[str, ...]:
    """The known version before and the one after."""
    ordered = sorted(known)
    before = [other for other in ordered if other < version][-1:]
    after = [other for other in ordered if other > version][:1]
    return tuple(str(other) for other in (*before, *after))


def _version(query: str, kind: type[Version]) -> Version | None:
    try:
        return kind(query)
    except ValueError:
        return None


def _miss(query: str, kind: type[Version], known: Sequence[Version]) -> Answer:
    version = _version(query, kind)
    if version is None:
        return Answer(near=tuple(str(other) for other in known[-3:]))
    return Answer(near=around(version, known), is_newer=bool(known) and version > max(known))


def _release(matrix: Matrix, component: str, query: str) -> Answer:
    """A release, or all of a series: `0.33.0`, `0.33`, `10.14`."""
    rows: list[tuple[str, Any]] = list(_packages(matrix)[component])
    kind = Pep440 if rows[0][0] == "releases" else Dotted
    wanted = _version(query, kind)
    series = f"{query.casefold()}."
    for chosen in (
        [(table, row) for table, row in rows if not query or row.version == wanted],
        [(table, row) for table, row in rows if row.version.raw.startswith(series)],
    ):
        if len(chosen) == 1:
            applying = _applying(matrix, component, str(chosen[0][1].version))
            return _answer([*chosen, *applying], first_in_full=True)
        if chosen:
            return _answer(chosen)
    return _miss(query, kind, [row.version for _, row in rows])


def _applying(matrix: Matrix, component: str, version: str) -> list[tuple[str, Row]]:
    """Rows about the line that a release belongs to: the hardware it supports, bulletins that hit it."""
    # PEP 440 costs 15 ms at import; only a look at a release needs it.
    from doctor.edition.package_relations import meets

    edition = matrix.edition
    lines = [row for row in edition.hardware if row.component == component and meets(version, row.versions)]
    hits = [row for row in edition.advisories if row.component == component and row.affected]
    return [
        *(("hardware", row) for row in lines),
        *(("advisories", row) for row in hits if meets(version, row.affected)),
    ]


def _by_minor(matrix: Matrix, table: str, field: str, query: str) -> Answer:
    rows: list[tuple[str, Any]] = [(table, row) for row in matrix.edition.rows()[table]]
    version = _version(query, Dotted)
    parts = (*version.parts, 0)[:2] if isinstance(version, Dotted) else ()
    chosen = [(table, row) for table, row in rows if not query or getattr(row, field).parts == parts]
    return _answer(chosen) if chosen else _miss(query, Dotted, [getattr(row, field) for _, row in rows])
