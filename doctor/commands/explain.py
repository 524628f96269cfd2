"""`mopt-doctor explain`: an error text, a log or a bundle to its ranked causes; or the page of an id."""

from __future__ import annotations

import argparse
import os
import re
import stat
import sys
from collections.abc import Sequence

import msgspec

from doctor import __version__
from doctor.commands.ask import matrix_of
from doctor.commands.output import write_answer
from doctor.config import load_settings
from doctor.core.check import Case
from doctor.core.evidence import Evidence
from doctor.core.explain import ExplainReport, explain
from doctor.core.matrix import Matrix
from doctor.core.signatures import find_hits
from doctor.errors import EvidenceError, UsageError
from doctor.evidence.logtext import LogText, of_bytes, of_evidence, of_file, of_stream

__all__ = ["explain_text", "run"]

_ID = re.compile(r"[a-z]+(?:\.[a-z0-9_]+)+")
_STDIN = "-"
#: What a person types from memory, in any case, is short.
_TYPED_LINES_MAX = 20
_TAR_MAGIC = slice(257, 262)


def run(options: argparse.Namespace) -> int:
    """Name the causes of a text (0), or say that nothing in it is known (3); print the page of an id (0)."""
    if options.bundle is not None and options.live:
        raise UsageError("`--from` and `--host` name two hosts", hints=("give one of them",))
    if options.bundle == "":
        raise UsageError("`--from` is given, and names nothing")
    words: Sequence[str] = options.text
    matrix = matrix_of(options)
    if len(words) == 1 and _ID.fullmatch(words[0]):
        return _page(words[0], matrix, options)
    report = _explained(words, matrix, options)
    write_answer(_rendered(report, options), options.output)
    return report.exit_code


def _page(identifier: str, matrix: Matrix, options: argparse.Namespace) -> int:
    """The page of a finding or cause. A file of that name is meant where there is no such id."""
    from doctor.report.pages import identifiers, page_of

    page = page_of(identifier, matrix)
    if page:
        write_answer(f"{page}\n".encode(), options.output)
        return 0
    if os.path.exists(identifier):  # noqa: PTH110 - pathlib costs 4 ms
        report = _explained([identifier], matrix, options)
        write_answer(_rendered(report, options), options.output)
        return report.exit_code
    from difflib import get_close_matches

    near = get_close_matches(identifier, identifiers(matrix), n=1)
    raise UsageError(
        f"`{identifier}` is no finding, no cause and no file",
        hints=(f"nearest: `{near[0]}`",) if near else ("`mopt-doctor check --list-checks` lists findings",),
    )


def _explained(words: Sequence[str], matrix: Matrix, options: argparse.Namespace) -> ExplainReport:
    text, source, own = _text(words, matrix)
    evidence, host = own, source if own is not None else ""
    if options.bundle:
        from doctor.evidence.open import open_evidence

        evidence, host = open_evidence(options.bundle), options.bundle
    elif options.live:
        evidence, host = _live(options), "this host"
    report = explain_text(text, matrix, source=source, evidence=evidence, host=host)
    return _redacted(report, text, evidence) if options.redact else report


def _redacted(report: ExplainReport, text: LogText, evidence: Evidence | None) -> ExplainReport:
    """The same answer without identities: what was explained and what was asked say which ones there are."""
    from doctor.evidence.redact import redact_text
    from doctor.report.machine import to_json

    lines = (line.text for line in text.lines)
    cleaned = redact_text(to_json(report).decode(), log=lines, evidence=evidence)
    return msgspec.json.decode(cleaned.encode(), type=ExplainReport)


def explain_text(
    text: LogText, matrix: Matrix, *, source: str = "", evidence: Evidence | None = None, host: str = ""
) -> ExplainReport:
    """The report about a text, held against the evidence of a host where there is any."""
    rows = matrix.edition.signatures
    hits = find_hits(rows, text.lines)
    if not hits and len(text.lines) <= _TYPED_LINES_MAX:
        hits = find_hits(rows, text.lines, ignore_case=True)
    return explain(
        matrix,
        hits,
        lines=text.count,
        tool=f"mopt-doctor {__version__}",
        source=source,
        cases=_cases(evidence, matrix) if evidence is not None else (),
        text_cases=_cases(_pasted(text.data), matrix) if text.data and evidence is None else (),
        host=host,
        counts=text.counts,
    )


def _cases(evidence: Evidence | None, matrix: Matrix) -> tuple[Case, ...]:
    if evidence is None:
        return ()
    from doctor.facts.read import read_scopes  # 25 ms of CPU: the parsers, which a page does not need

    hosts = read_scopes(evidence)
    # An environment is judged on the machine beside it.
    return tuple(
        Case(host=host, matrix=matrix, others=tuple(h for h in hosts if h is not host)) for host in hosts
    )


def _pasted(data: bytes) -> Evidence | None:
    """What the text itself shows of a host; None where it shows nothing that is known."""
    from doctor.evidence.foreign import read_foreign

    try:
        return read_foreign(data)
    except EvidenceError:
        return None


def _live(options: argparse.Namespace) -> Evidence:
    from doctor.evidence.live import start_collecting

    settings = load_settings(timeout_s=options.timeout, no_color=True, stdout_is_terminal=False)
    with start_collecting(budget_s=settings.timeout_s, sysroot=None) as live:
        return live.evidence()


# --- what is asked about --------------------------------------------------------------------------


def _text(words: Sequence[str], matrix: Matrix) -> tuple[LogText, str, Evidence | None]:
    """The text, what it is called, and the evidence that comes with it when it is a bundle."""
    if not words or list(words) == [_STDIN]:
        if not words and sys.stdin.isatty():
            raise UsageError(
                "nothing to explain",
                hints=(
                    "`mopt-doctor explain 'the error text'`, a log file, a bundle, an id, or `-` for stdin",
                ),
            )
        return of_stream(sys.stdin.buffer, matrix.edition.signatures), _STDIN, None
    if len(words) == 1:
        found = _file(words[0], matrix)
        if found is not None:
            return found
    return of_bytes(" ".join(words).encode("utf-8", "surrogateescape")), "", None


def _file(word: str, matrix: Matrix) -> tuple[LogText, str, Evidence | None] | None:
    """A file or bundle; None when the word is a text. Raises UsageError for a path that leads nowhere."""
    try:
        mode = os.stat(word).st_mode  # noqa: PTH116 - pathlib costs 4 ms
    except (OSError, ValueError):
        if re.fullmatch(r"(?:/|\./|\.\./|~/)[^\s:]+|[^\s:]+\.(?:log|txt|gz|tgz|out|err)", word):
            raise UsageError(f"there is no file `{word}`") from None
        return None
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise UsageError(f"`{word}` is neither a file nor a bundle", hints=("`-` reads stdin",))
    from doctor.evidence.foreign.bugreport import is_bug_report
    from doctor.evidence.open import open_evidence

    head = b"" if stat.S_ISDIR(mode) else _head(word)
    if stat.S_ISDIR(mode) or head[_TAR_MAGIC] == b"ustar":
        evidence = open_evidence(word)
        return of_evidence(evidence), word, evidence
    text = of_file(word, matrix.edition.signatures)
    return text, word, open_evidence(word) if is_bug_report(head) else None


def _head(path: str) -> bytes:
    from doctor.evidence.foreign.unpack import Unpacker

    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return Unpacker(file).peek(64 * 1024)
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read: {error.strerror}") from None


# --- the answer -----------------------------------------------------------------------------------


def _rendered(report: ExplainReport, options: argparse.Namespace) -> bytes:
    if options.json:
        from doctor.report.machine import to_json

        return to_json(report)
    from doctor.report.explain_text import render_explain

    settings = load_settings(
        no_color=options.no_color,
        ascii_only=options.ascii or "utf" not in (sys.stdout.encoding or "").lower(),
        stdout_is_terminal=sys.stdout.isatty() and not options.output,
    )
    text = render_explain(
        report, colour=settings.colour, ascii_only=settings.ascii_only, verbose=options.verbose
    )
    return text.encode()
