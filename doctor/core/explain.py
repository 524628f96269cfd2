"""What a text says is wrong: signatures weighed into ranked causes, held against facts where there are any.

Facts come before text: a cause whose claims are false on a host is ruled out, one whose claims hold there
stands first. A text that follows from many causes never outweighs one that speaks of a single one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from doctor.core.causes import LAYERS, Ruling, denials, is_of_environments, remedy_of, rulings_of
from doctor.core.check import Case
from doctor.core.explained import (
    EXPLAIN_SCHEMA,
    Confidence,
    ExplainReport,
    Matched,
    Named,
    RuledOut,
    TextFact,
)
from doctor.core.matrix import CauseRow, Matrix
from doctor.core.signatures import Hit

__all__ = [
    "EXPLAIN_SCHEMA",
    "Confidence",
    "ExplainReport",
    "Matched",
    "Named",
    "RuledOut",
    "TextFact",
    "explain",
]

_STRONG, _LIKELY = 0.85, 0.5
#: More causes than this are no answer.
_CAUSES_MAX = 6
#: Each further text that speaks for the same cause closes so much of what is left to certainty.
_MORE_SIGNS = 0.15
_SIGNS_MAX = 3
#: Facts that the text shows, with a message that speaks for their cause, and without.
_PROVED_BY_TEXT, _SHOWN_BY_TEXT = 0.9, 0.6
#: What only general texts speak for counts so much less.
_GENERAL = 0.6
#: Below this share of the first cause another one is noise.
_SHARE_MIN = 0.3
_MATCHED_MAX = 8
#: What no environment that was looked into has comes behind what a text usually means.
_DOUBTED = 0.4
_DOUBTS_MAX = 6
_TEXT_MAX = 400

HEALTHY = "healthy"
_HEALTHY_TITLE = "such lines stand in the logs of hosts that are well"


class _Evidence:
    """What speaks for one cause."""

    def __init__(self) -> None:
        self.specific: dict[int, float] = {}
        """Weight by line: of one line that several signatures match, the best one counts."""
        self.general = 0.0
        self.harmless = 0.0
        self.hits: list[Hit] = []
        self.because: list[str] = []

    def add(self, hit: Hit, weight: float) -> None:
        kind = hit.signature.kind
        if kind == "general":
            self.general = max(self.general, weight)
        elif kind == "harmless":
            self.harmless = max(self.harmless, weight)
        else:
            self.specific[hit.line] = max(self.specific.get(hit.line, 0.0), weight)
        self.hits.append(hit)

    def add_facts(self, because: Sequence[str]) -> None:
        """What the text shows as facts. One may be the message again; two that fit together are proof."""
        self.because += because
        if len(because) > 1:
            self.specific[0] = _PROVED_BY_TEXT if self.hits else _SHOWN_BY_TEXT
        elif not self.hits:
            self.specific[0] = _LIKELY

    @property
    def score(self) -> float:
        if self.specific:
            rest = 1 - max(self.specific.values())
            return 1 - rest * (1 - _MORE_SIGNS * min(self._signs - 1, _SIGNS_MAX))
        if self.harmless:
            return self.harmless
        return self.general * _GENERAL

    @property
    def _signs(self) -> int:
        """The same message on many lines is one sign; two signatures of one line are one, too."""
        first: dict[str, int] = {}
        for hit in self.hits:
            if hit.signature.kind == "specific":
                first.setdefault(hit.signature.id, hit.line)
        return max(1, len({*first.values(), *(line for line in self.specific if line == 0)}))

    @property
    def is_harmless(self) -> bool:
        return bool(self.harmless) and not self.specific


def explain(  # noqa: PLR0913 - a report is made of these
    matrix: Matrix,
    hits: Sequence[Hit],
    *,
    lines: int,
    tool: str = "",
    source: str = "",
    cases: Sequence[Case] = (),
    text_cases: Sequence[Case] = (),
    host: str = "",
    counts: Mapping[str, int] | None = None,
) -> ExplainReport:
    """The ranked causes of these hits.

    `cases` are the scopes of a host that was asked; `text_cases` what the text itself says as facts;
    `counts` how many lines each signature matched where hits hold only some of them.
    """
    found = _weigh(hits)
    _add_facts_of_text(found, text_cases, matrix)
    standing = _standing(cases)
    closer = {r.row.refines: r for r in standing.values() if r.row.refines and r.holds and r.sign > 1}
    ranked, ruled_out = [], []
    for cause, evidence in found.items():
        row = matrix.cause(cause)
        against = standing.get(cause)
        denied = row if against is not None and against.holds is False else None
        if denied and not is_of_environments(denied):
            ruled_out.append(_ruled_out(denied, cases))
            continue
        named = _named(cause, row, evidence, against, counts or {})
        if denied:
            named = _doubted(named, denied, cases)
        ranked.append(_refined(named, closer[cause]) if cause in closer else named)
    ranked += _of_host_alone(found, cases, matrix)
    causes = _shortened(ranked)
    return ExplainReport(
        tool=tool,
        exit_code=0 if causes else 3,
        source=source,
        decided_by="host" if cases else "text",
        host=host,
        lines=lines,
        causes=causes,
        ruled_out=tuple(ruled_out),
        facts=_facts(hits),
        matrix_edition=matrix.edition.name,
    )


# --- weighing -------------------------------------------------------------------------------------


def _weigh(hits: Sequence[Hit]) -> dict[str, _Evidence]:
    """What speaks for each cause. A general text that a cause of its own explains speaks for no other."""
    told = {
        suspect.cause
        for hit in hits
        if hit.signature.kind == "specific"
        for suspect in hit.signature.causes
        if suspect.weight >= _LIKELY * 100
    }
    found: dict[str, _Evidence] = {}
    for hit in hits:
        suspects = hit.signature.causes
        if hit.signature.kind == "general":
            suspects = tuple(suspect for suspect in suspects if suspect.cause in told) or suspects
        for suspect in suspects:
            found.setdefault(suspect.cause, _Evidence()).add(hit, suspect.weight / 100)
    return found


def _add_facts_of_text(found: dict[str, _Evidence], cases: Sequence[Case], matrix: Matrix) -> None:
    """Facts in the pasted text itself: a cause that they bear out rises, and may be named by them alone.

    What a paste leaves out proves nothing, so it rules nothing out.
    """
    for case in cases:
        for cause, ruling in rulings_of(case).items():
            row = matrix.cause(cause)
            if not (ruling.holds and ruling.sign > 1 and ruling.because) or row is None or row.refines:
                continue
            evidence = found.setdefault(cause, _Evidence())
            evidence.add_facts(ruling.because)


def _standing(cases: Sequence[Case]) -> dict[str, Ruling]:
    """Each cause as it stands on the host: where it holds in some scope, there; where in none, nowhere.

    Of what can only be wrong inside an environment those that were looked into speak, and nobody else.
    """
    found: dict[str, Ruling] = {}
    order = {True: 0, None: 1, False: 2}
    has_environments = any(_is_environment(case) for case in cases)
    for case in cases:
        for cause, ruling in rulings_of(case).items():
            if has_environments and is_of_environments(ruling.row) and not _is_environment(case):
                continue
            known = found.get(cause)
            if known is None or order[ruling.holds] < order[known.holds]:
                found[cause] = ruling
    return found


def _is_environment(case: Case) -> bool:
    return case.host.scope.startswith("venv:")


def _ruled_out(row: CauseRow, cases: Sequence[Case]) -> RuledOut:
    because = tuple(dict.fromkeys(text for case in cases[:1] for text in denials(row, case)))
    return RuledOut(id=row.id, title=row.title, because=because)


def _doubted(named: Named, row: CauseRow, cases: Sequence[Case]) -> Named:
    """What a text usually means, and no environment that was looked into has; one elsewhere may.

    A text that says it by itself stands: a program met it, whatever the files of its environment tell.
    """
    if named.score >= _STRONG:
        return named
    inside = [case for case in cases if _is_environment(case)]
    said = (f"{case.host.scope}: {text}" for case in inside for text in denials(row, case))
    decides = ("in which environment it was said", *dict.fromkeys(said))[:_DOUBTS_MAX]
    return msgspec.structs.replace(
        named,
        confidence="possible",
        score=min(named.score, _DOUBTED),
        deciding_facts=(*decides, *row.deciding_facts),
    )


# --- naming ---------------------------------------------------------------------------------------


def _named(
    cause: str, row: CauseRow | None, evidence: _Evidence, standing: Ruling | None, counts: Mapping[str, int]
) -> Named:
    is_proved = standing is not None and standing.holds is True and standing.sign > 1
    score = max(evidence.score, 0.97) if is_proved else evidence.score
    because = (*(standing.because if is_proved and standing is not None else ()), *evidence.because)
    confidence: Confidence = "strong" if score >= _STRONG else "likely" if score >= _LIKELY else "possible"
    return Named(
        id=cause,
        title=row.title if row else _HEALTHY_TITLE,
        confidence=confidence,
        score=round(score, 2),
        layer=row.layer if row else "",
        is_harmless=evidence.is_harmless and not is_proved,
        matched=_matched(evidence.hits, counts),
        because=tuple(dict.fromkeys(because)),
        deciding_facts=() if confidence == "strong" or row is None else row.deciding_facts,
        remedy=remedy_of(row.remedy) if row else None,
    )


def _refined(named: Named, closer: Ruling) -> Named:
    """The cause with the closer one that holds on the host, whose remedy fits better."""
    return msgspec.structs.replace(
        named,
        title=f"{named.title}: {closer.row.title}",
        refined_by=(closer.row.id,),
        because=tuple(dict.fromkeys((*named.because, *closer.because))),
        remedy=remedy_of(closer.row.remedy) or named.remedy,
    )


def _matched(hits: Sequence[Hit], counts: Mapping[str, int]) -> tuple[Matched, ...]:
    """The first line of each signature; the count says how many more there are."""
    first: dict[str, Hit] = {}
    number: dict[str, int] = {}
    for hit in hits:
        first.setdefault(hit.signature.id, hit)
        number[hit.signature.id] = number.get(hit.signature.id, 0) + 1
    ranked = sorted(first.values(), key=lambda hit: (hit.signature.kind == "general", hit.line))
    return tuple(
        Matched(
            line=hit.line,
            text=hit.text[:_TEXT_MAX],
            signature=hit.signature.id,
            count=counts.get(hit.signature.id, number[hit.signature.id]),
            note=hit.signature.note,
        )
        for hit in ranked[:_MATCHED_MAX]
    )


def _of_host_alone(found: Mapping[str, _Evidence], cases: Sequence[Case], matrix: Matrix) -> list[Named]:
    """What the checks of the host name for certain, and the text does not speak of."""
    from doctor.core.judge import judge_scopes  # the checks: 30 ms of CPU that a text without a host saves

    if not cases or not found:
        return []
    report = judge_scopes([case.host for case in cases], matrix)
    return [
        Named(
            id=cause.id,
            title=cause.title,
            confidence="likely",
            score=0.7,
            layer=row.layer,
            because=cause.because,
            remedy=cause.remedy,
        )
        for cause in report.causes
        if cause.is_certain and cause.id not in found
        for row in [matrix.cause(cause.id)]
        if row is not None
    ]


def _shortened(ranked: Sequence[Named]) -> tuple[Named, ...]:
    """The causes in order, without those that a better one makes noise of; harmless ones behind faults."""
    faults = sorted((n for n in ranked if not n.is_harmless), key=_rank)
    harmless = sorted((n for n in ranked if n.is_harmless), key=_rank)
    first = faults[0].score if faults else 0.0
    kept = [n for n in faults if n.score >= first * _SHARE_MIN]
    # Where all that speaks for a fault is general, a harmless reading of the text is as good.
    if harmless and first < _LIKELY:
        return (*harmless[:2], *kept)[:_CAUSES_MAX]
    return (*kept[:_CAUSES_MAX], *harmless[:1])


def _rank(named: Named) -> tuple[float, int, str]:
    """The better score first; of equal ones what lies deeper."""
    layer = LAYERS.index(named.layer) if named.layer in LAYERS else len(LAYERS)
    return -named.score, layer, named.id


def _facts(hits: Iterable[Hit]) -> tuple[TextFact, ...]:
    pairs = dict.fromkeys((name, value) for hit in hits for name, value in hit.named.items())
    return tuple(TextFact(name=name, value=value[:_TEXT_MAX]) for name, value in list(pairs)[:40])
