"""A sentence against the rows of folklore: which row it is a wording of, or what comes near.

No language is understood here. A row names the words that a wording of its claim has; a sentence that has
them all, and is negated as a wording of the row is, is taken for one. One that is negated otherwise may say
the contrary, and gets no answer but the row's fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from doctor.core.pattern import pattern
from doctor.core.rows.folklore import FolkloreRow

__all__ = ["SENTENCE_MAX", "Reading", "read_sentence", "words_of"]

#: Characters of a sentence.
SENTENCE_MAX = 400

_WORD = pattern(r"[a-z0-9_.+:/=-]+")
_NOT = pattern("n['\u2019]t\\b|(?<=\\bcan)not\\b")
_EDGES = "._:/=+-"
_NEGATIONS = frozenset(
    (
        *("not", "no", "never", "none", "nothing", "without", "neither", "nor"),
        *("lack", "lacks", "impossible", "false", "untrue", "myth"),
    )
)
#: Rows that come near a sentence have at least this share of their words in it.
_NEAR_SHARE = 0.6
_NEAR_MAX = 2


class Reading(NamedTuple):
    """What a sentence was taken for."""

    row: FolkloreRow | None = None
    """The row that it is a wording of."""
    contrary: tuple[FolkloreRow, ...] = ()
    """Rows that have its words, and that it negates, or that contradict one another about it."""
    near: tuple[FolkloreRow, ...] = ()
    """Rows that have some of its words."""


def read_sentence(rows: Sequence[FolkloreRow], text: str) -> Reading:
    """The row that a sentence is a wording of; the one with the most words where several are."""
    words = words_of(text)
    hits = {row.id: _hits(row, words) for row in rows}
    whole = [row for row in rows if hits[row.id] == len(row.words)]
    same = [row for row in whole if _is_negated(words) in _polarities(row)]
    closest = [row for row in same if len(row.words) == max(len(other.words) for other in same)]
    if closest and len({row.holds for row in closest}) == 1:
        return Reading(row=closest[0])
    if whole:
        return Reading(contrary=tuple(closest or whole)[:_NEAR_MAX])
    shares = {row.id: hits[row.id] / len(row.words) for row in rows}
    near = [row for row in rows if shares[row.id] >= _NEAR_SHARE]
    return Reading(near=tuple(sorted(near, key=lambda row: -shares[row.id])[:_NEAR_MAX]))


def words_of(text: str) -> tuple[str, ...]:
    """The words of a sentence, in lower case, without what joins and ends them."""
    plain = _NOT.sub(" not ", text[:SENTENCE_MAX].casefold())
    stripped = (word.strip(_EDGES) for word in _WORD.findall(plain))
    return tuple(word for word in stripped if word)


def _is_negated(words: Iterable[str]) -> bool:
    """Whether an odd number of words negates; `wrong` does in `wrong that` only: drivers are wrong, too."""
    text = tuple(words)
    denied = sum(pair in (("wrong", "that"), ("wrong", "to")) for pair in pairwise(text))
    return (sum(word in _NEGATIONS for word in text) + denied) % 2 == 1


def _polarities(row: FolkloreRow) -> set[bool]:
    """How wordings of a claim may be negated: as those that the row gives."""
    return {_is_negated(words_of(text)) for text in (row.claim, *row.also)}


def _hits(row: FolkloreRow, words: Sequence[str]) -> int:
    return sum(any(_has(words, one) for one in group.split("|")) for group in row.words)


def _has(words: Sequence[str], phrase: str) -> bool:
    """Whether the words of a phrase follow one another; a `*` at the end of one takes any ending."""
    wanted = phrase.split()
    return any(
        all(_fits(word, one) for word, one in zip(words[at : at + len(wanted)], wanted, strict=True))
        for at in range(len(words) - len(wanted) + 1)
    )


def _fits(word: str, wanted: str) -> bool:
    return word.startswith(wanted[:-1]) if wanted.endswith("*") else word == wanted
