"""Lines of logs made plain: colours, escapes and the prefixes of loggers off, so that wrapped text joins."""

from __future__ import annotations

import re

import msgspec

from doctor.core.pattern import pattern

__all__ = ["LogLine", "body_of", "log_lines", "plain"]

#: CSI and OSC sequences, as bytes of a terminal or as JSON wrote them, and what a log viewer leaves of them.
_COLOUR = pattern(
    r"\x1b\[[0-?]{0,32}[ -/]{0,4}[@-~]|\x1b\][^\x07\x1b]{0,500}(?:\x07|\x1b\\)"
    r"|\\u001[bB]\[[0-9;]{0,16}[A-Za-z]"
    r"|\\x1[bB]\[[0-9;]{0,16}[A-Za-z]|\^\[\[[0-9;]{0,16}[A-Za-z]|#033\[[0-9;]{0,16}[A-Za-z]|\x1b[@-_]?"
)
_CONTROL = pattern(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2060\ufeff]")
_SPACES = pattern(r"[ \t\u00a0\u3000]+")
_NAMED = pattern(r"&(?:quot|#34|#39|apos|lt|gt|amp|nbsp);")
_NAMES = {"&quot;": '"', "&#34;": '"', "&#39;": "'", "&apos;": "'", "&lt;": "<", "&gt;": ">", "&amp;": "&"}
#: Word processors and translated messages have typographic quotes where the program printed plain ones.
_QUOTES = str.maketrans(dict.fromkeys("\u2018\u2019`\u00b4", "'") | dict.fromkeys("\u201c\u201d\u201e", '"'))

_CLOCK = r"\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?"
_DAY = r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}"
_WHEN = rf"(?:{_DAY}[T ,_-]?{_CLOCK}|\d{{1,2}}[-/]\d{{1,2}}(?:[-/]\d{{2,4}})?[ -]{_CLOCK}|{_CLOCK})\S{{0,12}}"
#: What stands before a message; each is taken off as often as it comes, in any order.
_PREFIXES = tuple(
    pattern(text)
    for text in (
        rf"\[? ?{_WHEN}\]? ?[:|-]? ",
        r"\[ *\d{1,12}\.\d{1,9}\](?:\[ *[CT]\d{1,9}\])? ",
        r"\[[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} [\d:]{8} \d{4}\] ",
        r"<\d{1,3}>(?:\d )?",
        # journald and syslog: month, clock, host, program.
        r"(?:[A-Z][a-z]{2}|[^\W\d]{2,10}\.?) +\d{1,2} \d\d:\d\d:\d\d (?:\S{1,255} )?",
        r"\S{1,255} (?:kernel|[\w.@-]{1,64}\[\d{1,10}\]): ",
        r"(?:kernel|[\w.@-]{1,64}\[\d{1,10}\]): ",
        r"[EWIF]\d{4} [\d:.]{8,20} +\d{1,10} \S{1,80}:\d{1,6}\] ",
        r"(?:stdout|stderr) [FP] ",
        r"[\w.-]{1,80} {1,40}\| ",
        (
            r"(?:TRACE|DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|CRITICAL|FATAL)\b:? ?"
            r"(?:\[[\w./-]{1,80}(?::\d{1,6})?\]:? )?"
        ),
        r"\[[\w./-]{1,80}\.(?:py|cc|cpp|cu|go|rs|h)(?::\d{1,6})?\] ",
        r"\((?:[\w.-]{1,60} )?pid=\d{1,10}(?:, ip=[\w.:]{1,60})?\) ",
        r"\[(?:rank|default|RANK )?\d{1,5}\]:? ?",
        r"[\w.-]{1,255}:\d{1,10}:\d{1,10} \[\d{1,5}\] ",
        r"\[(?:TRT|TRT-LLM|TensorRT-LLM|TensorRT|TRT_LLM)\] ?(?:\[[A-Z]{1,8}\])? ?",
        r"\[[EWIVF]\] ?",
        r"NVRM: +",
        r"> ",
    )
)
_PREFIXES_MAX = 8
_LINE_MAX = 16_384


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line as it reads: `text` with its prefixes, `body` without."""

    number: int
    """In the text it comes from, from 1. Escaped line ends split a line and leave its number."""
    text: str
    body: str


def plain(raw: str) -> str:
    """A line without colours, control characters, HTML escapes and doubled spaces."""
    text = raw[:_LINE_MAX]
    if not text.isascii():
        text = text.translate(_QUOTES)
    elif "`" in text:
        text = text.replace("`", "'")
    if "\x1b" in text or "[" in text or "#033" in text:
        text = _COLOUR.sub("", text)
    text = _CONTROL.sub("", text)
    if '\\"' in text:
        text = text.replace('\\"', '"')
    if "&" in text:
        text = _NAMED.sub(lambda match: _NAMES.get(match[0], " "), text)
    return _SPACES.sub(" ", text).strip()


def body_of(text: str) -> str:
    """A plain line without timestamps, host, process and logger in front of what it says."""
    for _ in range(_PREFIXES_MAX):
        for prefix in _PREFIXES:
            found = prefix.match(text)
            if found is not None and found.end() < len(text):
                text = text[found.end() :]
                break
        else:
            return text
    return text


def log_lines(text: str, first: int = 1) -> tuple[LogLine, ...]:
    """The lines of a text that say something, numbered from `first`."""
    found: list[LogLine] = []
    for number, raw in enumerate(re.split(r"\r\n|\n|\r", text), first):
        for part in _unfolded(raw):
            line = plain(part)
            if line:
                found.append(LogLine(number=number, text=line, body=body_of(line)))
    return tuple(found)


def _unfolded(raw: str) -> list[str]:
    r"""A line in which JSON or a container engine wrote line ends as `\n`, as the lines they were."""
    return raw[:_LINE_MAX].replace("\\r", "").split("\\n") if "\\n" in raw else [raw]
