"""The answers of `matrix pick` and `matrix why` as text of 80 columns: the answer first, then the chain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap

from doctor.core.stack import Because, Change, Hint, OtherStack, StackReport, WhyReport
from doctor.core.target import Target
from doctor.report.environment_text import said_of
from doctor.report.escape import escape_line

__all__ = ["render_stack", "render_why"]

_WIDTH = 80
#: So many reasons stand beside a component.
_REASONS_MAX = 2
_WORDS = {"yes": "YES", "no": "NO", "unknown": "NOT KNOWN"}
_DELIVERIES = {
    "venv": "a virtual environment",
    "container": "a container",
    "system": "the system's own interpreter",
}


def render_stack(report: StackReport) -> str:
    """The stack, what changes, and why each part is what it is; or the conflict."""
    lines = [*_para(f"{report.goal} on {_machine(report.target)}")]
    lines += [*_para(f"{_WORDS[report.compatible]} ({_matrix(report)}, policy {report.policy})"), ""]
    sources = _Sources()
    if report.conflict:
        word = "cannot hold together" if report.compatible == "no" else "what is not known"
        lines += [f"{word}:", *_chain(report.conflict, sources), ""]
    if report.components:
        head = "stack" if report.compatible == "yes" else "known so far"
        lines += [f"{head}, in {_DELIVERIES[report.delivery]}:", *_stack(report), ""]
    lines += _effect(report, sources)
    lines += _changes(report.changes, report.keeps)
    lines += _hints(report.hints, report.nearest)
    lines += [line for text in report.advice for line in _para(f"note: {text}")]
    for other in (*report.alternatives, *((report.other_policy,) if report.other_policy else ())):
        lines += _other(report, other)
    return _joined([*lines, *sources.lines()])


def render_why(report: WhyReport) -> str:
    """Yes, no or not known; the chain; hints; the sources, each once."""
    lines = [*_para(f"{report.question or 'what is there'} on {_machine(report.target)}")]
    lines += [*_para(f"{_WORDS[report.compatible]} ({_matrix(report)})"), ""]
    lines += [*_para(said_of(report.environment)), ""] if report.environment else []
    shown = [
        link
        for link in report.because
        if report.compatible != "yes"
        or link.kind in ("relation", "note")
        or link.relation.startswith("gpu-")  # a property that was asked for
    ]
    sources = _Sources()
    if shown:
        lines += ["because:", *_chain(shown, sources), ""]
    lines += _effect(report, sources)
    lines += _hints(report.hints, report.nearest)
    lines += [line for text in report.advice for line in _para(f"note: {text}")]
    return _joined([*lines, *sources.lines()])


def _matrix(report: StackReport | WhyReport) -> str:
    """The edition, and the overlays that are in force."""
    names = " and ".join(report.overlays)
    return f"matrix {report.matrix_edition}" + (f" with overlay {names}" if names else "")


def _effect(report: StackReport | WhyReport, sources: _Sources) -> list[str]:
    """What the overlays decided."""
    if not report.overlay_effect:
        return []
    return ["decided by overlay:", *_chain(report.overlay_effect, sources), ""]


class _Sources:
    """Sources by number, so that a page names each of them once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def cite(self, sources: Iterable[str]) -> str:
        """Their numbers: `[1, 4]`."""
        numbers = [self._numbers.setdefault(text, len(self._numbers) + 1) for text in sources]
        return f"[{', '.join(map(str, sorted(numbers)))}]" if numbers else ""

    def lines(self) -> list[str]:
        """The list of them."""
        if not self._numbers:
            return []
        found = ["", "sources:"]
        for text, number in self._numbers.items():
            found += _para(text, f"  {number:>2} ", "     ")
        return found


def _joined(lines: Iterable[str]) -> str:
    """Lines as text, without two empty ones in a row."""
    found: list[str] = []
    for line in lines:
        if line or (found and found[-1]):
            found.append(line)
    return "\n".join(found).rstrip() + "\n"


def _machine(target: Target) -> str:
    gpus = [f"{kind.count} x {kind.name}" if kind.count > 1 else kind.name for kind in target.gpus]
    kernel = f"kernel {target.kernel}" if target.kernel else ""
    parts = [*gpus, target.os, kernel]
    return ", ".join(part for part in parts if part) or "any machine"


def _para(text: str, first: str = "", rest: str = "") -> list[str]:
    return wrap(
        escape_line(text),
        _WIDTH,
        initial_indent=first,
        subsequent_indent=rest or first,
        break_on_hyphens=False,
    )


def _chain(links: Iterable[Because], sources: _Sources) -> list[str]:
    lines = []
    for link in links:
        doubt = " - not known" if not link.is_known else ""
        origin = f", overlay {link.overlay}" if ":" in link.overlay else ""
        name = f" ({link.relation}{origin})" if link.kind in ("relation", "note") else ""
        lines += _para(f"{link.text}{doubt}{name} {sources.cite(link.source)}", "  - ", "    ")
    return lines


def _stack(report: StackReport) -> list[str]:
    lines = []
    width = max(map(len, report.components))
    room = max(13, *(len(version) + 2 for version in report.components.values()))
    for name, version in sorted(report.components.items(), key=_place):
        head = f"  {name:<{width}}  {version:<{room}}"
        why = _reasons_of(report, name)
        lines += _para(why, head, " " * len(head)) if why else [head.rstrip()]
    if report.also:
        lines += _para("also: " + ", ".join(f"{name} {spec}" for name, spec in report.also.items()), "  ")
    return lines


#: From the machine up; what stands in no list follows by name. A saved stack has its components by name.
_ORDER = (
    *("os", "glibc", "kernel", "kernel-modules", "driver", "fabric-manager", "cuda-repo"),
    "container-toolkit",
    *("cuda", "cuda-toolkit", "python", "vllm", "tensorrt-llm", "tensorrt", "sglang", "torch"),
)


def _place(component: tuple[str, str]) -> tuple[int, str]:
    name = component[0]
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)


def _reasons_of(report: StackReport, name: str) -> str:
    """The first things that decided a component; `--json` has them all."""
    goal = set(report.goal.replace("=", " ").replace("<", " ").replace(">", " ").split())
    links = [
        link
        for link in report.because
        if link.component == name
        and (link.kind in ("relation", "goal", "hold") or link.relation == "driver-branch-supported")
    ]
    links.sort(key=lambda link: (link.kind != "goal", link.text.split(" ", 1)[0] not in goal))
    texts = list(dict.fromkeys(link.text for link in links))
    return "; ".join(texts[:_REASONS_MAX])


def _changes(changes: Sequence[Change], keeps: Sequence[str]) -> list[str]:
    lines = []
    if changes:
        lines.append("changes:")
        for change in changes:
            reboot = ", reboot" if change.needs_reboot else ""
            cost = f" (about {change.minutes} min{reboot})" if change.minutes else ""
            lines.append(f"  {change.component}: {change.before} -> {change.after}{cost}")
        lines.append("")
    if keeps:
        lines += [*_para(f"stays: {', '.join(keeps)}", "", "  "), ""]
    return lines


def _hints(hints: Sequence[Hint], nearest: str) -> list[str]:
    lines = []
    if hints:
        lines.append("one of these would make it true:")
        for hint in hints:
            lines += _para(hint.text, "  - ", "    ")
    if nearest:
        lines += _para(f"nearest: {nearest}", "", "  ")
    return [*lines, ""] if lines else []


def _other(report: StackReport, other: OtherStack) -> list[str]:
    differing = {
        name: version for name, version in other.components.items() if report.components.get(name) != version
    }
    word = f"policy {other.policy}" if other.policy != report.policy else "another"
    minutes = sum(change.minutes for change in other.changes)
    reboot = ", reboot" if any(change.needs_reboot for change in other.changes) else ""
    cost = f" (about {minutes} min{reboot})" if minutes else ""
    named = ", ".join(f"{name} {version}" for name, version in differing.items())
    return _para(f"{word}: {named}{cost}", "", "  ")
