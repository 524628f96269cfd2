"""The environment of a case on its machine, asked once: checks and claims read the same answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from doctor.core.check import Case
from doctor.core.host import Environment, Host, known

if TYPE_CHECKING:
    from doctor.core.fit.ground import Ground
    from doctor.core.fit.verdict import Fit

# 6 ms of CPU: what is asked of environments is imported where there is one.

__all__ = ["environment_of", "fits", "ground_of", "machine_of"]


def environment_of(case: Case) -> Environment | None:
    """What is inside the scope; None for a host or container, and where nothing could be read."""
    return known(case.host.environment)


def machine_of(case: Case) -> Host:
    """The scope that an environment lies in: its container, else the host; itself where it stands alone."""
    container = case.host.scope.partition("@")[2] or "host"
    for wanted in (container, "host"):
        for other in case.others:
            if other.scope == wanted:
                return other
    return case.host


def ground_of(case: Case) -> Ground:
    """The machine as an environment sees it."""
    if "ground" not in case.memo:
        from doctor.core.fit.ground import ground_of_host

        case.memo["ground"] = ground_of_host(case.matrix, machine_of(case))
    ground: Ground = case.memo["ground"]
    return ground


def fits(case: Case, word: str) -> tuple[Fit, ...]:
    """What is said under one word: `torch_cuda`; nothing outside of environments."""
    environment = environment_of(case)
    if environment is None:
        return ()
    if "fits" not in case.memo:
        from doctor.core.fit.all import fits_by_word
        from doctor.core.fit.verdict import Question

        question = Question(environment=environment, ground=ground_of(case), matrix=case.matrix)
        case.memo["fits"] = fits_by_word(question)
    answers: dict[str, tuple[Fit, ...]] = case.memo["fits"]
    return answers[word]
