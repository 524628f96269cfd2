"""Saved JSON documents as the values that they were written from."""

from __future__ import annotations

from typing import Any

import msgspec

from doctor.core.explain import EXPLAIN_SCHEMA, ExplainReport
from doctor.core.finding import CheckReport
from doctor.core.host import HOST_SCHEMA, Host
from doctor.core.load import LOAD_SCHEMA, LoadReport
from doctor.core.model_report import MODEL_SCHEMA, ModelReport
from doctor.core.plan import PLAN_SCHEMA, Plan
from doctor.core.run import RUN_SCHEMA, RunReport
from doctor.core.stack import STACK_SCHEMA, WHY_SCHEMA, StackReport, WhyReport
from doctor.core.versions import SCHEMES, Version
from doctor.errors import EvidenceError

__all__ = ["Document", "from_json"]

CHECK_SCHEMA = "mopt.check/1"

Document = (
    CheckReport | ExplainReport | Host | LoadReport | ModelReport | Plan | RunReport | StackReport | WhyReport
)

#: Saved values by the schema that they name.
_DOCUMENTS: dict[str, type[Any]] = {
    CHECK_SCHEMA: CheckReport,
    HOST_SCHEMA: Host,
    STACK_SCHEMA: StackReport,
    WHY_SCHEMA: WhyReport,
    EXPLAIN_SCHEMA: ExplainReport,
    MODEL_SCHEMA: ModelReport,
    LOAD_SCHEMA: LoadReport,
    PLAN_SCHEMA: Plan,
    RUN_SCHEMA: RunReport,
}


def from_json(data: bytes) -> Document:
    """The value of a document, by the schema it names. Raises `EvidenceError` when it cannot be read."""
    try:
        named = msgspec.json.decode(data, type=_Head).schema
        if named in _DOCUMENTS:
            value: Document = msgspec.json.decode(data, type=_DOCUMENTS[named], dec_hook=_decode)
            return value
    except RecursionError:
        raise EvidenceError("the document is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EvidenceError(f"the document cannot be read: {error}") from None
    known = ", ".join(f"`{name}`" for name in _DOCUMENTS)
    shown = ascii(named[:80])[1:-1]
    raise EvidenceError(
        f"the document has the schema `{shown}`; {known} are read"
        if shown
        else f"the document names no schema; {known} are read"
    )


class _Head(msgspec.Struct):
    schema: str = ""


def _decode(kind: type, value: Any) -> Version:
    for scheme in SCHEMES.values():
        if kind is scheme:
            if not isinstance(value, str):
                raise ValueError(f"a version is text, not `{type(value).__name__}`")
            return scheme(value)
    raise NotImplementedError(f"no reader for {kind.__name__}")
