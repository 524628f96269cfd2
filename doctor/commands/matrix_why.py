"""`matrix why`: whether a combination holds as it stands, the proof, and what would change the answer."""

from __future__ import annotations

import argparse

from doctor.commands.ask import goal_of_specs, matrix_of, target_of_options
from doctor.commands.output import write_answer
from doctor.core.solve.universe import Universe
from doctor.core.stack import WhyReport
from doctor.core.why import why
from doctor.errors import UsageError

__all__ = ["explain", "run"]


def run(options: argparse.Namespace) -> int:
    """Explain a combination: 0 yes, 1 no, 3 unknown."""
    if options.env is not None or options.image is not None:
        from doctor.commands.matrix_env import explain_place
        from doctor.core.site import under_rules

        matrix = matrix_of(options)
        report = under_rules(matrix, explain_place(options, matrix))
    else:
        report = explain(Universe(matrix_of(options)), options)
    if options.json:
        from doctor.report.machine import to_json

        write_answer(to_json(report), None)
    else:
        from doctor.report.stack_text import render_why

        write_answer(render_why(report).encode(), None)
    return report.exit_code


def explain(universe: Universe, options: argparse.Namespace) -> WhyReport:
    """The document of a question. Raises `UsageError` where nothing is asked."""
    goal = goal_of_specs(options.spec, options.goal)
    target = target_of_options(options, universe.matrix, is_asked=bool(goal.terms or goal.uses or goal.names))
    if not (goal.terms or goal.uses or goal.names or target.have):
        what = "nothing that the matrix knows is installed there" if options.bundle else "nothing is asked"
        raise UsageError(
            f"{what}: `matrix why` wants a combination",
            hints=("for example `driver==570.133.20 vllm==0.33.0`",),
        )
    question = " ".join((*options.spec, *options.goal, *(f"--have {text}" for text in options.have)))
    return why(universe, target, goal, question=question)
