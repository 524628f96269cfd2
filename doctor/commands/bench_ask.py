"""What the options of `bench` ask for, as one value. Raises UsageError for what does not fit together."""

from __future__ import annotations

import argparse
import random
import re
from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec

from doctor import __version__
from doctor.core.load import Slo, SloTerm
from doctor.errors import UsageError
from optimize.load.bodies import Bodies, BodyError, BodySpec, Endpoint, Prompt
from optimize.load.connection import Times
from optimize.load.contact import list_models
from optimize.load.schedule import Lengths, ScheduleError
from optimize.load.session import Ask, Load
from optimize.load.target import Address, tls_context

if TYPE_CHECKING:
    from optimize.search import Budget

__all__ = ["SLO_EXAMPLE", "ask_of", "budget_of", "slo_of"]

SLO_EXAMPLE = "ttft=500ms,tpot=50ms,share=99%"
_TRACE_BYTES_MAX = 256 * 1024**2
_DURATION_S = 30.0
_CONCURRENCY = 8
_METRICS = ("ttft", "ttft_send", "tpot", "stall", "e2e")
_BUDGET = {"seconds": 600.0, "requests": 50_000.0, "tokens": 50_000_000.0}


def ask_of(options: argparse.Namespace, address: Address, key: str) -> Ask:
    """The measurement that the options name; asks the server for its models where none is named."""
    endpoint = _endpoint(options, address)
    ca_file = _ca_file(options)
    limits = _limits(options)
    load = _load(options, endpoint)
    body = BodySpec(
        endpoint=endpoint,
        model=options.model or _only_model(address, key, ca_file),
        prompt=_prompt(options, endpoint),
        stream=not options.no_stream and endpoint != "embeddings",
        ignore_eos=not options.let_stop,
        vocabulary=options.vocabulary,
        extra=_extra(options.extra_body),
    )
    try:
        Bodies(body, load.seed)
    except BodyError as error:
        raise UsageError(str(error)) from None
    if not 0 <= options.processes <= 64:
        raise UsageError(f"`--processes {options.processes}`: it is 1 to 64")
    return Ask(
        address=address,
        ca_file=ca_file,
        key=key,
        body=body,
        load=load,
        limits=limits,
        processes=options.processes,
        slo=slo_of(options.slo) if options.slo else None,
        is_calibrated=not options.no_calibrate,
        tool=f"mopt-doctor {__version__}",
    )


def _endpoint(options: argparse.Namespace, address: Address) -> Endpoint:
    named: Endpoint | None = options.endpoint
    if named and address.endpoint and named != address.endpoint:
        raise UsageError(f"the URL is of `{address.endpoint}`, and `--endpoint` says `{named}`")
    found: Endpoint = named or address.endpoint or "chat"  # type: ignore[assignment]
    return found


def _only_model(address: Address, key: str, ca_file: str) -> str:
    """The model of a server that has one. With several, one has to be named; with none told, none is sent."""
    names = list_models(address, key=key, ca_file=ca_file)
    if len(names) > 1:
        shown = ", ".join(f"`{name}`" for name in names[:8])
        raise UsageError(
            f"{address.url} serves {len(names)} models: {shown}", hints=(f"`--model {names[0]}`",)
        )
    return names[0] if names else ""


def _ca_file(options: argparse.Namespace) -> str:
    if not options.ca:
        return ""
    try:
        tls_context(options.ca)
    except OSError as error:  # ssl.SSLError is one
        words = error.strerror or "it holds no certificate in PEM form"
        raise UsageError(f"`--ca {options.ca}`: {words}") from None
    return str(options.ca)


def _limits(options: argparse.Namespace) -> Times:
    limits = Times()
    if options.timeout is None:
        return limits
    total = _number(options.timeout, "--timeout")
    if not 0 < total <= 86_400:
        raise UsageError(f"`--timeout {options.timeout}`: it is up to 86400 seconds")
    return Times(
        header_s=min(limits.header_s, total),
        stall_s=min(limits.stall_s, total),
        total_s=total,
        connect_s=min(limits.connect_s, total),
    )


def _number(text: str, option: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise UsageError(f"`{option} {text}` is no number")
    return value


# --- the load -------------------------------------------------------------------------------------


def _load(options: argparse.Namespace, endpoint: Endpoint) -> Load:
    kinds = [name for name in ("rate", "concurrency", "trace", "search") if getattr(options, name)]
    if len(kinds) > 1:
        raise UsageError(
            f"`--{kinds[0]}` and `--{kinds[1]}` are two kinds of load", hints=("give one of them",)
        )
    try:
        prompt = Lengths.parse(options.prompt_tokens)
        output = Lengths.parse("1" if endpoint == "embeddings" else options.output_tokens)
    except ScheduleError as error:
        raise UsageError(str(error)) from None
    duration = _number(options.duration, "--duration") if options.duration else 0.0
    if duration < 0 or options.requests < 0 or (options.duration and not duration):
        raise UsageError("a duration or a number of requests of nothing")
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    common = Load(
        pattern="closed",
        duration_s=duration or (0.0 if options.requests or options.trace else _DURATION_S),
        requests=options.requests,
        seed=seed,
        prompt=prompt,
        output=output,
    )
    return _with_kind(common, options)


def _with_kind(load: Load, options: argparse.Namespace) -> Load:
    change = msgspec.structs.replace
    if options.trace:
        from doctor.commands.bench import read_file

        return change(load, pattern="trace", trace=read_file(options.trace, _TRACE_BYTES_MAX))
    if not options.rate:
        if options.arrivals != "poisson" or options.burstiness is not None:
            raise UsageError("arrivals go with `--rate`: in a closed loop a request follows an answer")
        return change(load, concurrency=options.concurrency or _CONCURRENCY)
    first, dash, last = options.rate.partition("-")
    rate = _number(first, "--rate")
    if dash:
        if options.arrivals != "poisson" or not load.duration_s:
            raise UsageError("a ramp is of Poisson arrivals, and has a `--duration`")
        return change(load, pattern="ramp", rate_per_s=rate, rate_end_per_s=_number(last, "--rate"))
    if options.burstiness is not None:
        shape = _number(options.burstiness, "--burstiness")
        return change(load, pattern="gamma", rate_per_s=rate, shape=shape)
    return change(load, pattern=options.arrivals, rate_per_s=rate)


def _prompt(options: argparse.Namespace, endpoint: Endpoint) -> Prompt:
    named: Prompt | None = options.prompt
    return named or ("ids" if endpoint == "completions" else "words")


def _extra(text: str | None) -> dict[str, Any]:
    if not text:
        return {}
    try:
        fields = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise UsageError(f"`--extra-body` is no JSON object: {error}") from None
    ours = sorted(
        {"model", "stream", "stream_options", "prompt", "messages", "input", "max_tokens"} & set(fields)
    )
    if ours:
        raise UsageError(f"`--extra-body` names `{ours[0]}`, which other options decide")
    return fields


# --- SLO and budget -------------------------------------------------------------------------------


def slo_of(text: str) -> Slo:
    """`ttft=500ms,tpot=50ms,share=99%`. Raises UsageError."""
    share = 0.99
    terms: list[SloTerm] = []
    for part in text.split(","):
        name, _, value = part.strip().replace("<=", "=").partition("=")
        if name == "share":
            share = _share(value)
        elif name in _METRICS:
            terms.append(SloTerm(metric=name, limit_s=_seconds(value)))  # type: ignore[arg-type]
        else:
            known = ", ".join(f"`{metric}`" for metric in (*_METRICS, "share"))
            raise UsageError(
                f"`--slo`: `{name}` is none of {known}", hints=(f"for example `--slo {SLO_EXAMPLE}`",)
            )
    if not terms:
        raise UsageError("`--slo` has no limit", hints=(f"for example `--slo {SLO_EXAMPLE}`",))
    if len({term.metric for term in terms}) < len(terms):
        raise UsageError("`--slo` limits one metric twice")
    return Slo(terms=tuple(terms), attainment=share)


def _seconds(text: str) -> float:
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s)", text.strip())
    value = float(match[1]) / (1000 if match[2] == "ms" else 1) if match else 0.0
    if not value:
        raise UsageError(f"`{text}` is no time: one is `500ms` or `2.5s`")
    return value


def _share(text: str) -> float:
    match = re.fullmatch(r"([0-9]{1,2}(?:\.[0-9]{1,4})?)%", text.strip())
    if not match or float(match[1]) < 50:
        raise UsageError(f"`share={text}`: it is 50% to 99.99%")
    return float(match[1]) / 100


def budget_of(text: str) -> Budget:
    """`seconds=600,requests=50000,tokens=50000000`; what is not named stays so. Raises UsageError."""
    from optimize.search import Budget

    wanted = dict(_BUDGET)
    for part in text.split(",") if text else ():
        name, _, value = part.strip().partition("=")
        if name not in wanted:
            raise UsageError(f"`--budget`: `{name}` is none of `seconds`, `requests`, `tokens`")
        wanted[name] = _number(value, "--budget")
        if wanted[name] <= 0:
            raise UsageError(f"`--budget {name}={value}` buys nothing")
    return Budget(requests=int(wanted["requests"]), seconds=wanted["seconds"], tokens=int(wanted["tokens"]))
