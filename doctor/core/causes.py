"""Root causes: which rows of the cause table hold, and how few of them explain all that fails.

A row holds when all its claims hold and nothing rules it out; it is *possible* when none of its
claims is false but some are untold. Failed findings are then covered greedily by rows that hold,
first the one that explains most, then the more fundamental layer. What is left stays `unknown`:
possible causes are listed as candidates with the facts that would decide, and never named as the cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from doctor.core.check import Case
from doctor.core.claims import Claimed, evaluate
from doctor.core.claims.engine import OF_ENVIRONMENTS
from doctor.core.finding import Cause, Finding, Remedy
from doctor.core.matrix import CauseRow, RemedyRow

__all__ = [
    "LAYERS",
    "denials",
    "is_of_environments",
    "name_causes",
    "remedy_of",
    "ruling",
    "rulings_of",
]

#: From what lies deepest to what rests on it; decides between causes that explain equally much.
LAYERS = (
    "platform",
    "hardware",
    "firmware",
    "kernel",
    "driver",
    "fabric",
    "cuda",
    "container",
    "engine",
    "system",
    "policy",
)


#: Claims that are true of many hosts whatever ails them: none is a sign of the cause that asks for it.
_GENERAL = frozenset(
    (
        "gpu_on_bus",
        "module_loaded",
        "module_on_disk",
        "nvml_answers",
        "not nvml_answers",
        "not cuinit_works",
        "some_gpu_down",
        "in_container",
        "not in_container",
        "flavour_open",
        "flavour_proprietary",
        "hmm_enabled",
    )
)


#: Shared by every cause of a module that is not loaded: worth asking further, and no sign of any one.
_SHARED = frozenset(("not module_loaded", "not module_on_disk"))
#: Places that speak for themselves: nothing is put in doubt where no witness looked for them.
_NOT_ASSUMED = frozenset(("in_container", "jetson"))


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """How a cause row stands on a case."""

    row: CauseRow
    holds: bool | None
    because: tuple[str, ...] = ()
    sign: int = 0
    """2 when a claim of its own holds, 1 when one that it shares with its like does, else 0."""
    untold: tuple[str, ...] = ()
    """Claims nobody could settle, of those that make it and of those that would rule it out."""
    doubts: tuple[str, ...] = ()
    """Claims nobody could settle that would name a closer cause."""


class _Ledger:
    """Claims evaluated once per case; many rows ask the same ones."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._seen: dict[str, Claimed] = {}

    def __getitem__(self, name: str) -> Claimed:
        if name not in self._seen:
            self._seen[name] = evaluate(name, self._case)
        return self._seen[name]


def ruling(row: CauseRow, claims: _Ledger) -> Ruling:
    """Whether a row holds (True), cannot hold (False), or is possible (None).

    A claim that would rule it out counts as much as one that makes it. Only a container and a Jetson are
    not assumed where nothing speaks of the place, as the checks do not assume them. A closer cause that
    nobody could settle leaves the general one standing, in doubt: what it says is true either way.
    """
    answers = {name: claims[name] for name in row.when}
    excluded = {name: claims[name] for name in row.ruled_out_by}
    closer = {name: claims[name] for name in row.yields_to}
    because = tuple(dict.fromkeys(a.because for a in answers.values() if a.holds and a.because))
    if any(a.holds is False for a in answers.values()) or any(
        e.holds for e in (*excluded.values(), *closer.values())
    ):
        return Ruling(row=row, holds=False)
    asked = {**answers, **{name: e for name, e in excluded.items() if name not in _NOT_ASSUMED}}
    untold = tuple(name for name, a in asked.items() if a.holds is None)
    doubts = tuple(name for name, c in closer.items() if c.holds is None)
    return Ruling(
        row=row,
        holds=None if untold else True,
        because=because,
        sign=max((_weight(name) for name, a in answers.items() if a.holds), default=0),
        untold=untold,
        doubts=doubts,
    )


def rulings_of(case: Case) -> dict[str, Ruling]:
    """How every cause that has a predicate stands on a case, by id."""
    claims = _Ledger(case)
    return {row.id: ruling(row, claims) for row in case.matrix.edition.causes if row.when}


def is_of_environments(row: CauseRow) -> bool:
    """Whether a cause lies inside an environment and nowhere else: its claims are untold of a host."""
    return bool(row.when) and all(name.removeprefix("not ") in OF_ENVIRONMENTS for name in row.when)


def denials(row: CauseRow, case: Case) -> tuple[str, ...]:
    """What speaks against a row that does not hold, as sentences."""
    claims = _Ledger(case)
    told = [(name.replace("_", " "), claims[name]) for name in row.when]
    said = [
        f"not so: {words}" + (f": {claim.because}" if claim.because else "")
        for words, claim in told
        if claim.holds is False
    ]
    said += [
        claims[name].because or name.replace("_", " ")
        for name in (*row.ruled_out_by, *row.yields_to)
        if claims[name].holds
    ]
    return tuple(dict.fromkeys(said))


def _weight(claim: str) -> int:
    return 0 if claim in _GENERAL else 1 if claim in _SHARED else 2


def name_causes(case: Case, findings: Sequence[Finding]) -> tuple[tuple[Cause, ...], tuple[Cause, ...]]:
    """(causes of what fails or cannot be told, advice on warnings), each ranked.

    A warning that a named cause explains is one of its consequences, not advice.
    """
    claims = _Ledger(case)
    rulings = [ruling(row, claims) for row in case.matrix.edition.causes]
    wrong = [f for f in findings if f.status == "fail" or (f.status == "unknown" and f.is_critical)]
    warnings = {_key(f): f for f in findings if f.status == "warn"}
    causes = []
    for cause in _cover(wrong, rulings):
        row = case.matrix.cause(cause.id)
        also = [key for key in warnings if row and warnings[key].id in row.explains]
        causes.append(msgspec.structs.replace(cause, findings=(*cause.findings, *also)))
        warnings = {key: finding for key, finding in warnings.items() if key not in also}
    return tuple(causes), _advise(list(warnings.values()), rulings)


def _cover(wrong: Sequence[Finding], rulings: Sequence[Ruling]) -> list[Cause]:
    failed = {_key(f): f for f in wrong if f.status == "fail"}
    left = dict(failed)
    causes: list[Cause] = []
    while left:
        best = _best([r for r in rulings if r.holds and not r.row.refines], left)
        if not best:
            break
        causes.append(_cause(best, left, rulings))
        left = {key: finding for key, finding in left.items() if key not in causes[-1].findings}
    if left:
        causes.append(_unknown(left, rulings))
    elif not failed and wrong:
        causes.append(_unknown({_key(f): f for f in wrong}, ()))
    return causes


def _best(candidates: Iterable[Ruling], wrong: dict[str, Finding]) -> list[Ruling]:
    """The candidates that explain most, then the deepest layer; more than one when they tie."""
    ranked = [((-len(_explained(r.row, wrong)), _layer(r.row)), r) for r in candidates]
    ranked = [(rank, r) for rank, r in ranked if rank[0]]
    first = min((rank for rank, _ in ranked), default=None)
    return [r for rank, r in ranked if rank == first]


def _layer(row: CauseRow) -> int:
    return LAYERS.index(row.layer)


def _explained(row: CauseRow, wrong: dict[str, Finding]) -> list[str]:
    return [key for key, finding in wrong.items() if finding.id in row.explains]


def _key(finding: Finding) -> str:
    return f"{finding.id}@{finding.subject}" if finding.subject else finding.id


def _cause(best: Sequence[Ruling], wrong: dict[str, Finding], rulings: Sequence[Ruling]) -> Cause:
    first = best[0]
    certain = len(best) == 1 and not first.doubts
    refined = [r for r in rulings if r.row.refines == first.row.id and r.holds]
    closest = refined[0] if refined else first
    return Cause(
        id=first.row.id,
        title=": ".join(r.row.title for r in (first, *refined[:1])),
        findings=tuple(_explained(first.row, wrong)),
        refined_by=tuple(r.row.id for r in refined),
        is_certain=certain,
        tied_with=tuple(r.row.id for r in best[1:]),
        because=tuple(dict.fromkeys([*first.because, *(b for r in refined for b in r.because)])),
        deciding_facts=() if certain else _deciding(best),
        remedy=remedy_of(closest.row.remedy or first.row.remedy),
    )


def _deciding(best: Sequence[Ruling]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(fact for r in best for fact in r.row.deciding_facts))


#: More candidates than this are no help at three in the morning.
_CANDIDATES_MAX = 4


def _unknown(left: dict[str, Finding], rulings: Sequence[Ruling]) -> Cause:
    """What no certain cause explains, with the causes that would fit and what would decide.

    One without a sign of its own is no candidate; what would decide it is asked where nothing has one.
    """
    fitting = [r for r in rulings if r.holds is None and r.sign and not r.row.refines]
    ranked = sorted(fitting, key=lambda r: (-len(_explained(r.row, left)), len(r.untold), _layer(r.row)))
    possible = [r for r in ranked if _explained(r.row, left)]
    candidates = [r for r in possible if r.sign > 1][:_CANDIDATES_MAX]
    reasons = [reason for f in left.values() if f.status == "unknown" for reason in f.why]
    return Cause(
        id="unknown",
        title="the facts at hand do not decide the cause",
        findings=tuple(left),
        is_certain=False,
        tied_with=tuple(r.row.id for r in candidates),
        because=tuple(dict.fromkeys(b for r in candidates for b in r.because)),
        deciding_facts=tuple(dict.fromkeys([*_deciding(candidates or possible[:_CANDIDATES_MAX]), *reasons])),
    )


def _advise(warnings: Sequence[Finding], rulings: Sequence[Ruling]) -> tuple[Cause, ...]:
    """One piece of advice a cause, over all warnings that follow from it; a warning may stand alone."""
    advice: dict[str, Cause] = {}
    for finding in warnings:
        rows = [r for r in rulings if r.holds and finding.id in r.row.explains]
        best = min(rows, key=lambda r: _layer(r.row), default=None)
        if best is None:
            advice[_key(finding)] = Cause(
                id=finding.id,
                title=f"{finding.title}: {finding.found}",
                findings=(_key(finding),),
                because=finding.why,
                remedy=finding.remedy,
            )
            continue
        told = advice.get(best.row.id)
        advice[best.row.id] = Cause(
            id=best.row.id,
            title=best.row.title,
            findings=(*(told.findings if told else ()), _key(finding)),
            because=best.because,
            remedy=remedy_of(best.row.remedy),
        )
    return tuple(advice.values())


def remedy_of(row: RemedyRow | None) -> Remedy | None:
    """A row's remedy as a finding carries it."""
    if row is None:
        return None
    return Remedy(
        summary=row.summary,
        commands=row.commands,
        needs_root=row.needs_root,
        cost=row.cost,
        undo=row.undo,
        blast_radius=row.blast_radius,
    )
