"""The commands that look at a host, or at what was said of one."""

from __future__ import annotations

import argparse

from doctor.grammar.base import Commands, add_look, add_overlay, command

__all__ = ["FORMS", "add_check", "add_collect", "add_explain", "add_report"]

#: What a check can be written as; `doctor.report.forms` makes them.
FORMS = ("text", "json", "jsonl", "html", "junit", "prometheus", "ansible-facts", "nhc")


def _add_source(one: argparse.ArgumentParser) -> None:
    one.add_argument("--sysroot", metavar="DIR", help="read a host below DIR: a chroot or a mounted disk")
    one.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="PATH",
        help="look into this Python environment, too: a prefix or its python (repeatable)",
    )
    one.add_argument(
        "--timeout", metavar="S", help="seconds for the whole collection (15; also: MOPT_TIMEOUT)"
    )


def _add_form(one: argparse.ArgumentParser) -> None:
    one.add_argument(
        "--format",
        choices=FORMS,
        default="text",
        metavar="FORM",
        help=f"form of the answer: {', '.join(FORMS)}",
    )
    one.add_argument("--json", action="store_true", help="the same as --format json")
    one.add_argument("-o", dest="output", metavar="FILE", help="write the answer to FILE")
    one.add_argument("--redact", action="store_true", help="replace names, users, addresses, serials, UUIDs")


def add_report(commands: Commands) -> None:  # type: ignore[valid-type]
    """`report`."""
    one = command(commands, "report", "write a saved answer in another form", "report:run")
    one.add_argument(
        "file", metavar="FILE", help="what `--json` or `-o` of another command wrote; - is stdin"
    )
    _add_form(one)
    one.add_argument("-v", "--verbose", action="store_true", help="every check")
    add_look(one)


def add_check(commands: Commands) -> None:  # type: ignore[valid-type]
    """`check`."""
    one = command(commands, "check", "judge this host, or what was taken on another one", "check:run")
    one.add_argument(
        "--from",
        dest="bundle",
        metavar="FILE",
        help="instead of this host: an nvidia-bug-report.log[.gz], a bundle of `collect`, or pasted output of"
        " nvidia-smi, collect_env, dmesg, dkms status, lspci -nn, and the like",
    )
    _add_source(one)
    one.add_argument(
        "--goal",
        action="append",
        default=[],
        metavar="GOAL",
        help="what the host is for: vllm==0.33.0,use=fp8, or a goal file (present)",
    )
    add_overlay(one)
    one.add_argument("--only", action="append", default=[], metavar="AREA,ID", help="these checks only")
    one.add_argument("--skip", action="append", default=[], metavar="AREA,ID", help="not these checks")
    one.add_argument("--list-checks", action="store_true", help="list the checks and end")
    _add_form(one)
    one.add_argument("--strict", action="store_true", help="warnings count as failures")
    one.add_argument("-v", "--verbose", action="store_true", help="every check, and the facts")
    one.add_argument("-q", "--quiet", action="store_true", help="the first line only")
    add_look(one)


def add_collect(commands: Commands) -> None:  # type: ignore[valid-type]
    """`collect`."""
    one = command(commands, "collect", "take the evidence of this host into a bundle", "collect:run")
    one.add_argument("-o", dest="output", metavar="FILE", help="FILE.tar.gz, or a directory")
    _add_source(one)
    one.add_argument("--redact", action="store_true", help="replace names, users, addresses, serials, UUIDs")
    one.add_argument("--list-items", action="store_true", help="list what is collected, and why, and end")
    one.add_argument("--facts", action="store_true", help="print the facts (mopt.host/1) instead of saving")


def add_explain(commands: Commands) -> None:  # type: ignore[valid-type]
    """`explain`."""
    one = command(
        commands, "explain", "name the causes of an error text or log, or show an id", "explain:run"
    )
    one.add_argument(
        "text",
        nargs="*",
        metavar="TEXT|FILE|ID",
        help="an error text, a log of any size, a bundle, the id of a finding or cause; - is stdin",
    )
    one.add_argument(
        "--from", dest="bundle", metavar="FILE", help="let the facts of that host decide: as of `check`"
    )
    one.add_argument("--host", dest="live", action="store_true", help="let the facts of this host decide")
    one.add_argument("--timeout", metavar="S", help="seconds for the collection of `--host` (15)")
    one.add_argument("--json", action="store_true", help="the answer as JSON (mopt.explain/1)")
    one.add_argument("-o", dest="output", metavar="FILE", help="write the answer to FILE")
    one.add_argument("--redact", action="store_true", help="replace names, users, addresses, serials, UUIDs")
    one.add_argument("-v", "--verbose", action="store_true", help="every cause with its lines and remedy")
    add_overlay(one)
    add_look(one)
