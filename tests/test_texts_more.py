"""Texts of further public threads, gathered before the signatures were looked at: the right cause first."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import yaml

from doctor.commands.explain import explain_text
from doctor.core.explain import Named
from doctor.evidence.logtext import of_bytes
from tests.editions import tree_matrix

TEXTS = yaml.safe_load((Path(__file__).parent / "data" / "texts-more.yaml").read_text(encoding="utf-8"))[
    "texts"
]
HARMLESS = [text for text in TEXTS if text["causes"] == ["harmless"]]
SICK = [text for text in TEXTS if text["causes"] != ["harmless"]]

#: Shares of the sick ones that have a right cause first, and among the first three.
FIRST_MIN, THREE_MIN = 0.95, 0.98


@cache
def named(text: str) -> tuple[Named, ...]:
    return explain_text(of_bytes(text.encode()), tree_matrix()).causes


def is_right(text: dict, among: int) -> bool:
    ids = [one.id for one in named(text["text"])]
    if text["causes"] == ["none"]:
        return ids == []
    if text["causes"] == ["any"]:
        return ids != []
    return not set(ids[:among]).isdisjoint(text["causes"])


def title(text: dict) -> str:
    return text["text"][:48].replace("\n", " ")


def test_the_right_cause_comes_first() -> None:
    wrong = [
        f"{title(text)}: {text['causes']}, not {[one.id for one in named(text['text'])][:3]}"
        for text in SICK
        if not is_right(text, 1)
    ]
    first, three = (sum(is_right(text, among) for text in SICK) / len(SICK) for among in (1, 3))
    print(f"first {first:.1%}, in three {three:.1%} of {len(SICK)}", *wrong, sep="\n")  # noqa: T201 - `-rP`
    assert first >= FIRST_MIN, wrong
    assert three >= THREE_MIN, wrong


@pytest.mark.parametrize("text", HARMLESS, ids=title)
def test_what_is_harmless_is_not_made_a_fault(text: dict) -> None:
    assert [one.id for one in named(text["text"]) if not one.is_harmless] == []


def test_the_texts_are_of_many_threads_and_speak_of_many_causes() -> None:
    assert len(SICK) >= 70
    assert len(HARMLESS) >= 15
    assert all(text["source"].startswith("https://") for text in TEXTS)
    assert len({text["source"] for text in TEXTS}) >= 0.8 * len(TEXTS)
    assert len({cause for text in SICK for cause in text["causes"]} - {"any", "none"}) >= 60
    known = {row.id for row in tree_matrix().edition.causes} | {"any", "none", "harmless"}
    assert {cause for text in TEXTS for cause in text["causes"]} <= known
