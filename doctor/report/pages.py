"""The page of a finding or of a cause, as Markdown that also reads well in a terminal.

`mopt-doctor explain ID` prints one; `docs/findings.md` and `docs/causes.md` hold them all.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Iterator, Sequence

from doctor.core.check import Check
from doctor.core.checks import CHECKS
from doctor.core.matrix import CauseRow, Matrix, RemedyRow

__all__ = ["cause_page", "finding_page", "identifiers", "page_of"]

_COSTS = {
    "none": "nothing is interrupted",
    "drain": "GPU work has to end first",
    "restart": "a service or a container restarts",
    "reload": "the driver is unloaded and loaded again; GPU work has to end first",
    "reboot": "a reboot",
    "reinstall": "packages are replaced, and a reboot",
    "hardware": "work on the hardware",
}


def identifiers(matrix: Matrix) -> tuple[str, ...]:
    """Every id that has a page: checks in the order of judging, then causes by their place in the table."""
    return (*(c.id for c in CHECKS), "internal.check_crashed", *(row.id for row in matrix.edition.causes))


def page_of(identifier: str, matrix: Matrix) -> str:
    """The page or pages of an id: an id may name a check and a cause. Empty for one that nobody has."""
    pages = [finding_page(c, matrix) for c in CHECKS if c.id == identifier]
    pages += [cause_page(row) for row in matrix.edition.causes if row.id == identifier]
    if identifier == "internal.check_crashed":
        pages.append(_crashed())
    return "\n\n".join(pages)


def finding_page(check: Check, matrix: Matrix) -> str:
    """What a check asks, of which facts, what may be behind a bad answer, and what to do then."""
    causes = [row for row in matrix.edition.causes if check.id in row.explains]
    lines = [f"# {check.id}", "", f"{_sentence(check.title)}.", "", _meaning(check), ""]
    decides = (
        "leaves the verdict open" if check.is_critical else "is reported and leaves the verdict as it is"
    )
    lines += [f"- area: {check.area}", f"- a missing fact {decides}"]
    if check.needs:
        lines.append("- reads: " + ", ".join(f"`{need.replace('|', '` or `')}`" for need in check.needs))
    if causes:
        lines += ["", "Causes that explain it:", "", *(f"- `{row.id}`: {row.title}" for row in causes)]
    return "\n".join(lines)


def _meaning(check: Check) -> str:
    """The check's own docstring, as paragraphs."""
    return inspect.cleandoc(check.run.__doc__ or "").strip()


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def cause_page(row: CauseRow) -> str:
    """When a cause holds, what follows from it, what would decide, the remedy, and where this is from."""
    lines = [f"# {row.id}", "", f"{_sentence(row.title)}.", "", f"- layer: {row.layer}"]
    if row.refines:
        lines.append(f"- a closer form of `{row.refines}`")
    lines += [f"- known from: {row.confidence} ({row.as_of})", ""]
    lines += _list("Named when all of these hold", [_claim(c) for c in row.when])
    lines += _list("Ruled out when", [_claim(c) for c in row.ruled_out_by])
    lines += _list("Gives way to a closer cause when", [_claim(c) for c in row.yields_to])
    lines += _list("Explains", [f"`{finding}`" for finding in row.explains])
    lines += _list("What would decide", row.deciding_facts)
    lines += _remedy(row.remedy)
    lines += _list("Sources", row.source)
    return "\n".join(lines).rstrip()


def _claim(name: str) -> str:
    words = name.replace("_", " ")
    return f"not: {words[4:]}" if name.startswith("not ") else words


def _list(heading: str, entries: Sequence[str]) -> Iterator[str]:
    if entries:
        yield from (f"{heading}:", "", *(f"- {entry}" for entry in entries), "")


def _remedy(remedy: RemedyRow | None) -> Iterator[str]:
    if remedy is None:
        return
    yield from (f"Remedy: {remedy.summary}.", "")
    if remedy.commands:
        yield from ("```console", *(f"# {shlex.join(argv)}" for argv in remedy.commands), "```", "")
    yield f"- cost: {_COSTS.get(remedy.cost, remedy.cost)}"
    yield f"- needs root: {'yes' if remedy.needs_root else 'no'}"
    for label, text in (("hits", remedy.blast_radius), ("undo", remedy.undo)):
        if text:
            yield f"- {label}: {text}"
    yield ""


def _crashed() -> str:
    return (
        "# internal.check_crashed\n\nA check ended with an error of its own.\n\n"
        "The other checks stand; the answer of this one is missing, which is a bug in mopt-doctor. "
        "A bundle from `mopt-doctor collect --redact` makes it repeatable."
    )
