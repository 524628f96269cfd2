"""The answer of `check` as JSON lines: each finding, each cause, and the verdict last (`--format jsonl`)."""

from __future__ import annotations

from typing import Any

import msgspec

from doctor.core.finding import CheckReport
from doctor.report.escape import UNSAFE
from doctor.report.machine import written

__all__ = ["to_jsonl"]


def to_jsonl(report: CheckReport) -> bytes:
    """One document a line, each with `type`: `finding`, `cause`, `advice`, `verdict` last."""
    rows: list[dict[str, Any]] = []
    for kind, values in (("finding", report.findings), ("cause", report.causes), ("advice", report.advice)):
        rows += [{"type": kind, **_plain(value)} for value in values]
    whole = _plain(msgspec.structs.replace(report, findings=(), causes=(), advice=()))
    rows.append(
        {"type": "verdict", **{k: v for k, v in whole.items() if k not in ("findings", "causes", "advice")}}
    )
    return b"".join(_line(row) for row in rows)


def _plain(value: msgspec.Struct) -> dict[str, Any]:
    """Fields in their declared order, maps sorted: the same value gives the same bytes."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value, order="deterministic"))
    return plain


def _line(row: dict[str, Any]) -> bytes:
    text = msgspec.json.encode(row).decode()
    return UNSAFE.sub(written, text).encode() + b"\n"
