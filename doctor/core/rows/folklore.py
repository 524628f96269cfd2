"""Sentences that people repeat about drivers, CUDA and engines, each with what is the case."""

from __future__ import annotations

from doctor.core.rows.base import Row

__all__ = ["FolkloreRow"]


class FolkloreRow(Row, frozen=True, kw_only=True):
    """A statement in circulation, whether it holds, and the fact that decides it."""

    id: str
    claim: str
    """The statement in plain words. How often it negates tells a wording of it from its contrary."""
    also: tuple[str, ...] = ()
    """Other wordings; one that negates where `claim` does not says that both are the same statement."""
    words: tuple[str, ...]
    """What a wording of it has, in any order: alternatives apart by `|`, `install*` for any ending."""
    holds: bool
    fact: str = ""
    """What is the case; empty where `rule` says it."""
    rule: str = ""
    """The sentence of `rules` that decides it."""
    instead: tuple[str, ...] = ()
    """What to do or to write in its place."""
