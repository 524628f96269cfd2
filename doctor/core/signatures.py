"""Which signatures a text holds: a pure matcher over plain lines, also where they were wrapped."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from doctor.core.logline import LogLine
from doctor.core.rows.signature import SignatureRow

__all__ = ["NEARBY", "Hit", "compiled", "find_hits"]

#: Lines before and after within which `also` and `unless` are looked for.
NEARBY = 60
#: A line shorter than this was not broken by a terminal or the kernel: the next one is another message.
_BROKEN_FROM = 28
_WINDOW = 3
#: Of one signature in one text: the first and the last say as much as all between them.
_HITS_MAX = 200


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A signature found in a text."""

    signature: SignatureRow
    line: int
    """Number of the line where it begins."""
    text: str
    named: dict[str, str] = {}
    """What the pattern's named groups took: `driver_version`, `gpu`, …"""


class _Page:
    """A text, joined in the ways in which a signature may stand in it."""

    def __init__(self, lines: Sequence[LogLine]) -> None:
        self.lines = lines
        self.whole = "\n".join(line.text for line in lines)
        self.spaced = " ".join(line.body for line in lines)
        self.tight = "".join(line.body for line in lines)

    def holds(self, row: SignatureRow) -> tuple[bool, bool]:
        """(in one line perhaps, across lines perhaps), by the signature's literals."""
        if not row.literals:
            return True, True
        in_line = any(text in self.whole for text in row.literals)
        across = in_line or any(text in self.spaced or text in self.tight for text in row.literals)
        return in_line, across


def compiled(text: str) -> re.Pattern[str]:
    """A signature's pattern. `re` keeps compiled ones; digits and words are those of ASCII."""
    return re.compile(text, re.ASCII)


def find_hits(
    rows: Sequence[SignatureRow], lines: Sequence[LogLine], *, ignore_case: bool = False
) -> tuple[Hit, ...]:
    """Every signature in these lines, by line. One that no single line holds is sought across lines.

    `ignore_case` is for text that a person typed from memory.
    """
    if ignore_case:
        rows = tuple(_in_any_case(row) for row in rows)
        lines = [
            LogLine(number=line.number, text=line.text.lower(), body=line.body.lower()) for line in lines
        ]
    page = _Page(lines)
    found: list[Hit] = []
    for row in rows:
        in_line, across = page.holds(row)
        if not across:
            continue
        hits = list(_in_lines(row, page)) if in_line else []
        hits = hits or list(_across_lines(row, page))
        found += [hit for place, hit in hits if _has_company(row, page, place)]
    return tuple(sorted(found, key=lambda hit: hit.line))


def _in_any_case(row: SignatureRow) -> SignatureRow:
    """The row for lines in lower case; its pattern minds no case."""
    return msgspec.structs.replace(
        row,
        pattern=f"(?i){row.pattern}",
        also=f"(?i){row.also}" if row.also else "",
        unless=f"(?i){row.unless}" if row.unless else "",
        literals=tuple(text.lower() for text in row.literals),
    )


def _in_lines(row: SignatureRow, page: _Page) -> Iterator[tuple[int, Hit]]:
    find, count = compiled(row.pattern), 0
    for place, line in enumerate(page.lines):
        if row.literals and not any(text in line.text for text in row.literals):
            continue
        match = find.search(line.text)
        if match is not None:
            yield place, _hit(row, line, line.text, match)
            count += 1
            if count >= _HITS_MAX:
                return


def _across_lines(row: SignatureRow, page: _Page) -> Iterator[tuple[int, Hit]]:
    """One hit at most: the kernel and terminals break lines, forums break them anywhere."""
    find = compiled(row.pattern)
    for place, line in enumerate(page.lines):
        if len(line.text) < _BROKEN_FROM:
            continue
        for glue in (" ", ""):
            for text in _joined(page.lines, place, glue):
                match = find.search(text)
                if match is not None and match.start() < len(line.text):
                    yield place, _hit(row, line, text, match)
                    return


def _joined(lines: Sequence[LogLine], place: int, glue: str) -> Iterator[str]:
    text = lines[place].text
    for line in lines[place + 1 : place + _WINDOW]:
        text = f"{text}{glue}{line.body}"
        yield text
        if len(line.text) < _BROKEN_FROM:
            return


def _hit(row: SignatureRow, line: LogLine, text: str, match: re.Match[str]) -> Hit:
    named = {name: value for name, value in match.groupdict().items() if value}
    return Hit(signature=row, line=line.number, text=text, named=named)


def _has_company(row: SignatureRow, page: _Page, place: int) -> bool:
    """Whether what must stand nearby does, and what must not does not."""
    if not row.also and not row.unless:
        return True
    number = page.lines[place].number
    # Of a large log there are only the lines that matter: neighbours may be far away.
    near = [
        line
        for line in page.lines[max(0, place - NEARBY) : place + NEARBY + 1]
        if abs(line.number - number) <= NEARBY
    ]
    text = "\n".join(line.text for line in near) + "\n" + " ".join(line.body for line in near)
    if row.also and compiled(row.also).search(text) is None:
        return False
    return not row.unless or compiled(row.unless).search(text) is None
