"""The text of a load: verdict first, 80 columns, no share rounded up, nothing that steers a terminal."""

from __future__ import annotations

import msgspec
import pytest

from doctor.core.load import Slo, SloTerm
from doctor.report.escape import UNSAFE
from doctor.report.load_text import render_load, slo_words
from tests.report.load_values import SEARCHED


def changed(**changes: object):
    return msgspec.structs.replace(SEARCHED, **changes)


def test_it_fits_the_screen() -> None:
    assert max(map(len, render_load(SEARCHED).splitlines())) <= 80


@pytest.mark.parametrize(
    ("judgement", "head"),
    [("pass", "PASS: "), ("fail", "FAIL: "), ("undecided", "COULD NOT TELL: "), ("invalid", "INVALID: ")],
)
def test_the_verdict_comes_first(judgement: str, head: str) -> None:
    assert render_load(changed(judgement=judgement)).startswith(head)


def test_a_cut_is_said_in_the_first_line() -> None:
    assert "cut short; until then" in render_load(changed(is_cut=True)).split("\n\n")[0]


def test_the_servers_own_words_steer_nothing() -> None:
    hostile = changed(examples={"server_error": ("500: \x1b[2Jgone\u202e",)}, reasons=("x\x1b]0;y\x07",))
    assert not UNSAFE.search(render_load(hostile).replace("\n", ""))


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.99, "99 %"), (0.999, "99.9 %"), (0.999999, "99.99 %"), (1.0, "100 %"), (0.5, "50 %")],
)
def test_a_share_is_never_rounded_up_to_all(share: float, words: str) -> None:
    slo = Slo(terms=(SloTerm(metric="ttft", limit_s=0.5),), attainment=share)
    assert slo_words(slo).endswith(f"for {words}")


def test_a_value_without_an_interval_is_marked_and_explained_once() -> None:
    text = render_load(changed(stages=SEARCHED.stages[1:2]))
    rows = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert rows["ttft"].split()[1:6] == ["52.50", "50.00", "65.00", "~75.00", "-"]
    assert text.count("~: no interval") == 1
    assert "-: p99 of ttft, p99 of e2e: 600 values; P99 needs 1000" in " ".join(text.split())
    assert "p95 of ttft" not in text
    assert "~" not in render_load(changed(stages=SEARCHED.stages[:1]))


def test_only_words_without_colour() -> None:
    assert "\x1b[" not in render_load(SEARCHED)
    assert "\x1b[" in render_load(SEARCHED, colour=True)
    assert render_load(SEARCHED, ascii_only=True).isascii()
