"""Every form of a check: well-formed whatever evidence holds, complete, and equal to its golden file."""

import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import msgspec
import pytest

from doctor.core.finding import Cause, Finding, Remedy
from doctor.grammar.host import FORMS
from doctor.report.forms import CHECK_FORMS, write_check
from doctor.report.saved import from_json

from . import values
from .golden import FOLDER, FORM_GOLDEN

HOSTILE = "\x1b[31m</script><script>alert(1)</script>]]>&\"'\\\n\u202e{}=\x00\x9b café"


def hostile():
    """A report whose every free text is an attack on some form."""
    finding = Finding(
        id="driver.nvml", area="driver", status="fail", title="NVML", subject=HOSTILE, found=HOSTILE,
        wanted=HOSTILE, why=(HOSTILE,), evidence=(HOSTILE,), cause="driver.not_installed",
    )  # fmt: skip
    remedy = Remedy(summary=HOSTILE, commands=(("echo", HOSTILE),), cost="reboot", undo=HOSTILE)
    cause = Cause(
        id="driver.not_installed", title=HOSTILE, because=(HOSTILE,), deciding_facts=(HOSTILE,),
        remedy=remedy,
        findings=(f"driver.nvml@{HOSTILE}",), tied_with=(HOSTILE,),
    )  # fmt: skip
    host = msgspec.structs.replace(
        values.MISMATCH.host, hostname=HOSTILE, os={"id": HOSTILE, "version": HOSTILE, "pretty_name": HOSTILE}
    )
    twice = msgspec.structs.replace(finding, status="warn")
    return msgspec.structs.replace(
        values.MISMATCH, findings=(finding, finding, twice), causes=(cause, cause), advice=(cause,), host=host
    )


REPORTS = {**values.ALL, "hostile": hostile()}


def test_the_command_line_offers_what_is_written():
    assert ("text", *CHECK_FORMS) == FORMS


@pytest.mark.parametrize("file_name", FORM_GOLDEN)
def test_golden(file_name):
    assert FORM_GOLDEN[file_name] == (FOLDER / file_name).read_bytes()


@pytest.mark.parametrize("name", REPORTS)
def test_jsonl_is_the_report_in_pieces(name):
    report = REPORTS[name]
    lines = [json.loads(line) for line in write_check(report, "jsonl").splitlines()]
    assert [line["type"] for line in lines[:-1]].count("finding") == len(report.findings)
    assert lines[-1]["type"] == "verdict"
    assert lines[-1]["verdict"] == report.verdict
    kinds = {"finding": "findings", "cause": "causes", "advice": "advice"}
    whole = {k: v for k, v in lines[-1].items() if k != "type"} | {name: [] for name in kinds.values()}
    for line in lines[:-1]:
        whole[kinds[line.pop("type")]].append(line)
    assert from_json(json.dumps(whole).encode()) == report


@pytest.mark.parametrize("name", REPORTS)
def test_junit_counts_what_it_holds(name):
    report = REPORTS[name]
    root = ET.fromstring(write_check(report, "junit"))
    cases = list(root.iter("testcase"))
    assert len(cases) == len(report.findings) == int(root.get("tests"))
    assert len(list(root.iter("failure"))) == sum(f.status == "fail" for f in report.findings)
    assert len(list(root.iter("failure"))) == int(root.get("failures"))
    assert len(list(root.iter("error"))) == int(root.get("errors"))
    assert len(list(root.iter("skipped"))) == int(root.get("skipped"))
    for suite in root:
        assert int(suite.get("tests")) == len(suite.findall("testcase"))
    names = [suite.get("name") for suite in root]
    assert len(names) == len(set(names))
    assert {c.get("classname") for c in cases} == {f"mopt.{f.area}" for f in report.findings}


_SAMPLE = re.compile(
    r'([a-z_]+)(\{(?:[a-z_]+="(?:[^"\\\n]|\\\\|\\"|\\n)*"(?:,|(?=\})))+\})? (-?\d+(?:\.\d+)?(?:e[+-]\d+)?)'
)


@pytest.mark.parametrize("name", REPORTS)
def test_prometheus_lines_are_of_the_format_and_no_series_stands_twice(name):
    report = REPORTS[name]
    text = write_check(report, "prometheus").decode()
    assert text.endswith("\n")
    series, typed = [], set()
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            typed.add(line.split()[2])
        elif not line.startswith("# HELP"):
            match = _SAMPLE.fullmatch(line)
            assert match, line
            assert match[1] in typed
            series.append(match[1] + (match[2] or ""))
    assert len(series) == len(set(series))
    for scope in report.scopes:
        assert f'mopt_check_ready{{scope="{scope.scope}"}} {int(scope.verdict == "ready")}\n' in text


@pytest.mark.parametrize("name", REPORTS)
def test_ansible_facts_are_flat_words(name):
    report = REPORTS[name]
    facts = json.loads(write_check(report, "ansible-facts"))
    assert facts["verdict"] == report.verdict
    assert facts["is_ready"] is (report.verdict == "ready")
    assert facts["causes"] == [c.id for c in report.causes]
    assert facts["gpu_count"] == len(report.host.gpus)


@pytest.mark.parametrize("name", REPORTS)
def test_nhc_is_one_short_line(name):
    report = REPORTS[name]
    line = write_check(report, "nhc").decode("ascii")
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert len(line) <= 201
    assert line.isprintable() or line[:-1].isprintable()
    assert line.split(":")[0] == {"ready": "OK", "not_ready": "ERROR", "unknown": "UNKNOWN"}[report.verdict]
    if report.causes and report.causes[0].id != "unknown":
        assert report.causes[0].id in line


class _Page(HTMLParser):
    VOID = ("meta", "br")

    def __init__(self):
        super().__init__()
        self.tags, self.open, self.attributes, self.text = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.parametrize("name", REPORTS)
def test_a_page_is_whole_and_asks_for_nothing(name):
    report = REPORTS[name]
    source = write_check(report, "html").decode()
    page = _Page()
    page.feed(source)
    page.close()
    assert page.open == []
    assert set(page.tags) & {"script", "img", "link", "iframe", "object", "a", "form"} == set()
    assert {name for name, _ in page.attributes} <= {
        "class",
        "lang",
        "charset",
        "name",
        "content",
        "http-equiv",
    }
    assert "url(" not in source
    assert "@import" not in source
    assert "\x1b" not in source
    assert "\u202e" not in source
    text = "".join(page.text)
    for finding in report.findings:
        assert finding.id in text
    for cause in report.causes:
        assert cause.id in text
        if cause.remedy and name != "hostile":
            assert cause.remedy.summary[1:].replace("`", "") in text


def test_a_page_tells_each_state_in_words():
    text = write_check(values.MISMATCH, "html").decode()
    for finding in values.MISMATCH.findings:
        assert f"{finding.status}</span>" in text
