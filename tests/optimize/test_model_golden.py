"""Real configs against numbers that others counted: parameters and KV bytes a token, to the byte."""

import json
from math import prod
from pathlib import Path
from typing import Any

import pytest
import yaml

from optimize.config import read_config
from optimize.memory import kv_bytes_per_token, weight_bytes

FOLDER = Path(__file__).parent.parent / "data" / "models"
ROWS: list[dict[str, Any]] = yaml.safe_load((FOLDER / "golden.yaml").read_text())["models"]
#: Families that the acceptance names, by `model_type`.
WANTED = {
    *(
        "llama",
        "llama4_text",
        "qwen2",
        "qwen3",
        "qwen3_moe",
        "qwen3_next",
        "gemma2",
        "gemma3_text",
        "mistral",
    ),
    *("mixtral", "phi", "phi3", "deepseek_v2", "deepseek_v3", "glm", "gpt_oss", "nemotron_h", "jamba"),
    *("granitemoehybrid", "bert"),
}


def _config(row: dict[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((FOLDER / row["file"]).read_text())
    return config


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["file"])
def test_parameters_and_cache(row: dict[str, Any]) -> None:
    facts = read_config(_config(row))
    assert facts.unknown == ()
    assert facts.parameters == row["parameters"]
    assert kv_bytes_per_token(facts, "bfloat16") == row["kv_bytes_per_token"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["file"])
def test_the_written_sum_is_the_number(row: dict[str, Any]) -> None:
    terms = [prod(int(one) for one in term.split("*")) for term in row["kv"].split("+")]
    assert sum(terms) == row["kv_bytes_per_token"]


def test_enough_of_them_and_each_has_a_source() -> None:
    assert len(ROWS) >= 25
    assert all(row["source"] for row in ROWS)
    assert sum(row.get("cache", False) for row in ROWS) >= 25
    assert {read_config(_config(row)).model_type for row in ROWS} >= WANTED


def test_every_config_here_has_a_row() -> None:
    assert {path.name for path in FOLDER.glob("*.json")} == {row["file"] for row in ROWS}


#: Bytes of tensors that the makers' index files count (`metadata.total_size`).
STORED = {"gpt-oss-120b": 65_248_815_744, "gpt-oss-20b": 13_761_264_768, "Qwen3-0.6B": 1_192_099_840}


@pytest.mark.parametrize("name", STORED)
def test_stored_bytes_are_those_of_the_index(name: str) -> None:
    facts = read_config(_config({"file": f"{name}.json"}))
    assert weight_bytes(facts) == STORED[name]


#: Active parameters as the makers round them, in thousand millions.
ACTIVE = {
    "Qwen3-30B-A3B": (3.3, 0.311),
    "Qwen3-235B-A22B": (22, 0.622),
    "DeepSeek-V3": (37, 0.927),
    "gpt-oss-120b": (5.1, 0),
    "gpt-oss-20b": (3.6, 0),
    "Mixtral-8x7B-v0.1": (12.9, 0.131),
}


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters(name: str) -> None:
    """Ours leave out the input embedding (the second number), which some makers count and some do not."""
    facts = read_config(_config({"file": f"{name}.json"}))
    said, embedding = ACTIVE[name]
    assert facts.active_parameters is not None
    assert abs(facts.active_parameters / 1e9 + embedding - said) < 0.02 * said + 0.05
