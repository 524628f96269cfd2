"""What a signature's pattern may be: linear, readable by `grep -E`, and with a literal to look for first."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["GAP_MAX", "literals_of", "pattern_problem"]

#: How far a gap may reach; more than a few of them make a search quadratic.
GAP_MAX = 400
_GAPS_MAX = 4
_WIDE = 8
LITERAL_MIN = 4

with warnings.catch_warnings():
    # Where it lies since 3.11 is private; before, its public name warned.
    warnings.simplefilter("ignore", DeprecationWarning)
    try:
        from re import _parser  # type: ignore[attr-defined]
    except ImportError:  # Python 3.10
        import sre_parse as _parser  # type: ignore[no-redef]

_FORBIDDEN = {
    "MIN_REPEAT": "a lazy repeat, which `grep -E` does not have",
    "POSSESSIVE_REPEAT": "a possessive repeat, which `grep -E` does not have",
    "ATOMIC_GROUP": "an atomic group, which `grep -E` does not have",
    "GROUPREF": "a back reference, which is not linear",
    "GROUPREF_EXISTS": "a conditional group, which `grep -E` does not have",
    "ASSERT": "look-around, which `grep -E` does not have",
    "ASSERT_NOT": "look-around, which `grep -E` does not have",
}


def pattern_problem(text: str) -> str:
    """What is wrong with a pattern; empty when nothing is."""
    if not text.isascii():
        return "it has characters beyond ASCII: write `.{1,3}` for a typographic one"
    if re.search(r"\(\?[aiLmsux]", text):
        return "it sets flags, which `grep -E` does not have"
    try:
        tree = _parser.parse(text)
        re.compile(text)
    except re.error as error:
        return f"it is not a regular expression: {error}"
    gaps: list[str] = []
    problem = _problem(tree, gaps, is_repeated=False)
    if problem:
        return problem
    if len(gaps) > _GAPS_MAX:
        return f"it has {len(gaps)} wide gaps; more than {_GAPS_MAX} are slow on hostile lines"
    return ""


def _problem(tree: Iterable[Any], gaps: list[str], *, is_repeated: bool) -> str:
    for op, value in tree:
        name = str(op)
        if name in _FORBIDDEN:
            return f"it has {_FORBIDDEN[name]}"
        problem = ""
        if name == "MAX_REPEAT":
            problem = _repeat_problem(value, gaps, is_repeated=is_repeated)
        elif name == "SUBPATTERN":
            problem = _problem(value[3], gaps, is_repeated=is_repeated)
        elif name == "BRANCH":
            problem = next((p for p in (_problem(b, gaps, is_repeated=is_repeated) for b in value[1]) if p), "")
        if problem:
            return problem
    return ""


def _repeat_problem(value: Any, gaps: list[str], *, is_repeated: bool) -> str:
    least, most, inner = int(value[0]), int(value[1]), value[2]
    varies = most != least
    if is_repeated and varies and most > 1:
        return "it has a repeat inside a repeat, which is not linear"
    if most > GAP_MAX:
        return f"it has a gap without a bound: write `{{0,{GAP_MAX}}}` or less"
    if varies and most > _WIDE:
        gaps.append(str(most))
    return _problem(inner, gaps, is_repeated=is_repeated or most > 1)


def literals_of(text: str) -> tuple[str, ...]:
    """Texts one of which stands in every line that a pattern matches; none when there are no such texts.

    Each is four characters or longer. Of several choices the one whose shortest text is longest.
    """
    return tuple(sorted(_required(_parser.parse(text))))


def _required(tree: Iterable[Any]) -> frozenset[str]:
    choices: list[frozenset[str]] = []
    run = ""
    for op, value in [*tree, ("END", None)]:
        name = str(op)
        if name == "LITERAL":
            run += chr(value)
            continue
        if len(run) >= LITERAL_MIN:
            choices.append(frozenset([run]))
        run = ""
        choices.append(_required_of(name, value))
    return _best([choice for choice in choices if choice])


def _required_of(name: str, value: Any) -> frozenset[str]:
    if name == "SUBPATTERN":
        return _required(value[3])
    if name == "MAX_REPEAT" and int(value[0]) > 0:
        return _required(value[2])
    if name == "BRANCH":
        branches = [_required(branch) for branch in value[1]]
        return frozenset().union(*branches) if all(branches) else frozenset()
    return frozenset()


def _best(choices: Sequence[frozenset[str]]) -> frozenset[str]:
    return max(choices, key=lambda c: (min(min(map(len, c)), 12), -len(c), min(map(len, c))), default=frozenset())
