"""One pass over a log of any size: how many lines each signature matches, and the first and last of them.

Logs repeat themselves. A line without its digits is its shape; whether a shape can
hold the literal of some signature is found once and remembered, so that a line that says nothing new costs
one look-up. Only lines of a shape that can are searched, for the few signatures that it leaves. Memory is
flat: shapes are forgotten when there are too many, and of each signature a handful of lines is kept.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import BinaryIO

from doctor.core.logline import LogLine, log_lines
from doctor.core.rows.signature import VARIES, SignatureRow

__all__ = ["BLOCK", "Scan", "scan_chunks", "scan_log"]

BLOCK = 4 * 1024 * 1024
_VARIES = VARIES.encode()
#: Remembered shapes: some 20 MiB at most.
_SHAPES_MAX = 100_000
_SHAPE_MAX = 400
#: What digits leave of a hash or a UUID that stands by itself. No literal holds such a word (see `_Sieve`).
_HASH = re.compile(rb"(?<![A-Za-z])[a-f-]{6,}(?![A-Za-z])")
#: Of a longer line its beginning is judged.
_LINE_MAX = 1024 * 1024
#: Lines around a kept one, which may hold the rest of a message.
_AROUND = 3

_Rows = tuple[int, ...]


class Scan:
    """What was found. `lines` and `matched_lines` are of the whole log, `counts` lines by signature."""

    def __init__(self, keep: int) -> None:
        self.lines = 0
        self.matched_lines = 0
        self.counts: dict[str, int] = {}
        self._keep = keep
        self._first: dict[str, list[tuple[int, list[bytes]]]] = {}
        self._last: dict[str, deque[tuple[int, list[bytes]]]] = {}

    def note(self, name: str, number: int, around: list[bytes]) -> None:
        """A line that a signature matches: the first and the last few are kept, with those around them."""
        count = self.counts[name] = self.counts.get(name, 0) + 1
        if count <= self._keep:
            self._first.setdefault(name, []).append((number, around))
        else:
            self._last.setdefault(name, deque(maxlen=self._keep)).append((number, around))

    def kept(self) -> tuple[LogLine, ...]:
        """The kept lines in the order of the log, with their numbers in it."""
        raw: dict[int, bytes] = {}
        for places in (*self._first.values(), *self._last.values()):
            for first, texts in places:
                raw.update((first + n, text) for n, text in enumerate(texts))
        return tuple(
            line
            for number in sorted(raw)
            for line in log_lines(raw[number].decode("utf-8", "replace").replace("\r", ""), number)
        )


class _Sieve:
    """Which signatures a line can be of, by its shape, and which it is of."""

    def __init__(self, rows: Sequence[SignatureRow]) -> None:
        self.names = [row.id for row in rows]
        self._find = [re.compile(row.pattern.encode()).search for row in rows]
        self._fits = [re.compile(row.shape.encode("latin-1")).search for row in rows]
        #: Signatures by an end of one of their literals that begins with its rarest character.
        ends: dict[bytes, set[int]] = {}
        #: A signature without literals, or with one that leaves no shape, is asked of every shape.
        self._always: set[int] = set()
        for number, row in enumerate(rows):
            shapes = {text.encode().translate(None, _VARIES) for text in row.literals}
            if not shapes or b"" in shapes or any(_HASH.search(text) for text in shapes):
                self._always.add(number)
            for text in shapes - {b""}:
                ends.setdefault(_rarest_end(text), set()).add(number)
        #: The trie finds the longest end at a place; whatever is its beginning stands there, too.
        self._held = {
            text: {n for other, numbers in ends.items() if text.startswith(other) for n in numbers}
            for text in ends
        }
        self._next = re.compile(_trie(ends)).search if ends else None

    def candidates(self, shape: bytes) -> _Rows:
        """Numbers of the signatures that a line of this shape can be of."""
        found = self._always
        match = self._next(shape) if self._next is not None else None
        while match is not None and self._next is not None:
            found = found | self._held[match[0]]
            match = self._next(shape, match.start() + 1)
        return tuple(n for n in sorted(found) if self._fits[n](shape) is not None) if found else ()

    def matched(self, line: bytes, rows: _Rows) -> list[int]:
        """Those of the candidates that the line is of."""
        return [n for n in rows if self._find[n](line) is not None]


#: Characters of logs, the most frequent first; one that is missing here is rarer than all.
_FREQUENT = b" eatinorslcdmu:p-gh/.bfyv_[]w=,kTINORAESxPCDLMGUFVBHKW"


def _rarest_end(text: bytes) -> bytes:
    """The text from its rarest character on, four bytes at least: `re` skips quickly to a rare first byte."""
    places = range(max(1, len(text) - 3))
    return text[max(places, key=lambda n: (_FREQUENT.find(text[n]) % 256, -n)) :]


def _trie(texts: Iterable[bytes]) -> bytes:
    """A pattern that finds any of the texts, with their common beginnings shared."""
    tree: dict[int, dict] = {}  # type: ignore[type-arg]  # a tree of itself
    for text in texts:
        node = tree
        for byte in text:
            node = node.setdefault(byte, {})
        node[-1] = {}
    whole = _branches(tree)
    # A group around it all would hide the first bytes from `re`.
    return whole[3:-1] if whole.startswith(b"(?:") and len(tree) > 1 else whole


def _branches(node: dict[int, dict]) -> bytes:  # type: ignore[type-arg]
    parts = [re.escape(bytes([n])) + _branches(inner) for n, inner in sorted(node.items()) if n >= 0]
    if not parts:
        return b""
    joined = parts[0] if len(parts) == 1 and -1 not in node else b"(?:" + b"|".join(parts) + b")"
    return joined + b"?" if -1 in node else joined


def scan_log(stream: BinaryIO, rows: Sequence[SignatureRow], *, keep: int = 10) -> Scan:
    """Scan a file that is open for reading bytes, from where it stands to its end."""
    return scan_chunks(iter(lambda: stream.read(BLOCK), b""), rows, keep=keep)


def scan_chunks(chunks: Iterable[bytes], rows: Sequence[SignatureRow], *, keep: int = 10) -> Scan:
    """Scan the pieces of a log. Any bytes will do: NULs, long lines, cut characters are lines like others."""
    scan, sieve = Scan(keep), _Sieve(rows)
    known: dict[bytes, _Rows] = {}
    rest = b""
    for chunk in chunks:
        lines = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
        rest = lines.pop()
        _scan_lines(lines, scan, sieve, known)
        if len(rest) > _LINE_MAX:
            rest = rest[:_LINE_MAX]
    if rest:
        _scan_lines([rest], scan, sieve, known)
    return scan


def _scan_lines(lines: list[bytes], scan: Scan, sieve: _Sieve, known: dict[bytes, _Rows]) -> None:
    """The loop that decides the rate: for a line of a known shape without candidates, three calls."""
    ask: Callable[[bytes], _Rows | None] = known.get
    varies = _VARIES
    for place, line in enumerate(lines):
        shape = line.translate(None, varies)
        rows = ask(shape)
        if rows is None:
            rows = _new_shape(shape, sieve, known)
        if rows:
            found = sieve.matched(line[:_LINE_MAX], rows)
            if found:
                scan.matched_lines += 1
                first = max(0, place - _AROUND)
                around = [text[:_LINE_MAX] for text in lines[first : place + _AROUND + 1]]
                for number in found:
                    scan.note(sieve.names[number], scan.lines + first + 1, around)
    scan.lines += len(lines)


def _new_shape(shape: bytes, sieve: _Sieve, known: dict[bytes, _Rows]) -> _Rows:
    """The candidates of a shape that was not seen before, looking away from what is left of hashes."""
    bare = _HASH.sub(b"", shape)
    rows = known.get(bare) if bare != shape else None
    if rows is None:
        rows = sieve.candidates(bare)
    if len(known) >= _SHAPES_MAX:
        known.clear()
    if len(bare) <= _SHAPE_MAX:
        known[bare] = rows
    return rows
