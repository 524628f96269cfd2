"""Signatures: lines made plain, patterns that may be searched, and every row against its own examples."""

from __future__ import annotations

import re

import pytest

from doctor.core.logline import body_of, log_lines, plain
from doctor.core.rows.signature import VARIES, SignatureRow, Suspect
from doctor.core.signatures import find_hits
from doctor.edition.load import load_matrix
from doctor.edition.patterns import as_ere, literals_of, pattern_problem, shape_pattern

ROWS = load_matrix().edition.signatures
CAUSES = {row.id for row in load_matrix().edition.causes}


def row(pattern: str, **fields) -> SignatureRow:
    given = {
        "id": "test.one",
        "causes": (Suspect(cause="driver.nouveau_bound", weight=50),),
        "positive": ("x",),
        "negative": ("y",),
        "source": ("here",),
        "as_of": "2026-11-30",
        "confidence": "derived",
        "review_by": "2027-05-31",
        "literals": literals_of(pattern),
        "shape": shape_pattern(pattern),
    }
    return SignatureRow(pattern=pattern, **{**given, **fields})


# --- lines ----------------------------------------------------------------------------------------

PLAIN = {
    "colours": ("\x1b[31mERROR\x1b[0m boom", "ERROR boom"),
    "colours as JSON wrote them": ("\\u001b[31mERROR\\u001b[0m boom", "ERROR boom"),
    "colours as a log viewer left them": ("#033[31mERROR#033[0m boom", "ERROR boom"),
    "NUL and bell": ("a\x00b\x07c", "abc"),
    "bidirectional marks": ("a\u202eb\u200bc", "abc"),
    "escaped quotes": ('{"msg": "say \\"no\\""}', '{"msg": "say "no""}'),
    "HTML": ("&lt;a&gt; &quot;b&quot; it&#39;s", '<a> "b" it\'s'),
    "typographic quotes": ("couldn\u2019t find \u201cx\u201d `y`", "couldn't find \"x\" 'y'"),
    "spaces": ("  a\t  b  ", "a b"),
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_line_is_made_plain(name):
    raw, wanted = PLAIN[name]
    assert plain(raw) == wanted


BODIES = {
    "dmesg": "[  912.114233] NVRM: API mismatch",
    "dmesg -T": "[Mon Nov 30 09:12:04 2026] NVRM: API mismatch",
    "journald": "Nov 30 09:12:04 gpu-node kernel: NVRM: API mismatch",
    "ISO journald": "2026-11-30T09:12:04+0000 gpu-node kernel: NVRM: API mismatch",
    "kubectl": "2026-11-30T09:12:04.123456Z stderr F API mismatch",
    "compose": "vllm-1  | API mismatch",
    "klog": "E1130 09:12:04.123456    2211 main.go:123] API mismatch",
    "vLLM": "(EngineCore_DP0 pid=4711) ERROR 11-30 09:12:04 [core.py:708] API mismatch",
    "Ray": "(RayWorkerWrapper pid=812, ip=10.0.0.7) API mismatch",
    "torchrun": "[rank0]: API mismatch",
    "NCCL": "gpu-node:4711:4822 [0] API mismatch",
    "TensorRT": "[11/30/2026-09:12:04] [TRT] [E] API mismatch",
    "TensorRT-LLM": "[TensorRT-LLM][ERROR] API mismatch",
    "logging": "2026-11-30 09:12:04,123 ERROR API mismatch",
}


@pytest.mark.parametrize("name", BODIES)
def test_what_loggers_put_before_a_message_is_taken_off(name):
    assert body_of(plain(BODIES[name])) == "API mismatch"


def test_a_message_is_never_taken_off_whole():
    assert body_of("Nov 30 09:12:04") == "Nov 30 09:12:04"
    assert body_of("ERROR") == "ERROR"


def test_escaped_line_ends_are_lines_of_one_number():
    lines = log_lines('fatal: {"msg": "first\\nsecond"}\nthird')
    assert [(line.number, line.text) for line in lines] == [
        (1, 'fatal: {"msg": "first'),
        (1, 'second"}'),
        (2, "third"),
    ]


# --- matching -------------------------------------------------------------------------------------

MISMATCH = row("requires use of the NVIDIA open kernel modules")

WRAPPED = {
    "by the kernel": "NVRM: this card requires use of the NVIDIA\nNVRM: open kernel modules.",
    "by a terminal": "installed in this system requires use of the NVIDIA open ker\nnel modules.",
    "with stamps": (
        "[ 4.1] NVRM: this GPU, as it is, requires use of\n[ 4.1] NVRM: the NVIDIA open kernel modules."
    ),
    "in three": "NVRM: in this system it requires use\nNVRM: of the NVIDIA open kernel\nNVRM: modules.",
}


@pytest.mark.parametrize("name", WRAPPED)
def test_a_message_is_found_where_it_was_broken(name):
    assert len(find_hits((MISMATCH,), log_lines(WRAPPED[name]))) == 1


def test_two_short_lines_are_two_messages():
    assert find_hits((row("no kernel image"),), log_lines("no kernel\nimage pulled")) == ()


def test_also_and_unless_look_nearby_only():
    also = row("fell off", also="laptop")
    far = "fell off\n" + "filler\n" * 100 + "laptop"
    assert find_hits((also,), log_lines("laptop\nfell off"))
    assert not find_hits((also,), log_lines("fell off"))
    assert not find_hits((also,), log_lines(far))
    unless = row("fell off", unless="laptop")
    assert not find_hits((unless,), log_lines("laptop\nfell off"))
    assert find_hits((unless,), log_lines(far))


def test_also_is_near_by_line_numbers_where_lines_between_were_left_out():
    also = row("fell off", also="laptop")
    kept = (*log_lines("laptop", 1), *log_lines("fell off", 5000))
    assert find_hits((also,), kept) == ()


def test_a_text_typed_from_memory_may_have_any_case():
    one = row("Failed to initialize (?:NVML|nvml): Unknown Error")
    lines = log_lines("failed to initialize NVML: unknown error")
    assert find_hits((one,), lines) == ()
    assert len(find_hits((one,), lines, ignore_case=True)) == 1


def test_named_groups_are_facts():
    one = row(r"client has version (?P<client>[0-9.]{5,12})")
    (hit,) = find_hits((one,), log_lines("client has version 550.90"))
    assert hit.named == {"client": "550.90"}
    assert hit.line == 1


# --- patterns -------------------------------------------------------------------------------------

REFUSED = {
    "nested repeats": (r"(?:abcd{1,9}){1,9}", "repeat inside a repeat"),
    "no bound": (r"abcd.*efgh", "without a bound"),
    "a wide bound": (r"abcd.{0,9999}efgh", "without a bound"),
    "too many gaps": (r"abcd.{0,90}a.{0,90}b.{0,90}c.{0,90}d.{0,90}e", "wide gaps"),
    "back reference": (r"(abcd) \1", "back reference"),
    "look-ahead": (r"abcd(?=efgh)", "look-around"),
    "lazy": (r"abcd.{0,9}?e", "lazy"),
    "flags": (r"(?i)abcd", "flags"),
    "beyond ASCII": ("couldn\u2019t", "ASCII"),
    "a line end": (r"abcd[^\n]{0,9}e", "line end"),
    "not a pattern": (r"abcd(", "not a regular expression"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_pattern_that_is_slow_or_foreign_to_grep_is_refused(name):
    text, words = REFUSED[name]
    assert words in pattern_problem(text)


LITERALS = {
    r"BAR\d is 0M @ 0x0": (" is 0M @ 0x0",),
    r"(?:alpha|bravo) x": ("alpha x", "bravo x"),
    r"[Pp]ersistence": ("ersistence",),
    r"(?:alpha )?bravo{1,3}": ("brav",),
    r"abc|.{1,9}": (),
}


@pytest.mark.parametrize("text", LITERALS)
def test_each_match_holds_one_of_the_literals(text):
    found = literals_of(text)
    if LITERALS[text]:
        assert found
    else:
        assert found == ()
    for example in ("BAR1 is 0M @ 0x0", "alpha x", "bravo x", "persistence", "alpha bravoo"):
        if re.search(text, example) and found:
            assert any(literal in example for literal in found)


ERE = {
    r"a\.b\d{1,2}": "a[.]b([0-9]){1,2}",
    r"(?P<name>x|yz)": "((x|yz))",
    r"[\w.-]": "[A-Za-z0-9_.-]",
    r"\S": "[^ \t\r\f\v]",
    r"a\\b": r"a\\b",
}


@pytest.mark.parametrize("text", ERE)
def test_a_pattern_as_grep_reads_it(text):
    assert as_ere(text) == ERE[text]


# --- the table ------------------------------------------------------------------------------------


def test_there_are_enough_signatures_for_every_part():
    assert len(ROWS) >= 160
    parts = {"kernel", "driver", "cuda", "torch", "container", "vllm", "trt", "trtllm", "nccl", "prov"}
    assert parts <= {one.id.partition(".")[0] for one in ROWS}
    assert len({one.id for one in ROWS}) == len(ROWS)


@pytest.mark.parametrize("one", ROWS, ids=lambda one: one.id)
def test_examples_hold_a_signature_to_its_words(one):
    """The loader refuses what fails here; this is the same said independently of it."""
    assert {suspect.cause for suspect in one.causes} <= CAUSES | {"healthy"}
    for text in one.positive:
        assert find_hits((one,), log_lines(text)), text
    for text in one.negative:
        assert not find_hits((one,), log_lines(text)), text


@pytest.mark.parametrize("one", ROWS, ids=lambda one: one.id)
def test_literals_and_shape_miss_no_match(one):
    """The scanner of large logs searches a line only when both allow it."""
    find, fits = re.compile(one.pattern, re.ASCII), re.compile(one.shape, re.ASCII)
    lines = [line for text in one.positive for line in text.split("\n") if find.search(line)]
    for line in lines:
        assert any(literal in line for literal in one.literals), line
        assert fits.search(line.translate(dict.fromkeys(map(ord, VARIES)))), line


@pytest.mark.parametrize("one", ROWS, ids=lambda one: one.id)
def test_colours_stamps_and_versions_do_not_hide_a_message(one):
    text = one.positive[0]
    if one.also or one.unless or "\n" in text:
        return
    dressed = f"2026-11-30T09:12:04.123Z stderr F \x1b[31m{text}\x1b[0m"
    assert find_hits((one,), log_lines(dressed))


def test_every_general_or_harmless_signature_says_so_by_its_weights():
    """A text that follows from many causes speaks loudly for none."""
    loud = [one.id for one in ROWS if one.kind == "general" and max(s.weight for s in one.causes) > 66]
    assert loud == []
