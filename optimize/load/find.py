"""`bench --search`: a closed loop up to the bend, then the highest rate that meets the SLO."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import msgspec

from doctor.core.load import LoadReport, SearchReport, Slo, StageReport, Summary, Timeline
from optimize.knee import Point, knee
from optimize.load.contact import Contact
from optimize.load.record import Samples
from optimize.load.run import Measured, run_load
from optimize.load.schedule import plan_open
from optimize.load.session import (
    Ask,
    Outcome,
    Session,
    calibrated,
    examples_of,
    first_contact,
    joined,
    judged,
    now_utc,
    plan_of,
    processes_for,
    said_of,
    schedule_of,
    split,
    target_of,
)
from optimize.load.telemetry import Telemetry
from optimize.search import Budget, Order, Settings, State, report, search

__all__ = ["Save", "find_rate"]

#: A step of the closed loop: so many answers of one stream, and at least so long.
_ANSWERS = 4
_STEP_S = 3.0
#: Of the budget, what finding the bend may cost.
_SHARE = 0.25
_PROBE_S = 3.0
#: A window begins when the server is full, an answer's time after the first arrival, and needs as much again.
_PROBE_ANSWERS = 6
_GAIN = 1.02
_STREAMS_MAX = 4096

Save = Callable[[State], None]


class _Curve(msgspec.Struct, kw_only=True):
    stages: list[StageReport]
    points: list[Point]
    last: Measured | None = None
    spent_s: float = 0.0
    spent_requests: int = 0
    is_cut: bool = False


def find_rate(  # noqa: PLR0913
    ask: Ask, slo: Slo, budget: Budget, session: Session, *, state: State | None, save: Save
) -> Outcome:
    """The highest rate that meets the SLO. `save` gets the state after each probe; `state` goes on from one.

    Raises ContactError, RunError.
    """
    contact = first_contact(ask, session)
    curve = _curve(ask, contact, budget, session)
    if not curve.points:
        raise KeyboardInterrupt
    peak = max(point.per_s for point in curve.points)
    settings = _settings(ask, slo, _rest(budget, curve), peak, contact.e2e_s)
    probes = _Probes(ask, contact, session, save)
    jobs = split(contact, schedule_of(_open(ask, peak).load), probes.processes(peak))
    calibration, notes = calibrated(ask, contact, jobs, session, rate_per_s=peak)
    end = state or State()
    if curve.is_cut:
        end = msgspec.structs.replace(end, is_cut=True)
    else:
        end = search(probes.probe, settings, end, probes.progress)
        probes.note(end)
    found = report(settings, end)
    found = msgspec.structs.replace(found, outcome="cut") if probes.is_cut else found
    stages = list(curve.stages)
    if probes.best is not None:
        rate, samples = probes.best
        summary = judged(samples, slo, calibration, is_closed=False)
        stages.append(StageReport(name="best", rate_per_s=rate, summary=summary))
    is_cut = curve.is_cut or probes.is_cut
    last = probes.last or curve.last
    document = LoadReport(
        tool=ask.tool,
        taken_at=now_utc(),
        target=target_of(ask, probes.server),
        plan=plan_of(_open(ask, peak), schedule_of(_open(ask, peak).load), probes.processes(peak)),
        slo=slo,
        stages=tuple(stages),
        search=found,
        knee=knee(curve.points),
        calibration=calibration,
        timeline=joined(last.samples, probes.timeline) if last else probes.timeline,
        judgement="pass" if found.rate_per_s else "fail" if _is_missed(found) else "undecided",
        reasons=(
            *((found.reason,) if found.reason else ()),
            *contact.notes,
            *notes,
            *(said_of(last) if last else ()),
        ),
        examples=examples_of(last) if last else {},
        is_cut=is_cut,
        exit_code=_exit_code(found, is_cut=is_cut),
    )
    return Outcome(report=document, samples=last.samples if last else Samples())


def _settings(ask: Ask, slo: Slo, budget: Budget, peak: float, e2e_s: float) -> Settings:
    """A probe lasts 3 s and several answers, for less shows no steady state, and can prove the share.

    From half the peak; down to the rate of a single stream when that fails. From there at once, a probe of
    1,000 requests at 2/s would be the whole budget.
    """
    first_n = ceil(6 / (1 - slo.attainment))
    return Settings(
        slo=slo,
        low_per_s=peak / 2,
        floor_per_s=min(0.9 / max(e2e_s, 1e-3), peak / 2),
        first_s=max(_PROBE_S, _PROBE_ANSWERS * e2e_s),
        high_per_s=1.1 * peak,
        budget=budget,
        tokens_per_request=ask.load.prompt.mean + ask.load.output.mean,
        first_n=first_n,
        most_n=16 * first_n,
        seed=ask.load.seed,
    )


def _exit_code(found: SearchReport, *, is_cut: bool) -> int:
    if is_cut:
        return 130
    if found.rate_per_s:
        return 0
    return 5 if _is_missed(found) else 3


def _is_missed(found: SearchReport) -> bool:
    """Even the lowest rate was proven to miss the SLO; one that leans that way is not."""
    return found.outcome == "below" and found.fails_at_per_s is not None


def _rest(budget: Budget, curve: _Curve) -> Budget:
    return Budget(
        requests=max(budget.requests - curve.spent_requests, 1),
        seconds=max(budget.seconds - curve.spent_s, 1.0),
        tokens=budget.tokens,
    )


def _open(ask: Ask, rate_per_s: float) -> Ask:
    """The same ask as Poisson arrivals at a rate."""
    load = msgspec.structs.replace(
        ask.load, pattern="poisson", rate_per_s=rate_per_s, duration_s=0.0, requests=1000, concurrency=0
    )
    return msgspec.structs.replace(ask, load=load)


# --- the closed loop ------------------------------------------------------------------------------


def _curve(ask: Ask, contact: Contact, budget: Budget, session: Session) -> _Curve:
    """Twice as many streams each time, until answers a second grow by less than 2 % or a quarter is spent."""
    curve = _Curve(stages=[], points=[])
    streams = 1
    while streams <= _STREAMS_MAX and not curve.is_cut:
        step_s = max(_STEP_S, _ANSWERS * contact.e2e_s)
        session.phase(f"closed loop, {streams} streams")
        load = msgspec.structs.replace(
            ask.load,
            pattern="closed",
            concurrency=streams,
            duration_s=step_s,
            requests=0,
            rate_per_s=0.0,
            seed=_stage_seed(ask.load.seed, streams),
        )
        one = msgspec.structs.replace(ask, load=load)
        schedule = schedule_of(load, contact.e2e_s)
        measured = run_load(
            split(contact, schedule, processes_for(one, contact, schedule)),
            limit_s=step_s + 20 * contact.e2e_s + 10,
            on_progress=session.progress,
        )
        _add(curve, measured, streams)
        if _is_flat(curve.points) or curve.spent_s > _SHARE * budget.seconds:
            break
        if curve.spent_requests > _SHARE * budget.requests:
            break
        streams *= 2
    return curve


def _stage_seed(seed: int, streams: int) -> int:
    """Another one for each stage, below those of the probes, which count up from `seed`.

    With one seed each stage begins with the prompts of the stage before: vLLM had 69 % of them in its prefix
    cache, and at 32 streams gave 98.8 answers a second instead of 66.2.
    """
    return (seed - streams.bit_length()) % (1 << 32)


def _add(curve: _Curve, measured: Measured, streams: int) -> None:
    curve.is_cut = measured.is_cut
    curve.last = measured
    curve.spent_s += measured.wall_s
    curve.spent_requests += len(measured.samples)
    if not len(measured.samples):
        return
    summary = judged(measured.samples, None, None, is_closed=True)
    curve.stages.append(StageReport(name=f"{streams} streams", concurrency=streams, summary=summary))
    e2e = _mean_e2e(summary)
    if e2e and summary.completed_per_s > 0:
        curve.points.append(Point(load=float(streams), per_s=summary.completed_per_s, e2e_s=e2e))


def _mean_e2e(summary: Summary) -> float:
    return next((one.mean_s for one in summary.metrics if one.metric == "e2e"), 0.0)


def _is_flat(points: list[Point]) -> bool:
    """Two doublings without a gain: one alone may be noise."""
    if len(points) < 5:
        return False
    return points[-1].per_s < _GAIN * points[-3].per_s


# --- probes ---------------------------------------------------------------------------------------


class _Probes:
    """Runs what the search orders, and keeps the best rate's samples."""

    def __init__(self, ask: Ask, contact: Contact, session: Session, save: Save) -> None:
        self._ask, self._contact, self._session, self._save = ask, contact, session, save
        self._rate = 0.0
        self.is_cut = False
        self.server = ""
        self.last: Measured | None = None
        self.best: tuple[float, Samples] | None = None
        self.timeline = Timeline()

    def processes(self, rate_per_s: float) -> int:
        ask = _open(self._ask, rate_per_s)
        return processes_for(ask, self._contact, schedule_of(ask.load))

    def probe(self, order: Order) -> Samples:
        """One load at a rate, in open loop."""
        load = self._ask.load
        schedule = plan_open(
            "poisson",
            rate_per_s=order.load,
            requests=order.n,
            prompt=load.prompt,
            output=load.output,
            seed=order.seed,
        )
        jobs = split(self._contact, schedule, self.processes(order.load))
        telemetry = Telemetry(self._ask.address, key=self._ask.key, ca_file=self._ask.ca_file)
        measured = run_load(
            jobs, limit_s=order.limit_s, on_start=telemetry.begin, on_progress=self._session.progress
        )
        self.timeline = telemetry.end()
        self.server = self.server or telemetry.server
        self.is_cut = measured.is_cut
        self.last, self._rate = measured, order.load
        return measured.samples

    def progress(self, state: State, order: Order) -> bool:
        """Save what is known; False after Ctrl-C."""
        self.note(state)
        if not self.is_cut:
            self._session.phase(f"search: {order.n} requests at {order.load:.4g}/s")
        return not self.is_cut

    def note(self, state: State) -> None:
        """Save what is known, and keep the samples of the highest rate that passed."""
        self._save(state)
        passed = bool(state.tried) and state.tried[-1].judgement == "pass"
        if passed and self.last is not None and (self.best is None or self._rate >= self.best[0]):
            self.best = (self._rate, self.last.samples)
