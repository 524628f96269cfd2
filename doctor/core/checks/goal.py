"""Checks that somebody's wish decides: the goal the host is for, and what the site's overlays forbid."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.core.check import Case, Outcome, check
from doctor.core.checks.applies import on_gpu_host
from doctor.core.goal import PRESENT

__all__ = ["CHECKS"]


def _asked(case: Case) -> str:
    """Skip where nothing is wished for, and in scopes beside the host, which are judged with it."""
    if case.goal == PRESENT:
        return "no goal was given: what is installed is judged as it is"
    return "" if case.host.scope == "host" else "judged with the host"


def _ruled(case: Case) -> str:
    """Skip where no overlay has a rule, and in scopes beside the host, which are judged with it."""
    if not any(overlay.rules for overlay in case.matrix.overlays):
        return "no site overlay is in force"
    return "" if case.host.scope == "host" else "judged with the host"


@check("engine.goal", "the goal is met", applies=(_asked, on_gpu_host), critical=True)
def goal(case: Case) -> Iterator[Outcome]:
    """The stack that the goal asks for is there, or it is said what of it is not."""
    # 30 ms: the resolver, which no goal `present` needs.
    from doctor.core.goal_judge import answer_goal

    yield from answer_goal(case).outcomes


@check("system.site_rules", "nothing that the site forbids", applies=(_ruled,))
def site_rules(case: Case) -> Iterator[Outcome]:
    """Versions that are there, against the rules of every overlay in force. Age is no matter here."""
    from doctor.core.goal_judge import judge_rules

    yield from judge_rules(case)


CHECKS = (goal, site_rules)
