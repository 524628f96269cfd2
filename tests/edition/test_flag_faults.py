"""Faults in the grammar of command lines: each is told with its row and field."""

import pytest

from doctor.edition.source import compile_edition
from doctor.errors import MatrixError

FLAG = "engine_flags[--gpu-memory-utilization]"
FAULTS = {
    "a release nobody read": (
        'read: ["0.32.0", "0.33.0"]',
        'read: ["0.32.0"]',
        "`0.33.0` was not read",
    ),
    "reads out of order": (
        'read: ["0.32.0", "0.33.0"]',
        'read: ["0.33.0", "0.32.0"]',
        "`0.32.0` stands behind `0.33.0`: oldest first, each once",
    ),
    "no read at all": ('read: ["0.32.0", "0.33.0"]', "read: []", "an empty list says nothing"),
    "gone before it was read": (
        'read: ["0.32.0", "0.33.0"]',
        'read: ["0.32.0", "0.33.0"]\n  until: "0.33.0"',
        "`0.33.0`, which was read, is no older",
    ),
    "spans that overlap": (
        '  first: "0.32.0"\n  last: "0.32.0"',
        '  first: "0.32.0"\n  last: "0.33.0"',
        "the row from `0.32.0` to `0.33.0` is for the same releases",
    ),
    "a default out of bounds": ('default: "0.9"', 'default: "1.9"', "`1.9` is no number of kind float"),
    "a default that is no number": ('default: "0.9"', 'default: "most"', "`most` is no number of kind float"),
    "bounds that cross": ("minimum: 0\n", "minimum: 2\n", "1 is below 2"),
    "choices of a number": (
        "  kind: choice\n",
        "  kind: int\n",
        "`choices` or `choices_of` go with kind `choice`",
    ),
    "a choice without choices": (
        "  choices: [auto, pooling]\n",
        "",
        "`choices` or `choices_of` go with kind",
    ),
    "two lists of choices": (
        "  choices: [auto, pooling]\n",
        "  choices: [auto, pooling]\n  choices_of: kv-cache\n",
        "`choices` or `choices_of` go with kind `choice`",
    ),
    "a default that is no choice": (
        "default: auto",
        "default: none-such",
        "`none-such` is none of its choices",
    ),
    "no dashes": ('flag: "--runner"', 'flag: "runner"', "`runner` is no flag: it begins with dashes"),
    "a command without grammar": (
        '  command: vllm serve\n  flag: "--runner"',
        '  command: vllm serv\n  flag: "--runner"',
        "no grammar of `vllm serv` (did you mean `vllm serve`?)",
    ),
    "a dtype that ends before it begins": (
        '  dtype: bfloat16\n  first: "0.32.0"\n  last: "0.33.0"',
        '  dtype: bfloat16\n  first: "0.33.0"\n  last: "0.32.0"',
        "`0.32.0` is older than `0.33.0`",
    ),
    "limits of a release that never was": (
        '  first: "0.32.0"\n  last: "0.33.0"\n  min_memory_gib: 70',
        '  first: "0.32.5"\n  last: "0.33.0"\n  min_memory_gib: 70',
        "vllm has no release `0.32.5`",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault(spoiled_more, name):
    old, new, wanted = FAULTS[name]
    with pytest.raises(MatrixError) as caught:
        compile_edition(spoiled_more("engine_flags", old, new))
    problems = caught.value.problems
    assert any(wanted in problem and problem.startswith("engine_flags.yaml:") for problem in problems), (
        problems
    )


def test_the_small_grammar_has_no_fault(more_sources):
    edition = compile_edition(more_sources)
    assert [row.flag for row in edition.engine_flags] == ["--gpu-memory-utilization"] * 2 + ["--runner"]
