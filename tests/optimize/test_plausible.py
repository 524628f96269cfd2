"""Numbers of field reports that cannot be."""

import json
from pathlib import Path
from typing import Any

import pytest

from doctor.edition.load import load_matrix
from optimize.config import read_config
from optimize.plausible import contradictions, impossible_rate

FOLDER = Path(__file__).parent.parent / "data" / "models"
ROWS = load_matrix().edition.published


def config(name: str, **changes: Any) -> dict[str, Any]:
    return {**json.loads((FOLDER / f"{name}.json").read_text()), **changes}


def said(name: str, called: str = "", **changes: Any) -> tuple[str, ...]:
    return tuple(one.message for one in contradictions(ROWS, read_config(config(name, **changes)), called))


def test_482_requests_from_100_users_who_pause() -> None:
    problem = impossible_rate(100, 482, think_s=2)
    assert "482 requests/s from 100 users cannot be" in problem
    assert "at most 50 requests/s" in problem
    # even if nobody paused for longer than the least, 1 s
    assert impossible_rate(100, 482, think_s=1)
    # and answers take time, too
    assert "at most 40 requests/s" in impossible_rate(100, 482, think_s=2, e2e_s=0.5)


@pytest.mark.parametrize(
    ("users", "rate", "think", "e2e"),
    [(100, 50, 2, 0), (100, 48, 2, 0.023), (1, 1000, 0, 0), (100, 51, 2, 0), (0, 0, 1, 1)],
)
def test_rates_that_can_be(users: int, rate: float, think: float, e2e: float) -> None:
    assert impossible_rate(users, rate, think_s=think, e2e_s=e2e) == ""


def test_negative_numbers_are_none() -> None:
    assert impossible_rate(-1, 1) != ""
    assert impossible_rate(1, 1, think_s=-1) != ""


def test_hidden_size_896_is_another_model() -> None:
    found = said("Qwen3-0.6B", "Qwen/Qwen3-0.6B", hidden_size=896, head_dim=128)
    assert "`hidden_size` is 896; Qwen/Qwen3-0.6B has 1024; 896 is that of Qwen/Qwen2.5-0.5B" in found


@pytest.mark.parametrize("context", [131072, 32768])
def test_another_context(context: int) -> None:
    found = said("Qwen3-0.6B", "/models/Qwen3-0.6B/", max_position_embeddings=context)
    assert found == (f"`max_position_embeddings` is {context}; Qwen/Qwen3-0.6B has 40960",)


def test_rope_theta_is_not_to_be_edited() -> None:
    # by its name, and by its shapes alone: a fine-tune has the same base
    facts = read_config(config("Qwen3-0.6B", rope_theta=10000.0))
    for called, is_broken in (("Qwen3-0.6B", True), ("my-own-chat", False)):
        (found,) = contradictions(ROWS, facts, called)
        assert "`rope_theta` is 10,000; Qwen/Qwen3-0.6B has 1,000,000" in found.message
        assert "destroys the answers" in found.message
        # under its own name it was edited; under another one it may have been trained so
        assert found.is_broken is is_broken


def test_a_family_that_was_edited() -> None:
    found = said("Qwen3-0.6B", "Qwen3-0.6B", model_type="qwen2")
    assert "`model_type` is `qwen2`; Qwen/Qwen3-0.6B is `qwen3`" in found


def test_a_context_that_was_stretched_on_purpose() -> None:
    """YaRN as the makers of Qwen3 advise it."""
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    assert said("Qwen3-0.6B", "Qwen3-0.6B", rope_scaling=scaling, max_position_embeddings=131072) == ()


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.json")))
def test_no_alarm_on_what_is_published(name: str) -> None:
    assert said(name, name) == ()


def test_fine_tunes_may_differ_in_vocabulary_and_length() -> None:
    assert said("Qwen3-0.6B", "my-own-chat", vocab_size=152000, max_position_embeddings=65536) == ()
    assert said("Qwen3-0.6B", "", vocab_size=152000) == ()


def test_rows_agree_with_their_configs() -> None:
    """Each row of the matrix that has its config here says what that config says."""
    named = {row.model.rpartition("/")[2]: row for row in ROWS}
    seen = 0
    for path in FOLDER.glob("*.json"):
        row = named.get(path.stem)
        if row is None:
            continue
        seen += 1
        facts = read_config(json.loads(path.read_text()))
        assert (row.hidden_size, row.layers, row.parameters) == (
            facts.hidden_size,
            facts.layers,
            facts.parameters,
        )
    assert seen >= 20
