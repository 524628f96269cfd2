"""A plan as text of 80 columns: what is refused or done, stage by stage, packages now and then, reboots."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from doctor.core.lower import Ground
from doctor.core.plan import Plan
from doctor.core.stages import Refusal, Stage, Transaction, Variables
from doctor.report.escape import escape_line

__all__ = ["NOTHING_TO_DO", "render_mirrors", "render_plan", "render_saved_plan"]

_WIDTH = 80
#: Of a plan without steps. No fact tells whether a file, a unit or a lock of the plan is still in place.
NOTHING_TO_DO = (
    "nothing to do: packages and repositories are as planned; `apply --dry-run` asks the host about files,"
    " units and locks"
)
_REBOOTS = {
    "never": "",
    "always": "reboot: yes",
    "if_module_differs": "reboot: if the loaded module is then not the installed one",
    "if_kernel_differs": "reboot: if another kernel runs than the one that boots next",
}


def render_plan(ground: Ground, variables: Variables, whole: Plan | None = None) -> str:
    """The plan of a host, as far as the facts say what is there now.

    With the whole plan, first what to know before consent: what it cures, what it stops, how long.
    """
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
    name = whole.id if whole else plan.id
    lines += [*_para(f"PLAN {name} (matrix {plan.matrix}, origin {ground.choices.origin})"), ""]
    if whole is not None and whole.is_empty:
        return "\n".join([*lines, *_para(NOTHING_TO_DO)]) + "\n"
    if whole is not None:
        lines += [*_meaning(whole), ""]
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


def render_saved_plan(plan: Plan) -> str:
    """A plan by itself, without the host that it was made for: what it says of now is what was there then."""
    where = plan.host.name or plan.host.hostname or "this host"
    words = f"{'REFUSED' if plan.is_refused else 'PLAN'} {plan.id} (matrix {plan.matrix}, {plan.made_at})"
    lines = [*_para(f"{','.join(plan.asked.goal)} on {where}"), *_para(words), ""]
    if plan.is_refused:
        lines += [line for refusal in plan.variables.mopt_refusals for line in [*_refusal(refusal), ""]]
    elif plan.is_empty:
        lines += _para(NOTHING_TO_DO)
    else:
        lines += _meaning(plan)
        for step in plan.steps:
            lines += ["", *_para(step.stage + (f": {'; '.join(step.why)}" if step.why else ""), "", "  ")]
            for change in step.changes:
                text = f"{change.name}  {change.now or 'not installed'} -> {change.then or 'removed'}"
                lines += _para(text, "  ", "    ")
            lines += [line for path in step.files for line in _para(f"file {path}", "  ", "    ")]
    return "\n".join(lines).rstrip() + "\n"


def _meaning(plan: Plan) -> Iterator[str]:
    """What it means for the host and for those who use it."""
    yield from _para(f"check says now: {plan.verdict.replace('_', ' ')}", "  ", "    ")
    for one in plan.promises:
        yield from _para(f"cures {one.finding} ({one.stage}): {one.found}", "  ", "    ")
    stopped = list(dict.fromkeys(unit for step in plan.steps for unit in step.stops))
    if stopped:
        yield from _para(f"stops for a while: {', '.join(stopped)}", "  ", "    ")
    for user in plan.gpu_users:
        yield from _para(f"must end first, and is ended by nobody: {user}", "  ", "    ")
    yield from _para(_NEEDS[plan.reboot], "  ", "    ")
    if plan.downtime_s[1]:
        least, most = (max(1, round(s / 60)) for s in plan.downtime_s)
        yield from _para(f"GPUs are away for an estimated {least} to {most} minutes", "  ", "    ")
    yield from _para(_UNDO[plan.undo], "  ", "    ")
    if plan.on_failure == "rollback":
        yield from _para("a stage that fails after the first change is undone at once", "  ", "    ")


_NEEDS = {
    "no": "no reboot",
    "yes": "one reboot",
    "if_needed": "a reboot, if the loaded module is then not the installed one",
}
_UNDO = {
    "exact": "undo: exact, by `mopt-doctor rollback`",
    "decided_by_capsule": "undo: exact if the package files of now can still be had; the run says so"
    " before the first change",
}


def render_mirrors(variables: Variables) -> str:
    """Every address that the stages ask, and every package that they install, one a line."""
    lines: list[str] = []
    for stage in variables.mopt_stages:
        for one in stage.repositories:
            lines += [f"repository {one.id} {uri}" for uri in one.uris]
            if one.key is not None and one.key.url:
                lines.append(f"key {one.key.url} {one.key.fingerprint}")
        for transaction in stage.packages:
            lines += [f"package {p.name} {p.version or 'newest'}" for p in transaction.install]
        for environment in stage.environments:
            lines += [f"index {url}" for url in (environment.index_url, environment.extra_index_url) if url]
            lines += [f"requirement {text}" for text in environment.requirements.splitlines() if text]
    return "\n".join(escape_line(line) for line in dict.fromkeys(lines)) + "\n"


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
