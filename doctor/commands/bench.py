"""`mopt-doctor bench URL`: a load on an OpenAI-compatible endpoint, with the client's own error beside it."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from typing import TYPE_CHECKING

import msgspec

from doctor.commands.output import write_answer
from doctor.config import load_settings
from doctor.core.load import LoadReport
from doctor.errors import ProbeError, UsageError

if TYPE_CHECKING:
    from optimize.load.session import Ask, Outcome, Session
    from optimize.load.target import Address

__all__ = ["read_file", "run"]

_KEY_BYTES_MAX = 16 * 1024
#: The key is looked for here when nothing else is said. Not OPENAI_API_KEY: the URL may be anybody's.
_KEY_VARIABLE = "MOPT_API_KEY"


def run(options: argparse.Namespace) -> int:
    """Measure: 0 measured or the SLO is met, 5 it is not, 3 it could not be told, 130 after Ctrl-C."""
    _need_extra()
    from doctor.commands.bench_ask import ask_of

    address = _address(options.url)
    ask = ask_of(options, address, _key(options, address))
    outcome = _measured(options, ask)
    _write(options, outcome)
    return outcome.report.exit_code


def _need_extra() -> None:
    """Httptools and numpy are of the extra `bench`: the other commands do not pay for them."""
    from importlib.util import find_spec

    missing = [name for name in ("httptools", "numpy") if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"`bench` needs {' and '.join(missing)}: not installed",
            hints=("`pip install 'mopt-doctor[bench]'`",),
        )


def _address(url: str) -> Address:
    from optimize.load.target import AddressError, parse_url

    try:
        return parse_url(url)
    except AddressError as error:
        raise UsageError(str(error), hints=(error.hint,) if error.hint else ()) from None


def _key(options: argparse.Namespace, address: Address) -> str:
    """The key, from a file or a variable; never from the command line, which all users can read."""
    from optimize.load.target import AddressError, check_key

    if options.api_key_file:
        text = read_file(options.api_key_file, _KEY_BYTES_MAX).decode(errors="replace")
    else:
        name = options.api_key_env or _KEY_VARIABLE
        text = os.environ.get(name, "")
        if options.api_key_env and not text:
            raise UsageError(
                f"the variable `{name}` is not set", hints=("`--api-key-file FILE` reads a file",)
            )
    try:
        key = check_key(text)
    except AddressError as error:
        raise UsageError(str(error)) from None
    if key and not address.is_tls and not address.is_local:
        sys.stderr.write("mopt-doctor: the key goes over the network in clear text: the URL is not https\n")
    return key


def read_file(path: str, most: int) -> bytes:
    """A file as a whole. Raises UsageError."""
    try:
        if path != "-" and not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - a FIFO would block
            raise UsageError(f"`{path}` is no regular file")
        with sys.stdin.buffer if path == "-" else open(path, "rb") as file:  # noqa: PTH123
            data = file.read(most + 1)
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read: {error.strerror}") from None
    if len(data) > most:
        raise UsageError(f"`{path}` is larger than {most // 1024} KiB")
    return data


# --- measuring ------------------------------------------------------------------------------------


def _measured(options: argparse.Namespace, ask: Ask) -> Outcome:
    from optimize.load.contact import ContactError
    from optimize.load.run import RunError
    from optimize.load.schedule import ScheduleError
    from optimize.load.session import measure

    session = _session(options)
    try:
        if options.search:
            return _searched(options, ask, session)
        return measure(ask, session)
    except ContactError as error:
        hints = (error.hint,) if error.hint else ()
        raise (UsageError if error.is_ours else ProbeError)(error.message, hints=hints) from None
    except ScheduleError as error:
        raise UsageError(str(error)) from None
    except RunError as error:
        raise ProbeError(f"the load could not be put on: {error}") from None
    finally:
        session.close()


def _searched(options: argparse.Namespace, ask: Ask, session: Session) -> Outcome:
    from doctor.commands.bench_ask import SLO_EXAMPLE, budget_of
    from optimize.load.find import find_rate
    from optimize.search import State

    if ask.slo is None:
        raise UsageError("`--search` needs an SLO", hints=(f"for example `--slo {SLO_EXAMPLE}`",))
    state: State | None = None
    path = options.state
    if path and os.path.exists(path):  # noqa: PTH110
        try:
            state = msgspec.json.decode(read_file(path, 16 * 1024**2), type=State)
        except msgspec.DecodeError as error:
            raise UsageError(f"`{path}` is no state of a search: {error}") from None

    def save(now: State) -> None:
        if path:
            write_answer(msgspec.json.encode(now), path, whole=True)

    return find_rate(ask, ask.slo, budget_of(options.budget), session, state=state, save=save)


def _session(options: argparse.Namespace) -> Session:
    from doctor.commands.bench_progress import Progress
    from optimize.load.session import Session

    if options.quiet:
        return Session()
    progress = Progress(sys.stderr)
    return Session(phase=progress.phase, progress=progress.tally, close=progress.close)


# --- the answer -----------------------------------------------------------------------------------


def _write(options: argparse.Namespace, outcome: Outcome) -> None:
    """The form that is asked for; with `-o` alone the document goes to the file and the text to stdout."""
    form = "json" if options.json else options.format
    if options.samples:
        write_answer(_ndjson(outcome), options.samples)
    if form == "ndjson":
        write_answer(_ndjson(outcome), options.output)
        return
    from doctor.report.machine import to_json

    if form == "json":
        write_answer(to_json(outcome.report), options.output)
        return
    if options.output:
        write_answer(to_json(outcome.report), options.output)
    write_answer(_text(options, outcome.report), None)


def _text(options: argparse.Namespace, report: LoadReport) -> bytes:
    from doctor.report.load_text import render_load

    settings = load_settings(
        no_color=options.no_color, ascii_only=options.ascii, stdout_is_terminal=sys.stdout.isatty()
    )
    return render_load(report, colour=settings.colour, ascii_only=settings.ascii_only).encode()


def _ndjson(outcome: Outcome) -> bytes:
    """A head that says what they are of, then one line a request."""
    report = outcome.report
    head = {
        "schema": "mopt.samples/1",
        "tool": report.tool,
        "taken_at": report.taken_at,
        "target": report.target,
        "plan": report.plan,
    }
    encode = msgspec.json.Encoder().encode
    lines = [encode(head), *(encode(row) for row in outcome.samples.rows())]
    return b"\n".join(lines) + b"\n"
