"""The 79 public cases by their error lines alone, as `tests.cases.texts` judges them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from doctor.commands.explain import explain_text
from doctor.evidence.logtext import of_bytes
from tests.editions import tree_matrix

from .cases.texts import CASES, Judged, judged, rests_on


@pytest.fixture(scope="module")
def found() -> list[Judged]:
    return judged()


def test_there_are_as_many_cases_as_were_published():
    assert len(CASES) == 79
    assert len({case["id"] for case in CASES}) == 79
    known = {row.id for row in tree_matrix().edition.causes}
    assert [case["id"] for case in CASES if case["cause"] not in known] == []


def test_the_right_cause_is_first_in_four_of_five(found):
    missed = [(one.case["id"], one.named[:3]) for one in found if not one.is_first]
    assert sum(one.is_first for one in found) / len(found) >= 0.80, missed


def test_the_right_cause_is_among_three_in_nineteen_of_twenty(found):
    missed = [(one.case["id"], one.named[:3]) for one in found if not one.is_in_three]
    assert sum(one.is_in_three for one in found) / len(found) >= 0.95, missed


def test_no_case_is_given_a_cause_that_it_forbids(found):
    assert {one.case["id"]: one.wrongly_named for one in found if one.wrongly_named} == {}


def test_without_the_signatures_that_rest_on_the_case_alone():
    left = judged(leave_one_out=True)
    assert sum(one.is_first for one in left) / len(left) >= 0.65
    assert sum(one.is_in_three for one in left) / len(left) >= 0.85


def test_leaving_out_leaves_something_out():
    """The second figure would be the first one if nothing rested on a case alone."""
    rows = tree_matrix().edition.signatures
    resting = {case["id"] for case in CASES for row in rows if rests_on(row, case)}
    assert len(resting) >= 5


TEXTS = yaml.safe_load((Path(__file__).parent / "data" / "texts.yaml").read_text(encoding="utf-8"))["texts"]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text["text"][:48].replace("\n", " "))
def test_a_text_of_a_further_thread(text):
    named = [one.id for one in explain_text(of_bytes(text["text"].encode()), tree_matrix()).causes]
    if text["causes"] == ["none"]:
        assert named == []
    elif text["causes"] == ["any"]:
        assert named
    else:
        assert named[0] in text["causes"]
