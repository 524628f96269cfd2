"""Forty secrets on lines that `explain` shows: redacted, no form of the answer has one; the causes stay."""

import gzip
import io
import json
import sys

import pytest

from doctor.cli import main
from doctor.edition.load import load_matrix
from tests.report.test_redacted_forms import JOURNAL, S, found_in, planted

__all__ = ["planted"]

#: Causes with so many signatures that each secret stands on a line of its own.
SPOKEN_FOR = ("driver.dkms_build_failed", "driver.headers_missing", "driver.compiler_mismatch")
#: A log this size is scanned in one pass.
PADDING = "Nov 30 08:01:40 somewhere kernel: audit: nothing of interest here\n" * 70_000


def messages() -> list[str]:
    """One line of each signature that speaks for one of three causes, and is shown."""
    rows = [row for row in load_matrix().edition.signatures if row.causes[0].cause in SPOKEN_FOR]
    texts = [text for row in rows if row.kind == "specific" and not row.also for text in row.positive[:1]]
    return [text for text in texts if "\n" not in text]


def log() -> str:
    """Each line of the secrets' journal behind a message that `explain` knows."""
    head = f"Nov 30 08:01:41 {S['host']} "
    said = [line.removeprefix(head) for line in JOURNAL.splitlines()]
    known = messages()
    assert len(known) >= len(said)
    return "".join(f"{head}{message} {line}\n" for message, line in zip(known, said, strict=False))


def written(capfdbinary, *argv: str) -> tuple[int, str]:
    code = main(["explain", *argv])
    return code, capfdbinary.readouterr().out.decode()


FORMS = {"text": (), "verbose": ("-v",), "json": ("--json",)}


@pytest.fixture(params=["file", "gzip", "stdin", "words", "big"])
def asked(request, tmp_path, monkeypatch):
    """The log in each way in which one asks."""
    path = tmp_path / f"{S['host']}.log"
    if request.param == "words":
        return [log()]
    if request.param == "stdin":
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(log().encode())))
        return ["-"]
    data = (log() + PADDING if request.param == "big" else log()).encode()
    path.write_bytes(gzip.compress(data) if request.param == "gzip" else data)
    return [str(path)]


@pytest.mark.parametrize("form", FORMS)
def test_none_is_in_a_redacted_answer(asked, form, capfdbinary):
    code, text = written(capfdbinary, *asked, *FORMS[form], "--redact")
    assert code == 0
    assert found_in(text) == []


def test_the_log_does_show_them_unredacted(tmp_path, capfdbinary):
    """Else the tests above would pass on an answer without lines."""
    path = tmp_path / "k.log"
    path.write_text(log(), encoding="utf-8")
    _, text = written(capfdbinary, str(path), "--json")
    assert len(found_in(text)) >= 30


def test_causes_and_confidence_are_the_same(tmp_path, capfdbinary):
    path = tmp_path / "k.log"
    path.write_text(log(), encoding="utf-8")
    answers = [
        json.loads(written(capfdbinary, str(path), "--json", *more)[1]) for more in ((), ("--redact",))
    ]
    plain, redacted = (
        [(c["id"], c["confidence"], c["score"], [m["line"] for m in c["matched"]]) for c in answer["causes"]]
        for answer in answers
    )
    assert redacted == plain


@pytest.mark.parametrize("form", FORMS)
def test_facts_of_a_bundle_are_redacted_too(planted, form, tmp_path, capfdbinary):
    """What a host's evidence says is an identity goes from a text that does not say so."""
    text = tmp_path / "said.log"
    text.write_text(
        "Failed to initialize NVML: Driver/library version mismatch "
        f"on {S['host']}, serial {S['gpu serial']}\n",
        encoding="utf-8",
    )
    for argv in ([str(planted)], [str(text), "--from", str(planted)]):
        code, answer = written(capfdbinary, *argv, *FORMS[form], "--redact")
        assert code == 0
        assert found_in(answer) == []


def test_a_saved_answer_is_redacted_when_it_is_shown(tmp_path, capfdbinary):
    saved, path = tmp_path / "said.json", tmp_path / "k.log"
    path.write_text(log(), encoding="utf-8")
    assert main(["explain", str(path), "--json", "-o", str(saved)]) == 0
    assert found_in(saved.read_text(encoding="utf-8"))
    assert main(["report", str(saved), "--redact", "-v"]) == 0
    assert found_in(capfdbinary.readouterr().out.decode()) == []
