"""`mopt-doctor model PATH --plan`: how to serve a model here under a load, with the command, and why so."""

from __future__ import annotations

import argparse
import math
import sys
from typing import TYPE_CHECKING

from doctor.commands.output import write_answer
from doctor.config import load_settings
from doctor.core.matrix import Matrix
from doctor.core.serving import Ask, Beside, Gpu, Load, ServingPlan, Slo
from doctor.core.versions import Pep440
from doctor.errors import UsageError

if TYPE_CHECKING:
    from optimize.fit import Room
    from optimize.modeldir import ModelFolder

__all__ = ["check_options", "plan_model", "run"]

_GPUS_MAX = 1024
_OTHERS_MAX = 16
_TEXT_MAX = 200
#: Options that say nothing without `--plan`.
_OWN = (
    *("prompt_tokens", "output_tokens", "rate", "think_s", "slo_ttft_ms", "slo_tpot_ms", "engine"),
    "quantization",
    *("memory_fraction", "override", "beside", "gpus"),
)


def check_options(options: argparse.Namespace) -> None:
    """Raises UsageError where an option of a plan stands without `--plan`, or has a value that is none."""
    given = [name for name in _OWN if getattr(options, name)]
    if given and not options.plan:
        names = ", ".join(f"`--{name.replace('_', '-')}`" for name in given)
        raise UsageError(f"{names} belongs to a plan", hints=("add `--plan`",))
    for name, most in (
        ("rate", 1e9),
        ("think_s", 1e6),
        ("slo_ttft_ms", 1e9),
        ("slo_tpot_ms", 1e9),
        ("memory_fraction", 1.0),
    ):
        value = getattr(options, name)
        if value is not None and not (math.isfinite(value) and 0 < value <= most):
            raise UsageError(f"`--{name.replace('_', '-')}` takes a number above 0, at most {most:g}")
    if options.gpus is not None and not 1 <= options.gpus <= _GPUS_MAX:
        raise UsageError(f"`--gpus` takes 1 to {_GPUS_MAX}")
    if len(options.beside) > _OTHERS_MAX or len(options.override) > _OTHERS_MAX:
        raise UsageError(f"at most {_OTHERS_MAX} of `--beside` and of `--override`")


def run(options: argparse.Namespace, matrix: Matrix) -> int:
    """0 a plan; 1 it does not fit, or cannot be; 3 not told."""
    plan = plan_model(options, matrix)
    form = "json" if options.json else options.format
    if form == "json" or options.output:
        from doctor.report.machine import to_json

        write_answer(to_json(plan), options.output)
    if form == "text":
        from doctor.report.serving_text import render_serving

        settings = load_settings(
            no_color=options.no_color, ascii_only=options.ascii, stdout_is_terminal=sys.stdout.isatty()
        )
        text = render_serving(plan, colour=settings.colour, ascii_only=settings.ascii_only)
        write_answer(text.encode(), None)
    return plan.exit_code


def plan_model(options: argparse.Namespace, matrix: Matrix) -> ServingPlan:
    """The document of a plan. Raises UsageError on a question that cannot be meant."""
    from optimize.planner import plan_serving

    load = _load(options)
    gpu = _gpu(options, matrix)
    folder = _folder(options.path)
    assert folder.facts is not None
    if load is not None and folder.facts.task == "generate" and not options.output_tokens:
        raise UsageError("a load needs the length of its answers", hints=("`--output-tokens 256`, `64-512`",))
    engine, version = _engine(options.engine)
    ask = Ask(
        path=options.path,
        load=load,
        engine=engine,
        version=version,
        quantization=options.quantization or "",
        kv_dtype=options.kv_dtype or "",
        memory_fraction=options.memory_fraction,
        overrides=tuple(_override(text) for text in options.override),
        context_tokens=options.context,
        beside=tuple(
            _beside(path, gpu, options.context or (load.longest_tokens if load else None))
            for path in options.beside
        ),
    )
    return plan_serving(matrix.edition, folder.facts, gpu, ask, stored_bytes=folder.stored_bytes)


def _load(options: argparse.Namespace) -> Load | None:
    """The load of the options; None where none was said."""
    from optimize.load_shape import parse_lengths

    slo = Slo(ttft_ms=options.slo_ttft_ms, tpot_ms=options.slo_tpot_ms)
    if not options.prompt_tokens:
        if options.output_tokens or options.rate or options.concurrency or slo != Slo():
            hints = ("`--prompt-tokens 512`, `128-2048`, or several of them, `128,512,2048`",)
            raise UsageError("a load needs the length of its prompts", hints=hints)
        return None
    try:
        prompt = parse_lengths(options.prompt_tokens)
        output = parse_lengths(options.output_tokens or "1")
    except ValueError as error:
        raise UsageError(str(error)) from None
    return Load(
        prompt=prompt,
        output=output,
        concurrency=options.concurrency,
        rate_per_s=options.rate,
        think_s=options.think_s or 0.0,
        slo=slo,
    )


def _engine(text: str | None) -> tuple[str, str]:
    """`vllm`, `vllm==0.33.0`; empty for whichever serves."""
    if not text:
        return "", ""
    from optimize.backends import COMMANDS

    name, _, version = text.partition("==")
    if name not in COMMANDS:
        raise UsageError(
            f"`{text[:_TEXT_MAX]}` is no engine that plans are made for", hints=(", ".join(COMMANDS),)
        )
    if "==" in text and not version:
        raise UsageError(f"`{text}` names no version", hints=(f"`{name}==0.33.0`, or `{name}` alone",))
    try:
        Pep440(version or "0")
    except ValueError as error:
        raise UsageError(str(error)) from None
    return name, version


def _override(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key or len(text) > _TEXT_MAX:
        raise UsageError(f"`--override {text[:_TEXT_MAX]}` is not of the form KEY=VALUE")
    return key, value


def _folder(path: str) -> ModelFolder:
    """A model whose config was read, and whose files an engine would load."""
    from optimize.modeldir import read_folder

    folder = read_folder(path)
    if folder.facts is None:
        adapter = next((one.message for one in folder.faults if one.file == "adapter_config.json"), "")
        what = f"is {adapter}" if adapter else "has no config.json that tells what the model is"
        raise UsageError(
            f"`{path}` {what}: nothing to plan",
            hints=(f"`mopt-doctor model {path}` says what is there",),
        )
    # A config alone is enough to plan; weights that are there must be whole.
    broken = [fault for fault in folder.faults if fault.is_broken and fault.kind != "no_weights"]
    if broken:
        where = f"{broken[0].file}: " if broken[0].file else ""
        raise UsageError(
            f"an engine will not load `{path}`: {where}{broken[0].message}",
            hints=(f"`mopt-doctor model {path}` lists all {len(broken)}",),
        )
    return folder


# --- GPUs -----------------------------------------------------------------------------------------


def _gpu(options: argparse.Namespace, matrix: Matrix) -> Gpu:
    """The GPUs that the plan is for. Raises UsageError on none, on another maker's, on two kinds."""
    from doctor.commands.model import rooms_of
    from doctor.core.target import find_gpu

    for text in options.gpu:
        kind = find_gpu(matrix, text)
        if kind.maker == "other":
            raise UsageError(
                f"`{text}` is a GPU of {kind.maker_name or 'another maker'}: plans are for NVIDIA's"
            )
    rooms = rooms_of(options, matrix)
    if not rooms:
        raise UsageError("no GPU was found to plan for", hints=("`--gpu H100`, `--gpu 10de:2330x8`",))
    if len(rooms) > 1:
        names = ", ".join(room.gpu for room in rooms)
        raise UsageError(
            f"a plan is for GPUs of one kind, and these are several: {names}", hints=("`--gpu NAME`",)
        )
    return _of_room(rooms[0], options.gpus, matrix, is_named=bool(options.gpu))


def _of_room(room: Room, count: int | None, matrix: Matrix, *, is_named: bool) -> Gpu:
    row = matrix.gpu(room.pci_id)
    if row is None:
        raise UsageError(
            f"the matrix does not know `{room.gpu}`: neither its compute capability nor its formats",
            hints=("`--gpu NAME` names one that it knows",),
        )
    if room.is_here and count is not None and count > room.count:
        raise UsageError(
            f"{count} GPUs were asked for, {room.count} are here", hints=("`--gpu NAME --gpus N`",)
        )
    sold = "as sold, less what drivers report of such cards"
    because = sold if is_named else "as the driver reports it"
    return Gpu(
        name=room.gpu,
        count=count or room.count,
        architecture=row.architecture,
        compute_capability=row.compute_capability,
        pci_id=room.pci_id,
        memory_type=room.memory_type,
        memory_bytes=room.bytes,
        memory_because=because,
        source=row.source,
    )


def _beside(path: str, gpu: Gpu, longest: int | None) -> Beside:
    """Another model on the same GPU: what it takes with one request."""
    from optimize.fit import kv_dtype_of
    from optimize.memory import plan_memory

    folder = _folder(path)
    facts = folder.facts
    assert facts is not None
    own = facts.context_tokens or longest
    if own is None:
        raise UsageError(f"`{path}` does not say how long its context is", hints=("`--context N`",))
    memory = plan_memory(
        facts,
        gpu_bytes=gpu.memory_bytes,
        context_tokens=min(own, longest or own),
        kv_dtype=kv_dtype_of(facts),
        stored_bytes=folder.stored_bytes,
    )
    if memory is None:
        raise UsageError(f"the size of `{path}` is not known: {'; '.join(facts.unknown)}")
    return Beside(name=path, bytes=memory.needed_bytes)
