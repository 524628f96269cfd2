"""First contact: one request that tells, before any load, whether URL, key, model and form are right."""

from __future__ import annotations

import http.client
from contextlib import suppress
from math import isnan
from typing import Any

import msgspec

from optimize.load.control import ask
from optimize.load.job import Job, pack_schedule
from optimize.load.record import Request, Status
from optimize.load.run import Measured, run_load
from optimize.load.schedule import Lengths, plan_closed
from optimize.load.target import Address

__all__ = ["Contact", "ContactError", "list_models", "make_contact"]

_NAMES_SHOWN = 8


class ContactError(Exception):
    """No load can be put on it: one sentence, and the next step. `is_ours`: the command line is at fault."""

    def __init__(self, message: str, hint: str = "", *, is_ours: bool = False) -> None:
        super().__init__(message)
        self.message, self.hint, self.is_ours = message, hint, is_ours


class Contact(msgspec.Struct, frozen=True, kw_only=True):
    """What the first request told; `job` is the one to go on with."""

    job: Job
    ttft_s: float
    itl_s: float
    e2e_s: float
    n_out: float
    notes: tuple[str, ...] = ()


def list_models(address: Address, *, key: str = "", ca_file: str = "") -> tuple[str, ...]:
    """Names that `GET /models` gives; empty where it gives none. Never raises for what a server answers."""
    with suppress(OSError, http.client.HTTPException, msgspec.DecodeError, UnicodeDecodeError, ValueError):
        code, body = ask(address, f"{address.base}/models", key=key, ca_file=ca_file)
        if code == 200:
            data: Any = msgspec.json.decode(body)
            rows = data.get("data", []) if isinstance(data, dict) else []
            names = [row.get("id") for row in rows if isinstance(row, dict)]
            return tuple(name for name in names if isinstance(name, str) and name)
    return ()


def make_contact(job: Job, *, prompt: Lengths, output: Lengths) -> Contact:
    """Send one request of the middle length; what the server refuses to know is left out and tried again.

    Raises ContactError, RunError, and KeyboardInterrupt when it was cut.
    """
    lengths = [Lengths(low=n, high=n) for n in (round(prompt.mean), max(round(output.mean), 1))]
    schedule = plan_closed(concurrency=1, requests=1, prompt=lengths[0], output=lengths[1], seed=0xC0)
    packed = pack_schedule(schedule)
    forms = _forms(job)
    for n, (body, note) in enumerate(forms):
        row, measured = _one(job, body, packed)
        if row.status == Status.REFUSED.word and n < len(forms) - 1:
            continue
        right, notes = body, [note] if note else []
        if _lacks_text(body, row):
            # Tokens that decode to no text (random weights, halves of a character) come as empty pieces, and
            # nothing tells these from a role: vLLM says their ids when it is asked to.
            with_ids = msgspec.structs.replace(body, extra={**body.extra, "return_token_ids": True})
            told, again = _one(job, with_ids, packed)
            if told.status == Status.OK.word and (told.n_chunks or 0) > (row.n_chunks or 0):
                right, row, measured = with_ids, told, again
                notes.append("tokens without text are counted by their ids (`return_token_ids`)")
        if row.status != Status.OK.word:
            raise _error(job, row.status, measured)
        return _told(msgspec.structs.replace(job, body=right), row, measured, lengths[1].low, notes)
    raise AssertionError("there is a first form")


def _one(job: Job, body: Any, packed: Any) -> tuple[Request, Measured]:
    """One request in this form. Raises KeyboardInterrupt when it was cut."""
    expectation = msgspec.structs.replace(job.expectation, is_exact=False)
    probe = msgspec.structs.replace(job, body=body, schedule=packed, index=0, of=1, expectation=expectation)
    measured = run_load([probe])
    row = next(measured.samples.rows(), None)
    if row is None or measured.is_cut:
        raise KeyboardInterrupt
    return row, measured


def _lacks_text(body: Any, row: Request) -> bool:
    """A stream with fewer pieces of text than tokens, or with none at all."""
    if not body.stream or "return_token_ids" in body.extra:
        return False
    return row.status == Status.EMPTY.word or (row.n_chunks or 0) < (row.n_out or 0)


def _forms(job: Job) -> list[tuple[Any, str]]:
    """Bodies to try: all fields, then fewer of those that are no part of OpenAI's API."""
    body = job.body
    forms = [(body, "")]
    if job.expectation.is_embedding:
        return forms
    if body.ignore_eos:
        body = msgspec.structs.replace(body, ignore_eos=False)
        forms.append((body, "the server refuses `ignore_eos`: answers may end before the length asked for"))
    if body.stream and body.include_usage:
        body = msgspec.structs.replace(body, include_usage=False)
        forms.append((body, "the server refuses `ignore_eos` and `stream_options`: it counts no tokens"))
    return forms


def _told(job: Job, row: Request, measured: Measured, asked: int, notes: list[str]) -> Contact:
    sent = row.sent or 0.0
    end = (row.end or 0.0) - sent
    first = row.first_token
    n_out = -1.0 if row.n_out is None else row.n_out
    gaps = sorted(gap for gap in measured.samples.gaps if not isnan(gap))
    is_exact = job.body.ignore_eos and n_out == asked and not job.expectation.is_embedding
    if job.body.ignore_eos and 0 <= n_out < asked and not job.expectation.is_embedding:
        notes.append(f"the server ignores `ignore_eos`: it ended after {n_out:.0f} of {asked} tokens")
    if n_out < 0 and not job.expectation.is_embedding:
        notes.append("no usage block: tokens are not counted, and pieces of text are no tokens")
    expectation = msgspec.structs.replace(job.expectation, is_exact=is_exact)
    return Contact(
        job=msgspec.structs.replace(job, expectation=expectation),
        ttft_s=end if first is None else first - sent,
        itl_s=gaps[len(gaps) // 2] if gaps else 0.0,
        e2e_s=end,
        n_out=n_out,
        notes=tuple(notes),
    )


def _error(job: Job, status: str, measured: Measured) -> ContactError:
    """One sentence for each way in which it can fail, and what to do."""
    url = job.address.url
    words = (measured.examples.get(status) or [""])[0]
    said = f": {words}" if words else ""
    find = f"`curl -s {url}/models` lists what is served" if not job.address.unix else ""
    if status == Status.UNREACHABLE.word:
        return ContactError(f"no server answers at {url}{said}", "is the engine up, and is this its port?")
    if status == Status.CONNECT_TIMEOUT.word:
        return ContactError(f"{url} does not answer{said}", "a firewall, or the wrong address")
    if status == Status.TLS.word:
        hint = "`--ca FILE` names the authority that signed it; without TLS the URL begins with http://"
        return ContactError(f"TLS with {url} failed{said}", hint)
    if status == Status.UNAUTHORISED.word:
        hint = (
            "`--api-key-env NAME` or `--api-key-file FILE` gives the key"
            if not job.key
            else "is it this server's key?"
        )
        return ContactError(
            f"{url} refuses {'the key' if job.key else 'a request without a key'}{said}", hint, is_ours=True
        )
    if status == Status.NOT_FOUND.word:
        return _not_found(job, said, find)
    if status == Status.MALFORMED_HTTP.word:
        return ContactError(
            f"{url} does not speak HTTP{said}", "a TLS server needs https://, a plain one http://"
        )
    return ContactError(f"the first request to {url} failed ({status}){said}", find)


def _not_found(job: Job, said: str, find: str) -> ContactError:
    """404 is a wrong path or a wrong model: the server's list of models tells which."""
    names = list_models(job.address, key=job.key, ca_file=job.ca_file)
    if names and job.body.model not in names:
        shown = ", ".join(f"`{name}`" for name in names[:_NAMES_SHOWN])
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        return ContactError(
            f"{job.address.url} serves no model `{job.body.model}`; it serves {shown}{more}",
            f"`--model {names[0]}`",
            is_ours=True,
        )
    endpoint = job.body.endpoint
    hint = "`--endpoint completions|chat|embeddings` names another" if names else find
    return ContactError(f"{job.address.url} has no `{endpoint}` endpoint{said}", hint, is_ours=True)
