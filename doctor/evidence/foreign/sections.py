"""A bug report in sections: split as it streams, each section kept as far as its title is worth.

Sections stand between lines of 44 underscores; the first line that is not blank is the title. The bulk
of a report (X logs, compiler output, base64) is never held in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

__all__ = ["RULE", "Keep", "Section", "split"]

RULE = b"_" * 44

#: Real reports have up to 338 sections.
_SECTIONS_MAX = 20_000
#: Lines of underscores that are no separator; more of them are somebody's joke.
_CANDIDATES_MAX = 200_000
_TITLE_MAX = 8192
_KEPT_MAX = 64 * 1024 * 1024


class Keep:
    """How much of a section's body is kept: its first `head` bytes and its last `tail` bytes."""

    __slots__ = ("head", "tail")

    def __init__(self, head: int = 0, tail: int = 0) -> None:
        self.head = head
        self.tail = tail


_NOTHING = Keep()
Rule = Callable[[str], Keep]


class Section:
    """One section: title, and the body without it. `is_cut`: bytes of the body were left out."""

    __slots__ = ("_head", "_keep", "_tail", "_title", "is_cut", "is_ended")

    def __init__(self) -> None:
        self._title = b""
        self._keep: Keep | None = None
        self._head = bytearray()
        self._tail = bytearray()
        self.is_cut = False
        self.is_ended = False
        """True when another separator follows: the section was written to its end."""

    @property
    def title(self) -> str:
        return self._title.decode("utf-8", "replace").strip()

    @property
    def body(self) -> bytes:
        return bytes(self._head + self._tail)

    @property
    def size(self) -> int:
        return len(self._head) + len(self._tail)

    def add(self, data: bytes, rule: Rule) -> None:
        """More of the section. The rule is asked once, as soon as the title is whole."""
        if self._keep is None:
            data = self._take_title(data, rule)
        keep = self._keep
        if keep is None or not data:
            return
        room = keep.head - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        if not keep.tail:
            self.is_cut = True
            return
        self._tail += data
        if len(self._tail) > 2 * keep.tail:
            self._trim(keep.tail)

    def _take_title(self, data: bytes, rule: Rule) -> bytes:
        text = (self._title + data).lstrip(b"\r\n\t ")
        line, end, rest = text.partition(b"\n")
        if not end and len(text) < _TITLE_MAX:
            self._title = text
            return b""
        self._title = line[:_TITLE_MAX]
        self._keep = rule(self.title)
        return rest

    def _trim(self, size: int) -> None:
        del self._tail[:-size]
        self.is_cut = True

    def close(self, rule: Rule, *, is_ended: bool) -> None:
        if self._keep is None:
            self._keep = rule(self.title)
        if self._keep.tail and len(self._tail) > self._keep.tail:
            self._trim(self._keep.tail)
        self.is_ended = is_ended


def split(chunks: Iterable[bytes], rule: Rule, notes: list[str]) -> Iterator[Section]:
    """The sections of a report in order; what is left of a cut one comes last."""
    section, count, kept = Section(), 0, 0
    limited = rule
    for data, is_end in _at_rules(chunks, notes):
        section.add(data, limited)
        if not is_end:
            continue
        section.close(limited, is_ended=True)
        kept += section.size
        yield section
        section, count = Section(), count + 1
        if count >= _SECTIONS_MAX:
            notes.append(f"more than {_SECTIONS_MAX} sections: the rest was not read")
            return
        if kept > _KEPT_MAX and limited is rule:
            notes.append(
                f"more than {_KEPT_MAX // 1024**2} MiB in sections that matter: the rest was not kept"
            )
            limited = _drop
    section.close(limited, is_ended=False)
    yield section


def _drop(_title: str) -> Keep:
    return _NOTHING


def _at_rules(chunks: Iterable[bytes], notes: list[str]) -> Iterator[tuple[bytes, bool]]:
    """Pieces of text, each with whether a separator line follows it."""
    mark, held, candidates = b"\n" + RULE, b"\n", 0
    for chunk in chunks:
        data, start = held + chunk, 0
        while (found := data.find(mark, start)) >= 0:
            end = data.find(b"\n", found + 1, found + len(mark) + 3)
            if end < 0 and len(data) < found + len(mark) + 3:
                break  # the line may go on in the next chunk
            candidates += 1
            if candidates > _CANDIDATES_MAX:
                notes.append("too many lines of underscores: the rest was not read")
                return
            if end >= 0 and not data[found + len(mark) : end].strip(b"\r\t "):
                yield data[start : found + 1], True
                start = end
            else:
                yield data[start : found + len(mark)], False
                start = found + len(mark)
        # A separator may begin in the last bytes.
        cut = found if found >= 0 else max(start, len(data) - len(mark) - 2)
        yield data[start:cut], False
        held = data[cut:]
    if held.startswith(mark) and not held[len(mark) :].strip():
        yield b"", True
        held = b""
    yield held, False
