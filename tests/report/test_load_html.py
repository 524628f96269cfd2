"""The page of a load: what it says, that its charts have tables, and that nothing in it acts or calls out."""

import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import jsonschema
import msgspec
import pytest

from doctor.cli import main
from doctor.core.load import LoadReport, Point, Timeline
from doctor.report.load_html import to_load_html
from doctor.report.load_text import render_load
from doctor.report.machine import to_json
from doctor.report.saved import from_json
from doctor.report.schemas import schema
from doctor.report.svg import Chart, Line, Spot, draw, ticks

from .load_values import HOSTILE, SEARCHED

PAGE = to_load_html(SEARCHED).decode()
VOID = {"meta", "br", "img", "input"}


class Shape(HTMLParser):
    """Elements with their attributes; raises where they do not nest."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.open, self.words = [], [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_a_value_without_an_interval_says_so():
    assert "~75 (no interval: 9 of 200 independent values)" in PAGE
    points = [q for q in SEARCHED.stages[1].summary.metrics[0].quantiles if isinstance(q.result, Point)]
    assert [q.p for q in points] == [0.95]
    assert from_json(to_json(SEARCHED)) == SEARCHED


def test_an_accounting_without_error_is_told():
    exact = msgspec.structs.replace(SEARCHED.stages[0].summary, littles_law_error=0.0)
    stage = msgspec.structs.replace(SEARCHED.stages[0], summary=exact)
    assert "Off by 0.00%" in to_load_html(msgspec.structs.replace(SEARCHED, stages=(stage,))).decode()


@pytest.mark.parametrize("report", [SEARCHED, HOSTILE], ids=["searched", "hostile"])
def test_nothing_acts_and_nothing_is_fetched(report):
    page = to_load_html(report).decode()
    shape = Shape(page)
    tags = {tag for tag, _ in shape.elements}
    assert tags & {"script", "link", "img", "iframe", "object", "image", "use", "b", "i", "a"} == set()
    for _, attributes in shape.elements:
        assert not any(name.startswith("on") or name in ("src", "href", "xlink:href") for name in attributes)
    assert "url(" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page
    assert "\x1b" not in page
    assert "\u202e" not in page


@pytest.mark.parametrize("report", [SEARCHED, HOSTILE], ids=["searched", "hostile"])
def test_each_chart_is_well_formed_and_named(report):
    charts = re.findall(r"<svg.*?</svg>", to_load_html(report).decode(), re.DOTALL)
    assert charts
    ids = []
    for chart in charts:
        root = ET.fromstring(chart)
        assert root.get("role") == "img"
        named = [element.get("id") for element in root if element.get("id")]
        assert root.get("aria-labelledby").split() == named
        ids += named
        for numbers in re.findall(r'(?:points|d|x|y|x1|y1|cx|cy)="([^"]*)"', chart):
            assert "nan" not in numbers
            assert "inf" not in numbers
    assert len(ids) == len(set(ids))


def test_the_verdict_and_the_search_are_told():
    words = " ".join(Shape(PAGE).words)
    for said in (
        "✓ Meets its SLO",
        "24 requests/s",
        "25.1 requests/s",
        "19.2 requests/s",
        "27.5 requests/s",
        "32 streams; 2 of 3 estimates agree within 6% (two_segment 31, usl 33, power not known)",
        "190 of 950 requests were late or failed",
        "ttft <= 500 ms",
        "99.17% (98.50% to 99.60%)",
        "GPU 0 throttled: power cap",
        "67% of the pieces arrived together",
        "TTFT p50 0.2 ms, p99 1.4 ms",
    ):
        assert said in words, said


def test_every_value_that_is_drawn_stands_in_a_table():
    """P50 of TTFT at 64 streams is 400 ms with 380 to 432; the P99 that is withheld is said to be."""
    words = Shape(PAGE).words
    assert "400 (380 to 432)" in words
    assert "withheld: 600 of 1000 values" in words
    charts, tables = PAGE.count("<svg"), PAGE.count("<table")
    assert tables >= charts - 6  # latency has three charts to a table, on each of two axes
    assert PAGE.count("as a table</summary>") == 3


def test_intervals_are_drawn():
    chart = re.search(r'<svg[^>]*aria-labelledby="streams-ttft-t.*?</svg>', PAGE, re.DOTALL)[0]
    assert chart.count('class="span s0"') == 3
    assert chart.count('class="span s2"') == 2  # P99 of one stage is withheld
    assert re.search(r'class="mark".*?>knee<', PAGE, re.DOTALL)


def test_a_series_that_nobody_read_is_not_drawn():
    assert "not read" not in PAGE
    assert "power &lt;W&gt;" in PAGE


def test_long_series_are_thinned_and_gaps_left_out():
    rows = re.search(r"kv cache as a table</summary>(.*?)</table>", PAGE, re.DOTALL)[1]
    assert 90 <= rows.count("<tr><th") - 1 <= 120


def test_a_stage_without_anything():
    bare = LoadReport(target=SEARCHED.target, plan=SEARCHED.plan, stages=(), timeline=Timeline())
    page = to_load_html(bare).decode()
    Shape(page)
    assert "<svg" not in page
    assert "Measured" in page


def test_it_follows_dark_and_light():
    style = PAGE.partition("<style>")[2].partition("</style>")[0]
    assert "prefers-color-scheme:dark" in style
    for name in re.findall(r"svg\.chart[^{]*\{([^}]*)\}", style):
        assert not re.search(r"#[0-9a-f]{3}", name), "colours are the page's variables"


def test_the_saved_document_is_the_same_value():
    assert from_json(to_json(SEARCHED)) == SEARCHED
    assert from_json(to_json(HOSTILE)) == HOSTILE


@pytest.mark.parametrize("report", [SEARCHED, HOSTILE], ids=["searched", "hostile"])
def test_the_document_follows_its_schema(report):
    document = json.loads(to_json(report))
    check = jsonschema.Draft202012Validator(schema("mopt.load/1"))
    check.validate(document)
    document["stages"][0]["summary"]["metrics"][0]["quantiles"][0]["result"].pop("value_s")
    assert not check.is_valid(document)


@pytest.mark.parametrize("report", [SEARCHED, HOSTILE], ids=["searched", "hostile"])
def test_its_text_fits_a_terminal(report):
    text = render_load(report)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_its_text_tells_percentiles_with_intervals_and_what_is_withheld():
    lone = msgspec.structs.replace(SEARCHED, search=None, stages=SEARCHED.stages[1:2])
    text = " ".join(render_load(lone).split())
    assert "600 values; P99 needs 1000" in text
    whole = " ".join(render_load(msgspec.structs.replace(lone, stages=SEARCHED.stages[2:3])).split())
    assert "760.00..864.00" in whole or "760..864" in whole


def test_report_writes_the_page(tmp_path, capfdbinary):
    path = tmp_path / "load.json"
    path.write_bytes(to_json(SEARCHED))
    assert main(["report", str(path), "--format", "html"]) == 0
    assert capfdbinary.readouterr().out.decode() == PAGE
    assert main(["report", str(path), "--format", "junit"]) == 2
    assert b"`html`" in capfdbinary.readouterr().err


# --- the drawing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (0, 0.5, [0, 0.1, 0.2, 0.3, 0.4, 0.5]),
        (95, 105, [96, 98, 100, 102, 104]),
    ],
)
def test_ticks_are_round(low, high, found):
    assert ticks(low, high) == pytest.approx(found)


def test_a_value_lies_where_its_axis_says():
    chart = Chart(
        title="t",
        x_name="x",
        y_name="y",
        lines=(Line(name="a", spots=(Spot(x=0, y=0), Spot(x=50, y=5), Spot(x=100, y=10))),),
    )
    points = re.search(r'points="([^"]*)"', draw(chart, name="n"))[1].split()
    xs, ys = zip(*(map(float, point.split(",")) for point in points), strict=True)
    assert xs[1] == pytest.approx((xs[0] + xs[2]) / 2)
    assert ys[1] == pytest.approx((ys[0] + ys[2]) / 2, abs=0.1)
    assert ys[0] > ys[2]


def test_nothing_to_draw():
    empty = Chart(title="t", x_name="x", y_name="y", lines=(Line(name="a", spots=()),))
    assert draw(empty, name="n") == ""
    wild = msgspec.structs.replace(empty, lines=(Line(name="a", spots=(Spot(x=1e300, y=float("inf")),)),))
    assert draw(wild, name="n") == ""


def test_a_logarithmic_axis_leaves_out_what_is_not_above_zero():
    spots = tuple(Spot(x=n, y=y) for n, y in enumerate((0.0, 0.01, 1.0, 100.0)))
    chart = Chart(title="t", x_name="x", y_name="y", lines=(Line(name="a", spots=spots),), is_log=True)
    drawn = draw(chart, name="n")
    assert drawn.count("<circle") == 3 + 1  # and the legend
    assert ">0.01<" in drawn
