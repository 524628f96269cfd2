"""The matrix that ships: its size, and rows picked by hand against the pages they come from."""

import re
from pathlib import Path

import pytest

from doctor.core.versions import Dotted
from doctor.edition.load import load_matrix
from doctor.edition.review import sizes

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def matrix():
    return load_matrix(ROOT / "matrices")


def test_size(matrix):
    rows = matrix.edition.rows()
    wanted = {
        "architectures": 16,
        "products": 57,
        "chips": 40,
        "gpus": 608,
        "drivers": 23,
        "toolkits": 24,
        "releases": 290,
        "tools": 37,
        "ansible": 6,
        "hardware": 10,
        "advisories": 27,
        "stacks": 1,
        "systems": 9,
        "kernels": 17,
        "models": 96,
        "quantization": 52,
        "quantization_gates": 24,
        "quantization_support": 7,
        "kv_cache": 22,
        "names": 181,
        "commands": 9,
        "engine_grammars": 5,
        "engine_flags": 85,
        "engine_batches": 4,
        "engine_dtypes": 4,
        "published": 28,
        "speeds": 18,
        "speed_ranges": 9,
    }
    assert {table: len(rows[table]) for table in wanted} == wanted
    everything, besides_ids = sizes(matrix.edition)
    assert everything - besides_ids == 608
    assert besides_ids > 700
    names = [name for row in matrix.edition.gpus for name in (row.name, *row.former_names)]
    assert len(names) == 614
    assert len({row.pci_device_id for row in matrix.edition.gpus}) == 564


@pytest.mark.parametrize(
    ("device_id", "wanted"),
    [
        ("10de:1b81", ("GeForce GTX 1070", "pascal", "6.1", "unsupported", (None, 580))),
        ("10de:15f8", ("Tesla P100 PCIe 16GB", "pascal", "6.0", "unsupported", (None, 580))),
        ("10de:1db6", ("Tesla V100 PCIe 32GB", "volta", "7.0", "unsupported", (None, 580))),
        ("10de:1eb8", ("Tesla T4", "turing", "7.5", "supported", (410, None))),
        ("10de:20b7", ("NVIDIA A30", "ampere_ga100", "8.0", "supported", (450, None))),
        ("10de:2235", ("NVIDIA A40", "ampere_ga10x", "8.6", "supported", (455, None))),
        ("10de:2230", ("NVIDIA RTX A6000", "ampere_ga10x", "8.6", "supported", (455, None))),
        ("10de:26b9", ("NVIDIA L40S", "ada", "8.9", "supported", (520, None))),
        ("10de:26ba", ("NVIDIA L20", "ada", "8.9", "supported", (520, None))),
        ("10de:28e0", ("NVIDIA GeForce RTX 4060 Laptop GPU", "ada", "8.9", "supported", (520, None))),
        ("10de:2330", ("NVIDIA H100 80GB HBM3", "hopper", "9.0", "supported", (520, None))),
        ("10de:2335", ("NVIDIA H200", "hopper", "9.0", "supported", (520, None))),
        ("10de:2342", ("NVIDIA GH200 120GB / NVIDIA GH200 480GB", "hopper", "9.0", "required", (520, None))),
        ("10de:2901", ("NVIDIA B200", "blackwell", "10.0", "required", (570, None))),
        ("10de:2941", ("NVIDIA GB200", "blackwell", "10.0", "required", (570, None))),
        ("10de:3182", ("NVIDIA B300 SXM6 AC", "blackwell_ultra", "10.3", "required", (580, None))),
        ("10de:2e12", ("NVIDIA GB10", "blackwell_gb10", "12.1", "required", (580, None))),
        ("10de:2b85", ("NVIDIA GeForce RTX 5090", "blackwell_rtx", "12.0", "required", (570, None))),
        (
            "10de:2bb1",
            (
                "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
                "blackwell_rtx",
                "12.0",
                "required",
                (570, None),
            ),
        ),
        ("10de:2b00", ("Jetson AGX Thor", "blackwell_thor", "11.0", "required", (None, None))),
    ],
)
def test_gpu(matrix, device_id, wanted):
    name, architecture, capability, open_module, branches = wanted
    row = matrix.gpu(device_id)
    assert (row.name, row.architecture, row.compute_capability) == (name, architecture, capability)
    assert matrix.open_module(device_id) == open_module
    assert matrix.branches_for(device_id) == branches


@pytest.mark.parametrize(
    ("device_id", "wanted"),
    [
        ("10de:20b2", (80, 7, "450.80.02", True, True)),
        ("10de:20b7", (24, 4, "460.73.01", None, True)),
        ("10de:26ba", (48, 0, None, None, True)),
        ("10de:2322", (80, None, None, None, True)),
        ("10de:2329", (96, 7, "535.161.07", True, True)),
        ("10de:2335", (141, 7, "550.90.07", True, True)),
        ("10de:2901", (180, 7, "570.133.20", True, True)),
        ("10de:3182", (288, 7, "580.82.07", True, True)),
        ("10de:31c2", (288, None, None, True, True)),
        ("10de:2bb5", (96, 4, None, None, None)),
        ("10de:2bb3", (None, 2, "575.57.08", None, None)),
        ("10de:2b85", (32, 0, None, None, False)),
        ("10de:1db1", (16, None, None, None, True)),
    ],
)
def test_product(matrix, device_id, wanted):
    memory, mig, mig_driver, fabric, compat = wanted
    row = matrix.product(device_id)
    assert (row.memory_gb, row.mig_instances) == (memory, mig)
    assert row.mig_min_driver == (Dotted(mig_driver) if mig_driver else None)
    assert (row.needs_fabric_manager, row.supports_forward_compat) == (fabric, compat)


@pytest.mark.parametrize(
    ("driver", "wanted"),
    [
        ("450", ("ended", "2023-07", "11.0", None, "450.80.02", True)),
        ("470", ("ended", "", "11.4", None, "470.256.02", True)),
        ("535.288.01", ("ended", "2026-06", "12.2", "535.309.01", "535.309.01", True)),
        ("550", ("ended", "", "12.4", "550.163.01", "550.163.01", True)),
        ("570", ("ended", "", "12.8", "570.211.01", "570.211.01", True)),
        ("580.126.20", ("supported", "2028-06", "13.0", "580.178.04", "580.178.04", True)),
        ("595", ("supported", "2027-03", "13.2", "595.91.07", "595.104.02", True)),
        ("610", ("ended", "2026-08", "13.3", "610.57.04", "610.57.04", True)),
        ("615", ("superseded", "", "13.4", None, "615.71.10", True)),
        ("620.70.06", ("supported", "2029-09", "13.5", None, "620.70.06", False)),
    ],
)
def test_branch(matrix, driver, wanted):
    status, ends, cuda, floor, latest, proprietary = wanted
    row = matrix.branch(Dotted(driver))
    assert (row.status, row.ends, row.cuda_version) == (status, ends, Dotted(cuda))
    assert row.security_floor == (Dotted(floor) if floor else None)
    assert row.latest_known == Dotted(latest)
    assert row.proprietary_module is proprietary


def test_last_branches(matrix):
    last = {row.branch: row.last_for for row in matrix.edition.drivers if row.last_for}
    assert last == {"R470": ("kepler",), "R580": ("maxwell", "pascal", "volta")}
    for branch, names in last.items():
        for name in names:
            assert f"R{matrix.architecture(name).last_branch}" == branch
            assert matrix.architecture(name).open_module == "unsupported"


def test_releases_keep_their_text(matrix):
    releases = [version.raw for version in matrix.branch(Dotted("580")).releases]
    assert "580.126.09" in releases
    assert releases[0] == "580.65.06"
    assert [raw for raw in releases if raw.startswith("580.142")] == ["580.142"]


@pytest.mark.parametrize(
    ("cuda", "wanted"),
    [
        ("11.0", ("450.51.05", "450.80.02", None, None, "90")),
        ("11.8", ("520.61.05", "450.80.02", 11, "90", "100")),
        ("12.4", ("550.54.14", "525.60.13", 13, "50", "100")),
        ("12.8", ("570.26", "525.60.13", 14, "101", "103")),
        ("12.9", ("575.51.03", "525.60.13", 14, "121", "110")),
        ("13.0", ("580.65.06", "580.65.06", 15, "110", "70")),
        ("13.2", ("595.45.04", "580.65.06", 15, "120", "107")),
        ("13.4", (None, "580.65.06", 16, "107", "70")),
        ("13.5", ("620.70.06", "580.65.06", 16, "107", "70")),
    ],
)
def test_toolkit(matrix, cuda, wanted):
    driver, floor, gcc, has, lacks = wanted
    row = matrix.toolkit(Dotted(cuda))
    assert row.driver == (Dotted(driver) if driver else None)
    assert (row.driver_floor, row.max_host_gcc_major) == (Dotted(floor), gcc)
    assert has is None or has in row.sm_targets
    assert lacks not in row.sm_targets


def test_every_architecture_that_a_toolkit_compiles_for_is_known(matrix):
    known = {target for row in matrix.edition.architectures for target in row.sm}
    # Tegra chips and the GA100 sibling: targets of nvcc without an architecture row here.
    assert {t for row in matrix.edition.toolkits for t in row.sm_targets} - known == {"53", "62", "72", "88"}


def test_what_facts_call_unverified_stays_so(matrix):
    assert [row.name for row in matrix.edition.gpus if row.confidence == "unverified"] == [
        "RTX Spark N1X (6144-core Blackwell RTX GPU)",
        "RTX Spark N1X (5120-core Blackwell RTX GPU)",
        "RTX Spark N1X (6144-core Blackwell RTX GPU)",
        "Tegra RP iGPU",
    ]
    assert matrix.product("10de:2920").confidence == "unverified"
    assert matrix.branch(Dotted("565")).confidence == "unverified"
    assert "security_floor" in matrix.branch(Dotted("580")).unverified
    assert "driver" in matrix.toolkit(Dotted("13.5")).unverified


def test_every_row_has_a_source_that_is_no_key(matrix):
    for table, rows in matrix.edition.rows().items():
        for row in rows:
            assert row.source, (table, row)
            assert all(re.search(r"[ /:]", text) for text in row.source), (table, row.source)


def test_nothing_here_names_this_machine_or_a_registry():
    texts = "".join(path.read_text() for path in (ROOT / "matrices").glob("*"))
    for word in ("/work/", "/shared/", "/home/", "find_string"):
        assert word not in texts
