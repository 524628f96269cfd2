"""A plan as text of 80 columns: what is refused or done, stage by stage, packages now and then, reboots."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from doctor.core.lower import Ground
from doctor.core.stages import Refusal, Stage, Transaction, Variables
from doctor.report.escape import escape_line

__all__ = ["render_plan"]

_WIDTH = 80
_REBOOTS = {
    "never": "",
    "always": "reboot: yes",
    "if_module_differs": "reboot: if the loaded module is then not the installed one",
    "if_kernel_differs": "reboot: if another kernel runs than the one that boots next",
}


def render_plan(ground: Ground, variables: Variables) -> str:
    """The plan of a host, as far as the facts say what is there now."""
    plan, target = variables.mopt_plan, variables.mopt_target
    gpus = [f"{k.count} x {k.name}" if k.count > 1 else k.name for k in ground.target.gpus]
    kernel = f"kernel {target.kernel}" if target.kernel else ""
    machine = ", ".join(part for part in (*gpus, target.os, kernel) if part)
    lines = [*_para(f"{plan.goal} on {machine or 'this host'}")]
    if variables.mopt_refusals:
        lines += [*_para(f"REFUSED (matrix {plan.matrix})"), ""]
        for refusal in variables.mopt_refusals:
            lines += _refusal(refusal)
        return "\n".join(lines).rstrip() + "\n"
    lines += [*_para(f"PLAN {plan.id} (matrix {plan.matrix}, origin {ground.choices.origin})"), ""]
    if ground.installed is None:
        lines += [
            *_para("note: the packages of this machine were not read, so nothing is known to be there"),
            "",
        ]
    stages = [_stage(ground, stage) for stage in variables.mopt_stages]
    shown = [stage for stage in stages if stage]
    for stage in shown:
        lines += [*stage, ""]
    lines += _end(ground, variables)
    return "\n".join(lines).rstrip() + "\n"


def _end(ground: Ground, variables: Variables) -> list[str]:
    changes = [one for stage in variables.mopt_stages for one in stage.packages]
    installs = sum(len(one.install) for one in changes)
    removes = sum(len(one.remove) for one in changes)
    words = f"packages named: {installs}, removed: {removes}, transactions: {len(changes)}"
    files = len(variables.mopt_capsule.files)
    lines = _para(f"{words if changes else 'no package changes'}; paths kept for undo: {files}")
    for text in ground.stack.advice:
        lines += _para(f"note: {text}", "", "  ")
    return lines


def _refusal(refusal: Refusal) -> list[str]:
    lines = _para(f"{refusal.text} ({refusal.cause})", "  - ", "    ")
    return [*lines, *_para(f"instead: {refusal.way_out}", "    ", "    "), ""] if refusal.way_out else lines


# --- a stage --------------------------------------------------------------------------------------


def _stage(ground: Ground, stage: Stage) -> list[str]:
    body = [*_acts(ground, stage)]
    if not body:
        return []
    return [*_para(stage.id + (f": {'; '.join(stage.why)}" if stage.why else ""), "", "  "), *body]


def _acts(ground: Ground, stage: Stage) -> Iterator[str]:
    """What is done, in the order in which it is done. Checks alone are no act."""
    for text in _before(stage):
        yield from _para(text, "  ", "    ")
    for one in stage.packages:
        yield from _transaction(ground, one)
    for text in _after(stage):
        yield from _para(text, "  ", "    ")


def _before(stage: Stage) -> Iterator[str]:
    for repository in stage.repositories:
        yield f"repository {repository.id}: {' '.join(repository.uris)}"
    for pin in stage.pins:
        yield f"preference {pin.file}: {pin.packages} at {pin.pin}, {pin.priority}"
    for stream in stage.streams:
        yield f"module stream {stream.module}:{stream.stream}"
    if stage.unlock:
        yield f"lifts the hold of {', '.join(stage.unlock)}"
    if stage.packages and stage.services.stop:
        yield f"stops {', '.join(stage.services.stop)}"


def _after(stage: Stage) -> Iterator[str]:
    for entry in stage.files:
        also = ", and the initramfs with it when it changes" if entry.rebuild_initramfs else ""
        yield f"{'file' if entry.state == 'present' else 'no file'} {entry.path}{also}"
    for runtime in stage.containers:
        yield f"{runtime.engine}: {runtime.mode} in {runtime.config}"
    for environment in stage.environments:
        words = f"{environment.engine} {environment.version}, Python {environment.python}"
        yield f"environment {environment.path}: {words}"
    if stage.services.enable:
        yield f"runs {', '.join(stage.services.enable)}"
    if stage.hold:
        yield f"holds {', '.join(stage.hold)}"
    if stage.packages and _REBOOTS[stage.reboot.when]:
        unless = ", and it cannot be loaded again" if stage.reboot.reload_instead else ""
        yield f"{_REBOOTS[stage.reboot.when]}{unless}"


def _transaction(ground: Ground, one: Transaction) -> Iterator[str]:
    yield from _para(f"transaction: {one.why}" if one.why else "transaction:", "  ", "    ")
    width = max((len(package.name) for package in one.install), default=0)
    for package in one.install:
        now = _now(ground, package.name)
        then = package.version or "newest"
        yield from _para(f"{package.name:<{width}}  {now} -> {then}", "    ", "      ")
    for name in one.remove:
        yield from _para(f"{name}  {_now(ground, name)} -> removed", "    ", "      ")


def _now(ground: Ground, name: str) -> str:
    if ground.installed is None:
        return "?"
    return ", ".join(ground.installed.get(name, ())) or "not installed"


def _para(text: str, first: str = "", rest: str = "") -> list[str]:
    said = escape_line(text)
    if len(first) + len(said) <= _WIDTH:
        return [first + said]
    return wrap(
        said,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=rest or first,
        break_on_hyphens=False,
        break_long_words=False,
    )
