"""JSON Schemas of the documents, generated from the types: `python -m doctor.report.schemas` writes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from doctor.core.diff import DIFF_SCHEMA, MatrixDiff
from doctor.core.evidence import EVIDENCE_SCHEMA, Meta
from doctor.core.explain import EXPLAIN_SCHEMA, ExplainReport
from doctor.core.finding import CheckReport
from doctor.core.host import HOST_SCHEMA, Host
from doctor.core.load import LOAD_SCHEMA, LoadReport
from doctor.core.model_report import MODEL_SCHEMA, ModelReport
from doctor.core.plan import PLAN_SCHEMA, Plan
from doctor.core.run import RUN_SCHEMA, RunReport
from doctor.core.serving import PLAN_SCHEMA as SERVING_SCHEMA
from doctor.core.serving import ServingPlan
from doctor.core.stack import STACK_SCHEMA, WHY_SCHEMA, StackReport, WhyReport
from doctor.core.stages import VARIABLES_SCHEMA, Variables
from doctor.core.versions import Version

__all__ = ["DOCUMENTS", "schema", "schema_files"]

_DRAFT = "https://json-schema.org/draft/2020-12/schema"

#: Document schema → the type that it is made from.
DOCUMENTS: dict[str, type[msgspec.Struct]] = {
    "mopt.check/1": CheckReport,
    HOST_SCHEMA: Host,
    EVIDENCE_SCHEMA: Meta,
    STACK_SCHEMA: StackReport,
    WHY_SCHEMA: WhyReport,
    EXPLAIN_SCHEMA: ExplainReport,
    DIFF_SCHEMA: MatrixDiff,
    VARIABLES_SCHEMA: Variables,
    PLAN_SCHEMA: Plan,
    RUN_SCHEMA: RunReport,
    SERVING_SCHEMA: ServingPlan,
    MODEL_SCHEMA: ModelReport,
    LOAD_SCHEMA: LoadReport,
}

_FOLDER = Path(__file__).resolve().parent.parent / "schemas"


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a document such as `mopt.check/1`."""
    kind = DOCUMENTS[name]
    (root,), components = msgspec.json.schema_components([kind], schema_hook=_version)
    own = components[kind.__name__]
    # The types leave the schema's name open with a default; a document must carry it, and this one.
    own["properties"]["schema"] = {"const": name}
    own["required"] = ["schema", *(r for r in own.get("required", []) if r != "schema")]
    document = {"$schema": _DRAFT, "$id": f"urn:{name.replace('/', ':')}", "title": name, **root}
    result: dict[str, Any] = _plain({**document, "$defs": dict(sorted(components.items()))})
    return result


def _version(kind: type) -> dict[str, Any]:
    if issubclass(kind, Version):
        return {"type": "string", "minLength": 1}
    raise NotImplementedError(kind.__name__)


def _plain(value: Any) -> Any:
    """The same with lists for tuples, and descriptions on one line."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return " ".join(value.split()) if isinstance(value, str) else value


def schema_files() -> Iterator[tuple[Path, bytes]]:
    """Each schema's place in the package and the bytes that belong there."""
    for name in DOCUMENTS:
        text = msgspec.json.format(msgspec.json.encode(schema(name)), indent=2) + b"\n"
        yield _FOLDER / f"{name.replace('/', '-')}.json", text


def _write() -> None:
    for path, text in schema_files():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text)


if __name__ == "__main__":
    _write()
