"""A plan to serve a model on GPUs under a load: engine, formats, split, limits, the command, and why. Pure.

Decisions rest on rows of the matrix and on arithmetic; what neither tells is said to be unknown. A plan never
changes what a model answers unless it was asked to: no quantization, no other context, no edited config.
"""

from __future__ import annotations

from math import ceil

import msgspec

from doctor.core.edition import Edition
from doctor.core.serving import Ask, Gpu, ServingPlan, Setting, Speed, Split, Verdict
from optimize.commands import command_of
from optimize.decisions import Question
from optimize.load_shape import contradiction
from optimize.model import ModelFacts
from optimize.room import Bench, Seat, best, pace
from optimize.split import PER_NODE
from optimize.would import remedies, shortfalls

__all__ = ["plan_serving"]

_EXIT: dict[Verdict, int] = {"fits": 0, "does not fit": 1, "refused": 1, "unknown": 3}


def plan_serving(
    edition: Edition, facts: ModelFacts, gpu: Gpu, ask: Ask, *, stored_bytes: int | None = None
) -> ServingPlan:
    """The plan, or what keeps the model from being served so. `stored_bytes`: weights in the files."""
    question = Question(edition, facts, gpu, ask)
    if facts.unknown or not facts.weights:
        why = facts.unknown or ("the config does not tell the shapes of the weights",)
        return _end(question, "unknown", notes=why)
    question.choose_engine()
    if question.engine.standing == "chosen":
        question.choose_formats(stored_bytes)
        question.choose_length()
    if question.refused:
        return _end(question, "refused")
    bench = question.bench()
    seat = best(bench)
    if seat is None:
        return _end(question, "unknown", notes=("the size of the weights does not follow from the config",))
    problem = _contradiction(bench, seat)
    if problem:
        question.refused.append(problem)
        return _end(question, "refused")
    _settle(question, bench, seat)
    short = shortfalls(bench, seat)
    if not short:
        return _end(question, "fits", seat=seat, bench=bench)
    would = remedies(edition, question.engine, gpu, bench, seat)
    return _end(question, "does not fit", seat=seat, bench=bench, short=short, would=would)


def _contradiction(bench: Bench, seat: Seat) -> str:
    """Why rate and concurrency cannot hold together on this hardware; empty where they can."""
    load = bench.load
    if load is None:
        return ""
    first, each = pace(bench, seat.split, 1)
    return contradiction(load, load.time_s(first, each or 0.0) if first is not None else None)


def _end(  # noqa: PLR0913 - what a plan ends with
    question: Question,
    verdict: Verdict,
    *,
    seat: Seat | None = None,
    bench: Bench | None = None,
    notes: tuple[str, ...] = (),
    short: tuple[str, ...] = (),
    would: tuple[str, ...] = (),
) -> ServingPlan:
    """The document, with the command where it fits."""
    facts = question.facts
    plan = ServingPlan(
        matrix_edition=question.edition.name,
        verdict=verdict,
        exit_code=_EXIT[verdict],
        path=question.ask.path,
        architecture=facts.architecture,
        parameters=facts.parameters,
        gpu=question.gpu,
        load=question.ask.load,
        engines=question.engines,
        split=seat.split if seat else None,
        replicas=seat.copies if seat else 1,
        settings=tuple(question.settings),
        memory=seat.memory if seat else None,
        sequences=seat.holds if seat else None,
        speed=_speed(bench, seat) if seat and bench else None,
        refused=tuple(question.refused),
        short=short,
        would=would,
        notes=tuple(dict.fromkeys((*question.notes, *notes))),
        source=tuple(dict.fromkeys(question.sources)),
    )
    if verdict != "fits":
        return plan
    commands, not_printed = command_of(question.edition, plan, facts)
    if not_printed is not None:
        # It fits by arithmetic; what to type was not read.
        plan = msgspec.structs.replace(plan, verdict="unknown", exit_code=_EXIT["unknown"])
    return msgspec.structs.replace(plan, commands=commands, not_printed=not_printed)


def _settle(question: Question, bench: Bench, seat: Seat) -> None:
    """Decisions that follow from where it fits."""
    facts, settings = question.facts, question.settings
    settings += _of_split(facts, seat.split, seat.copies)
    settings += _of_batch(question, seat)
    if question.share.name:
        settings.append(question.share)
    if seat.is_eager:
        because = "it fits only without CUDA graphs; each step then waits for its launches"
        settings.append(Setting(name="enforce-eager", value="yes", because=because, is_given=True))
    elif facts.task == "generate" and bench.can_be_eager:
        because = "graphs save the launches of each step, and their memory is counted"
        settings.append(Setting(name="enforce-eager", value="no", because=because))
    if question.engine.component == "vllm":
        because = "the engine's own; no row says that one is too few: `bench` shows it"
        settings.append(Setting(name="api-server-count", value="1", because=because))
    for other in question.ask.beside:
        share = ceil(100 * other.bytes / question.gpu.memory_bytes) / 100
        said = f"{other.name} takes a share of {share:g} at the least"
        question.notes.append(f"{said}; start one engine after the other, each with its share said")
    machines = ceil(seat.split.gpus / PER_NODE)
    if machines > 1:
        said = f"a copy is spread over {machines} machines of {PER_NODE} GPUs"
        question.notes.append(f"{said}: they are joined first, as the engine wants it; the command does not")
    spare = question.gpu.count - seat.gpus
    if spare >= seat.split.gpus:
        question.notes.append(f"{spare} GPUs are left over: for more copies, or another model")
    load = question.ask.load
    if load and load.rate_per_s is not None and bench.rates is None:
        said = "no row has the speed of this GPU: how many are in flight at that rate is not known"
        question.notes.append(said)
    question.notes += _left_out(question)
    if facts.remote_code:
        names = ", ".join(facts.remote_code)
        question.notes.append(f"the config wants to run {names}: `--trust-remote-code` is yours to decide")


def _left_out(question: Question) -> tuple[str, ...]:
    """What the memory of a plan does not hold though the engine will, of a model of several parts."""
    parts = [one for one in question.facts.parts_left_out if one.startswith("the part of")]
    if not parts:
        return ()
    what = "its activations" if question.stored_bytes is not None else "its weights and activations"
    return (f"not counted: {', '.join(parts)}, {what}: leave room for it",)


def _of_split(facts: ModelFacts, split: Split, copies: int) -> list[Setting]:
    heads = f"{facts.heads} query heads" if facts.heads else "the layers"
    why = f"the fewest GPUs that do; {heads} divide over {split.tensor}"
    why = "one GPU holds a copy" if split.gpus == 1 else why
    found = [_setting("tensor-parallel-size", split.tensor, why)]
    if split.pipeline > 1:
        because = "more GPUs than tensor parallelism divides it over: stages follow one another"
        found.append(_setting("pipeline-parallel-size", split.pipeline, because))
    if split.is_expert_parallel:
        because = "slices of experts would cut scales that values share; whole experts on each GPU do not"
        found.append(Setting(name="enable-expert-parallel", value="yes", because=because, is_given=True))
    if copies > 1:
        because = "one copy does not do: so many, each on GPUs of its own, behind a balancer"
        found.append(Setting(name="replicas", value=str(copies), because=because))
    return found


def _setting(name: str, value: int, because: str) -> Setting:
    return Setting(name=name, value=str(value), because=because, is_given=value > 1)


def _of_batch(question: Question, seat: Seat) -> list[Setting]:
    step = max(question.step, seat.max_sequences)
    length = "mean" if question.ask.load else "the greatest"
    fit = f"{seat.holds} of {length} length fit" if seat.holds is not None else "they cost no cache"
    if not seat.fits:
        why = "not even one request fits"
    elif seat.asked is not None and seat.max_sequences == seat.asked:
        why = f"so many at once are asked of a copy; {fit}"
    elif seat.max_sequences == seat.holds:
        why = f"{fit} into the KV cache: more are preempted and computed again"
    elif question.ask.load is None:
        why = f"{question.default_because}; {fit}, and of shorter ones more"
    else:
        why = f"{question.default_because}; {fit}"
    sequences = str(seat.max_sequences)
    return [
        Setting(name="max-num-seqs", value=sequences, because=why, is_given=True),
        Setting(name="max-num-batched-tokens", value=str(step), because=question.step_because, is_given=True),
    ]


def _speed(bench: Bench, seat: Seat) -> Speed | None:
    if bench.rates is None or bench.load is None or seat.ttft_s is None:
        return None
    at_once = min(seat.asked or seat.holds or seat.max_sequences, seat.max_sequences)
    rate = at_once / seat.tpot_s if seat.tpot_s else ceil(bench.load.prompt.mean) / seat.ttft_s
    return Speed(
        concurrency=at_once,
        ttft_ms=seat.ttft_s * 1000,
        tpot_ms=(seat.tpot_s or 0.0) * 1000,
        tok_per_s=rate,
        because=bench.rates.because,
        source=bench.rates.source,
    )
