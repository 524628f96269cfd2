"""What a signature's pattern may be: linear, readable by `grep -E`, and with a literal to look for first."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from doctor.core.rows.signature import VARIES

__all__ = ["GAP_MAX", "as_ere", "literals_of", "pattern_problem", "shape_pattern"]

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
        import sre_parse as _parser

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
    if "\\n" in text or "\n" in text:
        return "it has a line end: lines are searched one by one"
    if re.search(r"\(\?[aiLmsux]", text):
        return "it sets flags, which `grep -E` does not have"
    try:
        tree = _parser.parse(text)
        re.compile(text)
    except re.error as error:
        return f"it is not a regular expression: {error}"
    problem = _problem(tree, is_repeated=False)
    gaps = _gaps(tree)
    if not problem and gaps > _GAPS_MAX:
        problem = f"it has {gaps} wide gaps in a row; more than {_GAPS_MAX} are slow on hostile lines"
    return problem


def _problem(tree: Iterable[Any], *, is_repeated: bool) -> str:
    for op, value in tree:
        name = str(op)
        if name in _FORBIDDEN:
            return f"it has {_FORBIDDEN[name]}"
        if name == "MAX_REPEAT":
            least, most = int(value[0]), int(value[1])
            if is_repeated and most != least and most > 1:
                return "it has a repeat inside a repeat, which is not linear"
            if most > GAP_MAX:
                return f"it has a gap without a bound: write `{{0,{GAP_MAX}}}` or less"
            is_inner = is_repeated or most > 1
        else:
            is_inner = is_repeated
        for part in _parts(name, value):
            problem = _problem(part, is_repeated=is_inner)
            if problem:
                return problem
    return ""


def _parts(name: str, value: Any) -> Sequence[Any]:
    """The patterns inside one element."""
    if name == "MAX_REPEAT":
        return (value[2],)
    if name == "SUBPATTERN":
        return (value[3],)
    return tuple(value[1]) if name == "BRANCH" else ()


def _gaps(tree: Iterable[Any]) -> int:
    """How many wide gaps one match can pass: those of branches do not add up."""
    count = 0
    for op, value in tree:
        name = str(op)
        if name == "MAX_REPEAT" and value[0] != value[1] and int(value[1]) > _WIDE:
            count += 1
        count += max(map(_gaps, _parts(name, value)), default=0)
    return count


def literals_of(text: str) -> tuple[str, ...]:
    """Texts one of which stands in every line that a pattern matches; none when there are no such texts.

    Each is four characters or longer.
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
        begun = _beginnings(name, value)
        if run and begun and min(len(run + text) for text in begun) >= LITERAL_MIN:
            choices.append(frozenset(run + text for text in begun))
        run = ""
        choices.append(_required_of(name, value))
    return _best([choice for choice in choices if choice])


def _beginnings(name: str, value: Any) -> frozenset[str]:
    """The literals that the alternatives of a group begin with; none where one begins with something else."""
    if name == "SUBPATTERN":
        first = value[3][0] if len(value[3]) else ("END", None)
        if str(first[0]) == "BRANCH" and len(value[3]) == 1:
            return _beginnings("BRANCH", first[1])
        run = _run(value[3])
        return frozenset([run]) if run else frozenset()
    if name != "BRANCH":
        return frozenset()
    runs = [_run(branch) for branch in value[1]]
    return frozenset(runs) if all(runs) else frozenset()


def _run(tree: Iterable[Any]) -> str:
    run = ""
    for op, value in tree:
        if str(op) != "LITERAL":
            break
        run += chr(value)
    return run


def _required_of(name: str, value: Any) -> frozenset[str]:
    if name == "SUBPATTERN":
        return _required(value[3])
    if name == "MAX_REPEAT" and int(value[0]) > 0:
        return _required(value[2])
    if name == "BRANCH":
        branches = [_required(branch) for branch in value[1]]
        return frozenset().union(*branches) if all(branches) else frozenset()
    return frozenset()


#: Words that stand in the logs of every host: a literal of nothing else finds too much.
# fmt: off
_COMMON = frozenset(
    [
        "error", "failed", "fail", "found", "not", "device", "driver", "kernel", "running", "ready",
        "cache", "memory", "available", "required", "missing", "unknown", "invalid", "symbol",
        "container", "enabled", "disabled", "install", "installed", "newer", "stale", "while", "hours",
        "slice", "exit", "init", "stderr", "cannot", "denied", "rejected", "require", "requires",
        "supported", "support", "version", "failure", "reload", "blocks", "nvidia", "torch", "cuda",
        "linux", "gpu", "gpus", "instance", "corrupt", "process", "request", "level", "warning", "info",
        "debug",
    ]
)
# fmt: on


def _best(choices: Sequence[frozenset[str]]) -> frozenset[str]:
    """The choice that finds the fewest lines beside those meant: its weakest text is the strongest."""
    return max(choices, key=lambda choice: (min(map(_strength, choice)), -len(choice)), default=frozenset())


def _strength(text: str) -> int:
    """How much a literal says: its length, without what varies between lines, up to 12."""
    if text.strip(" :.,/[]()").lower() in _COMMON:
        return 1
    return min(12, sum(character not in VARIES + " \t" for character in text))


#: Classes as POSIX writes them; the same bytes as Python's with `re.ASCII`.
_CLASSES = {
    "CATEGORY_DIGIT": "0-9",
    "CATEGORY_SPACE": " \t\r\f\v",
    "CATEGORY_WORD": "A-Za-z0-9_",
}
_ANCHORS = {"AT_BEGINNING": "^", "AT_END": "$", "AT_BOUNDARY": r"\b", "AT_NON_BOUNDARY": r"\B"}


def as_ere(text: str) -> str:
    """A pattern as `grep -E` reads it, in the C locale: it matches the same lines."""
    return "".join(_ere(str(op), value) for op, value in _parser.parse(text))


def _ere(name: str, value: Any) -> str:
    if name == "LITERAL":
        return (
            f"[{chr(value)}]"
            if chr(value) in r".[*+?{}()|$"
            else {"^": r"\^", "\\": r"\\"}.get(chr(value), chr(value))
        )
    if name == "ANY":
        return "."
    if name == "AT":
        return _ANCHORS[str(value)]
    if name == "NOT_LITERAL":
        return f"[^{chr(value)}]"
    if name == "IN":
        return _bracket(value)
    if name == "BRANCH":
        return "(" + "|".join("".join(_ere(str(op), v) for op, v in branch) for branch in value[1]) + ")"
    if name == "SUBPATTERN":
        return "(" + "".join(_ere(str(op), v) for op, v in value[3]) + ")"
    inner = "".join(_ere(str(op), v) for op, v in value[2])
    return f"({inner}){{{int(value[0])},{int(value[1])}}}"


def _bracket(items: Sequence[Any]) -> str:
    """A bracket expression: `]` first and `-` last, where POSIX wants them."""
    if len(items) == 1 and "_NOT_" in str(items[0][1]):
        return f"[^{_CLASSES[str(items[0][1]).replace('_NOT', '')]}]"
    negated, body, ends = "", "", ("", "")
    for op, value in items:
        name = str(op)
        if name == "NEGATE":
            negated = "^"
        elif name == "RANGE":
            body += f"{chr(value[0])}-{chr(value[1])}"
        elif name == "CATEGORY":
            body += _CLASSES[str(value)]
        else:
            first, last = ends
            character = chr(value)
            ends = ("]", last) if character == "]" else (first, "-") if character == "-" else ends
            body += "" if character in "]-" else character
    if body.startswith("^") and not negated and not ends[0]:
        body = body[1:] + "^" if len(body) > 1 or ends[1] else r"\^"
    return f"[{negated}{ends[0]}{body}{ends[1]}]"


def shape_pattern(text: str) -> str:
    """A pattern that the shape of every line matches which the given one matches.

    What varies is left out of the line, so literals lose it, classes that hold it may come to nothing, and
    boundaries between words are gone.
    """
    return "".join(_shape(str(op), value) for op, value in _parser.parse(text))


def _shape(name: str, value: Any) -> str:
    if name == "LITERAL":
        return "" if chr(value) in VARIES else re.escape(chr(value))
    if name == "AT":
        return _ANCHORS[str(value)] if str(value) in ("AT_BEGINNING", "AT_END") else ""
    if name in ("ANY", "NOT_LITERAL", "IN"):
        return _shape_of_one(name, value)
    if name == "BRANCH":
        return "(?:" + "|".join("".join(_shape(str(op), v) for op, v in branch) for branch in value[1]) + ")"
    parts = value[3] if name == "SUBPATTERN" else value[2]
    inner = "".join(_shape(str(op), v) for op, v in parts)
    if name == "SUBPATTERN" or not inner:
        return f"(?:{inner})" if inner else ""
    least, most = int(value[0]), int(value[1])
    if inner.endswith("?") and len(parts) == 1 and str(parts[0][0]) in ("ANY", "NOT_LITERAL", "IN"):
        return f"{inner[:-1]}{{0,{most}}}"
    return f"(?:{inner}){{{least},{most}}}"


def _shape_of_one(name: str, value: Any) -> str:
    """One character of a class: it may be one that varies, and then nothing is left of it."""
    if name == "ANY":
        return ".?"
    if name == "NOT_LITERAL":
        return f"[^{re.escape(chr(value))}]?"
    written = _bracket(value)
    found = re.compile(written)
    if not any(found.match(character) for character in VARIES):
        return written
    left = [chr(n) for n in range(1, 128) if chr(n) not in VARIES + "\n" and found.match(chr(n))]
    return (
        "[" + "".join(map(re.escape, left)) + ("\x80-\xff" if found.match("\xe9") else "") + "]?"
        if left
        else ""
    )
