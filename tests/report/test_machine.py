"""Documents: values survive the way to JSON and back, and the published schemas describe them."""

import json

import jsonschema
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from doctor.core.evidence import Evidence, Item, Meta
from doctor.core.versions import Dotted
from doctor.errors import EvidenceError
from doctor.evidence.bundle import write_bundle
from doctor.report.escape import UNSAFE
from doctor.report.machine import printable, to_json
from doctor.report.saved import from_json
from doctor.report.schemas import DOCUMENTS, schema, schema_files

from . import values

REPORTS = {
    **values.ALL,
    "h200": values.H200,
    "mismatch-host": values.MISMATCH_HOST,
    "nothing": values.NOTHING,
}


@pytest.mark.parametrize("name", REPORTS)
def test_there_and_back(name):
    data = to_json(REPORTS[name])
    assert from_json(data) == REPORTS[name]
    assert to_json(from_json(data)) == data
    assert data.endswith(b"}\n")


def test_a_version_keeps_its_text():
    document = json.loads(to_json(values.H200))
    assert document["driver"]["kernel_version"]["value"] == "580.159.04"
    back = from_json(to_json(values.H200))
    assert isinstance(back.driver.kernel_version.value, Dotted)
    assert back.driver.kernel_version.value.raw == "580.159.04"


def test_fields_stand_in_their_declared_order_and_maps_sorted():
    assert list(json.loads(to_json(values.MISMATCH)))[:4] == ["schema", "tool", "verdict", "exit_code"]
    shuffled = msgspec.structs.replace(
        values.MISMATCH, timings=dict(reversed(values.MISMATCH.timings.items()))
    )
    assert to_json(shuffled) == to_json(values.MISMATCH)


def test_what_has_no_json_form_is_an_error_of_ours():
    class Odd(msgspec.Struct):
        value: object

    with pytest.raises(NotImplementedError, match="no JSON form for object"):
        to_json(Odd(object()))


#: What steers a terminal or hides text, by the standard's names for it.
STEERING = [
    *range(0x20),
    *range(0x7F, 0xA0),
    *(0xAD, 0x61C, 0x180E, 0x200E, 0x200F, 0xFEFF, 0xE0041),
    *range(0x200B, 0x200E),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2065),
    *range(0x2066, 0x206A),
    *range(0xFFF9, 0xFFFC),
]
KEPT = 'Prüfung \u00a0 \U0001f600 日本 \\ " / \u2010 é'


@pytest.mark.parametrize("code", STEERING, ids=hex)
def test_what_steers_a_terminal_is_written_out_and_read_back(code):
    name = f"a{chr(code)}{chr(code)}b"
    report = msgspec.structs.replace(values.MISMATCH, host=values.host(name=name))
    written = to_json(report)
    assert chr(code) not in written.decode().replace("\n", "" if code == 0x0A else "\n")
    assert json.loads(written)["host"]["hostname"] == name
    assert from_json(written) == report


def test_other_text_stays_readable():
    report = msgspec.structs.replace(values.MISMATCH, host=values.host(name=KEPT))
    assert KEPT.replace("\\", "\\\\").replace('"', '\\"') in to_json(report).decode()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.recursive(st.text(), lambda inner: st.dictionaries(st.text(), inner, max_size=3), max_leaves=8))
def test_printable_changes_no_value(value):
    written = printable(msgspec.json.encode(value))
    assert json.loads(written) == value
    assert not UNSAFE.search(written.decode())


BAD = {
    "empty": (b"", "cannot be read"),
    "not JSON": (b"NOT READY: x", "cannot be read"),
    "list": (b"[]", "cannot be read"),
    "no schema": (b"{}", "names no schema"),
    "newer": (b'{"schema": "mopt.check/2"}', "`mopt.check/2`; `mopt.check/1`, `mopt.host/1`"),
    "cut": (to_json(values.MISMATCH)[:-40], "cannot be read"),
    "unknown field": (to_json(values.NOTHING).replace(b'"scope"', b'"scopes"'), "unknown field `scopes`"),
    "bad version": (to_json(values.H200).replace(b'"580.159.04"', b'"latest"'), "is not a dotted version"),
    "number as version": (to_json(values.H200).replace(b'"580.159.04"', b"580.159"), "a version is text"),
    "deep": (
        b'{"schema":"mopt.host/1","system":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "deep|cannot be read",
    ),
}


@pytest.mark.parametrize(("data", "reason"), BAD.values(), ids=BAD)
def test_unreadable_documents(data, reason):
    with pytest.raises(EvidenceError, match=reason):
        from_json(data)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_mutated_document_gives_a_value_or_an_evidence_error(data):
    seed = to_json(data.draw(st.sampled_from([values.MISMATCH, values.H200])))
    mutant = bytearray(seed)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(seed) - 1))
        mutant[at : at + data.draw(st.integers(0, 5))] = data.draw(st.binary(max_size=5))
    try:
        value = from_json(bytes(mutant))
    except EvidenceError:
        return
    assert from_json(to_json(value)) == value


# --- schemas ---


def test_published_schemas_are_those_of_the_types():
    for path, text in schema_files():
        assert path.read_bytes() == text, "run `python -m doctor.report.schemas` and read the diff"
    published = {path for path, _ in schema_files()}
    assert set(path.parent.iterdir()) == published


@pytest.mark.parametrize("name", DOCUMENTS)
def test_schemas_are_schemas(name):
    jsonschema.Draft202012Validator.check_schema(schema(name))


def validator(document):
    return jsonschema.Draft202012Validator(schema(document["schema"]))


@pytest.mark.parametrize("name", REPORTS)
def test_documents_follow_their_schema(name):
    document = json.loads(to_json(REPORTS[name]))
    validator(document).validate(document)


def test_a_bundle_s_meta_follows_its_schema(tmp_path):
    items = (
        Item(key="nvml", status="timeout", pid=1, state="D", wchan="x"),
        Item(key="stat:/dev/x", status="ok", exists=True, kind="char", mode="0666", owner="root:root"),
    )
    write_bundle(Evidence(Meta(tool="t", root=True, items=items), {}), tmp_path / "b")
    document = json.loads((tmp_path / "b/meta.json").read_bytes())
    validator(document).validate(document)
    del document["items"][0]["status"]
    assert not validator(document).is_valid(document)


WRONG = {
    "verdict": (values.MISMATCH, lambda d: d.update(verdict="fine")),
    "schema": (values.MISMATCH, lambda d: d.pop("schema")),
    "finding without id": (values.MISMATCH, lambda d: d["findings"][0].pop("id")),
    "unknown field": (values.MISMATCH, lambda d: d.update(mood="good")),
    "version as number": (values.H200, lambda d: d["driver"]["kernel_version"].update(value=580.1)),
    "absent without reason": (values.H200, lambda d: d["driver"].update(nvml={"fact": "absent"})),
    "unknown reason": (values.H200, lambda d: d["driver"].update(nvml={"fact": "absent", "reason": "mood"})),
    "fact as plain value": (values.H200, lambda d: d["kernel"].update(release="6.8.0")),
    "device in a list": (values.H200, lambda d: d["pci"]["value"][0].pop("address")),
}


@pytest.mark.parametrize(("value", "spoil"), WRONG.values(), ids=WRONG)
def test_schemas_refuse_what_the_types_refuse(value, spoil):
    document = json.loads(to_json(value))
    check = validator(document)
    check.validate(document)
    spoil(document)
    assert not check.is_valid(document)
    with pytest.raises(EvidenceError):
        from_json(json.dumps(document).encode())
