"""Values of a `config.json`, with bounds: the file is not ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["NotTold", "Reading"]

#: No size of a model comes near it; a product of such numbers stays below 2**200.
_SIZE_MAX = 2**31
_LAYERS_MAX = 10_000


class NotTold(Exception):  # noqa: N818 - an answer, not an error
    """The config lacks a value that the family's rule needs, or has none that can be meant."""


class Reading:
    """Look-ups in a config. `defaults` are those of the family's class in transformers, for what a file
    leaves out because it equals them; what must be told stands in neither and raises `NotTold`.
    """

    def __init__(self, config: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> None:
        self.config = config
        self.defaults = defaults or {}
        self.problems: list[str] = []

    def raw(self, *names: str) -> Any:
        """The first of these that is there and not null, else the family's default, else None."""
        for source in (self.config, self.defaults):
            for name in names:
                if source.get(name) is not None:
                    return source[name]
        return None

    def size(self, *names: str, default: int | None = None) -> int:
        """A whole number from 0 on. Raises `NotTold`."""
        said = self.raw(*names)
        if said is None:
            if default is None:
                raise NotTold(f"the config does not say `{names[0]}`")
            return default
        if type(said) is not int or not 0 <= said <= _SIZE_MAX:
            raise NotTold(f"`{names[0]}` is {str(said)[:40]!r}, which is no size")
        return said

    def positive(self, *names: str, default: int | None = None) -> int:
        """A whole number from 1 on. Raises `NotTold`."""
        found = self.size(*names, default=default)
        if found == 0:
            raise NotTold(f"`{names[0]}` is 0")
        return found

    def flag(self, name: str, *, default: bool = False) -> bool:
        said = self.raw(name)
        return said if isinstance(said, bool) else default

    def number(self, *names: str) -> float | None:
        said = self.raw(*names)
        if isinstance(said, bool) or not isinstance(said, int | float):
            return None
        return float(said) if abs(said) < 1e300 else None

    def text(self, *names: str) -> str:
        said = self.raw(*names)
        return said[:200] if isinstance(said, str) else ""

    def words(self, name: str) -> tuple[str, ...] | None:
        """A list of text, None where there is none."""
        said = self.raw(name)
        if not isinstance(said, list) or len(said) > _LAYERS_MAX:
            return None
        return tuple(said) if all(isinstance(one, str) for one in said) else None

    def sizes(self, name: str) -> tuple[int, ...] | None:
        """A list of whole numbers, None where there is none."""
        said = self.raw(name)
        if not isinstance(said, list) or len(said) > _LAYERS_MAX:
            return None
        return tuple(said) if all(type(one) is int for one in said) else None

    @property
    def layers(self) -> int:
        """How many layers. Raises `NotTold`."""
        found = self.positive("num_hidden_layers", "n_layer", "num_layers")
        if found > _LAYERS_MAX:
            raise NotTold(f"`num_hidden_layers` is {found}")
        return found
