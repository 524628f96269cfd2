"""Numbers that cannot be: what a claim contradicts, by arithmetic or by what is published. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from doctor.core.model_report import Fault
from doctor.core.rows.published import PublishedModel
from optimize.model import ModelFacts

__all__ = ["contradictions", "impossible_rate", "published_as", "same_shape"]

_SIZES = ("hidden_size", "layers", "heads", "kv_heads", "head_dim", "vocab_size", "intermediate_size")


def impossible_rate(users: int, rate_per_s: float, *, think_s: float = 0.0, e2e_s: float = 0.0) -> str:
    """Why so many users cannot make so many requests a second; empty text where they can.

    Little's law for a closed loop: X <= N / (E + Z), whatever the server does. `think_s` is the least or mean
    pause of a user after an answer, `e2e_s` the mean time of an answer. 100 users who wait 1 to 3 s (2 s in
    the mean) make 50 requests a second at most, so a table that says 482 was not measured so.
    """
    if users < 0 or rate_per_s < 0 or think_s < 0 or e2e_s < 0:
        return "a number of users, a rate and times are not negative"
    cycle = think_s + e2e_s
    if cycle <= 0:
        return ""
    most = users / cycle
    if rate_per_s <= most * 1.02:  # a finite run may end a little above the mean
        return ""
    return (
        f"{rate_per_s:g} requests/s from {users} users cannot be: each takes {cycle:g} s a request"
        f" (pause {think_s:g} s, answer {e2e_s:g} s), so at most {most:.4g} requests/s (Little's law)"
    )


def published_as(rows: Iterable[PublishedModel], name: str) -> PublishedModel | None:
    """The published model that a folder or `_name_or_path` is named after: its last part, exactly."""
    wanted = _folded(name.rstrip("/").rpartition("/")[2])
    return next((row for row in rows if wanted and wanted == _folded(row.model.rpartition("/")[2])), None)


def same_shape(rows: Iterable[PublishedModel], facts: ModelFacts) -> tuple[PublishedModel, ...]:
    """The published models with these very shapes: it is a copy of one, or a fine-tune."""
    return tuple(
        row
        for row in rows
        if (row.model_type, row.hidden_size, row.layers, row.heads, row.kv_heads, row.head_dim)
        == (facts.model_type, facts.hidden_size, facts.layers, facts.heads, facts.kv_heads, facts.head_dim)
        and row.intermediate_size == facts.intermediate_size
    )


def contradictions(rows: Iterable[PublishedModel], facts: ModelFacts, name: str = "") -> tuple[Fault, ...]:
    """What a config says against the published model that it is named after, or whose shapes it has.

    The rotation's base is part of the weights: another one loads without complaint and answers nonsense.
    Under another name it may have been trained so (long contexts), which is worth a word and no more.
    """
    rows = tuple(rows)
    named = published_as(rows, name)
    found = _against(rows, named, facts) if named is not None else []
    theta = facts.rope.theta if facts.rope else None
    alike = (named,) if named is not None else same_shape(rows, facts)
    known = sorted({one for row in alike for one in row.rope_thetas})
    if theta is None or not known or theta in known:
        return tuple(found)
    bases = " or ".join(f"{one:,.0f}" for one in known)
    text = (
        f"`rope_theta` is {theta:,.0f}; {alike[0].model} has {bases}. The weights were trained with it:"
        " another value destroys the answers, and mends no overflow"
    )
    if named is None:
        text += "; unless this model was trained anew with it"
    return (*found, _fault("config" if named is not None else "unusual", text))


def _fault(kind: Literal["config", "unusual"], text: str) -> Fault:
    return Fault(kind=kind, file="config.json", message=text)


def _against(rows: tuple[PublishedModel, ...], named: PublishedModel, facts: ModelFacts) -> list[Fault]:
    """Sizes that are not those of the model it is named after, and whose they are."""
    if named.model_type != facts.model_type:
        return [
            _fault("config", f"`model_type` is `{facts.model_type}`; {named.model} is `{named.model_type}`")
        ]
    found = []
    for field in _SIZES:
        said, true = getattr(facts, field), getattr(named, field)
        if true is None or said is None or said == true:
            continue
        others = [row.model for row in rows if row.hidden_size == said and field == "hidden_size"]
        whose = f"; {said} is that of {others[0]}" if others else ""
        found.append(_fault("config", f"`{field}` is {said}; {named.model} has {true}{whose}"))
    context = facts.context_tokens
    is_stretched = facts.rope is not None and facts.rope.kind != "default"
    if context is not None and named.contexts and context not in named.contexts and not is_stretched:
        known = " or ".join(str(one) for one in named.contexts)
        found.append(_fault("unusual", f"`max_position_embeddings` is {context}; {named.model} has {known}"))
    return found


def _folded(name: str) -> str:
    return "".join(char for char in name.casefold() if char.isalnum() or char == ".")
