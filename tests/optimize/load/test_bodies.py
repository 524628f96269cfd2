"""Bodies: JSON of the form and the length asked for, and no two prompts with the same beginning."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from optimize.load.bodies import Bodies, BodyError, BodySpec
from optimize.load.schedule import Planned

FORMS = [
    ("chat", "words"),
    ("completions", "words"),
    ("completions", "ids"),
    ("embeddings", "words"),
    ("embeddings", "ids"),
]


def spec(endpoint: str, prompt: str, **changes: Any) -> BodySpec:
    return BodySpec(endpoint=endpoint, model="m", prompt=prompt, **changes)  # type: ignore[arg-type]


def tokens(body: bytes) -> list[Any]:
    one = json.loads(body)
    found = one["messages"][0]["content"] if "messages" in one else one.get("prompt", one.get("input"))
    return found.split(" ") if isinstance(found, str) else list(found)


@pytest.mark.parametrize(("endpoint", "prompt"), FORMS)
@pytest.mark.parametrize("n_in", [1, 2, 8, 9, 100, 65_544, 70_000, 140_000])
def test_a_prompt_has_the_length_asked_for(endpoint: str, prompt: str, n_in: int) -> None:
    bodies = Bodies(spec(endpoint, prompt), seed=5)
    assert len(tokens(bodies.body(Planned(3, 0.0, n_in, 4)))) == n_in


@pytest.mark.parametrize(("endpoint", "prompt"), FORMS)
def test_no_prefix_cache_has_seen_a_prompt(endpoint: str, prompt: str) -> None:
    bodies = Bodies(spec(endpoint, prompt), seed=5)
    fronts = {tuple(tokens(bodies.body(Planned(n, 0.0, 40, 4)))[:8]) for n in range(2000)}
    other = Bodies(spec(endpoint, prompt), seed=6)
    fronts |= {tuple(tokens(other.body(Planned(n, 0.0, 40, 4)))[:8]) for n in range(2000)}
    assert len(fronts) == 4000


@pytest.mark.parametrize(("vocabulary", "low", "high"), [(10_000, 1000, 9999), (512, 100, 511), (20, 10, 19)])
def test_ids_stay_inside_the_vocabulary(vocabulary: int, low: int, high: int) -> None:
    bodies = Bodies(spec("completions", "ids", vocabulary=vocabulary), seed=5)
    ids = tokens(bodies.body(Planned(1, 0.0, 5000, 4)))
    assert low <= min(ids)
    assert max(ids) <= high


def test_fields_of_a_stream() -> None:
    body = json.loads(Bodies(spec("chat", "words"), 1).body(Planned(0, 0.0, 3, 77)))
    assert body["max_tokens"] == 77
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert body["ignore_eos"] is True


def test_fields_that_a_server_refuses_are_left_out() -> None:
    bare = spec("chat", "words", ignore_eos=False, include_usage=False)
    body = json.loads(Bodies(bare, 1).body(Planned(0, 0.0, 3, 7)))
    assert set(body) == {"model", "stream", "temperature", "messages", "max_tokens"}


def test_fields_of_the_user() -> None:
    extra = {"chat_template_kwargs": msgspec.Raw(b'{"enable_thinking":false}')}
    body = json.loads(Bodies(spec("chat", "words", extra=extra), 1).body(Planned(0, 0.0, 3, 7)))
    assert body["chat_template_kwargs"] == {"enable_thinking": False}


def test_chat_takes_no_ids_and_random_ids_take_a_vocabulary() -> None:
    with pytest.raises(BodyError):
        Bodies(spec("chat", "ids"), 1)
    with pytest.raises(BodyError):
        Bodies(spec("completions", "ids", vocabulary=19), 1)
