"""What a site's overlays made of an answer: the same question is put to the edition alone, and compared."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from doctor.core.chain import components_of
from doctor.core.goal import Policy
from doctor.core.matrix import Matrix
from doctor.core.relate.site import refused, rule_words
from doctor.core.resolve import Resolution, ask
from doctor.core.rows.base import Row
from doctor.core.rows.site import RuleKind, SiteRule
from doctor.core.solve.frame import Mode
from doctor.core.solve.universe import Universe
from doctor.core.stack import Because, WhyReport
from doctor.core.target import Target, system_of

__all__ = ["breaks", "overlay_effect", "under_rules"]

_OWN = "overlay-row"


def overlay_effect(
    universe: Universe, found: Resolution, target: Target, *, mode: Mode, policy: Policy
) -> tuple[Because, ...]:
    """One link for each thing that overlays decided; none where the answer is that of the edition alone."""
    if not universe.matrix.overlays:
        return ()
    plain = Universe(universe.matrix.without_overlays())
    without = ask(plain, target, found.model.goal, mode=mode, policy=policy)
    if without.answer != found.answer:
        return (*_new_rows(found), _answers(found, without))
    if found.answer != "yes":
        return ()
    ours, theirs = components_of(found), components_of(without)
    if ours == theirs:
        return ()
    links = (*_refusals(found, theirs), *_new_rows(found))
    return links or (_differs(found, ours, theirs),)


def under_rules(matrix: Matrix, report: WhyReport) -> WhyReport:
    """An answer about an environment that was judged by its files, under the rules of the overlays.

    What a site forbids may well run there; the answer is no all the same, and says whose it is.
    """
    if not matrix.overlays:
        return report
    universe = Universe(matrix)
    held = _held(matrix, report)
    broken = []
    for overlay in matrix.overlays:
        for kind, rule in overlay.rules:
            raw = held.get(rule.component, "")
            if raw and kind != "mirror" and breaks(universe, kind, rule, raw):
                words = rule_words(kind, rule, overlay.name)
                text = f"{rule.component} {raw} {words}: {rule.reason}"
                broken.append(_link(rule.component, f"overlay-{kind}", text, rule))
    if not broken:
        return msgspec.structs.replace(report, overlays=matrix.overlay_names)
    return msgspec.structs.replace(
        report,
        compatible="no",
        exit_code=1,
        because=(*broken, *(report.because if report.compatible == "no" else ())),
        overlays=matrix.overlay_names,
        overlay_effect=tuple(broken),
    )


def _held(matrix: Matrix, report: WhyReport) -> dict[str, str]:
    """Everything that the environment and its machine hold, by component: a rule may be about each of it."""
    target, environment = report.target, report.environment
    system = system_of(matrix, target.os) if target.os else None
    machine = {"os": system.system if system else target.os, "kernel": target.kernel, "python": target.python}
    held = {**machine, **{term.component: term.spec.removeprefix("==") for term in target.have}}
    packages = environment.packages if environment else {}
    for row in matrix.edition.components:
        names = [row.package, *(f"{row.package}-cu{major}" for major in (13, 12, 11))] if row.package else []
        found = next((packages[name] for name in names if name in packages), "")
        held[row.component] = found or held.get(row.component, "")
    return {name: raw for name, raw in {**held, **report.components}.items() if raw}


def breaks(universe: Universe, kind: RuleKind, rule: SiteRule, raw: str) -> bool:
    """Whether a version is one that a rule takes away. False for a text that is no version."""
    try:
        version = universe.version(rule.component, raw)
    except ValueError:
        return False
    inside = any(universe.set_of(rule.component, spec).has(version) for spec in rule.versions)
    return inside is (kind == "forbid")


def _refusals(found: Resolution, theirs: dict[str, str]) -> Iterator[Because]:
    """What would have been taken, and which rule takes it away."""
    model = found.model
    for overlay in model.universe.matrix.overlays:
        for kind, rule in overlay.rules:
            name, other = rule.component, theirs.get(rule.component, "")
            if not other or name not in model or str(found.value(name)) == other:
                continue
            mask = refused(model, kind, rule)
            if other in model.texts(name, mask):
                words = rule_words(kind, rule, overlay.name)
                text = f"{name} {other} {words}: {rule.reason}; {found.value(name)} is taken instead"
                yield _link(name, f"overlay-{kind}", text, rule)


def _new_rows(found: Resolution) -> Iterator[Because]:
    """Versions in the stack that only an overlay knows."""
    model = found.model
    if found.answer != "yes":
        return
    for name in components_of(found):
        value = found.value(name)
        for row in model.universe.releases(name):
            if row.version == value and row.overlay:
                yield _link(name, _OWN, f"{name} {value} is known from overlay {_name(row)} only", row)
        for overlay in model.universe.matrix.overlays if name == "driver" else ():
            for release in overlay.driver_releases:
                if release.version == value:
                    text = f"driver {value} is known from overlay {overlay.name} only: {release.reason}"
                    yield _link(name, _OWN, text, release)


def _answers(found: Resolution, without: Resolution) -> Because:
    names = _names(found)
    words = {"yes": "yes", "no": "no", "unknown": "not known"}
    text = f"the answer is {words[found.answer]}; without {names} it would be {words[without.answer]}"
    return Because(component="", relation="overlay", text=text, kind="note", overlay=names)


def _differs(found: Resolution, ours: dict[str, str], theirs: dict[str, str]) -> Because:
    """Rows of other tables than releases have an effect, too."""
    other = ", ".join(f"{name} {version}" for name, version in theirs.items() if ours.get(name) != version)
    names = _names(found)
    text = f"without {names} it would be {other or 'fewer components'}"
    return Because(component="", relation="overlay", text=text, kind="note", overlay=names)


def _names(found: Resolution) -> str:
    return f"overlay {' and '.join(found.model.universe.matrix.overlay_names)}"


def _name(row: Row) -> str:
    return row.overlay.partition(":")[0]


def _link(name: str, relation: str, text: str, row: Row) -> Because:
    return Because(
        component=name,
        relation=relation,
        text=text,
        kind="note",
        source=row.source,
        confidence=row.confidence,
        overlay=row.overlay,
    )
