"""The plan of `model --plan` as text: the verdict, the command, each decision with its why, the memory."""

from __future__ import annotations

from doctor.core.serving import Candidate, Load, ServingPlan
from doctor.report.page import Page, Paint, counted

__all__ = ["render_serving"]

_GIB = 1024**3
_WIDTH = 80
_HEADS: dict[str, tuple[str, Paint]] = {
    "fits": ("FITS: ", "pass"),
    "does not fit": ("DOES NOT FIT: ", "fail"),
    "refused": ("CANNOT BE: ", "fail"),
    "unknown": ("NOT KNOWN: ", "unknown"),
}


def render_serving(
    plan: ServingPlan, *, width: int = _WIDTH, colour: bool = False, ascii_only: bool = False
) -> str:
    """The plan as text of at most `width` columns; commands stand on lines of their own."""
    page = Page(width=width, colour=colour, ascii_only=ascii_only)
    head, paint = _HEADS[plan.verdict]
    page.text(_first(plan), head=head, paint=paint)
    for text in (*plan.refused, *plan.short):
        page.text(f"- {text}", indent=2)
    _would(page, plan)
    _commands(page, plan)
    _settings(page, plan)
    _memory(page, plan)
    _speed(page, plan)
    _engines(page, plan.engines)
    _foot(page, plan)
    return str(page)


def _first(plan: ServingPlan) -> str:
    gpus = f"{plan.gpu.count} x {plan.gpu.name}" if plan.gpu.count > 1 else plan.gpu.name
    return f"{plan.architecture or plan.path} on {gpus}{_asked(plan.load)}"


def _asked(load: Load | None) -> str:
    if load is None:
        return ""
    parts = [
        f"{_lengths(load.prompt.low, load.prompt.high)} in, {_lengths(load.output.low, load.output.high)} out"
    ]
    if load.concurrency is not None:
        parts.append(f"{load.concurrency} at once")
    if load.rate_per_s is not None:
        parts.append(f"{load.rate_per_s:g} a second")
    return f": {', '.join(parts)}"


def _lengths(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low} to {high}"


def _would(page: Page, plan: ServingPlan) -> None:
    if plan.would:
        page.gap()
        page.text("each of these alone would do:")
        for text in plan.would:
            page.text(f"- {text}", indent=2)


def _commands(page: Page, plan: ServingPlan) -> None:
    for line in plan.commands:
        page.gap()
        page.text(f"{line.component} {line.version} ({line.says}):")
        page.command(line.argv, indent=2)
        for text in line.left_out:
            page.text(f"left out: {text}", indent=2)
    if plan.not_printed is not None:
        page.gap()
        page.text(plan.not_printed.why, head="no command: ", paint="unknown")
        if plan.not_printed.hint:
            page.text(plan.not_printed.hint, indent=2)


def _settings(page: Page, plan: ServingPlan) -> None:
    if not plan.settings:
        return
    page.gap()
    page.text("decisions:" if plan.verdict == "fits" else "as far as it was decided:")
    for setting in plan.settings:
        is_said = setting.is_given or setting.name == "replicas"
        mark = "" if is_said else " (left as it is)"
        page.text(
            f"{setting.because}{mark}", head=f"{setting.name} {setting.value}: ", indent=2, paint="strong"
        )


def _memory(page: Page, plan: ServingPlan) -> None:
    memory = plan.memory
    if memory is None:
        return
    page.gap()
    page.text(f"memory of each GPU, with one request of {memory.context_tokens} tokens, in GiB:")
    for part in memory.components:
        spread = f"  ({_gib(part.low_bytes)} to {_gib(part.high_bytes)})"
        spread = "" if part.low_bytes == part.high_bytes else spread
        page.line(f"  {part.name.replace('_', ' '):<16}{_gib(part.bytes):>8}{spread}")
    page.line(f"  {'to use':<16}{_gib(memory.budget_bytes):>8}  of {_gib(memory.gpu_bytes)}")
    page.text(f"the size of the device: {plan.gpu.memory_because}", indent=2)
    if plan.sequences is not None:
        length = "mean" if plan.load is not None else "that"
        fitting = f"{counted(plan.sequences, 'request')} of {length} length"
        page.text(f"{fitting} fit at once into each copy", indent=2)
    if not memory.is_certain:
        page.text(
            "at the other end of the ranges it comes out otherwise: let the engine's log decide", indent=2
        )


def _gib(size: int) -> str:
    return f"{size / _GIB:.2f}"


def _speed(page: Page, plan: ServingPlan) -> None:
    speed = plan.speed
    if speed is None:
        return
    page.gap()
    page.text("no faster than this (by the GPU's rates; a real engine is slower, `bench` measures it):")
    if speed.tpot_ms:
        page.text(
            f"first token {speed.ttft_ms:.3g} ms after an idle server gets a prompt of mean length", indent=2
        )
        each = f"each token {speed.tpot_ms:.3g} ms with {speed.concurrency} at once"
        page.text(f"{each}; {speed.tok_per_s:,.0f} tokens/s of each copy", indent=2)
    else:
        page.text(
            f"{speed.ttft_ms:.3g} ms for an input of mean length; {speed.tok_per_s:,.0f} tokens/s", indent=2
        )
    page.text(f"rates: {'; '.join(speed.because)}", indent=2)


def _engines(page: Page, engines: tuple[Candidate, ...]) -> None:
    if not engines:
        return
    page.gap()
    page.text("engines:")
    for one in engines:
        name = f"{one.component} {one.version}".strip()
        page.text(f"{one.standing}: {'; '.join(one.because)}", head=f"{name} ", indent=2)


def _foot(page: Page, plan: ServingPlan) -> None:
    page.gap()
    for note in plan.notes:
        page.text(note, head="note: ", paint="warn")
    page.text(f"matrix {plan.matrix_edition}; `--json` has the sources", paint="faint")
