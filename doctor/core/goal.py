"""The goal a host is judged against, and its grammar. Without a wish it is `present`.

`vllm==0.33.0,use=fp8,delivery=venv,policy=repair`: terms joined by commas. A term is a component with a
version set or without one (`vllm`: the newest that fits), `use=WORD`, `delivery=WORD`, `policy=WORD`, or
`KIND:NAME` such as `flag:NAME` and `model:NAME`.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from doctor.core.pattern import pattern
from doctor.errors import UsageError

__all__ = [
    "DELIVERIES",
    "NAMED",
    "POLICIES",
    "PRESENT",
    "SENTENCE",
    "USES",
    "Delivery",
    "Goal",
    "NamedThing",
    "Policy",
    "Term",
    "Use",
    "is_term",
    "parse_goal",
    "parse_term",
]

Policy = Literal["repair", "harden"]
Delivery = Literal["venv", "container", "system"]
Use = Literal["fp8", "int8", "kv-fp8", "nvcc", "engine-build", "driver"]

POLICIES: tuple[Policy, ...] = ("repair", "harden")
DELIVERIES: tuple[Delivery, ...] = ("venv", "container", "system")
USES: tuple[Use, ...] = ("fp8", "int8", "kv-fp8", "nvcc", "engine-build", "driver")

#: Kinds of names that a goal can ask about.
NAMED = (
    *("flag", "metric", "route", "variable", "program", "field", "path"),
    *("default", "model", "quantization", "kv-cache"),
)
#: The kind of a sentence in plain words; it has commas, so that no goal of terms can hold one.
SENTENCE = "sentence"
_TERM = pattern(r"([a-z][a-z0-9-]*)\s*((?:~=|==|!=|<=|>=|<|>).*)", re.DOTALL)
_BARE = pattern(r"[a-z][a-z0-9-]*")
_CONTINUES = pattern(r"\s*(~=|==|!=|<=|>=|<|>)")


#: The set of a component that is named without one: any version, and of these the newest that fits.
_ANY = "*"


class Term(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A component and the versions (or words) wanted of it: `vllm` `==0.33.0`."""

    component: str
    spec: str

    @property
    def text(self) -> str:
        """As it is written in a goal."""
        return f"{self.component}{'' if self.spec == _ANY else self.spec}"


class NamedThing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A flag, metric or the like that a goal asks about."""

    kind: str
    name: str

    @property
    def text(self) -> str:
        """As it is written in a goal."""
        return f"{self.kind}:{self.name}"


class Goal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the host is for. `present` fixes each installed component at its version; age never fails."""

    text: str = "present"
    terms: tuple[Term, ...] = ()
    uses: tuple[Use, ...] = ()
    delivery: Delivery | None = None
    policy: Policy | None = None
    names: tuple[NamedThing, ...] = ()


PRESENT = Goal()


def parse_goal(text: str) -> Goal:
    """The goal of a text. Raises `UsageError` with the words that are known."""
    wanted = text.strip()
    if wanted in ("", PRESENT.text):
        return PRESENT
    found: dict[str, list[object]] = {"terms": [], "uses": [], "names": []}
    single: dict[str, str] = {}
    for part in _parts(wanted):
        head, separator, tail = part.partition("=")
        if separator and not tail.startswith("=") and head in ("use", "delivery", "policy"):
            _word(head, tail.strip(), found, single)
        elif part.partition(":")[0] in NAMED:
            kind, _colon, name = part.partition(":")
            found["names"].append(NamedThing(kind=kind, name=_filled(name, part)))
        elif _BARE.fullmatch(part):
            found["terms"].append(Term(component=part, spec=_ANY))
        else:
            found["terms"].append(parse_term(part))
    return Goal(
        text=wanted,
        terms=tuple(found["terms"]),  # type: ignore[arg-type]
        uses=tuple(dict.fromkeys(found["uses"])),  # type: ignore[arg-type]
        names=tuple(found["names"]),  # type: ignore[arg-type]
        delivery=single.get("delivery"),  # type: ignore[arg-type]
        policy=single.get("policy"),  # type: ignore[arg-type]
    )


def is_term(text: str) -> bool:
    """Whether a text has the form of a term, whatever it names."""
    return _TERM.fullmatch(text.strip()) is not None


def parse_term(text: str) -> Term:
    """`driver==570.133.20` as a term. Raises `UsageError` when it is none."""
    match = _TERM.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"`{text.strip()}` is no term of a goal",
            hints=(
                "a component with a version set: `vllm==0.33.0`, `cuda>=12.8`",
                f"or `use=` {', '.join(USES)}; `delivery=`, `policy=`",
                f"or a name: `{'`, `'.join(f'{kind}:' for kind in NAMED)}`",
            ),
        )
    return Term(component=match.group(1), spec=re.sub(r"\s+", "", match.group(2)))


def _parts(text: str) -> list[str]:
    """The terms: a comma inside a version set (`>=0.30,<0.33`) does not end one."""
    parts: list[str] = []
    for piece in text.split(","):
        if _CONTINUES.match(piece) and parts:
            parts[-1] += f",{piece.strip()}"
        elif piece.strip():
            parts.append(piece.strip())
    return parts


def _word(head: str, word: str, found: dict[str, list[object]], single: dict[str, str]) -> None:
    known: tuple[str, ...] = {"use": USES, "delivery": DELIVERIES, "policy": POLICIES}[head]
    if word not in known:
        raise UsageError(f"`{head}={word}` is not known", hints=(f"{head}= one of {', '.join(known)}",))
    if head == "use":
        found["uses"].append(word)
    elif single.setdefault(head, word) != word:
        raise UsageError(f"the goal names `{head}` twice: `{single[head]}` and `{word}`")


def _filled(name: str, part: str) -> str:
    if not name.strip():
        raise UsageError(f"`{part}` names nothing", hints=("for example `flag:--swap-space`",))
    return name.strip()
