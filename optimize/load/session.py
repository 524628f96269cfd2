"""A measurement from first contact to report: contact, calibration, the run, and what it means."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timezone

import msgspec

from doctor.core.load import Calibration, LoadPlan, LoadReport, Slo, StageReport, Summary, Target, Timeline
from optimize.load.bodies import BodySpec
from optimize.load.calibrate import calibrate
from optimize.load.connection import Times
from optimize.load.contact import Contact, ContactError, make_contact
from optimize.load.ending import Expectation
from optimize.load.job import Job, pack_schedule
from optimize.load.record import Samples, Status
from optimize.load.run import Measured, RunError, Tally, run_load
from optimize.load.schedule import (
    REQUESTS_MAX,
    Lengths,
    Pattern,
    Schedule,
    plan_closed,
    plan_open,
    plan_trace,
)
from optimize.load.target import Address
from optimize.load.telemetry import Telemetry, client_series
from optimize.stats import beyond_client_error, summarise

__all__ = ["Ask", "Load", "Outcome", "Session", "first_contact", "measure", "processes_for", "schedule_of"]

#: What one process follows without lag on a core of 2024: a chunk costs 10 to 15 us of CPU.
_CHUNKS_PER_S = 20_000
_STREAMS = 800
_PROCESSES_MAX = 16


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What load is wanted."""

    pattern: Pattern
    rate_per_s: float = 0.0
    rate_end_per_s: float = 0.0
    shape: float = 1.0
    concurrency: int = 0
    duration_s: float = 0.0
    requests: int = 0
    seed: int = 0
    trace: bytes = b""
    prompt: Lengths
    output: Lengths


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A whole measurement. `processes` 0 lets the load decide."""

    address: Address
    ca_file: str = ""
    key: str = ""
    body: BodySpec
    load: Load
    limits: Times = Times()
    processes: int = 0
    slo: Slo | None = None
    is_calibrated: bool = True
    tool: str = "mopt-doctor"


class Session(msgspec.Struct, kw_only=True):
    """Who is told how far it is: a word for each phase, and the counts of a run."""

    phase: Callable[[str], None] = lambda _words: None
    progress: Callable[[Tally], None] = lambda _tally: None
    close: Callable[[], None] = lambda: None


class Outcome(msgspec.Struct, kw_only=True):
    """The report, and the requests that it rests on."""

    report: LoadReport
    samples: Samples


def schedule_of(load: Load, e2e_s: float = 0.0) -> Schedule:
    """The schedule of a load. Raises ScheduleError. `e2e_s`, of one answer, bounds a closed loop."""
    if load.pattern == "trace":
        return plan_trace(load.trace, seed=load.seed, duration_s=load.duration_s, requests=load.requests)
    if load.pattern == "closed":
        most = load.requests
        if not most:  # three times what answers as quick as the first one would take
            most = int(load.concurrency * (load.duration_s / max(e2e_s, 1e-3) * 3 + 10))
        return plan_closed(
            concurrency=load.concurrency,
            requests=min(most, REQUESTS_MAX),
            prompt=load.prompt,
            output=load.output,
            seed=load.seed,
            duration_s=load.duration_s,
        )
    return plan_open(
        load.pattern,
        rate_per_s=load.rate_per_s,
        rate_end_per_s=load.rate_end_per_s,
        shape=load.shape,
        duration_s=load.duration_s,
        requests=load.requests,
        prompt=load.prompt,
        output=load.output,
        seed=load.seed,
    )


def first_contact(ask: Ask, session: Session) -> Contact:
    """One request. Raises ContactError."""
    session.phase("first contact")
    schedule = plan_closed(concurrency=1, requests=1, prompt=ask.load.prompt, output=ask.load.output, seed=0)
    job = Job(
        address=ask.address,
        ca_file=ask.ca_file,
        key=ask.key,
        run_id=os.urandom(4).hex(),
        user_agent=ask.tool.replace(" ", "/", 1),
        body=ask.body,
        schedule=pack_schedule(schedule),
        index=0,
        of=1,
        expectation=Expectation(is_stream=ask.body.stream, is_embedding=ask.body.endpoint == "embeddings"),
        limits=ask.limits,
    )
    try:
        return make_contact(job, prompt=ask.load.prompt, output=ask.load.output)
    except RunError as error:
        raise ContactError(f"no server answers at {ask.address.url}: {error}") from None


def processes_for(ask: Ask, contact: Contact, schedule: Schedule) -> int:
    """Enough for the pieces a second and the streams at once that are to be expected; never all cores."""
    if ask.processes:
        return ask.processes
    if schedule.is_open:
        streams = schedule.rate_per_s * contact.e2e_s
        chunks = schedule.rate_per_s * ask.load.output.mean
    else:
        streams = schedule.concurrency
        chunks = streams / max(contact.itl_s, 0.001) if ask.body.stream else 0.0
    cores = len(os.sched_getaffinity(0))
    wanted = 1 + int(max(chunks / _CHUNKS_PER_S, streams / _STREAMS))
    return max(1, min(wanted, cores - 1, _PROCESSES_MAX))


def split(contact: Contact, schedule: Schedule, processes: int) -> list[Job]:
    """One job a process."""
    base = msgspec.structs.replace(
        contact.job, schedule=pack_schedule(schedule), of=processes, stagger_s=min(contact.e2e_s, 5.0)
    )
    return [msgspec.structs.replace(base, index=index) for index in range(processes)]


def calibrated(
    ask: Ask, contact: Contact, jobs: list[Job], session: Session, *, rate_per_s: float = 0.0
) -> tuple[Calibration | None, tuple[str, ...]]:
    """The client's own error, or why it is not known."""
    if not ask.is_calibrated:
        return None, ("not calibrated (`--no-calibrate`): the client's own error is not known",)
    if ask.body.endpoint == "embeddings" or not ask.body.stream:
        return None, ("not calibrated: without a stream there is no first token to be wrong about",)
    session.phase("calibration against the built-in server")
    ttft = contact.ttft_s
    try:
        found = calibrate(jobs[0], len(jobs), ttft_s=ttft, itl_s=contact.itl_s, rate_per_s=rate_per_s)
    except RunError as error:
        return None, (f"not calibrated: {error}",)
    return found, () if found else ("not calibrated: the built-in server gave no whole answer",)


# --- one load -------------------------------------------------------------------------------------


def measure(ask: Ask, session: Session) -> Outcome:
    """One load on the endpoint. Raises ContactError, ScheduleError, RunError."""
    if ask.load.pattern != "closed":
        schedule_of(ask.load)  # what cannot be is said before anything is sent
    contact = first_contact(ask, session)
    schedule = schedule_of(ask.load, contact.e2e_s)
    processes = processes_for(ask, contact, schedule)
    jobs = split(contact, schedule, processes)
    calibration, notes = calibrated(ask, contact, jobs, session)
    session.phase("load")
    telemetry = Telemetry(ask.address, key=ask.key, ca_file=ask.ca_file)
    measured = run_load(jobs, on_start=telemetry.begin, on_progress=session.progress)
    timeline = telemetry.end()
    if not len(measured.samples):
        raise KeyboardInterrupt
    summary = judged(measured.samples, ask.slo, calibration, is_closed=not schedule.is_open)
    stage = StageReport(
        name="load",
        rate_per_s=schedule.rate_per_s if schedule.is_open else None,
        concurrency=None if schedule.is_open else schedule.concurrency,
        summary=summary,
    )
    report = LoadReport(
        tool=ask.tool,
        taken_at=now_utc(),
        target=target_of(ask, telemetry.server),
        plan=plan_of(ask, schedule, processes),
        slo=ask.slo,
        stages=(stage,),
        calibration=calibration,
        timeline=joined(measured.samples, timeline),
        judgement=summary.judgement,
        reasons=(*summary.reasons, *contact.notes, *notes, *said_of(measured)),
        examples=examples_of(measured),
        is_cut=measured.is_cut,
        exit_code=exit_code_of(summary, ask.slo, is_cut=measured.is_cut),
    )
    return Outcome(report=report, samples=measured.samples)


def judged(samples: Samples, slo: Slo | None, calibration: Calibration | None, *, is_closed: bool) -> Summary:
    """Figures and verdict; without a calibration there is no verdict on what a client can be wrong about."""
    summary = summarise(samples, slo=slo, is_closed=is_closed)
    if slo is None:
        return summary
    if calibration is not None:
        return beyond_client_error(summary, slo, calibration)
    if summary.judgement in ("pass", "fail") and any(term.metric != "e2e" for term in slo.terms):
        reason = "no verdict: the client was not calibrated"
        return msgspec.structs.replace(summary, judgement="undecided", reasons=(*summary.reasons, reason))
    return summary


def exit_code_of(summary: Summary, slo: Slo | None, *, is_cut: bool) -> int:
    """0 measured, or the SLO is met; 5 it is not; 3 it cannot be told; 130 cut."""
    if is_cut:
        return 130
    if not summary.succeeded:
        return 3
    if slo is None:
        return 3 if summary.judgement == "invalid" else 0
    return {"pass": 0, "fail": 5}.get(summary.judgement, 3)


def target_of(ask: Ask, server: str = "") -> Target:
    return Target(url=ask.address.url, endpoint=ask.body.endpoint, model=ask.body.model, server=server)


def plan_of(ask: Ask, schedule: Schedule, processes: int) -> LoadPlan:
    def said(lengths: Lengths) -> str:
        return str(lengths.low) if lengths.low == lengths.high else f"{lengths.low}-{lengths.high}"

    is_trace = schedule.pattern == "trace"
    return LoadPlan(
        loop="open" if schedule.is_open else "closed",
        arrivals=schedule.pattern,
        seed=schedule.seed,
        schedule_digest=schedule.digest,
        prompt_tokens="trace" if is_trace else said(ask.load.prompt),
        output_tokens=""
        if ask.body.endpoint == "embeddings"
        else "trace"
        if is_trace
        else said(ask.load.output),
        processes=processes,
        is_streaming=ask.body.stream,
    )


def joined(samples: Samples, timeline: Timeline) -> Timeline:
    return msgspec.structs.replace(timeline, series=(*client_series(samples), *timeline.series))


def said_of(measured: Measured) -> tuple[str, ...]:
    """What is to be known of the client."""
    notes = [f"client: {measured.loop}, {measured.cpu_share:.0%} of a core in its busiest process"]
    if measured.retried:
        notes.append(
            f"{measured.retried} requests met a connection that the server had closed, and were sent again"
        )
    if os.environ.get("http_proxy") or os.environ.get("HTTP_PROXY") or os.environ.get("https_proxy"):
        notes.append("a proxy is set in the environment; it is not used")
    if measured.samples.gap_stride > 1:
        notes.append(f"ITL is of every {measured.samples.gap_stride}th gap: there were too many to keep")
    return tuple(notes)


def examples_of(measured: Measured) -> dict[str, tuple[str, ...]]:
    """The server's own words for what failed, the key taken out."""
    words = {status.word for status in Status if status is not Status.OK}
    return {
        name: tuple(texts) for name, texts in sorted(measured.examples.items()) if name in words and texts
    }


def now_utc() -> str:
    """When it was taken, to the second."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
