"""`matrix show` and `matrix validate` as a person and a script meet them."""

import argparse
import json
from pathlib import Path

import pytest

from doctor.commands import matrix as command
from doctor.edition.load import load_matrix
from doctor.errors import MatrixError, UsageError

ROOT = Path(__file__).parents[2]
#: Its name and date change with every change of the matrix.
EDITION = load_matrix().edition


@pytest.fixture
def show(capsys, monkeypatch):
    monkeypatch.delenv("MOPT_DATA", raising=False)

    def run(kind=None, query=None, *, as_json=False):
        code = command.show(argparse.Namespace(kind=kind, query=query, json=as_json, overlay=[]))
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def validate(capsys):
    def run(folder=None, *, stats=False):
        code = command.validate(argparse.Namespace(directory=folder, stats=stats, overlay=[]))
        out, err = capsys.readouterr()
        return code, out, err

    return run


# --- show -----------------------------------------------------------------------------------------


def test_overview(show):
    code, out, err = show()
    assert (code, err) == (0, "")
    assert out.startswith(f"Matrix {EDITION.name}, sources read up to {EDITION.as_of}\n")
    assert "608 for 564 PCI ids" in out
    live = out.partition("Driver branches with support:\n")[2].split("\n")
    assert [line.strip().partition(":")[0] for line in live if line] == ["R580", "R595", "R620"]


@pytest.mark.parametrize(
    ("query", "heads"),
    [
        ("H200", ["10de:2335  NVIDIA H200", "10de:233b  NVIDIA H200 NVL"]),
        ("h200 sxm", ["10de:2335  NVIDIA H200"]),
        ("10de:2335", ["10de:2335  NVIDIA H200"]),
        ("10DE:2335", ["10de:2335  NVIDIA H200"]),
        ("2335", ["10de:2335  NVIDIA H200"]),
        ("L40S", ["10de:26b9  NVIDIA L40S"]),
        ("25b6", ["10de:25b6  NVIDIA A16 / NVIDIA A2"]),
        (
            "GB110",
            [
                "10de:3182  NVIDIA B300",
                "10de:31a1  GB300 MaxQ",
                "10de:31c2  NVIDIA GB300",
                "10de:31c3  GB300-252",
            ],
        ),
        ("HGX GB200", ["10de:2941  NVIDIA GB200"]),
        ("DGX Sp", ["10de:2e12  NVIDIA GB10"]),
        ("kepler", ["architecture kepler", "10de:102d  Tesla K80"]),
    ],
)
def test_gpu(show, query, heads):
    code, out, err = show("gpu", query)
    assert (code, err) == (0, "")
    found = [line for line in out.split("\n") if line and not line.startswith(" ")]
    assert len(found) == len(heads)
    assert all(line.startswith(head) for line, head in zip(found, heads, strict=True))
    assert out.count("  sources\n") == len(heads)


def test_gpu_tells_what_decides(show):
    out = show("gpu", "10de:2b85")[1]
    assert "compute capability 12.0" in out
    assert "kernel modules        open only" in out
    assert "R570 and newer" in out
    assert "12.8 and newer" in out
    out = show("gpu", "10de:1db6")[1]
    assert "proprietary only" in out
    assert "up to R580" in out
    assert "9.0 to 12.x" in out


def test_gpu_names_its_boards(show):
    out = show("gpu", "10de:25b6")[1]
    assert "boards                10de:14a9: NVIDIA A16" in out
    assert "boards                10de:157e: NVIDIA A2" in out
    assert "41 not listed here: NVIDIA GeForce RTX 2080 with Max-Q Design" in " ".join(
        show("gpu", "10de:1e90")[1].split()
    )


def test_many_gpus_are_a_list(show):
    code, out, _ = show("gpu", "hopper")
    assert code == 0
    lines = out.partition("name one of them for its whole row:\n")[2].rstrip().split("\n")
    assert len(lines) == 23
    assert "10de:2335  9.0   hopper           NVIDIA H200" in lines
    assert show("gpu")[1].count("\n10de:") == 564


@pytest.mark.parametrize(
    ("kind", "query", "first", "near"),
    [
        ("gpu", "L41S", f"gpu `L41S`: not in matrix {EDITION.name}", "L40S"),
        ("gpu", "10de:ffff", f"gpu `10de:ffff`: not in matrix {EDITION.name}", "10de:"),
        ("driver", "580.126.99", f"driver `580.126.99`: not in matrix {EDITION.name}", "580.126.20, 580.142"),
        ("driver", "600", f"driver `600`: not in matrix {EDITION.name}", "R595, R610"),
        ("driver", "next", f"driver `next`: not in matrix {EDITION.name}", "R580, R595, R620"),
        (
            "driver",
            "620.99",
            f"driver `620.99`: not in matrix {EDITION.name}: newer than its newest",
            "620.70.06",
        ),
        ("driver", "700.1", f"driver `700.1`: not in matrix {EDITION.name}: newer than its newest", "R620"),
        ("driver", "R460.1", f"driver `R460.1`: not in matrix {EDITION.name}", "R460"),
        ("cuda", "12.7", f"cuda `12.7`: not in matrix {EDITION.name}", "12.6, 12.8"),
        ("cuda", "13.0.1.5", f"cuda `13.0.1.5`: not in matrix {EDITION.name}", "13.0, 13.0.1, 13.0.2"),
        ("cuda", "13.9", f"cuda `13.9`: not in matrix {EDITION.name}: newer than its newest", "13.5"),
        ("cuda", "14", f"cuda `14`: not in matrix {EDITION.name}: newer than its newest", "13.5"),
        ("cuda", "10", f"cuda `10`: not in matrix {EDITION.name}", "11.0"),
        ("cuda", "x", f"cuda `x`: not in matrix {EDITION.name}", "13.3, 13.4, 13.5"),
    ],
)
def test_a_miss_names_what_is_near(show, kind, query, first, near):
    code, out, err = show(kind, query)
    assert (code, out) == (1, "")
    assert err.split("\n")[0] == first
    assert err.split("\n")[1].startswith(f"nearest: {near}")


def test_a_miss_with_nothing_near(show):
    assert show("gpu", "zzzzzzzz") == (1, "", f"gpu `zzzzzzzz`: not in matrix {EDITION.name}\n")


def test_what_was_asked_cannot_steer_the_terminal(show):
    err = show("gpu", "\x1b[2Jx")[2]
    assert "\x1b" not in err
    assert "\\x1b[2Jx" in err


def test_an_unknown_kind(show):
    with pytest.raises(UsageError, match="the matrix has no `disk`"):
        show("disk", "x")


@pytest.mark.parametrize("query", ["580", "R580", "r580"])
def test_driver_branch(show, query):
    code, out, _ = show("driver", query)
    assert code == 0
    assert out.startswith("R580\n")
    assert "supported, support ends 2028-06" in out
    assert "open or proprietary" in out
    assert "maxwell, pascal, volta" in out


@pytest.mark.parametrize(
    ("query", "head"),
    [
        ("580.126.20", "580.126.20: a release of R580, older than its security floor 580.178.04"),
        ("580.126.9", "580.126.09: a release of R580, older than its security floor 580.178.04"),
        ("580.178.04", "580.178.04: a release of R580"),
        ("620.70.06", "620.70.06: a release of R620"),
    ],
)
def test_driver_release(show, query, head):
    code, out, _ = show("driver", query)
    assert (code, out.split("\n")[0]) == (0, head)


def test_lists_of_drivers_and_toolkits(show):
    assert len(show("driver")[1].rstrip().split("\n")) == 23
    assert len(show("cuda")[1].rstrip().split("\n")) == 24
    assert len(show("cuda", "13")[1].rstrip().split("\n")) == 6


@pytest.mark.parametrize("query", ["13.0", "13.0.2", "13.0.0"])
def test_cuda(show, query):
    code, out, _ = show("cuda", query)
    assert code == 0
    assert out.startswith("CUDA 13.0\n")
    assert "13.0.1 (580.82.07), 13.0.2 (580.95.05)" in out
    assert "sm_75" in out


def test_cuda_whose_driver_nobody_read(show):
    out = show("cuda", "13.4")[1]
    assert "released with         driver not known" in out
    assert "Unverified: driver, max_host_clang_major." in out


@pytest.mark.parametrize(
    "query",
    [
        (None, None),
        ("gpu", "H200"),
        ("gpu", "blackwell_rtx"),
        ("driver", "580"),
        ("driver", ""),
        ("cuda", "13.0"),
        ("cuda", ""),
    ],
)
def test_text_fits_80_columns(show, query):
    for line in show(*query)[1].split("\n"):
        # An address stays whole, so that it can be copied.
        assert len(line) <= 80 or "https://" in line or "NVIDIA/" in line, line


@pytest.mark.parametrize(
    ("kind", "query", "tables"),
    [
        ("gpu", "L40S", ["gpus", "products"]),
        ("gpu", "kepler", ["architectures", "gpus"]),
        ("gpu", "25b6", ["gpus", "gpus", "products"]),
        ("driver", "580.126.20", ["drivers"]),
        ("cuda", "13.0", ["toolkits"]),
        (None, None, ["drivers", "drivers", "drivers"]),
    ],
)
def test_json(show, kind, query, tables):
    code, out, err = show(kind, query, as_json=True)
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert (document["schema"], document["matrix_edition"], document["kind"]) == (
        "mopt.rows/1",
        EDITION.name,
        kind,
    )
    assert [row["table"] for row in document["rows"]] == tables
    assert all(row["source"] and row["as_of"] <= EDITION.as_of for row in document["rows"])


def test_json_keeps_versions_as_written(show):
    row = json.loads(show("driver", "580", as_json=True)[1])["rows"][0]
    assert "580.126.09" in row["releases"]
    assert row["security_floor"] == "580.178.04"


def test_json_of_a_miss(show):
    code, out, err = show("cuda", "12.7", as_json=True)
    document = json.loads(out)
    assert (code, err, document["rows"], document["nearest"]) == (1, "", [], ["12.6", "12.8"])


# --- validate -------------------------------------------------------------------------------------


def test_validate_the_tree(validate):
    code, out, err = validate(str(ROOT / "matrices"))
    assert (code, err) == (0, "")
    assert out.startswith(f"ok: the YAML sources, edition {EDITION.name} of {EDITION.as_of}\n")
    assert "  gpus: 608 rows\n" in out


def test_validate_with_statistics(validate, tree):
    out = validate(str(tree), stats=True)[1]
    assert "  gpus: 4 rows, 4 derived\n" in out
    assert "  products: 1 rows, 1 unverified fields, 1 vendor\n" in out


def test_validate_tells_every_fault(validate, tree):
    text = (tree / "drivers.yaml").read_text()
    (tree / "drivers.yaml").write_text(text.replace("major: 580", "major: 580.0").replace("LTSB", ""))
    code, out, err = validate(str(tree))
    assert code == 2
    assert out.split("\n") == [
        "drivers.yaml:4: branches[R580].major: a whole number is wanted, not `580.0`",
        "drivers.yaml:5: branches[R580].kind: nothing is written here: leave the field out",
        "",
    ]
    assert err == "the matrix source has 2 faults\n"


def test_validate_names_overdue_rows(validate, tree):
    path = tree / "drivers.yaml"
    path.write_text(
        path.read_text()
        .replace('as_of: "2026-11-30"', 'as_of: "2020-01-01"')
        .replace("2027-02-28", "2020-02-28")
    )
    code, out, _ = validate(str(tree))
    assert code == 0
    assert "overdue: drivers: R580: to be reviewed by 2020-02-28\n" in out


@pytest.fixture
def installed(tree):
    from doctor.edition.load import load_edition

    load_edition(tree)
    (tree.parent / "pyproject.toml").unlink()
    return tree


def test_validate_an_installed_copy_without_sources(validate, installed):
    for path in installed.glob("*.yaml"):
        path.unlink()
    code, out, _ = validate(str(installed))
    assert code == 0
    assert out.startswith("ok: the compiled edition (no YAML sources here), edition 2026.11")


def test_validate_an_installed_copy_whose_sources_were_edited(validate, installed):
    assert validate(str(installed))[0] == 0
    path = installed / "drivers.yaml"
    path.write_text(path.read_text().replace("LTSB", "production"))
    code, out, err = validate(str(installed))
    assert code == 2
    assert "edits of the YAML beside it have no effect" in out
    assert err == "the YAML sources are not those that `edition.json` was built from\n"


def test_validate_nothing(validate, tmp_path):
    code, _, err = validate(str(tmp_path))
    assert code == 2
    assert "neither `.yaml` files nor `edition.json`" in err


def test_show_without_a_matrix(show, tmp_path, monkeypatch):
    monkeypatch.setenv("MOPT_DATA", str(tmp_path))
    with pytest.raises(MatrixError, match="cannot be read"):
        command.show(argparse.Namespace(kind=None, query=None, json=False, overlay=[]))
