"""`matrix import`: rows for releases that the matrix does not have, drafted from the package index."""

from __future__ import annotations

import argparse
import datetime as dt
import re
import sys
from collections.abc import Callable, Sequence

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from doctor.commands.output import write_answer
from doctor.core.edition import Edition
from doctor.edition.draft.ask import ask_index
from doctor.edition.draft.choose import Found, releases_of, wanted
from doctor.edition.draft.release import Known, draft_release
from doctor.edition.draft.snapshot import Snapshot, read_snapshot
from doctor.edition.draft.text import draft_text
from doctor.edition.load import load_matrix
from doctor.edition.strict import nearest
from doctor.errors import UsageError
from doctor.report.escape import escape_line
from doctor.timeouts import INDEX_ANSWER_BYTES_MAX

__all__ = ["draft", "run"]

#: Drafted at once; a file of more is not read by anybody.
_ROWS_MAX = 20


def run(options: argparse.Namespace) -> int:
    """Draft rows of `options.spec` (`vllm`, `vllm==0.33.0`); 0 also where there is nothing newer."""
    edition = load_matrix().edition
    known, spec = _asked(edition, options.spec)
    snapshot = _snapshot(options, edition, known, spec)
    if options.save:
        write_answer(msgspec.json.format(msgspec.json.encode(snapshot), indent=1) + b"\n", options.save)
    text = draft(edition, known, snapshot, spec=spec, pre=options.pre)
    if text:
        write_answer(text.encode(), options.output)
    return 0


def _asked(edition: Edition, text: str) -> tuple[Known, str]:
    """The component, and the set of versions behind it."""
    match = re.fullmatch(r"([a-z][a-z0-9-]*)\s*([=<>!~][^\s]*)?", text.strip())
    name, spec = (match.group(1), match.group(2) or "") if match else (text, "")
    known = Known.of(edition, name)
    if known is None:
        names = sorted({row.component for row in edition.releases})
        raise UsageError(
            f"`{escape_line(name)}` is no component with releases in the matrix{nearest(name, names)}",
            hints=(f"it has: {', '.join(names)}",),
        )
    try:
        SpecifierSet(spec)
    except InvalidSpecifier:
        raise UsageError(f"`{escape_line(spec)}` is not a set such as `==0.33.0` or `>=0.32`") from None
    return known, spec


def _snapshot(options: argparse.Namespace, edition: Edition, known: Known, spec: str) -> Snapshot:
    """What the index says now, or said when it was saved."""
    name = known.component.component
    if options.source:
        found = read_snapshot(_saved(options.source), options.source)
        if found.component != name:
            raise UsageError(f"`{options.source}` is about {escape_line(found.component)}, not {name}")
        return found
    if options.offline:
        raise UsageError(
            "`matrix import` asks the package index, and `--offline` forbids it",
            hints=("`--from FILE` drafts from an answer that `--save FILE` kept",),
        )
    return ask_index(
        options.python or sys.executable,
        known,
        _chooser(edition, known, spec, pre=options.pre),
        today=dt.datetime.now(dt.timezone.utc).date().isoformat(),
        say=_say,
    )


def _saved(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - as elsewhere: no pathlib for one read
            data = file.read(INDEX_ANSWER_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read: {error.strerror}") from None
    if len(data) > INDEX_ANSWER_BYTES_MAX:
        raise UsageError(f"`{path}` is larger than {INDEX_ANSWER_BYTES_MAX} bytes")
    return data


def _chooser(
    edition: Edition, known: Known, spec: str, *, pre: bool
) -> Callable[[Sequence[Found]], Sequence[Found]]:
    """The releases to draft: newest last, at most so many. Candidates only where the matrix holds some."""
    with_candidates = pre or known.shape.version.key.is_prerelease

    def choose(found: Sequence[Found]) -> Sequence[Found]:
        chosen = wanted(found, known.rows, spec=spec, since=edition.as_of, with_candidates=with_candidates)
        return chosen[-_ROWS_MAX:]

    return choose


def draft(edition: Edition, known: Known, snapshot: Snapshot, *, spec: str, pre: bool = False) -> str:
    """The rows as YAML; empty where there is nothing to draft, which is told on stderr."""
    name = known.component.component
    package = known.component.package
    found = releases_of(snapshot.projects.get(package, ()), package)
    chosen = _chooser(edition, known, spec, pre=pre)(found)
    drafts = [
        draft_release(known, one, snapshot, speaker) for one in chosen if (speaker := one.speaker) is not None
    ]
    if not drafts:
        newest = f", up to {found[-1].version}" if found else ""
        asked = f"no release {spec}" if spec else f"nothing newer than matrix {edition.name} has"
        _say(f"{name}: {asked}; the index lists {len(found)} releases{newest}")
        return ""
    todos = sum(len(one.todos) for one in drafts)
    _say(f"{name}: {len(drafts)} row{'s' * (len(drafts) > 1)} drafted, {todos} TODO; matrix {edition.name}")
    if len(drafts) == _ROWS_MAX:
        _say(f"at most {_ROWS_MAX} rows at once, the newest; older ones: `{name}<{chosen[0].version}`")
    return draft_text(known, drafts, snapshot)


def _say(line: str) -> None:
    sys.stderr.write(f"{escape_line(line)}\n")
