"""What every relation of a name starts from: whose name is meant, and what is said where no row has it."""

from __future__ import annotations

from collections.abc import Iterable

from doctor.core.solve.frame import SERVERS, lead, supposed
from doctor.core.solve.model import Link, Model

__all__ = ["NAME", "engine_of", "near_of", "say_unknown"]

#: The relation of a name with the releases that have it.
NAME = "name-in-release"


def engine_of(model: Model, owners: Iterable[str]) -> str:
    """Whose names are meant: the engine that is asked about, where it has such a name or nobody has."""
    known = tuple(dict.fromkeys(owners))
    asked = lead(model.target, model.goal)
    if asked and (asked in known or not known):
        return asked
    named = supposed(model.target, model.goal)
    if asked in SERVERS and not any(owner in named or owner not in SERVERS for owner in known):
        return asked  # a name of one server says nothing of another, which may have it as well
    return next((owner for owner in known if owner in model), asked or "vllm")


def say_unknown(model: Model, engine: str, wish: str, near: str) -> None:
    """No row has the name: not known to be there, nor known not to be."""
    says = f"{wish} has no row for {engine}"
    model.say(Link(relation=NAME, says=says, is_soft=True, nearest=near), [(wish, 2)])


def near_of(name: str, names: Iterable[str]) -> str:
    """The two names that come nearest, as text; empty where none is near."""
    from difflib import get_close_matches  # 2 ms, where a name is not known only

    return ", ".join(get_close_matches(name, sorted(set(names)), n=2, cutoff=0.5))
