"""`mopt-doctor report`: a saved answer in another form, without judging anything again."""

from __future__ import annotations

import argparse
import os
import stat
import sys

import msgspec

from doctor.commands.output import write_answer
from doctor.config import Settings, load_settings
from doctor.core.explain import ExplainReport
from doctor.core.finding import CheckReport
from doctor.core.host import Host
from doctor.core.load import LoadReport
from doctor.core.model_report import ModelReport
from doctor.core.plan import Plan
from doctor.core.run import RunReport
from doctor.core.stack import StackReport, WhyReport
from doctor.errors import EvidenceError, UsageError
from doctor.report.forms import CHECK_FORMS, write_check
from doctor.report.machine import to_json
from doctor.report.saved import Document, from_json

__all__ = ["run"]

#: A check of a host with eight GPUs and many containers is below 1 MB.
_BYTES_MAX = 64 * 1024**2
_TEXT_WIDTH = 80
#: Forms that others read at any moment.
WHOLE = ("prometheus", "ansible-facts")


def run(options: argparse.Namespace) -> int:
    """Write the value of a file in the form that is asked for; 0."""
    settings = load_settings(
        no_color=options.no_color,
        ascii_only=options.ascii,
        stdout_is_terminal=sys.stdout.isatty() and not options.output,
    )
    document = _document(options.file)
    if options.redact:
        document = _redacted(document)
    form = "json" if options.json else options.format
    answer = _rendered(document, form, settings, verbose=options.verbose)
    write_answer(answer, options.output, whole=form in WHOLE)
    return 0


def _document(path: str) -> Document:
    """What a file holds: one document, or the journal of a run. Raises UsageError, EvidenceError."""
    data = _bytes(path)
    if not data.startswith(b'{"kind":'):
        return from_json(data)
    from doctor.apply.journal import entries_in
    from doctor.apply.order import promises_beside
    from doctor.core.run import report_of

    report = report_of(entries_in(data), promises_beside(path))
    if report is None:
        raise EvidenceError(f"`{path}` is no journal of a run that has begun")
    return report


def _bytes(path: str) -> bytes:
    """What is in the file, or on stdin for `-`. Raises UsageError, EvidenceError."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read(_BYTES_MAX + 1)
        else:
            if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - a FIFO or a device would block
                hint = "`mopt-doctor check --from PATH` judges a bundle of evidence"
                raise UsageError(f"`{path}` is no regular file", hints=(hint,))
            with open(path, "rb") as file:  # noqa: PTH123
                data = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read: {error.strerror}") from None
    if len(data) > _BYTES_MAX:
        raise EvidenceError(f"`{path}` is larger than {_BYTES_MAX // 1024**2} MiB: no answer is")
    if data[:2] == b"\x1f\x8b":
        hint = f"`mopt-doctor check --from {path}` judges a bundle of evidence"
        raise EvidenceError(f"`{path}` is compressed: no saved answer", hints=(hint,))
    return data


def _rendered(document: Document, form: str, settings: Settings, *, verbose: bool) -> bytes:
    if form == "json":
        return to_json(document)
    if isinstance(document, CheckReport):
        return (
            _check_text(document, settings, verbose=verbose)
            if form == "text"
            else write_check(document, form)
        )
    if isinstance(document, LoadReport) and form == "html":
        from doctor.report.load_html import to_load_html

        return to_load_html(document)
    if form != "text":
        more = ", and `html`" if isinstance(document, LoadReport) else ""
        known = ", ".join(f"`{name}`" for name in CHECK_FORMS)
        raise UsageError(
            f"a {_schema(document)} has the forms `text` and `json`{more}",
            hints=(f"{known} are forms of a check",),
        )
    return _other_text(document, settings).encode()


def _schema(document: Document) -> str:
    return str(msgspec.to_builtins(document).get("schema", "document"))


def _check_text(report: CheckReport, settings: Settings, *, verbose: bool) -> bytes:
    from doctor.report.text import render_check

    return render_check(
        report,
        width=_TEXT_WIDTH,
        colour=settings.colour,
        ascii_only=settings.ascii_only,
        verbose=verbose,
    ).encode()


def _other_text(
    document: ExplainReport | Host | LoadReport | ModelReport | Plan | RunReport | StackReport | WhyReport,
    settings: Settings,
) -> str:
    if isinstance(document, ExplainReport):
        from doctor.report.explain_text import render_explain

        return render_explain(document, colour=settings.colour, ascii_only=settings.ascii_only)
    if isinstance(document, Host):
        from doctor.report.host_text import render_host

        return render_host(
            document, width=_TEXT_WIDTH, colour=settings.colour, ascii_only=settings.ascii_only
        )
    if isinstance(document, LoadReport):
        from doctor.report.load_text import render_load

        return render_load(document, colour=settings.colour, ascii_only=settings.ascii_only)
    if isinstance(document, ModelReport):
        from doctor.report.model_text import render_model

        return render_model(document, colour=settings.colour, ascii_only=settings.ascii_only)
    if isinstance(document, Plan):
        from doctor.report.plan_text import render_saved_plan

        return render_saved_plan(document)
    if isinstance(document, RunReport):
        from doctor.report.run_text import render_run

        return render_run(document)
    from doctor.report.stack_text import render_stack, render_why

    return render_stack(document) if isinstance(document, StackReport) else render_why(document)


def _redacted(document: Document) -> Document:
    """The same with identities replaced, as `collect --redact` replaces them in evidence."""
    from doctor.evidence.redact import redact_text

    name, log = "", tuple[str, ...]()
    if isinstance(document, ExplainReport):
        log = tuple(line.text for cause in document.causes for line in cause.matched)
    if isinstance(document, CheckReport):
        name = document.host.hostname or ""
    elif isinstance(document, Plan):
        name = document.host.hostname
    elif isinstance(document, Host):
        name = getattr(document.system.hostname, "value", "")
    return from_json(redact_text(to_json(document).decode(), hostname=name, log=log).encode())
