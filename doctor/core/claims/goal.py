"""Claims about what somebody wants of a host: a goal, and the rules of a site's overlays."""

from __future__ import annotations

from doctor.core.check import Case
from doctor.core.claims.claimed import UNTOLD, Claimed, either, no
from doctor.core.goal import PRESENT


def goal_unmet(case: Case) -> Claimed:
    """Something that the goal asks for is another, or is not there."""
    if case.goal == PRESENT or case.host.scope != "host":
        return no()
    from doctor.core.goal_judge import answer_goal

    answer = answer_goal(case)
    wrong = [one for one in answer.outcomes if one.status == "fail"]
    if answer.conflict or not (wrong or answer.stack):
        return UNTOLD if not wrong else no()
    words = ", ".join(f"{one.found} where the goal takes {one.wanted}" for one in wrong)
    return either(bool(wrong), words)


def goal_conflict(case: Case) -> Claimed:
    """No stack that this host can have meets the goal."""
    if case.goal == PRESENT or case.host.scope != "host":
        return no()
    from doctor.core.goal_judge import answer_goal

    answer = answer_goal(case)
    is_no = any(one.status == "fail" for one in answer.outcomes) and bool(answer.conflict)
    return either(is_no, "; ".join(link.text for link in answer.conflict))


def site_rule_broken(case: Case) -> Claimed:
    """A version is there that an overlay forbids, or that is outside of what it pins."""
    if not case.matrix.overlays or case.host.scope != "host":
        return no()
    from doctor.core.goal_judge import judge_rules

    wrong = [one.found for one in judge_rules(case) if one.status == "fail"]
    return either(bool(wrong), ", ".join(wrong))
