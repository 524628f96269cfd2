"""A host held against a goal: the stack with the least change, and what of it is not there yet."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from doctor.core.chain import changes_of, components_of, conflict, keeps_of, reasons
from doctor.core.check import Case, Outcome, failed, passed, unknown
from doctor.core.goal import Policy, Term
from doctor.core.hints import find_hints
from doctor.core.host import Absent, Host, known
from doctor.core.link import Because, Change, GoalStack
from doctor.core.relate.site import rule_words
from doctor.core.resolve import Resolution, ask
from doctor.core.rows.site import RuleKind, SiteRule
from doctor.core.site import breaks
from doctor.core.solve.universe import Universe
from doctor.core.target import Target, system_of
from doctor.core.target_host import PACKAGED, target_of
from doctor.core.versions import Version
from doctor.errors import UsageError

__all__ = ["GoalAnswer", "answer_goal", "installed_in", "judge_rules"]

#: What stands between a goal and its meeting, and no package brings: facts, and what an environment holds.
_NOT_INSTALLED = ("os", "kernel", "glibc", "cuda-repo", "secure-boot", "vgpu-host", "module-signature", "gcc")
_OF_DRIVER = ("driver", "kernel-modules")
#: Drivers that come with another system, and have numbers of their own.
_NOT_OURS = ("windows", "jetpack")
#: Components that evidence of a host tells of, so that one nobody told is not known.
_ON_HOST = (*_OF_DRIVER, "cuda-toolkit", "os", "kernel", *PACKAGED)
_REASONS_MAX = 3
_LINKS_MAX = 12


class GoalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the resolver makes of a goal on a host."""

    outcomes: tuple[Outcome, ...]
    stack: GoalStack | None = None
    conflict: tuple[Because, ...] = ()


def answer_goal(case: Case) -> GoalAnswer:
    """The answer to the case's goal, found once. Raises nothing on a strange host: that is `unknown`."""
    found: GoalAnswer | None = case.memo.get("goal")
    if found is None:
        try:
            found = _answer(case)
        except UsageError as error:
            found = GoalAnswer(outcomes=(_open(error.message),))
        case.memo["goal"] = found
    return found


def _answer(case: Case) -> GoalAnswer:
    universe = Universe(case.matrix)
    target = target_of(case.matrix, case.host)
    missing = _untold(target)
    if missing:
        return GoalAnswer(outcomes=(_open(f"{missing} was not read"),))
    policy: Policy = case.goal.policy or "repair"
    found = ask(universe, target, case.goal, mode="pick", policy=policy)
    wanted = case.goal.text
    if found.answer != "yes":
        links = conflict(found)
        why = tuple(_said(link) for link in links[:_LINKS_MAX])
        hints = tuple(f"one way: {hint.text}" for hint in find_hints(found))
        if found.answer == "no":
            outcome = failed("no stack meets the goal on this host", wanted=wanted, why=(*why, *hints))
        else:
            open_ones = tuple(link.text for link in links if not link.is_known)
            outcome = unknown("the matrix cannot tell", wanted=wanted, why=open_ones[:_LINKS_MAX] or why)
        return GoalAnswer(outcomes=(outcome,), conflict=links)
    stack = GoalStack(
        policy=policy,
        delivery=found.model.delivery,
        components=components_of(found),
        changes=changes_of(found),
        keeps=keeps_of(found),
    )
    outcomes = (*_of_host(case, target, found, stack), *_of_environments(case, universe))
    return GoalAnswer(outcomes=outcomes or (passed(wanted=wanted),), stack=stack)


def _untold(target: Target) -> str:
    """What has to be known of a host before anything can be said to fit it."""
    named = ((bool(target.gpus), "which GPUs there are"), (bool(target.os), "the operating system"))
    return " and ".join(words for is_there, words in named if not is_there)


def _open(text: str) -> Outcome:
    return unknown(f"whether the goal is met is not known: {text}")


def _said(link: Because) -> str:
    """A link with what it rests on."""
    origin = f" (overlay {link.overlay})" if ":" in link.overlay else ""
    source = f" [{'; '.join(link.source)}]" if link.source else ""
    return f"{link.text}{origin}{source}"


# --- the host -------------------------------------------------------------------------------------


def _of_host(case: Case, target: Target, found: Resolution, stack: GoalStack) -> Iterator[Outcome]:
    """Of each part of the stack that belongs to the host: there, another one, or not there."""
    changes = {change.component: change for change in stack.changes}
    chain = reasons(found)
    for name, version in stack.components.items():
        row = case.matrix.component(name)
        if name in _NOT_INSTALLED or row is None or row.binds != "host":
            continue
        there = target.version(name)
        if name in changes:
            yield _change(changes[name], chain)
        elif there:
            yield passed(f"{name} {there}", subject=name)
        else:
            yield from _missing(case, name, version, chain)


def _change(change: Change, chain: tuple[Because, ...]) -> Outcome:
    reboot = "; a reboot" if change.needs_reboot else ""
    cost = f"changing it takes about {change.minutes} min{reboot}" if change.minutes else ""
    return failed(
        f"{change.component} {change.before}",
        subject=change.component,
        wanted=f"{change.component} {change.after}",
        why=tuple(text for text in (*_about(change.component, chain), cost) if text),
    )


def _missing(case: Case, name: str, version: str, chain: tuple[Because, ...]) -> Iterator[Outcome]:
    """What is not there; or of which nobody read whether it is."""
    if name == "kernel-modules":
        return  # they come with the driver, and whether these ones load is judged by itself
    wanted, why = f"{name} {version}", _about(name, chain)
    if not case.owns_kernel:
        yield unknown(
            f"{name} belongs to the machine around this one", subject=name, wanted=wanted, critical=False
        )
    elif _is_read(case.host, name):
        yield failed(f"{name} is not installed", subject=name, wanted=wanted, why=why)
    else:
        yield unknown(f"whether {name} is installed was not read", subject=name, wanted=wanted, why=why)


def _is_read(host: Host, name: str) -> bool:
    """Whether somebody looked for a component where it would be."""
    if name in ("driver", "kernel-modules"):
        facts = (host.driver.kernel_version, host.driver.userspace_version)
        return all(isinstance(fact, Absent) and fact.reason == "not_installed" for fact in facts)
    read = {"cuda-toolkit": host.cuda.toolkits, "os": host.system.os, "kernel": host.kernel.release}
    if name in read:
        fact = read[name]
        return not isinstance(fact, Absent) or fact.reason == "not_installed"
    return known(host.packages) is not None


def _about(name: str, chain: tuple[Because, ...]) -> tuple[str, ...]:
    links = [link for link in chain if link.component == name and link.kind == "relation"]
    return tuple(dict.fromkeys(_said(link) for link in links))[:_REASONS_MAX]


# --- a site's rules -------------------------------------------------------------------------------


def judge_rules(case: Case) -> Iterator[Outcome]:
    """What is installed against each rule about it. A mirror says nothing of what is there already."""
    universe = Universe(case.matrix)
    try:
        target = target_of(case.matrix, case.host)
    except UsageError as error:
        yield unknown(f"what is installed could not be made out: {error.message}", critical=False)
        return
    there = _installed(case, target)
    for overlay in case.matrix.overlays:
        for kind, rule in overlay.rules:
            if kind == "mirror" or (rule.component in _OF_DRIVER and target.driver_kind in _NOT_OURS):
                continue
            places = tuple(_places(case, rule.component, there))
            if not places and rule.component in _ON_HOST and not _is_read(case.host, rule.component):
                yield unknown(
                    f"which {rule.component} is here was not read",
                    subject=rule.component,
                    wanted=_wanted(kind, rule),
                )
            for scope, raw in places:
                where = "" if scope == "host" else f" in {scope}"
                if breaks(universe, kind, rule, raw):
                    yield _broken(kind, rule, overlay.name, f"{raw}{where}")
                else:
                    yield passed(f"{rule.component} {raw}{where}", subject=rule.component)


def _installed(case: Case, target: Target) -> dict[str, str]:
    """What of the host a rule may be about, by component: its system and kernel, and what is installed."""
    system = system_of(case.matrix, target.os) if target.os else None
    machine = {"os": system.system if system else target.os, "kernel": target.kernel}
    have = {term.component: term.spec[2:] for term in target.have}
    return {name: raw for name, raw in {**machine, **have}.items() if raw}


def _places(case: Case, component: str, there: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Where a component lies and in which version: on the host, in environments and images beside it."""
    if component in there:
        yield "host", there[component]
    row = case.matrix.component(component)
    if row is not None and row.binds == "environment":
        for host in (case.host, *case.others):
            raw = installed_in(host, row.package or component)
            if raw:
                yield host.scope, raw


def _broken(kind: RuleKind, rule: SiteRule, name: str, version: str) -> Outcome:
    found = f"{rule.component} {version} {rule_words(kind, rule, name)}"
    why = (f"{rule.reason} (overlay {rule.overlay}) [{'; '.join(rule.source)}]",)
    return failed(found, subject=rule.component, wanted=_wanted(kind, rule), why=why)


def _wanted(kind: RuleKind, rule: SiteRule) -> str:
    listed = " or ".join(rule.versions)
    return f"{rule.component} {listed if kind == 'pin' else f'none of {listed}'}"


# --- environments ---------------------------------------------------------------------------------


def _of_environments(case: Case, universe: Universe) -> Iterator[Outcome]:
    """Engines and libraries that the goal names: in an environment or image that was looked into?"""
    for term in case.goal.terms:
        if universe.releases(term.component):
            yield _engine(case, universe, term)


def _engine(case: Case, universe: Universe, term: Term) -> Outcome:
    package = (case.matrix.component(term.component) or _NoRow).package or term.component
    seen = {host.scope: raw for host in case.others if (raw := installed_in(host, package))}
    wanted = universe.set_of(term.component, term.spec)
    fits = {scope: raw for scope, raw in seen.items() if _parsed(universe, term.component, raw) in wanted}
    if fits:
        where = ", ".join(f"{raw} in {scope}" for scope, raw in fits.items())
        return passed(f"{term.component} {where}", subject=term.component, wanted=term.text)
    if seen:
        where = ", ".join(f"{raw} in {scope}" for scope, raw in seen.items())
        return failed(f"{term.component} {where}", subject=term.component, wanted=term.text)
    return unknown(
        f"no environment that was looked into has {term.component}",
        subject=term.component,
        wanted=term.text,
        why=("`mopt-doctor matrix why --env PATH` looks into one",),
    )


class _NoRow:
    package = ""


def installed_in(host: Host, package: str) -> str:
    """The version of a Python package in a scope's environment; empty where it is not there, or not told."""
    environment = known(host.environment)
    if environment is None:
        return ""
    own = {
        "torch": environment.torch,
        "vllm": environment.vllm,
        "tensorrt": environment.tensorrt,
        "tensorrt-llm": environment.tensorrt_llm,
    }
    name = package.replace("_", "-").lower()
    return environment.packages.get(name) or own.get(name, "")


def _parsed(universe: Universe, component: str, raw: str) -> Version | None:
    try:
        return universe.version(component, raw)
    except ValueError:
        return None
