"""`mopt-doctor bench`: what it says of a load, of what is wrong with a target, and never of a key."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

pytest.importorskip("httptools")
pytest.importorskip("numpy")

from doctor.cli import main
from doctor.commands.bench_ask import budget_of, slo_of
from doctor.errors import UsageError
from optimize.load.calibrate import MockServer, mock_server

SCHEMA = Path(__file__).parent.parent / "doctor" / "schemas" / "mopt.load-1.json"
KEY = "sk-planted-0123456789abcdef"
SHORT = ("--duration", "1.5", "--output-tokens", "4", "--prompt-tokens", "8", "--no-calibrate", "--seed", "1")


@pytest.fixture(scope="module")
def server() -> Iterator[MockServer]:
    with mock_server(ttft_s=0.01, itl_s=0.002) as one:
        yield one


@pytest.fixture
def bench(server: MockServer, capfd):
    """A function: run `bench` on the server with arguments; exit code, stdout, stderr."""

    def run(*arguments: str, url: str = "") -> tuple[int, str, str]:
        code = main(["bench", url or server.address.url, *arguments])
        said = capfd.readouterr()
        return code, said.out, said.err

    return run


def test_a_load_is_summed_up_in_80_columns(bench) -> None:
    code, out, err = bench(*SHORT, "--rate", "60")
    assert code == 0
    assert out.startswith("MEASURED: ")
    assert "ttft" in out
    assert max(map(len, out.splitlines())) <= 80
    assert "first contact" in err


def test_the_document_is_that_of_the_schema_and_can_be_reported(bench, tmp_path, capfd) -> None:
    target = tmp_path / "load.json"
    code, out, _err = bench(*SHORT, "--concurrency", "4", "-o", str(target), "-q")
    document = json.loads(target.read_bytes())
    jsonschema.validate(document, json.loads(SCHEMA.read_bytes()))
    assert code == document["exit_code"] == 0
    assert document["plan"]["loop"] == "closed"
    assert document["plan"]["seed"] == 1
    assert set(document["stages"][0]["summary"]["statuses"]) == {"ok"}
    assert main(["report", str(target)]) == 0
    assert capfd.readouterr().out == out


def test_json_on_stdout(bench) -> None:
    code, out, _err = bench(*SHORT, "--json", "-q")
    assert code == 0
    assert json.loads(out)["schema"] == "mopt.load/1"


def test_each_request_as_a_line(bench, tmp_path) -> None:
    samples = tmp_path / "samples.ndjson"
    code, out, _err = bench(
        *SHORT[2:], "--requests", "12", "--format", "ndjson", "-q", "--samples", str(samples)
    )
    assert code == 0
    head, *rows = [json.loads(line) for line in out.splitlines()]
    assert head["schema"] == "mopt.samples/1"
    assert len(rows) == 12
    assert {row["status"] for row in rows} == {"ok"}
    assert all(row["scheduled"] <= row["sent"] <= row["first_token"] <= row["end"] for row in rows)
    assert samples.read_text() == out


def test_a_trace_is_replayed(bench, tmp_path) -> None:
    trace = tmp_path / "trace.ndjson"
    trace.write_text(
        "\n".join(
            json.dumps({"timestamp": n / 20, "input_length": 5 + n, "output_length": 1 + n % 3})
            for n in range(30)
        )
    )
    code, out, _err = bench("--trace", str(trace), "--no-calibrate", "--format", "ndjson", "-q")
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()[1:]]
    assert {row["number"]: row["n_out"] for row in rows} == {n: 1 + n % 3 for n in range(30)}


def test_an_slo_without_a_calibrated_client_gets_no_verdict(bench) -> None:
    code, out, _err = bench(*SHORT, "--concurrency", "16", "--slo", "ttft=5s,share=90%", "-q")
    assert code == 3
    assert "not calibrated" in " ".join(out.split())
    assert not out.startswith("PASS")


def test_an_slo_that_is_missed_by_far_fails(bench) -> None:
    """By more than three times any error that a client has on a busy machine: 200 ms."""
    options = ("--duration", "3", "--output-tokens", "100", "--concurrency", "16", "-q")
    code, out, _err = bench(*options, "--slo", "e2e=1ms,share=90%")
    assert (code, out[:5]) == (5, "FAIL:")


def test_a_calibrated_client_says_its_own_error(bench) -> None:
    code, out, _err = bench("--duration", "1.5", "--output-tokens", "4", "--rate", "40", "-q")
    assert code == 0
    assert "its own error" in out


def test_embeddings_and_whole_answers(bench) -> None:
    assert bench(*SHORT, "--endpoint", "embeddings", "-q")[0] == 0
    code, out, _err = bench(*SHORT, "--endpoint", "completions", "--no-stream", "-q")
    assert code == 0
    assert "ttft" not in out


def test_failures_are_counted_with_the_servers_words(bench) -> None:
    code, out, _err = bench(*SHORT[:-1], "1", "--model", "fault-coalesced", "-q")
    assert code == 0
    assert "4.00 tokens each" in out


def test_ctrl_c_shows_what_was_measured(bench) -> None:
    threading.Timer(4.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    code, out, _err = bench("--rate", "50", "--duration", "60", "--output-tokens", "4", "--no-calibrate")
    assert code == 130
    assert "cut short; until then" in " ".join(out.split())


# --- what is wrong with the target ----------------------------------------------------------------


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_wrong_model_is_told_with_the_right_ones(bench) -> None:
    code, _out, err = bench(*SHORT, "--model", "nix", "-q")
    assert code == 2
    assert "serves no model `nix`; it serves `mock`" in words(err)
    assert "--model mock" in err


def test_nobody_listens(bench) -> None:
    code, _out, err = bench(*SHORT, "--model", "m", "-q", url="http://127.0.0.1:1")
    assert code == 3
    assert "no server answers at http://127.0.0.1:1/v1: Connection refused" in words(err)


def test_tls_where_there_is_none(bench, server) -> None:
    code, _out, err = bench(*SHORT, "--model", "m", "-q", url=f"https://127.0.0.1:{server.address.port}")
    assert code == 3
    assert "TLS with https://" in err


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        ("401", 2, "refuses a request without a key"),
        ("404", 2, "serves no model `fault-404`"),
        ("429", 3, "rate_limited"),
        ("500", 3, "EngineDeadError"),
        ("not-http", 3, "does not speak HTTP"),
        ("empty", 3, "without a token"),
    ],
)
def test_the_first_contact_says_what_is_wrong(bench, fault: str, code: int, said: str) -> None:
    got, out, err = bench(*SHORT, "--model", f"fault-{fault}", "-q")
    assert (got, out) == (code, "")
    assert said in words(err)
    assert "hint:" in err


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_tokens_that_decode_to_no_text_are_counted(bench, endpoint: str) -> None:
    """As a real vLLM answers with random weights: it was called empty, and nothing was measured."""
    load = ("--concurrency", "1", "--model", "fault-textless", "--endpoint", endpoint)
    code, out, err = bench(*SHORT, *load, "--json")
    assert code == 0
    summary = json.loads(out)["stages"][0]["summary"]
    assert set(summary["statuses"]) == {"ok"}, summary["statuses"]
    assert "`return_token_ids`" in words(err) + out


def test_more_fields_reach_the_server(bench) -> None:
    """They travelled to the measuring process as raw JSON within another format, and it died."""
    code, out, _err = bench(
        *SHORT,
        "--model",
        "fault-textless",
        "--extra-body",
        '{"return_token_ids": true, "seed": [1, {"a": null}]}',
    )
    assert (code, out.startswith("MEASURED: ")) == (0, True)


USAGE = {
    "no scheme": (("localhost:8000",), "names no server"),
    "a password in the URL": ((f"http://u:{KEY}@h",), "user name or a password"),
    "two loads": (("--rate", "1", "--concurrency", "1"), "two kinds of load"),
    "a rate that is none": (("--rate", "x"), "is no number"),
    "a rate of zero": (("--rate", "0"), "a rate of 0"),
    "a ramp for no time": (("--rate", "1-9", "--requests", "5"), "has a `--duration`"),
    "arrivals of a closed loop": (("--arrivals", "constant"), "go with `--rate`"),
    "a length": (("--prompt-tokens", "0"), "a length is 1 to"),
    "an SLO": (("--slo", "ttfb=1s"), "is none of"),
    "a search for nothing": (("--search",), "needs an SLO"),
    "a body": (("--extra-body", "[]"), "no JSON object"),
    "a field that is ours": (("--extra-body", '{"model":"x"}'), "other options decide"),
    "ids for chat": (("--prompt", "ids"), "chat takes text"),
    "a variable that is not set": (("--api-key-env", "MOPT_NO_SUCH"), "is not set"),
    "a CA that is not there": (("--ca", "/no/such"), "No such file"),
    "a trace that is not there": (("--trace", "/no/such"), "cannot be read"),
}


@pytest.mark.parametrize("name", USAGE)
def test_what_does_not_fit_together_is_refused(bench, name: str) -> None:
    arguments, said = USAGE[name]
    url = arguments[0] if not arguments[0].startswith("-") else ""
    rest = () if url else arguments
    code, out, err = bench(*rest, "--model", "mock", "-q", url=url)
    assert (code, out) == (2, "")
    assert said in words(err)
    assert KEY not in err


def test_without_the_extra_one_sentence_says_how_to_get_it(bench, monkeypatch) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "httptools" else find(name))
    code, _out, err = bench("-q")
    assert code == 2
    assert "pip install 'mopt-doctor[bench]'" in err


# --- the key --------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["file", "variable", "own variable"])
def test_no_writer_ever_writes_the_key(bench, way: str, tmp_path, monkeypatch) -> None:
    key_file, report, samples = tmp_path / "key", tmp_path / "r.json", tmp_path / "s.ndjson"
    key_file.write_text(f"{KEY}\n")
    monkeypatch.setenv("MOPT_API_KEY" if way == "own variable" else "PLANTED", KEY)
    options = {"file": ("--api-key-file", str(key_file)), "variable": ("--api-key-env", "PLANTED")}.get(
        way, ()
    )
    code, out, err = bench(*SHORT, *options, "-o", str(report), "--samples", str(samples))
    assert code == 0
    for text in (out, err, report.read_text(), samples.read_text()):
        assert KEY not in text


def test_a_key_that_the_server_echoes_is_taken_out(capfd, monkeypatch) -> None:
    """The mock says `Incorrect API key provided: KEY`, as OpenAI does."""
    from tests.optimize.load.keyed import keyed_server

    monkeypatch.setenv("MOPT_API_KEY", KEY)
    with keyed_server("another") as url:
        code = main(["bench", url, "--model", "mock", *SHORT])
    said = capfd.readouterr()
    assert code == 2
    assert "refuses the key: 401: Incorrect API key provided: ***" in words(said.err)
    assert KEY not in said.out + said.err


# --- terms ----------------------------------------------------------------------------------------


def test_slo_terms() -> None:
    slo = slo_of("ttft=500ms, tpot<=0.05s,share=99.5%")
    assert [(term.metric, term.limit_s) for term in slo.terms] == [("ttft", 0.5), ("tpot", 0.05)]
    assert slo.attainment == pytest.approx(0.995)


@pytest.mark.parametrize(
    "text",
    ["", "ttft", "ttft=5", "ttft=0ms", "ttft=-1s", "share=99%", "ttft=1s,share=100%", "ttft=1s,ttft=2s"],
)
def test_slo_terms_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        slo_of(text)


def test_budget_terms() -> None:
    assert budget_of("seconds=5").seconds == 5
    assert budget_of("").requests == 50_000
    for text in ("seconds=0", "requests=x", "euros=5"):
        with pytest.raises(UsageError):
            budget_of(text)
