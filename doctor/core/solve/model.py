"""A question as variables, links and clauses: what relations compile into."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from doctor.core.goal import Goal
from doctor.core.rows.base import Confidence, Row
from doctor.core.solve.network import Clause, Network, bits
from doctor.core.solve.universe import Universe
from doctor.core.target import GpuKind, Target
from doctor.core.versions import Version

__all__ = ["ABSENT", "OTHER", "Link", "LinkKind", "Model", "Value"]

LinkKind = Literal["relation", "goal", "have", "hold", "fact"]

ABSENT = "not installed"
OTHER = "another"
#: A version, `ABSENT`, or `OTHER`: something else than what is there, of which nothing more is said.
Value = Version | str


class _Domain(NamedTuple):
    """The values of a variable, where each stands, and the masks of sets of them."""

    values: tuple[Value, ...]
    places: dict[Value, int]
    masks: dict[str, int]


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a chain: a relation with its rows, an item of the goal, or a fact of the host."""

    relation: str
    says: str
    """A predicate of `subject` where there is one (`requires torch ==2.14.0`), else a sentence."""
    kind: LinkKind = "relation"
    subject: str = ""
    subject_mask: int = 0
    source: tuple[str, ...] = ()
    confidence: Confidence = "vendor"
    is_soft: bool = False
    """True for what is not known to hold, where the others are known to be so."""
    nearest: str = ""
    doubt: str = ""
    """What is added to the sentence where it is not met: why that is no plain no."""
    overlay: str = ""
    """The site overlays whose rows it rests on."""


class Model:
    """Variables with their values, and clauses between them, for one question and one delivery."""

    def __init__(self, universe: Universe, target: Target, goal: Goal, *, delivery: str) -> None:
        self.universe = universe
        self.target = target
        self.goal = goal
        self.delivery = delivery
        self.names: list[str] = []
        self.values: list[tuple[Value, ...]] = []
        self.links: list[Link] = []
        self.clauses: list[Clause] = []
        self.gpus: list[tuple[GpuKind, str, str]] = []
        """Each kind of GPU, and its variables for the card and its capability."""
        self._index: dict[str, int] = {}
        self._places: list[dict[Value, int]] = []
        self.costs: dict[str, list[list[int]]] = {}
        """By policy, once the model is whole; see `doctor.core.solve.costs`."""
        self._network: Network | None = None
        self._masks: list[dict[str, int]] = []

    # --- variables --------------------------------------------------------------------------------

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def add_variable(self, name: str, values: Iterable[Value]) -> None:
        """A variable; its values stand in ascending order, best known last."""
        self._index[name] = len(self.names)
        self.names.append(name)
        listed = tuple(values)
        # Questions about other machines share most domains, and with them the masks of sets.
        domain = self.universe.kept(
            f"domain {name} {' '.join(map(str, listed))}",
            lambda: _Domain(listed, {value: position for position, value in enumerate(listed)}, {}),
        )
        self.values.append(domain.values)
        self._places.append(domain.places)
        self._masks.append(domain.masks)

    def index(self, name: str) -> int:
        return self._index[name]

    def domain(self, name: str) -> tuple[Value, ...]:
        return self.values[self._index[name]]

    def full(self, name: str) -> int:
        return (1 << len(self.domain(name))) - 1

    def mask(self, name: str, spec: str) -> int:
        """The values that a set names. `*` is every one that is there; `OTHER` is inside each set."""
        masks = self._masks[self._index[name]]
        if spec not in masks:
            wanted = self.universe.set_of(name, spec)
            masks[spec] = self.where(name, wanted.has)
        return masks[spec]

    def where(self, name: str, holds: Callable[[Version], bool]) -> int:
        """The values for which something holds, and `OTHER`."""
        mask = 0
        for position, value in enumerate(self.domain(name)):
            # Not `isinstance`: asking an abstract class costs ten times as much.
            if value is OTHER or (type(value) is not str and holds(value)):  # type: ignore[arg-type]
                mask |= 1 << position
        return mask

    def among(self, name: str, versions: Iterable[Version]) -> int:
        """The mask of some versions; those that are no value of it do not count."""
        places, mask = self._places[self._index[name]], 0
        for version in versions:
            position = places.get(version)
            if position is not None:
                mask |= 1 << position
        return mask

    def one(self, name: str, value: Value) -> int:
        """The mask of one value."""
        return 1 << self._places[self._index[name]][value]

    def absent(self, name: str) -> int:
        """The mask of not being installed; 0 where that is no choice."""
        position = self._places[self._index[name]].get(ABSENT)
        return 0 if position is None else 1 << position

    # --- clauses ----------------------------------------------------------------------------------

    def say(self, link: Link, *alternatives: Iterable[tuple[str, int]]) -> None:
        """A link with its clauses: in each of them one of the named masks has to be met."""
        number = len(self.links)
        found = [
            Clause(tuple((self._index[name], mask) for name, mask in one), number) for one in alternatives
        ]
        found = [clause for clause in found if not self._is_empty(clause)]
        if found:
            self._network = None
            self.links.append(link)
            self.clauses.extend(found)

    def _is_empty(self, clause: Clause) -> bool:
        """True when every assignment meets it."""
        return any(mask == (1 << len(self.values[variable])) - 1 for variable, mask in clause.literals)

    def relate(  # noqa: PLR0913 - a relation has these parts
        self,
        relation: str,
        subject: tuple[str, int],
        says: str,
        *alternatives: tuple[str, int],
        rows: Sequence[Row] = (),
        is_soft: bool = False,
        nearest: str = "",
        doubt: str = "",
    ) -> None:
        """`subject`, where its mask is met, needs one of the alternatives to be met."""
        name, mask = subject
        sources = [text for row in rows for text in row.source]
        weak = any(row.confidence == "unverified" for row in rows)
        link = Link(
            relation=relation,
            says=says,
            subject=name,
            subject_mask=mask,
            source=tuple(dict.fromkeys(sources)),
            confidence="unverified" if weak else _confidence(rows),
            is_soft=is_soft,
            nearest=nearest,
            doubt=doubt,
            overlay=", ".join(dict.fromkeys(row.overlay for row in rows if row.overlay)),
        )
        self.say(link, ((name, self.full(name) & ~mask), *alternatives))

    # --- reading ----------------------------------------------------------------------------------

    def network(self, links: frozenset[int] | None = None) -> Network:
        """The solver's view, with all clauses or those of some links."""
        sizes = [len(values) for values in self.values]
        if links is not None:
            return Network(sizes, [clause for clause in self.clauses if clause.link in links])
        if self._network is None:
            self._network = Network(sizes, self.clauses)
        return self._network

    def hard(self) -> frozenset[int]:
        """The links that are known to be so."""
        return frozenset(number for number, link in enumerate(self.links) if not link.is_soft)

    def components_of(self, link: int) -> tuple[str, ...]:
        """The variables that a link speaks of."""
        found = (self.names[v] for c in self.clauses if c.link == link for v, _mask in c.literals)
        return tuple(dict.fromkeys(found))

    def texts(self, name: str, mask: int) -> list[str]:
        """The values of a mask as text."""
        domain = self.domain(name)
        return [str(domain[position]) for position in bits(mask)]


def _confidence(rows: Sequence[Row]) -> Confidence:
    order: tuple[Confidence, ...] = ("vendor", "measured", "derived", "unverified")
    return max((row.confidence for row in rows), key=order.index, default="vendor")
