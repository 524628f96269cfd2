"""What a site's overlays forbid or pin, as relations that hold like any other."""

from __future__ import annotations

from doctor.core.rows.site import RuleKind, SiteRule
from doctor.core.solve.model import ABSENT, OTHER, Model, Value
from doctor.core.versions import Version

__all__ = ["refused", "relate_site", "rule_words"]


def relate_site(model: Model) -> None:
    """Add the rules of every overlay about components in the model. Facts alone break none of them."""
    for overlay in model.universe.matrix.overlays:
        for kind, rule in overlay.rules:
            mask = refused(model, kind, rule) if rule.component in model else 0
            if mask:
                says = f"{rule_words(kind, rule, overlay.name)}: {rule.reason}"
                model.relate(f"overlay-{kind}", (rule.component, mask), says, rows=(rule,))


def refused(model: Model, kind: RuleKind, rule: SiteRule) -> int:
    """The versions that a rule takes away. Not being installed breaks no rule.

    What is there may stay there though no mirror has it: a mirror is asked for what is to come.
    """
    there = named = 0
    present = model.target.version(rule.component)
    for position, value in enumerate(model.domain(rule.component)):
        if value is ABSENT or value is OTHER:
            continue
        there |= 1 << position
        is_named = any(_is_in(model, rule.component, value, spec) for spec in rule.versions)
        if is_named or (kind == "mirror" and str(value) == present):
            named |= 1 << position
    return named if kind == "forbid" else there & ~named


def _is_in(model: Model, component: str, value: Value, spec: str) -> bool:
    if isinstance(value, Version):
        return model.universe.set_of(component, spec).has(value)
    return spec == "*" or value in spec.split("|")  # a system is a plain name


def rule_words(kind: RuleKind, rule: SiteRule, name: str) -> str:
    """What a rule of the overlay of that name says of a version that breaks it."""
    wanted = " or ".join(rule.versions)
    if kind == "forbid":
        return f"is forbidden by overlay {name}"
    if kind == "pin":
        return f"is not {wanted}, to which overlay {name} pins {rule.component}"
    return f"is not {wanted}, which is what the mirror of overlay {name} holds"
