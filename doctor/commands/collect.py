"""`mopt-doctor collect`: the evidence of this host as a bundle that can be saved, sent and replayed."""

from __future__ import annotations

import argparse
import sys

from doctor.config import load_settings, refuse_engine_mix
from doctor.errors import UsageError

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Collect, redact when asked, and write the bundle or the facts. 0 when it was written."""
    settings = load_settings(timeout_s=options.timeout)
    if options.list_items:
        from doctor.evidence.live import list_items

        sys.stdout.write(list_items())
        return 0
    if not options.output and not options.facts:
        raise UsageError(
            "`collect` needs to know where the bundle goes",
            hints=("`-o host.tar.gz` saves it", "`--facts` prints the facts instead"),
        )
    refuse_engine_mix()
    form = _form(options.output)
    from doctor.evidence.live import collect_live, whole_paths

    evidence = collect_live(
        budget_s=settings.timeout_s,
        sysroot=options.sysroot,
        environments=whole_paths(options.env, options.sysroot),
    )
    if options.redact:
        from doctor.evidence.redact import redact

        evidence = redact(evidence)
    if options.facts:
        from doctor.facts.read import read_scopes
        from doctor.report.machine import to_json

        # A document each scope: a collection of this host has the one.
        sys.stdout.buffer.write(b"".join(to_json(host) for host in read_scopes(evidence)))
    if options.output:
        from doctor.evidence.bundle import write_bundle

        write_bundle(evidence, options.output)
        sys.stderr.write(_said(options.output, form, len(evidence.meta.items), redacted=options.redact))
    return 0


def _form(output: str | None) -> str:
    """What the bundle will be, refused before anything is collected: that takes seconds."""
    if not output:
        return ""
    from doctor.evidence.bundle_write import form_of

    return form_of(output)


def _said(path: str, form: str, count: int, *, redacted: bool) -> str:
    place = f"the directory `{path}`" if form == "directory" else f"`{path}`"
    words = f"wrote {count} items to {place}"
    if not redacted:
        words += "; it names this host, its users and serials: `--redact` replaces them"
    return f"{words}\n"
