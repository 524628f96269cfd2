"""Mutants of real configs and headers, seeded: every one gets an answer, and none a number that cannot be."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from doctor.cli import main
from optimize.config import read_config
from optimize.memory import kv_bytes_per_token, plan_memory, weight_bytes
from optimize.modeldir import read_folder
from tests.optimize.checkpoints import write_model

FOLDER = Path(__file__).parent.parent / "data" / "models"
CONFIGS = [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]
ODD: tuple[Any, ...] = (
    *(None, True, 0, 1, -1, 3, 7, 2**31, 2**31 + 1, 2**63, 10**30, 0.5, -0.0, float("inf")),
    *("", "x" * 5000, "auto", "\x1b[2J", [], [1], ["full_attention"], [[]] * 50, {}, {"a": {}}),
)


def mutant(random: random.Random) -> dict[str, Any]:
    """A config with one to four values replaced, dropped, or taken from another config."""
    config: dict[str, Any] = copy.deepcopy(random.choice(CONFIGS))
    for _ in range(random.randint(1, 4)):
        inner = random.choice([config, *(one for one in config.values() if isinstance(one, dict) and one)])
        key = random.choice(list(inner))
        how = random.randrange(3)
        if how == 0:
            del inner[key]
        elif how == 1:
            inner[key] = random.choice(ODD)
        else:
            other = random.choice(CONFIGS)
            inner[key] = other.get(key, random.choice(list(other.values())))
        if not inner:
            break
    return config


@pytest.mark.parametrize("seed", range(8))
def test_mutants_of_configs(seed: int) -> None:
    chosen = random.Random(seed)
    for _ in range(150):
        facts = read_config(mutant(chosen))
        assert (facts.parameters is None) == bool(facts.unknown)
        if facts.parameters is None:
            continue
        assert facts.parameters >= 0
        assert facts.active_parameters is not None
        assert 0 <= facts.active_parameters <= facts.parameters
        assert kv_bytes_per_token(facts) >= 0
        size = weight_bytes(facts)
        assert size is None or size >= 0
        plan = plan_memory(facts, gpu_bytes=2**36, context_tokens=4096, tensor=chosen.choice([1, 2, 8]))
        assert plan is None or plan.needed_bytes > 0


@pytest.mark.parametrize("seed", range(4))
def test_mutants_of_files(seed: int, tmp_path: Path) -> None:
    """Bytes of the header, config and index flipped, dropped and repeated."""
    chosen = random.Random(seed)
    folder = write_model(tmp_path / "nano", shards=2)
    whole = {path: path.read_bytes() for path in folder.iterdir()}
    for _ in range(60):
        path = chosen.choice(list(whole))
        data = bytearray(whole[path])
        for _ in range(chosen.randint(1, 4)):
            at = chosen.randrange(min(len(data), 3000))
            how = chosen.randrange(3)
            if how == 0:
                data[at] = chosen.randrange(256)
            elif how == 1:
                del data[at : at + chosen.randint(1, 20)]
            else:
                data[at:at] = data[at : at + chosen.randint(1, 20)]
        path.write_bytes(data)
        read_folder(str(folder))
        path.write_bytes(whole[path])
    assert read_folder(str(folder)).faults == ()


def test_mutants_through_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = random.Random(7)
    path = tmp_path / "config.json"
    for _ in range(25):
        path.write_text(json.dumps(mutant(chosen)))
        assert main(["model", str(path), "--gpu", "L4", *chosen.choice([(), ("--json",)])]) in (0, 1, 3)
    assert capsys.readouterr().err == ""
