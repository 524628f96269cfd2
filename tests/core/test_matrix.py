"""Look-ups over an edition: what is found, and what a miss means."""

import msgspec
import pytest

from doctor.core.matrix import (
    Architecture,
    Chip,
    DriverBranch,
    DriverRule,
    Edition,
    GpuRow,
    Matrix,
    Product,
    ToolkitRow,
    dec_version,
    enc_version,
)
from doctor.core.versions import Dotted, Name
from doctor.edition.load import load_matrix

ROW = {"source": ("a page",), "as_of": "2026-11-30", "confidence": "vendor", "review_by": "2027-11-30"}


def gpu(device_id, name, **fields):
    shared = {"chip": "GH100", "architecture": "hopper", "compute_capability": "9.0"}
    return GpuRow(pci_device_id=device_id, name=name, **{**ROW, **shared, **fields})


GPUS = (
    gpu("10de:2335", "NVIDIA H200", memory_gb=141.0, open_module="supported"),
    gpu(
        "10de:25b6",
        "NVIDIA A16",
        subsystem_ids=("10de:14a9",),
        memory_gb=16.0,
        min_driver=Dotted("515.48.07"),
    ),
    gpu(
        "10de:25b6",
        "NVIDIA A2",
        subsystem_ids=("10de:157e",),
        memory_gb=16.0,
        min_driver=Dotted("515.9"),
        source=("a page", "another page"),
        former_names=("NVIDIA PG",),
    ),
    gpu("10de:1e30", "Quadro RTX 6000", memory_gb=24.0),
    gpu("10de:1e30", "Quadro RTX 8000", subsystem_ids=("10de:129e",), memory_gb=48.0),
    gpu("10de:1e90", "RTX 2080"),
    gpu("10de:1e90", "RTX 2080 Max-Q", unlisted_subsystems=41),
    gpu("10de:1e90", "RTX 2080 D", subsystem_ids=("1028:0001",)),
    gpu("10de:2342", "GH200", open_module="required"),
    gpu("10de:1db6", "V100", architecture="volta", compute_capability="7.0", last_branch=580),
    gpu("10de:9999", "of no architecture", architecture="unheard-of"),
)

EDITION = Edition(
    name="2026.11",
    as_of="2026-11-30",
    digest="0" * 64,
    architectures=(
        Architecture(
            **ROW,
            architecture="hopper",
            compute_capability=("9.0",),
            sm=("90",),
            open_module="supported",
            first_branch=520,
        ),
        Architecture(
            **ROW,
            architecture="volta",
            compute_capability=("7.0",),
            sm=("70",),
            open_module="unsupported",
            last_branch=580,
        ),
    ),
    products=(
        Product(
            **ROW,
            product="H200 SXM",
            pci_device_ids=("10de:2335",),
            architecture="hopper",
            compute_capability="9.0",
            open_module="required",
        ),
        Product(
            **ROW,
            product="A16 / A2",
            pci_device_ids=("10de:25b6",),
            architecture="hopper",
            compute_capability="9.0",
        ),
    ),
    chips=(Chip(**ROW, chip="GH100", architecture="hopper", compute_capability="9.0"),),
    gpus=GPUS,
    drivers=(
        DriverBranch(
            **ROW, branch="R580", major=580, kind="LTSB", status="supported", releases=(Dotted("580.126.09"),)
        ),
    ),
    driver_rules=(DriverRule(**ROW, id="backward-compat", fact="Newer drivers run older toolkits."),),
    toolkits=(
        ToolkitRow(**ROW, cuda=Dotted("13.0"), driver_floor=Dotted("580.65.06")),
        ToolkitRow(**ROW, cuda=Dotted("12.9"), driver_floor=Dotted("525.60.13")),
    ),
    causes=(),
)


@pytest.fixture
def matrix():
    return Matrix(EDITION)


@pytest.mark.parametrize(
    ("device_id", "board", "name", "memory"),
    [
        ("10de:2335", "", "NVIDIA H200", 141.0),
        ("10DE:2335", "", "NVIDIA H200", 141.0),
        ("10de:2335", "1028:ffff", "NVIDIA H200", 141.0),
        ("10de:25b6", "10de:157e", "NVIDIA A2", 16.0),
        ("10de:25b6", "10DE:14A9", "NVIDIA A16", 16.0),
        ("10de:25b6", "", "NVIDIA A16 / NVIDIA A2", 16.0),
        ("10de:25b6", "1028:ffff", "NVIDIA A16 / NVIDIA A2", 16.0),
        ("10de:1e30", "", "Quadro RTX 6000 / Quadro RTX 8000", None),
        ("10de:1e30", "10de:129e", "Quadro RTX 8000", 48.0),
        ("10de:1e30", "1028:ffff", "Quadro RTX 6000", 24.0),
        ("10de:1e90", "1028:0001", "RTX 2080 D", None),
        ("10de:1e90", "1028:ffff", "RTX 2080 / RTX 2080 Max-Q", None),
    ],
)
def test_an_id_and_a_board(matrix, device_id, board, name, memory):
    row = matrix.gpu(device_id, board)
    assert (row.name, row.memory_gb) == (name, memory)


def test_a_row_for_several_boards_claims_what_they_share(matrix):
    row = matrix.gpu("10de:25b6")
    assert row.source == ("a page", "another page")
    assert row.former_names == ("NVIDIA PG",)
    assert row.subsystem_ids == ("10de:14a9", "10de:157e")
    assert row.min_driver == Dotted("515.9")
    assert len(matrix.gpus("10de:25b6")) == 2


def test_general_rows():
    assert [row.is_general for row in GPUS[:3]] == [True, False, False]
    assert not GPUS[6].is_general


@pytest.mark.parametrize(
    ("device_id", "wanted"),
    [
        ("10de:2335", "required"),  # the product outranks the id row
        ("10de:2342", "required"),  # the id row outranks the architecture
        ("10de:1e30", "supported"),  # the architecture, where nothing else says
        ("10de:1db6", "unsupported"),
        ("10de:25b6", "supported"),  # a product that does not say
        ("10de:9999", None),
        ("10de:0000", None),
    ],
)
def test_open_module(matrix, device_id, wanted):
    assert matrix.open_module(device_id) == wanted


@pytest.mark.parametrize(
    ("device_id", "wanted"),
    [
        ("10de:2335", (520, None)),
        ("10de:1db6", (None, 580)),
        ("10de:9999", (None, None)),
        ("10de:0000", (None, None)),
    ],
)
def test_branches_for(matrix, device_id, wanted):
    assert matrix.branches_for(device_id) == wanted


def test_branch_and_toolkit_by_version(matrix):
    assert matrix.branch(Dotted("580.999.01")).branch == "R580"
    assert matrix.branch(Dotted("585.1")) is None
    assert matrix.toolkit(Dotted("13.0.2")).cuda == Dotted("13.0")
    assert matrix.toolkit(Dotted("13")).cuda == Dotted("13.0")
    assert matrix.toolkit(Dotted("12.90")) is None


def test_rows_by_name(matrix):
    assert matrix.product("10DE:2335").product == "H200 SXM"
    assert matrix.product("10de:0000") is None
    assert matrix.architecture("volta").last_branch == 580
    assert matrix.chip("GH100").architecture == "hopper"
    assert matrix.rule("backward-compat").fact.startswith("Newer")
    assert (matrix.architecture("x"), matrix.chip("x"), matrix.rule("x"), matrix.cause("x")) == (None,) * 4


def test_rows_name_every_table():
    tables = [
        f.name
        for f in msgspec.structs.fields(Edition)
        if f.name not in ("schema", "name", "as_of", "digest", "layout")
    ]
    assert list(EDITION.rows()) == tables
    assert EDITION.rows()["gpus"] is EDITION.gpus


def test_an_edition_survives_json():
    data = msgspec.json.encode(EDITION, enc_hook=enc_version)
    again = msgspec.json.decode(data, type=Edition, dec_hook=dec_version)
    assert again == EDITION
    assert again.drivers[0].releases[0].raw == "580.126.09"


def test_what_is_no_version_is_refused():
    with pytest.raises(NotImplementedError, match="object"):
        enc_version(object())
    with pytest.raises(NotImplementedError, match="bytes"):
        dec_version(bytes, "x")
    with pytest.raises(NotImplementedError, match="Dotted"):
        dec_version(Dotted, 13.0)
    assert dec_version(Name, "x86_64") == Name("x86_64")


@pytest.mark.parametrize("text", ['{"schema": "mopt.matrix/2"}', '{"name": "x", "colour": 1}', "[]"])
def test_another_document_is_no_edition(text):
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=Edition, dec_hook=dec_version)


def test_xid_rows() -> None:
    matrix = load_matrix()
    assert {row.xid for row in matrix.edition.xids if row.is_secondary} == {43, 45, 154, 171, 172}
    programs = {row.xid for row in matrix.edition.xids if row.kind == "application"}
    assert {13, 31, 69} <= programs
    assert not programs & {48, 62, 74, 79, 95, 119, 154}
    gsp = matrix.xid(119)
    assert gsp is not None
    assert (gsp.mnemonic, gsp.kind, gsp.severity, gsp.immediate) == (
        "GSP_RPC_TIMEOUT",
        "hang",
        "critical",
        "RESET_GPU",
    )
    assert matrix.xid(99999) is None
    assert [row.xid for row in matrix.edition.xids if row.is_by_word] == list(range(144, 151))
    link = matrix.sxid(20034)
    assert link is not None
    assert "went down" in link.meaning


@pytest.mark.parametrize(
    ("driver", "bugs"),
    [
        ("525.60.13", ["gsp-rpc-timeout-525"]),
        ("525.105.16", ["gsp-rpc-timeout-525"]),
        ("525.105.17", []),
        ("515.105.01", []),
        ("570.86.15", ["accounting-null-pointer-570"]),
        ("570.133.20", []),
        ("580.178.04", []),
    ],
)
def test_driver_bugs(driver: str, bugs: list[str]) -> None:
    assert [bug.id for bug in load_matrix().driver_bugs(Dotted(driver))] == bugs


@pytest.mark.parametrize(
    ("name", "products"),
    [
        ("NVIDIA GeForce RTX 5090", "geforce-rtx"),
        ("NVIDIA H200", "data-center"),
        ("NVIDIA RTX 6000 Ada Generation", "geforce-rtx"),
        ("Tesla T4", "data-center"),
    ],
)
def test_product_class(name: str, products: str) -> None:
    assert load_matrix().product_class(name) == products
