"""Command lines hold nothing that their release is not known to take: words, spans of releases, values."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.core.serving import Argument, CommandLine, NotPrinted
from doctor.core.versions import Pep440
from doctor.edition.load import load_matrix
from optimize.argv import command_line, flags_of, grammar_of, misfit

EDITION = load_matrix(Path(__file__).parents[2] / "matrices").edition
SERVE = ("vllm", "vllm serve")
#: Every release that was read, of every command.
READ = [(g.component, g.command, v.raw) for g in EDITION.engine_grammars for v in g.read]
#: Values of every kind, good and bad ones.
VALUES = st.sampled_from(
    [
        *("", "1", "0", "-1", "8192", "0.92", "1.5", "auto", "float16", "fp8", "nvfp4", "pooling"),
        *("draft", "reward", "embed", "pytorch", "paged", "/models/a b", "a:b", "\x1b[2J"),
        *("input_ids:1x128", "input_ids:8x512,mask:8x512"),
    ]
)


def serve(version: str, *arguments: Argument) -> CommandLine | NotPrinted:
    return command_line(EDITION, *SERVE[:1], version, SERVE[1], arguments, positional="/models/qwen")


def maybe(flag: str, value: str = "") -> Argument:
    return Argument(flag=flag, value=value, is_needed=False)


def rows_at(component: str, command: str, version: str):
    """The rows of a release that was read, straight from the matrix."""
    release = Pep440(version)
    rows = [r for r in EDITION.engine_flags if (r.component, r.command) == (component, command)]
    return {r.flag: r for r in rows if r.first <= release <= r.last}


def fits(row, version: str, value: str) -> bool:
    """Whether a value is of a row's kind; written apart from the code that is tested."""
    release = Pep440(version)
    if row.kind == "switch":
        return value == ""
    if row.kind == "choice" and row.choices_of == "kv-cache":
        return any(d.dtype == value and d.first <= release for d in EDITION.kv_cache)
    if row.kind == "choice" and row.choices_of == "quantization":
        return any(m.method == value and m.first <= release <= m.last for m in EDITION.quantization)
    if row.kind == "choice":
        return value in row.choices
    if row.kind in ("int", "float"):
        number = re.fullmatch(r"-?[0-9]+" if row.kind == "int" else r"-?[0-9]+(\.[0-9]+)?", value)
        low = row.minimum if row.minimum is not None else float("-inf")
        high = row.maximum if row.maximum is not None else float("inf")
        return number is not None and low <= float(value) <= high
    if row.kind == "shapes":
        return all(re.fullmatch(r"\w+:[0-9]+(x[0-9]+)*", part) for part in value.split(","))
    return value != "" and value.isprintable()


@settings(max_examples=300, deadline=None)
@given(
    where=st.sampled_from(READ),
    asked=st.lists(
        st.tuples(st.sampled_from(sorted({r.flag for r in EDITION.engine_flags})), VALUES), max_size=12
    ),
)
def test_every_word_is_in_the_grammar_of_that_release(where, asked):
    component, command, version = where
    grammar = grammar_of(EDITION, component, command)
    arguments = [maybe(flag, value) for flag, value in asked]
    positional = "/models/m" if grammar.positional else ""
    line = command_line(EDITION, component, version, command, arguments, positional=positional)
    assert isinstance(line, CommandLine)
    rows = rows_at(component, command, version)
    good = [(a.flag, a.value) for a in arguments if a.flag in rows and fits(rows[a.flag], version, a.value)]
    # Nothing that fits is lost, nothing else is printed.
    assert [(a.flag, a.value) for a in line.arguments] == good
    assert len(line.left_out) == len(arguments) - len(good)
    early = [pair for pair in good if rows[pair[0]].is_before]
    late = [pair for pair in good if not rows[pair[0]].is_before]
    words = command.split()
    head, tail = (words[:-1], words[-1:]) if early else (words, [])
    wanted = [
        *head,
        *_written(grammar, early),
        *tail,
        *([positional] if positional else []),
        *_written(grammar, late),
    ]
    assert list(line.argv) == wanted


def _written(grammar, pairs):
    for flag, value in pairs:
        if not value:
            yield flag
        elif grammar.style == "equals":
            yield f"{flag}={value}"
        else:
            yield from (flag, value)


def test_vllm_serve_takes_the_model_without_a_flag():
    # Tutorials write `vllm --model`: there is no such command.
    line = serve("0.33.0", Argument(flag="--dtype", value="float16"), Argument(flag="--enforce-eager"))
    assert line.argv == ("vllm", "serve", "/models/qwen", "--dtype", "float16", "--enforce-eager")
    assert line.certainty == "read"


@pytest.mark.parametrize(
    ("flag", "value", "has", "has_not"),
    [
        ("--task", "embed", ["0.10.2", "0.12.0"], ["0.13.0", "0.17.1", "0.33.0"]),
        ("--runner", "pooling", ["0.10.2", "0.19.1", "0.33.0"], []),
        ("--max-num-queued-reqs", "64", ["0.32.0", "0.33.0"], ["0.26.0", "0.29.0"]),
        ("--kv-cache-dtype", "bfloat16", ["0.11.2", "0.33.0"], ["0.10.2", "0.11.0"]),
        ("--kv-cache-dtype", "nvfp4", ["0.20.2", "0.21.0"], ["0.17.1", "0.19.1"]),
        ("--quantization", "gptq_marlin_24", ["0.12.0", "0.14.0"], ["0.17.1", "0.33.0"]),
        ("--convert", "reward", ["0.10.2", "0.12.0"], ["0.14.0", "0.17.1", "0.33.0"]),
        ("--swap-space", "4", [], ["0.10.2", "0.33.0"]),
    ],
)
def test_a_flag_and_its_value_are_of_their_releases(flag, value, has, has_not):
    for version in has:
        line = serve(version, maybe(flag, value))
        assert line.argv[3:] == (flag, value), version
    for version in has_not:
        assert serve(version, maybe(flag, value)).argv[3:] == (), version
        refused = serve(version, Argument(flag=flag, value=value))
        assert isinstance(refused, NotPrinted)
        assert flag in refused.why


def test_a_release_between_two_that_were_read_says_so():
    line = serve("0.19.1", Argument(flag="--dtype", value="half"))
    assert line.certainty == "between"
    assert "0.17.1 and 0.20.2" in line.says


def test_defaults_that_changed_are_unknown_in_between():
    grammar = grammar_of(EDITION, *SERVE)
    said = {
        v: flags_of(EDITION, grammar, Pep440(v))["--gpu-memory-utilization"].default
        for v in ("0.10.2", "0.19.1")
    }
    assert said == {"0.10.2": "0.9", "0.19.1": ""}
    assert flags_of(EDITION, grammar, Pep440("0.33.0"))["--gpu-memory-utilization"].default == "0.92"


@pytest.mark.parametrize(
    ("version", "nearest"),
    [("0.34.0", "0.33.0"), ("0.33.1", "0.33.0"), ("0.9.2", "0.10.2"), ("1.0", "0.33.0")],
)
def test_beyond_what_was_read_nothing_is_printed(version, nearest):
    refused = serve(version, Argument(flag="--enforce-eager"))
    assert isinstance(refused, NotPrinted)
    assert refused.nearest == nearest
    assert f"vllm=={nearest}" in refused.hint
    assert version in refused.why


def test_an_engine_build_went_with_its_backend():
    arguments = [Argument(flag="--model", value="m"), Argument(flag="--tp_size", value="2")]
    build = command_line(EDITION, "tensorrt-llm", "1.2.1", "trtllm-bench build", arguments)
    assert build.argv == ("trtllm-bench", "--model", "m", "build", "--tp_size", "2")
    assert build.certainty == "derived"  # 1.2.1 itself was not read
    gone = command_line(EDITION, "tensorrt-llm", "1.3.0", "trtllm-bench build", arguments)
    assert isinstance(gone, NotPrinted)
    assert "1.3.0" in gone.why
    assert gone.nearest == "1.2.1"


def test_trtexec_lost_its_precisions_with_11():
    arguments = [Argument(flag="--onnx", value="m.onnx"), maybe("--fp16")]
    old = command_line(EDITION, "tensorrt", "10.16.0.72", "trtexec", arguments)
    assert old.argv == ("trtexec", "--onnx=m.onnx", "--fp16")
    new = command_line(EDITION, "tensorrt", "11.0.0.114", "trtexec", arguments)
    assert new.argv == ("trtexec", "--onnx=m.onnx")
    assert "--fp16" in new.left_out[0]


def test_what_no_row_has_is_refused():
    assert isinstance(command_line(EDITION, "vllm", "0.33.0", "vllm-entrypoint", ()), NotPrinted)
    assert isinstance(command_line(EDITION, "tensorrt-llm", "1.2.1", "trtllm-inspect", ()), NotPrinted)
    assert isinstance(serve("not-a-version"), NotPrinted)


def test_a_model_that_looks_like_a_flag_is_refused():
    refused = command_line(EDITION, *SERVE[:1], "0.33.0", SERVE[1], (), positional="--trust-remote-code")
    assert isinstance(refused, NotPrinted)


def test_misfits_say_what_would_fit():
    known = flags_of(EDITION, grammar_of(EDITION, *SERVE), Pep440("0.33.0"))
    assert "1; not 1.5" in misfit(known["--gpu-memory-utilization"], "1.5")
    assert "bfloat16" in misfit(known["--dtype"], "int8")
    assert misfit(known["--enforce-eager"], "true") == "`--enforce-eager` takes no value"
    assert misfit(known["--max-num-seqs"], "many")
