"""The compiled edition: tables stay encoded until they are asked for, and mean the same either way."""

import msgspec
import pytest

from doctor.core.edition import TABLES, Edition, enc_version, layout, read_edition
from doctor.core.matrix import Matrix
from doctor.core.rows.cause import CauseRow
from doctor.core.rows.package import Component, Release
from doctor.core.rows.system import KernelBuild, KernelRow, SystemRow
from doctor.core.versions import Dotted, Pep440
from doctor.errors import MatrixError

ROW = {"source": ("a page",), "as_of": "2026-11-30", "confidence": "vendor", "review_by": "2027-11-30"}
CAUSE = CauseRow(**ROW, id="driver.not_loaded", layer="driver", title="It is not loaded.")


def release(component, version, **fields):
    return Release(**ROW, component=component, version=Pep440(version), released="2026-11-02", **fields)


EDITION = Edition(
    name="2026.11",
    as_of="2026-11-30",
    digest="0" * 64,
    layout=layout(),
    **dict.fromkeys(("architectures", "products", "chips", "gpus", "drivers", "driver_rules"), ()),
    toolkits=(),
    causes=(CAUSE,),
    components=(
        Component(**ROW, component="vllm", scheme="pep440", binds="environment", meaning="An engine."),
    ),
    releases=(
        release("vllm", "0.32.0"),
        release("torch", "2.14.0"),
        release("vllm", "0.33.0", requires={"torch": "==2.14.0"}),
    ),
    systems=(
        SystemRow(
            **ROW,
            system="rocky-9",
            same_as=("rhel-9",),
            kernel=Dotted("5.14"),
            glibc=Dotted("2.34"),
            gcc=Dotted("11"),
            python=Dotted("3.9"),
            is_in_driver_guide=True,
            support_ends="2032-05-31",
        ),
    ),
    kernels=(
        KernelRow(**ROW, kernel=Dotted("6.8"), builds=(KernelBuild(branch=550, since=Dotted("550.40.65")),)),
    ),
)


@pytest.fixture
def encoded():
    return msgspec.json.encode(EDITION, enc_hook=enc_version)


def is_encoded(edition, table):
    return type(object.__getattribute__(edition, table)) is msgspec.Raw


def test_a_table_is_decoded_when_it_is_asked_for(encoded):
    edition = read_edition(encoded)
    assert all(is_encoded(edition, table) for table in TABLES)
    assert edition.releases[2].requires == {"torch": "==2.14.0"}
    assert not is_encoded(edition, "releases")
    assert all(is_encoded(edition, table) for table in TABLES if table != "releases")
    assert edition.releases is edition.releases


def test_the_same_value_either_way(encoded):
    edition = read_edition(encoded)
    assert edition == EDITION
    assert edition == EDITION
    assert edition != msgspec.structs.replace(EDITION, causes=())
    assert (edition == "an edition") is False
    assert msgspec.json.encode(read_edition(encoded), enc_hook=enc_version) == encoded


def test_a_copy_may_replace_a_table(encoded):
    other = msgspec.structs.replace(read_edition(encoded), causes=())
    assert other.causes == ()
    assert is_encoded(other, "releases")
    assert other.releases == EDITION.releases


def test_it_cannot_be_changed(encoded):
    with pytest.raises(AttributeError):
        read_edition(encoded).name = "2027.1"


@pytest.mark.parametrize("table", ["causes", "releases"])
def test_a_damaged_table_is_told_when_it_is_asked_for(encoded, table):
    damaged = msgspec.json.decode(encoded)
    damaged[table][0]["colour"] = "red"
    edition = read_edition(msgspec.json.encode(damaged))
    assert edition.kernels
    with pytest.raises(MatrixError, match=f"the table `{table}` of the compiled matrix is damaged") as caught:
        edition.rows()
    assert "colour" in caught.value.message


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-9],
        lambda data: data.replace(b'"name"', b'"nome"', 1),
        lambda data: data.replace(b"mopt.matrix/1", b"mopt.matrix/9"),
        lambda _: b"[]",
    ],
    ids=["cut", "field", "schema", "list"],
)
def test_another_document_is_refused_at_once(encoded, change):
    with pytest.raises(msgspec.MsgspecError):
        read_edition(change(encoded))


def test_the_layout_follows_the_row_types(monkeypatch):
    before = layout()

    class Other(CauseRow, frozen=True, kw_only=True):
        weight: int = 0

    monkeypatch.setitem(TABLES, "causes", Other)
    assert layout() != before


def test_look_ups(encoded):
    matrix = Matrix(read_edition(encoded))
    assert matrix.component("vllm").binds == "environment"
    assert matrix.component("vlm") is None
    assert [row.version.raw for row in matrix.releases("vllm")] == ["0.32.0", "0.33.0"]
    assert matrix.releases("sglang") == ()
    assert matrix.release("vllm", "0.33.0").requires == {"torch": "==2.14.0"}
    assert (matrix.release("vllm", "0.33"), matrix.release("sglang", "1")) == (None, None)
    assert matrix.system("rhel-9") is matrix.system("rocky-9")
    assert matrix.system("rocky-10") is None
    assert matrix.kernel(Dotted("6.8.0-124-generic")).builds[0].branch == 550
    assert matrix.kernel(Dotted("6.80")) is None


def test_a_look_up_decodes_its_table_only(encoded):
    edition = read_edition(encoded)
    assert Matrix(edition).cause("driver.not_loaded") == CAUSE
    assert [table for table in TABLES if not is_encoded(edition, table)] == ["causes"]
