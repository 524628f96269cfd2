"""The golden files under `tests/data/golden/` and what makes them; run as a module, it writes them anew."""

from pathlib import Path

from doctor.report.explain_text import render_explain
from doctor.report.forms import CHECK_FORMS, write_check
from doctor.report.load_html import to_load_html
from doctor.report.machine import to_json
from doctor.report.text import render_check, render_host

from . import load_values, values

FOLDER = Path(__file__).parent.parent / "data" / "golden"

GOLDEN = {
    **{f"check-{name}.txt": render_check(report).encode() for name, report in values.ALL.items()},
    **{f"check-{name}.json": to_json(report) for name, report in values.ALL.items()},
    "check-mismatch-verbose.txt": render_check(
        values.MISMATCH, verbose=True, host=values.MISMATCH_HOST
    ).encode(),
    "check-could-not-tell-colour-60.txt": render_check(values.STUCK, colour=True, width=60).encode(),
    "host-h200.txt": render_host(values.H200).encode(),
    "host-h200.json": to_json(values.H200),
    "host-mismatch.txt": render_host(values.MISMATCH_HOST).encode(),
    "host-nothing.txt": render_host(values.NOTHING).encode(),
    "load-searched.html": to_load_html(load_values.SEARCHED),
    "load-searched.json": to_json(load_values.SEARCHED),
    "explain-mismatch.json": to_json(values.EXPLAINED),
    "explain-mismatch.txt": render_explain(values.EXPLAINED, verbose=True).encode(),
}

_ENDINGS = {
    "ansible-facts": "fact",
    "prometheus": "prom",
    "junit": "xml",
    "nhc": "nhc",
    "html": "html",
    "jsonl": "jsonl",
}

#: The other forms of one report.
FORM_GOLDEN = {
    f"check-mismatch.{_ENDINGS[form]}": write_check(values.MISMATCH, form)
    for form in CHECK_FORMS
    if form != "json"
}
GOLDEN |= FORM_GOLDEN

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for file_name, content in GOLDEN.items():
        (FOLDER / file_name).write_bytes(content)
