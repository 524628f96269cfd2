"""`matrix show` and `matrix validate`: look at the compatibility matrix, and lint its sources."""

from __future__ import annotations

import argparse
import datetime as dt
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from doctor.commands import matrix_text as text
from doctor.commands.matrix_find import Answer, around, find, kinds, near
from doctor.config import data_dir, overlay_folders
from doctor.core.matrix import Edition, GpuRow, Matrix, Row, enc_version
from doctor.core.versions import Dotted
from doctor.edition.load import decode, is_source_tree, load_matrix
from doctor.edition.review import gaps, overdue, sizes, statistics, unreachable
from doctor.errors import MatrixError, UsageError
from doctor.report.escape import escape_line

__all__ = ["show", "validate"]

#: So many ids are shown in full; more are listed by line.
_FULL_MAX = 4


def show(options: argparse.Namespace) -> int:
    """Rows of the matrix: `options.kind` (gpu, vllm, flag, … or None), `.query`, `.json`.

    Returns 1 when the matrix has no such row. Raises MatrixError, and UsageError on a kind it has not.
    """
    matrix = load_matrix(overlays=overlay_folders(options.overlay))
    kind, query = options.kind, (options.query or "").strip()
    answer = _asked(matrix, kind, query)
    if options.json:
        _say_json(matrix, kind, query, answer)
    elif answer.rows:
        _say(answer.body)
    else:
        _say_miss(matrix, kind or "", query, answer)
    return 0 if answer.rows else 1


def _asked(matrix: Matrix, kind: str | None, query: str) -> Answer:
    if kind is None:
        return Answer(rows=_live(matrix), body=text.overview_text(matrix))
    answer = _KINDS[kind](matrix, query) if kind in _KINDS else find(matrix, kind, query)
    if answer is None:
        known = (*_KINDS, *kinds(matrix))
        words = (*known, *(row.component for row in matrix.edition.components))
        hints = [f"did you mean `{name}`?" for name in near(kind, words)[:1]]
        hints.append(f"it has: {', '.join(known)}, and each component")
        raise UsageError(f"the matrix has no `{escape_line(kind)}`", hints=hints)
    return answer


def _say_json(matrix: Matrix, kind: str | None, query: str, answer: Answer) -> None:
    rows = [{"table": table, **msgspec.to_builtins(row, enc_hook=enc_version)} for table, row in answer.rows]
    document = {
        "schema": "mopt.rows/1",
        "matrix_edition": matrix.edition.name,
        "overlays": list(matrix.overlay_names),
        "kind": kind,
        "query": query,
        "rows": rows,
        "nearest": list(answer.near),
    }
    from doctor.report.machine import printable

    _say(printable(msgspec.json.encode(document)).decode().rstrip("\n"))


def _say_miss(matrix: Matrix, kind: str, query: str, answer: Answer) -> None:
    asked = escape_line(query) or "(nothing)"
    newer = ": newer than its newest" if answer.is_newer else ""
    _complain(f"{kind} `{asked}`: not in matrix {matrix.edition.name}{newer}")
    if answer.near:
        _complain(f"nearest: {', '.join(answer.near)}")


def _live(matrix: Matrix) -> tuple[tuple[str, Row], ...]:
    return tuple(("drivers", row) for row in matrix.edition.drivers if row.status == "supported")


# --- the three kinds ------------------------------------------------------------------------------


def _gpu(matrix: Matrix, query: str) -> Answer:
    ids = _ids(matrix, query) if query else _all_ids(matrix)
    family = matrix.architecture(query.casefold())
    rows: list[tuple[str, Row]] = [("architectures", family)] if family else []
    rows += [("gpus", row) for device_id in ids for row in matrix.gpus(device_id)]
    products = dict.fromkeys(row for row in map(matrix.product, ids) if row is not None)
    rows += [("products", row) for row in products]
    if not rows:
        names = {row.name for row in matrix.edition.gpus} | {row.product for row in matrix.edition.products}
        return Answer(near=near(query, names) or near(query, _all_ids(matrix)))
    blocks = [text.architecture_text(family)] if family else []
    if len(ids) <= _FULL_MAX:
        blocks += [text.gpu_text(matrix, device_id) for device_id in ids]
    else:
        found = [row for row in map(matrix.gpu, ids) if row is not None]
        head = f"{len(ids)} ids; name one of them for its whole row:"
        blocks.append("\n".join((head, *(text.gpu_line(row) for row in found))))
    return Answer(rows=tuple(rows), body="\n\n".join(blocks))


def _all_ids(matrix: Matrix) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row.pci_device_id for row in matrix.edition.gpus))


def _ids(matrix: Matrix, query: str) -> tuple[str, ...]:
    """The PCI ids that a query means: the id itself, an architecture or chip, whole words, any part."""
    wanted = query.casefold()
    for device_id in (wanted, f"10de:{wanted}"):
        if matrix.gpus(device_id):
            return (device_id,)
    if not wanted or ":" in wanted:
        return ()
    rows = matrix.edition.gpus
    word = re.compile(rf"(?<![^\W_]){re.escape(wanted)}(?![^\W_])")
    for chosen in (
        [row for row in rows if wanted in (row.architecture, row.chip.casefold())],
        [row for row in rows if any(word.search(name) for name in _names(matrix, row))],
        [row for row in rows if any(wanted in name for name in _names(matrix, row))],
    ):
        if chosen:
            return tuple(dict.fromkeys(row.pci_device_id for row in chosen))
    return ()


def _names(matrix: Matrix, row: GpuRow) -> tuple[str, ...]:
    product = matrix.product(row.pci_device_id)
    names = (row.name, *row.former_names, *((product.product,) if product else ()))
    return tuple(name.casefold() for name in names)


def _driver(matrix: Matrix, query: str) -> Answer:
    if not query:
        rows = matrix.edition.drivers
        return Answer(rows=tuple(("drivers", row) for row in rows), body=_lines(map(text.branch_line, rows)))
    version = _version(query)
    branch = matrix.branch(version) if version else None
    if version is None or branch is None:
        return _no_branch(matrix, version)
    if len(version.parts) == 1:
        return Answer(rows=(("drivers", branch),), body=text.branch_text(branch))
    release = next((known for known in branch.releases if known == version), None)
    if release is None:
        near = around(version, branch.releases)
        is_newer = branch.latest_known is not None and version > branch.latest_known
        return Answer(near=near or (branch.branch,), is_newer=is_newer)
    return Answer(rows=(("drivers", branch),), body=text.branch_text(branch, release))


def _no_branch(matrix: Matrix, version: Dotted | None) -> Answer:
    """A miss by branch: those on either side, or those with support when the query is no version."""
    rows = matrix.edition.drivers
    if version is None:
        return Answer(near=tuple(row.branch for row in rows if row.status == "supported"))
    majors = [Dotted(str(row.major)) for row in rows]
    near = tuple(f"R{major}" for major in around(version, majors))
    return Answer(near=near, is_newer=bool(majors) and version.major > max(majors).major)


def _cuda(matrix: Matrix, query: str) -> Answer:
    version = _version(query)
    known = matrix.edition.toolkits
    if version is None and query:
        return Answer(near=tuple(str(row.cuda) for row in known[-3:]))
    rows = [row for row in known if version is None or row.cuda.major == version.major]
    if rows and (version is None or len(version.parts) == 1):
        lines = _lines(map(text.toolkit_line, rows))
        return Answer(rows=tuple(("toolkits", row) for row in rows), body=lines)
    return _toolkit(matrix, version) if version else Answer()


def _toolkit(matrix: Matrix, version: Dotted) -> Answer:
    """A minor release or one of its updates."""
    known = matrix.edition.toolkits
    row = matrix.toolkit(version) if len(version.parts) > 1 else None
    if row is None:
        minors = [row.cuda for row in known]
        return Answer(near=around(version, minors), is_newer=bool(minors) and version > max(minors))
    if version != row.cuda and all(update.version != version for update in row.updates):
        near = (str(row.cuda), *(str(update.version) for update in row.updates))
        return Answer(near=near, is_newer=all(update.version < version for update in row.updates))
    return Answer(rows=(("toolkits", row),), body=text.toolkit_text(row))


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def _version(query: str) -> Dotted | None:
    return Dotted(query) if re.fullmatch(r"[rRvV]?\d{1,9}(\.\d{1,9}){0,5}", query) else None


_KINDS = {"gpu": _gpu, "driver": _driver, "cuda": _cuda}


# --- validate -------------------------------------------------------------------------------------


def validate(options: argparse.Namespace) -> int:
    """Lint a matrix: `options.directory` (default: this installation's), `.overlay` on top of it, `.stats`.

    Returns 2 when there are faults, each on a line of stdout. Raises MatrixError when nothing is there.
    """
    folder = Path(options.directory) if options.directory else Path(data_dir("matrices"))
    try:
        edition, what = _examined(folder)
        overlays = overlay_folders(options.overlay)
        if overlays:
            edition = _examined_overlays(edition, overlays)
    except MatrixError as error:
        for problem in error.problems:
            _say(escape_line(problem))
        _complain(error.message)
        return error.exit_code
    _say(f"ok: {what}, edition {edition.name} of {edition.as_of}")
    _say_statistics(edition, detailed=options.stats)
    late = overdue(edition, dt.datetime.now(dt.timezone.utc).date().isoformat())
    for kind, lines in (("gap", gaps(edition)), ("unreachable", unreachable(edition)), ("overdue", late)):
        for line in lines:
            _say(f"{kind}: {escape_line(line)}")
    return 0


def _say_statistics(edition: Edition, *, detailed: bool) -> None:
    for table, counts in statistics(edition).items():
        total = sum(count for name, count in counts.items() if name != "unverified fields")
        detail = "".join(f", {count} {name}" for name, count in sorted(counts.items()) if count)
        if total:
            _say(f"  {table}: {total} rows{detail if detailed else ''}")
    everything, besides = sizes(edition)
    _say(f"  all: {everything} rows, {besides} of them besides PCI ids")


def _examined(folder: Path) -> tuple[Edition, str]:
    """The edition of a folder, from its sources where it has any, and what was looked at."""
    compiled = folder / "edition.json"
    if any(folder.glob("*.yaml")):
        # PyYAML costs 20 ms at import; only this command and a changed source tree need it.
        from doctor.edition.build import build

        edition = build(folder)
        if not is_source_tree(folder) and compiled.is_file():
            _same_digest(edition, compiled)
        return edition, "the YAML sources"
    if not compiled.is_file():
        raise MatrixError(f"there is no matrix in `{folder}`: neither `.yaml` files nor `edition.json`")
    return decode(compiled.read_bytes(), str(compiled)), "the compiled edition (no YAML sources here)"


def _examined_overlays(edition: Edition, folders: Sequence[str]) -> Edition:
    """The edition with overlays on top, and a line about each of them. Raises MatrixError with all faults."""
    from doctor.edition.overlay import compile_overlays

    matrix = compile_overlays(edition, folders)
    today = dt.datetime.now(dt.timezone.utc).date().isoformat()
    for overlay in matrix.overlays:
        counts = Counter[str](kind for kind, _rule in overlay.rules)
        counts.update({"driver releases": len(overlay.driver_releases), "rows": len(overlay.rows)})
        parts = [f"{count} {kind}" for kind, count in counts.items() if count]
        _say(f"ok: overlay {overlay.name} of {overlay.as_of}: {', '.join(parts) or 'nothing in it'}")
        for rule in (*(rule for _kind, rule in overlay.rules), *overlay.driver_releases):
            if rule.review_by < today:
                _say(f"overdue: {escape_line(rule.overlay)}: to be reviewed by {rule.review_by}")
    return matrix.edition


def _same_digest(edition: Edition, compiled: Path) -> None:
    """An installed copy reads `edition.json` only: sources that differ from it would mislead."""
    if decode(compiled.read_bytes(), str(compiled)).digest != edition.digest:
        raise MatrixError(
            "the YAML sources are not those that `edition.json` was built from",
            problems=(f"{compiled}: commands read this file; edits of the YAML beside it have no effect",),
        )


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _complain(line: str) -> None:
    sys.stderr.write(f"{line}\n")
