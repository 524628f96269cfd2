"""Which answers the code of a check can give, read off its functions: a proof where cases are examples.

From the function of a check, each function of the checks, of environments and of goals that it names is
looked at in turn. The five words of `doctor.core.check` that make an outcome say which answers there are.
"""

from __future__ import annotations

import dis
import importlib
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from doctor.core.check import Check, failed, passed, skipped, unknown, warned
from doctor.core.fit import verdict
from doctor.core.fit.all import ASKED
from tests.core.checks.states.base import Kind

__all__ = ["reachable"]

_WORDS: dict[Any, Kind] = {
    passed: "ok",
    warned: "bad",
    failed: "bad",
    unknown: "unknown",
    skipped: "skip",
    verdict.yes: "ok",
    verdict.warn: "bad",
    verdict.no: "bad",
    verdict.unknown: "unknown",
}
#: Where outcomes are made; claims and views make none.
_WHERE = ("doctor.core.checks.", "doctor.core.fit.", "doctor.core.goal_judge")
_OF_FIT = "doctor.core.checks.engine"


def reachable(one: Check) -> frozenset[Kind]:
    """The answers to which some path of a check leads, those of the judge on its behalf among them."""
    word = one.id.removeprefix("engine.")
    is_of_fit = one.run.__module__ == _OF_FIT
    found = _of(ASKED[word] if is_of_fit else one.run, set())
    # The judge makes a missing fact unknown, a reason not to apply a skip, and no answer at all a skip.
    found |= {"unknown"} if one.needs else set()
    found |= {"skip"} if one.applies else set()
    return frozenset(found)


def _of(function: Any, seen: set[Any]) -> set[Kind]:
    if not isinstance(function, FunctionType) or function in seen:
        return set()
    if function in _WORDS:
        return {_WORDS[function]}
    if not function.__module__.startswith(_WHERE):
        return set()
    seen.add(function)
    found: set[Kind] = set()
    for value in _named(function):
        found |= _of(value, seen)
    return found


def _named(function: FunctionType) -> Iterator[Any]:
    """What a function names: globals, members of modules, what it closes over, what it imports by itself."""
    for code in _codes(function.__code__):
        for name in code.co_names:
            yield function.__globals__.get(name)
        for module in _imported(code):
            yield from (getattr(module, name, None) for name in code.co_names)
    yield from (cell.cell_contents for cell in function.__closure__ or ())


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _imported(code: CodeType) -> Iterator[Any]:
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME" and str(step.argval).startswith("doctor."):
            yield importlib.import_module(step.argval)
