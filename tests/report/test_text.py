"""The text of a report: golden files, and what must hold for any report."""

import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.core.finding import Cause, Finding, Remedy
from doctor.report.escape import escape, escape_line
from doctor.report.text import render_check, render_host

from . import values
from .golden import FOLDER, GOLDEN

SGR = re.compile(r"\x1b\[[0-9]+m")


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name):
    assert (FOLDER / name).read_bytes() == GOLDEN[name], (
        "run `python -m tests.report.golden` and read the diff"
    )


def test_no_golden_file_is_left_over():
    assert {
        p.name for p in FOLDER.iterdir() if p.name.startswith(("check-", "explain-", "host-", "load-"))
    } == set(GOLDEN)


FIRST = {
    "healthy-h200": "READY: the stack matches",
    "mismatch": "NOT READY: The loaded kernel module is 580.95.05, but the installed user space",
    "no-gpu": "NOT READY: This host has no NVIDIA GPU",
    "could-not-tell": "COULD NOT TELL: most likely: A GPU does not answer the driver",
}


@pytest.mark.parametrize("name", FIRST)
def test_the_first_line_is_the_verdict_and_its_cause(name):
    assert render_check(values.ALL[name]).splitlines()[0] == FIRST[name]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("fail", "driver not loaded, user space 580.95.05"),
        ("unknown", "driver user space 580.95.05"),
        (None, "driver user"),
    ],
)
def test_a_driver_is_called_not_loaded_only_where_that_is_known(status, words):
    report = msgspec.structs.replace(
        values.NO_GPU,
        host=msgspec.structs.replace(
            values.NO_GPU.host, driver={"version": None, "userspace_version": "580.95.05"}
        ),
        findings=(values.finding("driver.module_loaded", status, "module loaded"),) if status else (),
    )
    line = render_check(report, width=300).partition("\n\n")[0]
    assert words in line
    assert ("not loaded" in line) == (status == "fail")


def test_several_causes_are_counted_in_the_first_line():
    two = msgspec.structs.replace(values.NO_GPU, causes=values.NO_GPU.causes * 2)
    text = render_check(two)
    assert text.splitlines()[0] == "NOT READY: This host has no NVIDIA GPU (and 1 more cause)"
    assert "also: system.no_nvidia_gpu\n  This host has no NVIDIA GPU\n" in text


def test_without_a_cause_the_first_line_names_a_critical_finding():
    open_ended = msgspec.structs.replace(values.STUCK, causes=())
    first = render_check(open_ended).splitlines()[0]
    assert first.startswith("COULD NOT TELL: gpu.nvml: `nvml` gave no answer in 10 s")
    empty = msgspec.structs.replace(open_ended, findings=())
    assert render_check(empty).startswith("COULD NOT TELL: no finding says why\n")
    assert "no check ran" in render_check(empty)


def test_warnings_are_counted_on_a_ready_host():
    warned = (values.finding("gpu.ecc", "warn", "no remapped rows"),)
    text = render_check(msgspec.structs.replace(values.HEALTHY, findings=warned))
    assert text.startswith("READY: the stack matches, 1 warning\n")


@pytest.mark.parametrize("name", values.ALL)
@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_fit_and_colour_only_adds(name, verbose, width):
    plain = render_check(values.ALL[name], width=width, verbose=verbose)
    coloured = render_check(values.ALL[name], width=width, verbose=verbose, colour=True)
    commands = ("sudo ", "systemctl ", "dmesg ")
    assert [x for x in plain.splitlines() if len(x) > width and not x.lstrip().startswith(commands)] == []
    assert SGR.sub("", coloured) == plain
    assert coloured != plain
    assert plain.endswith("\n")
    assert not plain.endswith("\n\n")
    assert "\n\n\n" not in plain


@pytest.mark.parametrize("name", values.ALL)
def test_every_failing_id_cause_and_code_is_said(name):
    report = values.ALL[name]
    text = render_check(report)
    for finding in report.findings:
        if finding.status in ("fail", "unknown", "warn"):
            assert finding.id in text
    for cause in (*report.causes, *report.advice):
        assert cause.id in text
        for argv in cause.remedy.commands if cause.remedy else ():
            assert " ".join(argv) in text
    meaning = {0: "ready", 1: "not ready", 3: "could not tell"}[report.exit_code]
    assert f"exit code {report.exit_code}: {meaning}\n" in text
    assert report.matrix_edition in text
    assert report.taken_at in text


def test_a_command_is_one_copyable_line_with_the_privilege_it_needs():
    argv = ("apt-get", "install", "--allow-change-held-packages", *(f"package-{i}" for i in range(9)), "a b")
    remedy = Remedy(summary="Install", commands=(argv,), cost="reinstall")
    cause = Cause(id="x.y", title="T", remedy=remedy)
    for root, start in ((False, "sudo apt-get"), (None, "sudo apt-get"), (True, "apt-get")):
        text = render_check(msgspec.structs.replace(values.NO_GPU, causes=(cause,), root=root))
        (line,) = (x.strip() for x in text.splitlines() if "package-8" in x)
        assert line.startswith(start)
        assert line.endswith("package-8 'a b'")
    user = msgspec.structs.replace(cause, remedy=msgspec.structs.replace(remedy, needs_root=False))
    text = render_check(msgspec.structs.replace(values.NO_GPU, causes=(user,), root=False))
    assert "sudo" not in text


def test_a_newline_in_an_argument_stays_inside_the_command():
    remedy = Remedy(summary="s", commands=(("echo", "a\nrm -rf x", "b  c"),), needs_root=False)
    cause = Cause(id="x.y", title="T", remedy=remedy)
    text = render_check(msgspec.structs.replace(values.NO_GPU, causes=(cause,)))
    assert "           echo 'a\\x0arm -rf x' 'b  c'\n" in text


def test_what_root_would_add():
    text = render_check(values.MISMATCH, host=values.MISMATCH_HOST)
    assert "as root, 5 more items would be read: `command:dmesg`" in text
    assert "root may know more" in render_check(values.MISMATCH)
    assert "root" not in render_check(values.HEALTHY)


def test_scopes_stand_side_by_side():
    scopes = (
        values.ScopeVerdict(scope="host", verdict="ready"),
        values.ScopeVerdict(scope="venv:/opt/vllm", verdict="not_ready"),
    )
    text = render_check(msgspec.structs.replace(values.HEALTHY, scopes=scopes))
    assert "host: ready, venv:/opt/vllm: not ready" in text


def test_equal_findings_stand_in_one_line_and_different_ones_do_not():
    def ecc(index, found):
        return values.finding("gpu.ecc", "fail", "no errors", subject=f"gpu {index}", found=found)

    found = (ecc(0, "3 rows"), ecc(1, "3 rows"), ecc(2, "4 rows"))
    text = render_check(msgspec.structs.replace(values.NO_GPU, findings=found))
    assert "gpu.ecc: no errors (gpu 0, gpu 1)\n           found    3 rows" in text
    assert "gpu.ecc: no errors (gpu 2)\n           found    4 rows" in text
    assert "3 findings: 3 fail" in text


NASTY = {
    "clear screen": ("\x1b[2Jboo", "\\x1b[2Jboo"),
    "title": ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
    "C1": ("\x9b31m", "\\x9b31m"),
    "bidi": ("\u202egnp.exe", "\\u202egnp.exe"),
    "isolate": ("\u2066x\u2069", "\\u2066x\\u2069"),
    "line separator": ("a\u2028b", "a\\u2028b"),
    "zero width": ("ro\u200bot", "ro\\u200bot"),
    "tag": ("\U000e0041", "\\U000e0041"),
    "overwrite": ("ready\rNOT", "ready\\x0dNOT"),
    "backspace": ("a\bb", "a\\x08b"),
    "nul": ("a\0b", "a\\x00b"),
    "surrogate": ("a\udcffb", "a\\udcffb"),
}


@pytest.mark.parametrize(("text", "wanted"), NASTY.values(), ids=NASTY)
def test_escape(text, wanted):
    assert escape(text) == wanted
    assert escape_line(text) == wanted


def test_escape_keeps_text_and_lines():
    assert escape("GPU 0: 31 °C → ok\r\nnext\tcolumn\n") == "GPU 0: 31 °C → ok\nnext column\n"
    assert escape_line("  a \n\n b\r\n") == "a b"


ANY = st.text(max_size=40) | st.sampled_from([text for text, _ in NASTY.values()])


@settings(max_examples=100, deadline=None)
@given(st.lists(ANY, min_size=8, max_size=8), st.booleans())
def test_no_control_character_of_evidence_reaches_the_terminal(texts, verbose):
    a, b, c, d, e, f, g, h = texts
    finding = Finding(
        id="gpu.x", area="gpu", status="fail", title=a, subject=b, found=c, wanted=d, why=(e,), evidence=(f,)
    )
    remedy = Remedy(summary=g, commands=((h, a),), blast_radius=b, undo=c)
    cause = Cause(
        id=d, title=e, because=(f, g), refined_by=(h,), findings=(a,), deciding_facts=(b,), remedy=remedy
    )
    report = msgspec.structs.replace(
        values.STUCK, findings=(finding,), causes=(cause,), advice=(cause,), goal=c, tool=d, taken_at=e
    )
    text = render_check(report, verbose=verbose)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]", text)
    assert render_check(report, ascii_only=True, verbose=verbose).isascii()


def test_a_value_of_megabytes_is_cut_with_its_length():
    huge = (values.finding("gpu.x", "fail", "t", found="x" * 5_000_000),)
    text = render_check(msgspec.structs.replace(values.NO_GPU, findings=huge))
    assert len(text) < 6000
    assert "(4998000 more characters)" in text


def test_ascii_only_writes_the_rest_out():
    text = render_host(values.H200, ascii_only=True)
    assert text.isascii()
    assert "31 \\xb0C" in text


def test_a_host_says_why_a_fact_is_missing():
    text = render_host(values.MISMATCH_HOST)
    assert "memory   not known: failed (`/proc/meminfo` is empty)\n" in text
    assert "smi      not known: no answer in time (10 s)\n" in text
    assert "driver   module none, user space 580.105.08\n" in text
    assert "stuck    `nvml`: pid 4211, state D, waits in `nv_open_device`, for 10.0 s\n" in text
    assert "bus      no NVIDIA GPU\n" in text
