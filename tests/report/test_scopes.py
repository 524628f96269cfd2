"""The text of an answer about several scopes, and of one that reaches as far as its evidence."""

from __future__ import annotations

import msgspec
import pytest

from doctor.core.checks.cuda import NOT_ASKED
from doctor.core.finding import Cause, ScopeVerdict
from doctor.core.host import Environment, Host, Known
from doctor.core.versions import Dotted
from doctor.report.text import render_check

from . import values

BOX = "container:4f2a"


def scope_of(name: str, verdict: str) -> ScopeVerdict:
    return ScopeVerdict(scope=name, verdict=verdict)


def finding(check_id: str, status: str, scope: str = BOX, **parts: object):
    return values.finding(check_id, status, "a title", scope=scope, **parts)


SHADOW = Cause(id="cuda.compat_lib_shadow", title="an old libcuda.", scope=BOX, findings=("cuda.init",))
SICK = values.check(
    "not_ready",
    1,
    scopes=(scope_of("host", "ready"), scope_of(BOX, "not_ready")),
    findings=(
        finding("cuda.init", "pass", "host", found="1 device"),
        finding("cuda.init", "fail", found="803", cause="cuda.compat_lib_shadow"),
        finding("cuda.driver_floor", "unknown", found="was not collected"),
        finding("gpu.pcie_link", "pass", why=("links slow down at rest",)),
    ),
    causes=(SHADOW,),
)


def test_the_first_lines_say_which_side_is_broken() -> None:
    first, machine, sides, *_ = render_check(SICK, width=120).splitlines()
    assert first == f"NOT READY: in {BOX}: an old libcuda"
    assert "8 x NVIDIA H200" in machine
    assert sides == f"host: ready, {BOX}: not ready"


def test_causes_and_findings_of_another_scope_name_it() -> None:
    text = render_check(SICK, width=120)
    assert f"cause: cuda.compat_lib_shadow in {BOX}\n" in text
    assert "follows  cuda.init fails\n" in text, "the host's own cuda.init passes"
    assert f"fail     cuda.init [{BOX}]: a title\n" in text
    assert f"needed for the verdict: cuda.driver_floor [{BOX}] " in text
    assert f"gpu.pcie_link [{BOX}]: links slow down at rest\n" in text


def test_a_cause_explains_only_what_lies_in_its_scope() -> None:
    other = msgspec.structs.replace(SHADOW, scope="container:beef")
    text = render_check(msgspec.structs.replace(SICK, causes=(other,)), width=120)
    assert "follows  cuda.init\n" in text, "no such finding failed over there"
    assert "cause    cuda.compat_lib_shadow" not in text


def test_without_a_cause_the_first_line_names_the_scope_of_the_finding() -> None:
    bare = msgspec.structs.replace(SICK, causes=())
    assert render_check(bare, width=120).splitlines()[0] == f"NOT READY: cuda.init [{BOX}]: 803"


# --- as far as the evidence goes ------------------------------------------------------------------

SKIPPED = finding("cuda.init", "skip", "host", found=NOT_ASKED)
READY = "READY as far as the evidence goes: cuInit was not asked"


def first_line(report, **parts: object) -> str:
    return render_check(msgspec.structs.replace(report, **parts), width=120).splitlines()[0]


def test_a_ready_verdict_without_cuinit_says_how_far_it_reaches() -> None:
    ready = msgspec.structs.replace(values.HEALTHY, findings=(SKIPPED,))
    assert first_line(ready) == READY
    assert (ready.verdict, ready.exit_code) == ("ready", 0)
    warned = values.finding("gpu.ecc", "warn", "no remapped rows")
    assert first_line(ready, findings=(SKIPPED, warned)) == f"{READY}, 1 warning"
    chosen = "the chosen checks pass; the others did not run"
    assert first_line(ready, is_partial=True) == f"{READY}; {chosen}"
    assert "\x1b[32mREADY as far as the evidence goes:\x1b[0m" in render_check(ready, colour=True, width=120)


@pytest.mark.parametrize("found", ["no NVIDIA GPU on this host", "it starts"])
def test_other_skips_leave_the_first_line_alone(found: str) -> None:
    other = msgspec.structs.replace(SKIPPED, found=found)
    assert first_line(values.HEALTHY, findings=(other,)) == "READY: the stack matches"


def test_only_a_ready_verdict_is_qualified() -> None:
    assert "as far as" not in first_line(SICK, findings=(*SICK.findings, SKIPPED))
    assert "as far as" not in first_line(values.STUCK, findings=(*values.STUCK.findings, SKIPPED))


def test_where_only_a_container_was_not_asked_it_is_named() -> None:
    inside = msgspec.structs.replace(SKIPPED, scope=BOX)
    scopes = (scope_of("host", "ready"), scope_of(BOX, "ready"))
    assert first_line(values.HEALTHY, scopes=scopes, findings=(inside,)) == f"{READY} in {BOX}"
    assert first_line(values.HEALTHY, scopes=scopes, findings=(SKIPPED, inside)) == READY


# --- environments ---------------------------------------------------------------------------------

INSIDE = Host(
    scope="venv:/opt/x",
    environment=Known(
        value=Environment(
            python=Dotted("3.12.3"),
            glibc=Dotted("2.39"),
            torch="2.9.1+cu129",
            torch_cuda=Dotted("12.9"),
            vllm="0.15.0",
            wheels={"nvidia-nccl-cu12": "2.27.5"},
            is_cuda_available=False,
            gpus=("a", "b"),
        ),
        origin="command:collect-env",
    ),
)
LINE = (
    "venv:/opt/x: Python 3.12.3, glibc 2.39, torch 2.9.1+cu129 (CUDA 12.9), vllm 0.15.0, 1 NVIDIA wheel, "
    "CUDA is not available, 2 GPUs"
)


def test_verbose_lists_the_facts_of_scopes_that_nothing_judged() -> None:
    box = Host(scope=BOX)
    text = render_check(SICK, width=200, verbose=True, others=(box, INSIDE))
    assert f"\nnot judged\n  {LINE}\n" in text
    assert f"\n  {BOX}: " not in text, "it has a verdict"
    assert "not judged" not in render_check(SICK, width=200, others=(INSIDE,))
    assert "not judged" not in render_check(SICK, width=200, verbose=True)


def test_an_empty_environment_and_a_strange_scope_are_said_as_such() -> None:
    empty = msgspec.structs.replace(INSIDE, environment=Known(value=Environment(), origin="x"))
    strange = Host(scope="pod:\x1b[31mx")
    text = render_check(SICK, width=200, verbose=True, others=(empty, strange))
    assert "venv:/opt/x: nothing is known of it\n" in text
    assert "not collected\n" in text
    assert "\x1b" not in text
