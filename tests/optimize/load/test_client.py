"""The client on the wire: what it sends, over which connections, and what it writes down."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from math import isnan
from pathlib import Path

import pytest

from optimize.load.mock_truth import MockPlan
from optimize.load.record import Status
from optimize.load.schedule import Lengths, plan_open
from tests.optimize.load.rig import TOKENS, closed, load

KEY = "sk-planted-0123456789abcdef"


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_a_stream_is_followed_from_its_schedule_to_its_end(endpoint: str) -> None:
    run = load("mock", closed(5), endpoint=endpoint)
    s = run.samples
    assert s.counts() == {"ok": 5}
    assert list(s.n_in) == [7] * 5
    assert list(s.n_out) == [TOKENS] * 5
    assert len(s.gaps) == 5 * (TOKENS - 1)
    for n in range(5):
        times = (s.scheduled[n], s.sent[n], s.header[n], s.first_token[n], s.last_token[n], s.end[n])
        assert list(times) == sorted(times)
        assert s.max_stall[n] > 0


def test_times_agree_with_what_the_server_did() -> None:
    run = load("mock", closed(5))
    true = {number: n for n, number in enumerate(run.truth.number)}
    s = run.samples
    for n, number in enumerate(s.number):
        k = true[int(number)]
        served = run.truth.last_s[k] - run.truth.first_s[k]
        assert s.last_token[n] - s.first_token[n] == pytest.approx(served, abs=0.05)
        assert s.first_token[n] - s.sent[n] >= run.truth.first_s[k] - run.truth.received_s[k]


def test_one_connection_serves_one_stream() -> None:
    assert load("mock", closed(6)).connections <= 2  # one more only looks whether the address answers


def test_a_connection_that_the_server_closed_meanwhile_costs_no_request() -> None:
    """The race of keep-alive: the server closes an idle connection as the next request leaves."""
    run = load("fault-close-idle", closed(4))
    assert run.samples.counts() == {"ok": 4}
    assert run.said.retried == 3


def test_open_loop_sends_by_the_clock_and_not_by_the_answers() -> None:
    schedule = plan_open(
        "constant",
        rate_per_s=50,
        requests=20,
        prompt=Lengths(low=4, high=4),
        output=Lengths(low=2, high=2),
        seed=1,
    )
    run = load("mock", schedule, plan=MockPlan(ttft_s=0.5, itl_s=0.01))
    assert run.samples.counts() == {"ok": 20}
    sent = sorted(run.samples.sent)
    assert sent[-1] < 0.5 + sent[0]  # all were sent before the first answer came
    assert [round(t, 6) for t in sorted(run.samples.scheduled)] == [round(t, 6) for t in schedule.due_s]


def test_answers_that_are_not_streamed() -> None:
    run = load("mock", stream=False)
    s = run.samples
    assert s.counts() == {"ok": 2}
    assert list(s.n_out) == [TOKENS] * 2
    assert all(map(isnan, s.first_token))
    assert all(map(isnan, s.n_chunks))


def test_embeddings() -> None:
    run = load("mock", endpoint="embeddings", stream=False)
    assert run.samples.counts() == {"ok": 2}
    assert list(run.samples.n_in) == [7, 7]


def test_a_unix_socket(tmp_path: Path) -> None:
    assert load("mock", unix=str(tmp_path / "s")).samples.counts() == {"ok": 2}


def test_nobody_listens(tmp_path: Path) -> None:
    async def scene() -> object:
        import asyncio
        import time

        from optimize.load.target import Address
        from optimize.load.worker import run_job
        from tests.optimize.load.rig import job

        one = job(Address(unix=str(tmp_path / "none")), "mock", closed(2))
        return await run_job(one, time.perf_counter(), asyncio.Event(), lambda _s: None)

    import asyncio

    said = asyncio.run(scene())
    assert said.failed == 2
    assert Status.UNREACHABLE.word in said.examples


# --- the key --------------------------------------------------------------------------------------


def test_the_key_is_sent() -> None:
    assert load("mock", plan=MockPlan(ttft_s=0.01, itl_s=0.001, key=KEY), key=KEY).samples.counts() == {
        "ok": 2
    }


def test_a_key_that_the_server_echoes_stands_in_no_example() -> None:
    run = load("mock", plan=MockPlan(key="another"), key=KEY)
    assert run.samples.counts() == {"unauthorised": 2}
    assert run.said.examples["unauthorised"] == ["401: Incorrect API key provided: ***"]
    assert KEY not in repr(run.said)


# --- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    argv = ["openssl", *words.split(), "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*argv, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def server_side(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


def test_tls_with_an_authority_that_is_trusted(certificate: tuple[Path, Path]) -> None:
    run = load("mock", tls=server_side(certificate), ca_file=str(certificate[0]))
    assert run.samples.counts() == {"ok": 2}


def test_tls_is_verified_always(certificate: tuple[Path, Path]) -> None:
    run = load("mock", tls=server_side(certificate))
    assert run.samples.counts() == {"tls": 2}
    assert "certificate is not trusted" in run.said.examples["tls"][0]


def test_tls_for_another_name_is_refused(certificate: tuple[Path, Path]) -> None:
    run = load("mock", tls=server_side(certificate), ca_file=str(certificate[0]), host="127.0.0.2")
    assert run.samples.counts() in ({"tls": 2}, {"unreachable": 2})
