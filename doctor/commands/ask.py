"""What `matrix pick` and `matrix why` have in common: the target of the options, and their documents."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import msgspec

from doctor.config import overlay_folders
from doctor.core.folklore import SENTENCE_MAX
from doctor.core.goal import NAMED, PRESENT, SENTENCE, Goal, NamedThing, Term, is_term, parse_goal, parse_term
from doctor.core.matrix import Matrix
from doctor.core.resolve import pose
from doctor.core.solve.universe import Universe
from doctor.core.target import Target, make_target
from doctor.edition.load import load_matrix
from doctor.errors import UsageError

__all__ = [
    "checked_goal",
    "goal_of",
    "goal_of_specs",
    "is_goal_file",
    "matrix_of",
    "named_target",
    "target_of_options",
    "unsaid",
]

#: Held without a version of its own: no answer changes them.
_FIXED = ("os", "kernel", "glibc", "cuda-repo", "gcc")


def target_of_options(options: argparse.Namespace, matrix: Matrix, *, is_asked: bool = False) -> Target:
    """The machine that the options name; the one of `--from`; or, where neither is named, this host.

    `is_asked` says that the question stands by itself: no machine at all is a machine of any kind.
    """
    named = bool(options.gpu or options.os or options.kernel or options.python or options.arch)
    if options.bundle and named:
        raise UsageError(
            "`--from` and options such as `--gpu` name two machines",
            hints=("`--have` and `--hold` go with `--from`",),
        )
    if options.bundle or not (named or options.have or is_asked):
        target = _of_host(options, matrix)
    else:
        target = named_target(options, matrix)
    for name in target.hold:
        if not (target.version(name) or (name == "python" and target.python) or name in _FIXED):
            raise UsageError(
                f"`--hold {name}` holds nothing: what is there of it was not said",
                hints=(f"`--have {name}==VERSION` says it",),
            )
    return target


def unsaid(target: Target, *, has_kernel: bool) -> tuple[str, ...]:
    """What an answer leaves out because the machine was not described further.

    `has_kernel` says that its kernel is known, named or the only one of its system.
    """
    missing = [
        (not target.gpus, "no GPU was named: nothing was judged that depends on one"),
        (not target.os, "no system was named: its C library and compilers were not judged"),
        (not has_kernel and not target.driver_kind, "no kernel was named: no driver was judged by it"),
    ]
    return tuple(text for is_missing, text in missing if is_missing)


def named_target(options: argparse.Namespace, matrix: Matrix) -> Target:
    """The machine that the options name, whatever this host is."""
    have = [parse_term(text) for text in options.have]
    return make_target(
        matrix,
        gpus=options.gpu,
        os=options.os or "",
        kernel=options.kernel or "",
        python=options.python or "",
        arch=options.arch or "",
        have=have,
        hold=options.hold,
    )


def _of_host(options: argparse.Namespace, matrix: Matrix) -> Target:
    # 40 ms of CPU: facts and collector, which a named target does not need.
    from doctor.core.target_host import target_of
    from doctor.facts.read import read_host

    if options.bundle:
        from doctor.evidence.open import open_evidence

        evidence = open_evidence(options.bundle)
    else:
        from doctor.config import load_settings
        from doctor.evidence.live import start_collecting

        settings = load_settings(timeout_s=None, no_color=True, ascii_only=False, stdout_is_terminal=False)
        with start_collecting(budget_s=settings.timeout_s, sysroot=None) as live:
            evidence = live.evidence()
    target = target_of(matrix, read_host(evidence), hold=tuple(options.hold))
    also = {term.component: term for term in (*target.have, *(parse_term(text) for text in options.have))}
    return msgspec.structs.replace(target, have=tuple(also.values()))


def matrix_of(options: argparse.Namespace) -> Matrix:
    """The matrix with the overlays of the options, or else of the environment. Raises MatrixError."""
    return load_matrix(overlays=overlay_folders(options.overlay))


def checked_goal(options: argparse.Namespace) -> Goal:
    """The goal of `check`, before anything is collected. Raises `UsageError` on one that cannot be meant."""
    goal = goal_of(options.goal)
    if goal != PRESENT:
        universe = Universe(matrix_of(options))
        pose(universe, make_target(universe.matrix), goal, mode="pick", delivery=goal.delivery or "venv")
    return goal


def _terms_of(text: str) -> str:
    """The terms of a goal, or of the goal file that a text names."""
    if not is_goal_file(text):
        return text
    from doctor.commands.goal_file import read_goal_file

    return read_goal_file(text.removeprefix("@"))


def is_goal_file(text: str) -> bool:
    """`@FILE`, a path, or a name that ends as a goal file does; everything else is the goal itself."""
    return text.startswith(("@", "/", "./", "../")) or text.endswith((".yaml", ".yml", ".goal", ".txt"))


def goal_of(texts: Sequence[str], named: Sequence[Term] = ()) -> Goal:
    """The goal of these texts together, with the terms that were given as arguments of their own."""
    if any(not text.strip() for text in texts):
        # `--goal "$UNSET"` in a script must not be answered for another goal.
        raise UsageError("`--goal` is given, and names nothing")
    goal = parse_goal(",".join(_terms_of(text) for text in texts)) if texts else PRESENT
    if not named:
        return goal
    parts = (*([] if goal is PRESENT else [goal.text]), *(term.text for term in named))
    return msgspec.structs.replace(goal, text=",".join(parts), terms=(*goal.terms, *named))


def goal_of_specs(specs: Sequence[str], goals: Sequence[str]) -> Goal:
    """The goal of a question's arguments: terms, names, wishes, and sentences in plain words.

    Raises `UsageError` on what is none of them.
    """
    sentences = [text for text in specs if _is_sentence(text)]
    rest = [text for text in specs if text not in sentences]
    named = tuple(parse_term(text) for text in rest if not _is_thing(text))
    goal = goal_of([*goals, *(text for text in rest if _is_thing(text))], named)
    names = tuple(NamedThing(kind=SENTENCE, name=" ".join(text.split())) for text in sentences)
    for name in names:
        if len(name.name) > SENTENCE_MAX:
            raise UsageError(
                f"a sentence has at most {SENTENCE_MAX} characters; this one has {len(name.name)}",
                hints=("one claim in each sentence",),
            )
    if not names:
        return goal
    text = "; ".join((*([] if goal.text == PRESENT.text else [goal.text]), *(name.name for name in names)))
    return msgspec.structs.replace(goal, text=text, names=(*goal.names, *names))


def _is_thing(text: str) -> bool:
    """`flag:NAME`, `use=WORD` and the like."""
    head, separator, _tail = text.partition(":")
    is_wish = text.startswith(("use=", "delivery=", "policy=")) and "==" not in text
    return is_wish or (bool(separator) and head in NAMED)


def _is_sentence(text: str) -> bool:
    """Words with spaces between them that are neither a term nor a name."""
    return len(text.split()) > 1 and not _is_thing(text) and not is_term(text)
