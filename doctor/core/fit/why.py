"""`matrix why` of an environment or an image: the answer, the proof, and what would change it."""

from __future__ import annotations

import msgspec

from doctor.core.fit.all import fits_of
from doctor.core.fit.asked import Asked, ask_rows
from doctor.core.fit.ground import Ground
from doctor.core.fit.verdict import Fit, Question
from doctor.core.host import Environment
from doctor.core.link import Answer, Because
from doctor.core.matrix import Matrix
from doctor.core.stack import Hint, WhyReport
from doctor.core.target import Target

__all__ = ["elsewhere", "why_environment"]

_EXIT: dict[Answer, int] = {"yes": 0, "no": 1, "unknown": 3}
_HINTS_MAX = 3
#: What a build or a vendor's list does not say of a GPU leaves the answer open.
_ON_GPU = ("-compiled-cc", "-hardware")


def why_environment(
    matrix: Matrix, environment: Environment, ground: Ground, *, target: Target, question: str
) -> WhyReport:
    """Whether what lies there would run on that machine, told without starting any of it."""
    asked = Question(environment=environment, ground=ground, matrix=matrix)
    fits = [fit for _word, fit in fits_of(asked)]
    rows = ask_rows(asked, target)
    answer = _answer(fits, rows, environment)
    shown = {"no": ("no",), "unknown": ("unknown",), "yes": ("yes", "warn")}[answer]
    chain = (*(_because(fit) for fit in fits if fit.answer in shown), *_links(fits, rows, answer))
    return WhyReport(
        matrix_edition=matrix.edition.name,
        question=question,
        compatible=answer,
        exit_code=_EXIT[answer],
        target=target,
        because=chain or (_nothing(environment),),
        hints=_hints([fit for fit in fits if fit.answer == "no"], rows)[:_HINTS_MAX],
        nearest=rows.nearest if rows.answer == answer else "",
        components=_components(environment),
        advice=tuple(_advice(fits, answer)),
        overlays=matrix.overlay_names,
        environment=environment,
    )


def elsewhere(environment: Environment) -> Environment:
    """The same files on another machine: what was read of this one does not count there."""
    return msgspec.structs.replace(environment, glibc=None, mpi=None, has_headers=None, compilers=())


def _answer(fits: list[Fit], rows: Asked, environment: Environment) -> Answer:
    if rows.answer == "no" or any(fit.answer == "no" for fit in fits):
        return "no"
    has_subject = environment.has_engine or (environment.kind == "image" and bool(fits))
    open_ones = [f for f in fits if f.answer == "unknown" and (f.is_open or f.relation.endswith(_ON_GPU))]
    return "unknown" if rows.answer == "unknown" or open_ones or not has_subject else "yes"


def _links(fits: list[Fit], rows: Asked, answer: Answer) -> tuple[Because, ...]:
    """The links of the rows, where they say more than what lies there does by itself."""
    said = {fit.relation for fit in fits if fit.answer == rows.answer}
    if rows.answer != answer or (answer != "yes" and _is_said(fits, rows)):
        return ()
    return tuple(link for link in rows.links if answer != "yes" or link.relation not in said)


def _is_said(fits: list[Fit], rows: Asked) -> bool:
    """Whether each relation of the rows' chain is among those that the files say already."""
    said = {fit.relation for fit in fits if fit.answer == rows.answer}
    return {link.relation for link in rows.links if link.kind == "relation"} <= said


def _hints(refused: list[Fit], rows: Asked) -> tuple[Hint, ...]:
    """Changes each of which alone would make it true; where several are needed together, that as one."""
    by_rows = rows.hints if rows.answer == "no" and not _is_said(refused, rows) else ()
    ways = [fit.hints for fit in refused]
    if rows.answer == "no" and not _is_said(refused, rows):
        if not refused:
            return by_rows
        ways.append(tuple(hint.text for hint in by_rows))
    if not ways or not all(ways):
        return ()
    alone = [text for text in dict.fromkeys(ways[0]) if all(text in way for way in ways)]
    together = "; and ".join(dict.fromkeys(way[0] for way in ways))
    return tuple(Hint(text=text) for text in alone or [together])


def _because(fit: Fit) -> Because:
    return Because(
        component=fit.component,
        relation=fit.relation,
        text=f"{fit.found} (wanted: {fit.wanted})" if fit.wanted else fit.found,
        kind="note" if fit.answer == "warn" else "relation",
        source=fit.source,
        confidence=fit.confidence,
        is_known=fit.answer != "unknown",
    )


def _nothing(environment: Environment) -> Because:
    what = "the image's configuration names" if environment.kind == "image" else "there is"
    text = f"{what} no torch, no TensorRT and no engine whose needs are known"
    return Because(component="environment", relation="nothing-to-judge", text=text, is_known=False)


def _components(environment: Environment) -> dict[str, str]:
    named = {
        "torch": environment.torch,
        "cuda": environment.torch_cuda.raw if environment.torch_cuda else "",
        "vllm": environment.vllm,
        "tensorrt": environment.tensorrt,
        "tensorrt-llm": environment.tensorrt_llm,
        "python": environment.python.raw if environment.python else "",
    }
    return {name: version for name, version in named.items() if version}


def _advice(fits: list[Fit], answer: Answer) -> list[str]:
    """Warnings beside a no; what is not known beside either."""
    kinds = {"no": ("warn", "unknown"), "unknown": ("warn",), "yes": ("unknown",)}[answer]
    return [
        f"{fit.found}{f' (wanted: {fit.wanted})' if fit.wanted else ''}"
        for fit in fits
        if fit.answer in kinds
    ]
