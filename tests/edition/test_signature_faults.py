"""Faults of signatures: each is told with file, line and field; what is right gets literals and a shape."""

from __future__ import annotations

import pytest

from doctor.edition.source import compile_edition
from doctor.errors import MatrixError

GOOD = """\
defaults: {as_of: "2026-11-30", review_by: "2027-11-30", confidence: vendor}
signatures:
- id: driver.cannot_communicate
  pattern: "couldn.{1,3}t communicate with the driver"
  causes: [{cause: driver.not_loaded, weight: 60}, {cause: healthy, weight: 5}]
  positive: ["it couldn't communicate with the driver 580.95.05"]
  negative: ["it communicates with the driver"]
  source: ["the source of the tool"]
"""


def test_a_good_one_is_compiled_with_literals_and_shape(sources):
    (row,) = compile_edition(sources(signatures_driver=GOOD)).signatures
    assert row.literals == ("t communicate with the driver",)
    assert row.shape
    assert row.kind == "specific"


FAULTS = {
    "not a pattern": (
        'communicate with the driver"',
        'communicate ("',
        ".pattern",
        "not a regular expression",
    ),
    "slow": (".{1,3}", ".*", ".pattern", "without a bound"),
    "nothing to look for first": (
        "couldn.{1,3}t communicate with the driver",
        "[a-z]{1,9}",
        ".pattern",
        "literal",
    ),
    "no such cause": ("cause: driver.not_loaded", "cause: driver.not_loadet", ".causes", "did you mean"),
    "a weight beyond all": ("weight: 60", "weight: 160", ".causes", "weight from 1 to 100"),
    "twice": ("cause: healthy", "cause: driver.not_loaded", ".causes", "twice"),
    "an example that it misses": ("it couldn't", "it could", ".positive", "is not matched"),
    "a look-alike that it takes": (
        "it communicates with",
        "it couldn't communicate with",
        ".negative",
        "is matched",
    ),
    "literals by hand": ("  source:", '  literals: ["abcd"]\n  source:', ".literals", "leave the field out"),
    "a kind that is none": ("  source:", "  kind: vague\n  source:", ".kind", "none of"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told_with_its_place(sources, name):
    old, new, field, words = FAULTS[name]
    assert GOOD.count(old) == 1
    with pytest.raises(MatrixError) as raised:
        compile_edition(sources(signatures_driver=GOOD.replace(old, new)))
    (problem, *_) = raised.value.problems
    assert problem.startswith("signatures_driver.yaml:")
    assert "signatures[driver.cannot_communicate]" in problem
    assert field in problem
    assert words in problem
