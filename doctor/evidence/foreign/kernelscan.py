"""The kernel log parts of a bug report: `dmesg`, and what its script found in the logs of three boots."""

from __future__ import annotations

import re

from doctor.evidence.foreign.gather import Gathered

__all__ = ["add_kernel_scan", "add_ring_buffer", "newest"]

_BLOCK = re.compile(
    r"^  (?:(/var/log/[\w.-]{1,60})|journalctl -b -?(\d))(?::| is not readable)[ \t]*$", re.MULTILINE
)
_UNREADABLE = re.compile(r"^ *(/var/log/[\w.-]{1,60}) is not readable", re.MULTILINE)
#: The largest source seen has 106 kB; a flood of one message must not cost the reader its time.
_LOG_MAX = 1024 * 1024
_FILTERED = "only the lines that the report's script looked for"


def add_ring_buffer(found: Gathered, body: bytes, *, is_whole: bool) -> None:
    """The `dmesg` section, as the kernel gave it."""
    lines = newest(body.strip(b"\n"))
    is_whole = is_whole and len(body) <= _LOG_MAX
    found.command(("dmesg",), lines, "ok" if is_whole else "truncated")


def add_kernel_scan(found: Gathered, body: bytes) -> None:
    """One item a source. `truncated`, because a search kept the lines: absence of others proves nothing."""
    text = body.decode("utf-8", "replace")
    heads = list(_BLOCK.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)]
    # Without any head, as in the scripts of 2013, no line says where it came from.
    for head, end in zip(heads, ends, strict=False):
        path, boot = head.groups()
        lines = text[head.end() : end].strip("\n")
        if path and "is not readable" in head.group(0):
            found.file(path, None, "denied", "is not readable")
        elif path and _is_refusal(lines, path):
            found.file(path, None, "error", lines.strip()[:300])
        elif path:
            found.file(path, newest(lines.encode()), "truncated", _FILTERED)
        else:
            argv = ("journalctl", "-k", "-b", f"-{boot}" if boot != "0" else "0")
            found.command(argv, newest(lines.encode()), "truncated", _FILTERED)
    for refused in _UNREADABLE.finditer(text):
        found.file(refused.group(1), None, "denied", "is not readable")


def _is_refusal(lines: str, path: str) -> bool:
    """`Binary file PATH matches`, in any language: grep gave up there, so nothing can be concluded."""
    return "\n" not in lines.strip() and path in lines and "kernel:" not in lines


def newest(data: bytes) -> bytes:
    """The end of a log, from the beginning of a line on."""
    return data if len(data) <= _LOG_MAX else data[-_LOG_MAX:].partition(b"\n")[2]
