# ruff: noqa: E501 - what is said stands on one line
"""`matrix show` for everything that is found by version or by name, on the matrix that ships."""

import argparse
import json
from pathlib import Path

import pytest

from doctor.commands import matrix as command
from doctor.edition.load import load_matrix
from doctor.errors import UsageError
from doctor.grammar import build_parser

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


@pytest.mark.parametrize(
    ("kind", "query", "said"),
    [
        ("vllm", "0.33.0", ["vllm 0.33.0", "torch ==2.14.0", "python >=3.11,<3.15", "vllm >=0.20", "320.8 MiB"]),
        ("vllm", "0.33", ["vllm 0.33.0"]),
        ("torch", "2.14.1", ["torch 2.14.1", "capabilities          7.5, 8.0, 8.6, 9.0, 10.0, 12.0"]),
        ("tensorrt", "11.4.0.106", ["without suffix        cu13", "tensorrt >=11,<12", "least capability      7.5"]),
        ("tensorrt-llm", "1.2.1", ["engine backend        legacy", "tensorrt ~=10.14.1", "DGX Spark"]),
        ("container-toolkit", "1.20.0", ["libnvidia-container ==1.20.0", "The newest seen"]),
        ("container-toolkit", "1.17.3", ["container-toolkit 1.17.3", "5850  container-toolkit, 2026-06-30, fixed in 1.19.1"]),
        ("os", "ubuntu-24.04", ["later kernels         6.11, 6.14, 6.17", "cuda repo             ubuntu2404"]),
        ("os", "rhel-9", ["rocky-9\n"]),
        ("os", "NOBLE", ["ubuntu-24.04\n"]),
        ("kernel", "6.8", ["kernel 6.8\n", "R550 from 550.40.65", "R535 from 535.154.05 with a patch of ubuntu, without one"]),
        ("kernel", "6.8.0-124-generic", ["kernel 6.8\n"]),
        ("ansible-core", "2.19.14", ["ansible-core 2.19\n", "dnf on EL 8           no"]),
        ("flag", "--swap-space", ["vllm flag --swap-space vllm serve", "last seen in          0.17.1"]),
        ("flag", "swap-space", ["vllm flag --swap-space vllm serve"]),
        ("flag", "--max_num_seqs", ["vllm flag --max-num-seqs vllm serve"]),
        ("metric", "vllm:gpu_cache_usage_ratio", ["status                invented", "vllm:kv_cache_usage_perc"]),
        ("metric", "num_preemptions", ["vllm metric vllm:num_preemptions_total"]),
        ("route", "/stats", ["status                invented"]),
        ("floor", "H200", ["H200 SXM\n", "copy floor, GB/s      2333"]),
        ("floor", "10de:2330", ["H100 SXM\n"]),
        ("floor", "L4", ["L4\n"]),
        ("quantization", "fp8", ["quantization of vllm fp8", "quantization gate of vllm ==0.33.0 fp8", "computes from         8.9"]),
        ("kv-cache", "fp8_e4m3", ["KV cache of vllm fp8_e4m3", "first seen in         0.5.5"]),
        ("model", "Qwen3ForCausalLM", ["model architecture of vllm Qwen3ForCausalLM", "of tensorrt-llm Qwen3ForCausalLM"]),
        ("advisory", "CVE-2026-24260", ["bulletin 5850", "affected              <=1.19.0"]),
        ("rule", "vllm-volta", ["vllm-volta\n"]),
        ("relation", "docker", ["relation cdi-spec-0.7.0-docker", "docker >=26.1.0"]),
        ("hardware", "tensorrt-llm", ["tensorrt-llm >=1.0,<2"]),
        ("command", "vllm bench", ["vllm >=0.32,<0.34 vllm bench"]),
        ("component", "nvidia-modelopt", ["component modelopt\n"]),
        ("stack", "gpu-operator-26.7.0", ["container-toolkit 1.20.0", "recommended driver    595.91.07"]),
        ("docker", "", ["component docker\n", "relation cdi-spec-0.7.0-docker"]),
    ],
)  # fmt: skip
def test_found(show, kind, query, said):
    code, out, err = show(kind, query)
    assert (code, err) == (0, "")
    for text in said:
        assert text in out, out
    assert "  sources\n" in out


@pytest.mark.parametrize(
    ("kind", "query", "lines"),
    [("torch", "", 26), ("vllm", "0.19", 1), ("tensorrt", "10.13", 4), ("os", "", 9), ("kernel", None, 17)],
)
def test_lists(show, kind, query, lines):
    code, out, _ = show(kind, query, as_json=True)
    assert code == 0
    assert len([row for row in json.loads(out)["rows"] if row["table"] != "hardware"]) == lines


def test_a_list_is_a_line_a_row(show):
    out = show("torch", "")[1].rstrip().split("\n")
    assert len(out) == 26
    assert out[-1] == "torch 2.15.0  2026-10-28, CUDA 13.2, python >=3.11"


@pytest.mark.parametrize(
    ("kind", "query", "said"),
    [
        ("vllm", "0.34.0", f"vllm `0.34.0`: not in matrix {EDITION.name}: newer than its newest\nnearest: 0.33.0\n"),
        ("vllm", "0.32.7", f"vllm `0.32.7`: not in matrix {EDITION.name}\nnearest: 0.32.0, 0.33.0\n"),
        ("vllm", "latest", f"vllm `latest`: not in matrix {EDITION.name}\nnearest: 0.31.0, 0.32.0, 0.33.0\n"),
        ("container-toolkit", "1.19.9", f"container-toolkit `1.19.9`: not in matrix {EDITION.name}\nnearest: 1.19.1, 1.20.0\n"),
        ("kernel", "7.1.3", f"kernel `7.1.3`: not in matrix {EDITION.name}\nnearest: 7.0, 7.2\n"),
        ("kernel", "8.0", f"kernel `8.0`: not in matrix {EDITION.name}: newer than its newest\nnearest: 7.2\n"),
        ("os", "ubuntu-24.10", f"os `ubuntu-24.10`: not in matrix {EDITION.name}\nnearest: ubuntu-24.04, "),
        ("flag", "--swap-spcae", f"flag `--swap-spcae`: not in matrix {EDITION.name}\nnearest: --swap-space"),
        ("metric", "vllm:kv_cache_usage", ""),
        ("floor", "RTX 9090", f"floor `RTX 9090`: not in matrix {EDITION.name}\n"),
        ("docker", "27.3.1", f"docker `27.3.1`: not in matrix {EDITION.name}\n"),
    ],
)  # fmt: skip
def test_missed(show, kind, query, said):
    code, out, err = show(kind, query)
    assert code == (1 if said else 0)
    assert err.startswith(said)
    assert bool(out) is not bool(said)


def test_a_word_of_a_product_is_not_part_of_another(show):
    assert "L40S" not in show("floor", "L4")[1]


def test_a_kind_that_the_matrix_has_not(show):
    with pytest.raises(UsageError, match="the matrix has no `vlm`") as caught:
        show("vlm", "0.33.0")
    assert caught.value.hints[0] == "did you mean `vllm`?"
    assert "gpu, driver, cuda, flashinfer" in caught.value.hints[1]


def test_every_kind_answers_without_a_query(show):
    matrix = load_matrix(ROOT / "matrices")
    for kind in (*command.kinds(matrix), *(row.component for row in matrix.edition.components)):
        code, out, err = show(kind, "")
        assert (code, err) == (0, ""), kind
        assert out


def test_every_row_can_be_told_in_80_columns():
    from doctor.commands.matrix_rows import row_line, row_text

    edition = load_matrix(ROOT / "matrices").edition
    for table, rows in edition.rows().items():
        if table in ("architectures", "products", "chips", "gpus", "drivers", "toolkits", "causes"):
            continue  # they have words of their own
        for row in rows:
            for line in "\n".join((row_line(table, row), row_text(table, row))).split("\n"):
                whole = len(line.split()) <= 2 and any(mark in line for mark in "/_-|")
                assert len(line) <= 80 or whole, line


@pytest.mark.parametrize(
    ("argv", "asked"),
    [
        (["flag", "--swap-space"], ("flag", "--swap-space", False)),
        (["flag", "--swap-space", "--json"], ("flag", "--swap-space", True)),
        (["--json", "flag", "--swap-space"], ("flag", "--swap-space", True)),
        (["flag", "--", "--swap-space"], ("flag", "--swap-space", False)),
        (["vllm", "--json", "0.33.0"], ("vllm", "0.33.0", True)),
        ([], (None, "", False)),
    ],
)
def test_what_is_asked_may_begin_with_dashes(argv, asked):
    options = build_parser().parse_args(["matrix", "show", *argv])
    assert (options.kind, options.query, options.json) == asked


def test_too_many_words_are_a_usage_error(capsys):
    with pytest.raises(SystemExit) as caught:
        build_parser().parse_args(["matrix", "show", "vllm", "0.33.0", "--jsn"])
    assert caught.value.code == 2
    assert "unrecognized arguments: --jsn" in capsys.readouterr().err


def test_validate_counts_and_warns(capsys):
    assert command.validate(argparse.Namespace(directory=str(ROOT / "matrices"), stats=True, overlay=[])) == 0
    out = capsys.readouterr().out
    assert "  releases: 290 rows, 2 derived, 4 unverified fields, 288 vendor\n" in out
    besides = int(
        out.partition(" rows, ")[0] and out.partition(" of them besides PCI ids")[0].rpartition(" ")[2]
    )
    assert besides > 700
    assert "gap: toolkit 13.4 has no driver\n" in out
