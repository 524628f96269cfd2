"""The load client beside a bare one and beside other tools, on the built-in server, in one run.

Streams a second at saturation (32 streams of 64 tokens): ours in one process, a bare protocol client
(`bare_client.py`) that is its ceiling, and, with `--rivals`, locust and aiperf in environments of their own
below `--envs DIR`, and `vllm bench serve` where vllm is there. Then the error of the client: TTFT and the
bias of throughput at Poisson 100/s, the lag of pieces at 500 streams of 20 ms. Medians of `--rounds`; all
clients take turns in each round. Returns 1 when a bar is broken. `--quick`: one round, own clients only, one
line, less than 50 s.
"""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from optimize.load.bodies import BodySpec  # noqa: E402
from optimize.load.calibrate import calibration_jobs, errors_of, mock_server  # noqa: E402
from optimize.load.connection import Times  # noqa: E402
from optimize.load.ending import Expectation  # noqa: E402
from optimize.load.job import Job, pack_schedule  # noqa: E402
from optimize.load.run import run_load  # noqa: E402
from optimize.load.schedule import Lengths, Schedule, plan_closed, plan_open  # noqa: E402
from optimize.load.target import Address  # noqa: E402
from optimize.stats import summarise  # noqa: E402

STREAMS, TOKENS = 32, 64
TTFT_S, ITL_S = 0.05, 0.02
PROMPT, OUTPUT = Lengths(low=64, high=64), Lengths(low=TOKENS, high=TOKENS)

#: The bars of issue 8.
CEILING_SHARE = 0.6
RIVAL_RATIO = 2.0
TTFT_ERROR_S = 1e-3
THROUGHPUT_BIAS = 0.01
LAG_S = 2e-3

LOCUSTFILE = """
import os
from locust import HttpUser, constant, task

BODY = {"model": "mock", "stream": True, "max_tokens": int(os.environ["TOKENS"]), "prompt": "a"}

class User(HttpUser):
    wait_time = constant(0)

    @task
    def stream(self):
        with self.client.post("/v1/completions", json=BODY, stream=True, catch_response=True) as answer:
            for _ in answer.iter_lines():
                pass
            answer.success()
"""


class Verdict(NamedTuple):
    """A bar, the figure, and whether it holds; None where it was not measured."""

    words: str
    value: float | None
    holds: bool | None


def main() -> int:
    """Measure, print, write the result; 1 when a bar is broken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="rounds (5)")
    parser.add_argument("--seconds", type=float, default=8.0, metavar="S", help="of each measurement (8)")
    parser.add_argument("--rivals", action="store_true", help="install and run other tools")
    parser.add_argument("--aiperf", action="store_true", help="with --rivals: aiperf, too (0.9 GB)")
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "mopt-doctor" / "loadgen"
    parser.add_argument("--envs", type=Path, default=default, metavar="DIR", help="where rivals are kept")
    parser.add_argument("--quick", action="store_true", help="one round, own clients, one line")
    parser.add_argument("--no-save", action="store_true", help="write no file below benchmarks/results/")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds, options.rivals = 1, 6.0, False
    clients = _clients(options)
    rows = [_round(clients, options) for _ in range(options.rounds)]
    names = dict.fromkeys(name for row in rows for name in row)
    medians = {name: statistics.median([row[name] for row in rows if name in row]) for name in names}
    verdicts = judge(medians)
    if options.quick:
        print(
            "; ".join(
                f"{v.words} ({'holds' if v.holds else 'BROKEN'})" for v in verdicts if v.holds is not None
            )
        )
    else:
        _print(medians, verdicts)
        if not options.no_save:
            _save(rows, medians, verdicts)
    return int(any(verdict.holds is False for verdict in verdicts))


def _round(clients: dict[str, Callable[[Address], float]], options: argparse.Namespace) -> dict[str, float]:
    found: dict[str, float] = {}
    with mock_server(ttft_s=0.0, itl_s=0.0) as server:
        for name, measure in clients.items():
            found[f"{name} streams/s"] = measure(server.address)
    return found | _errors(options.seconds)


# --- clients at saturation ------------------------------------------------------------------------


def _clients(options: argparse.Namespace) -> dict[str, Callable[[Address], float]]:
    seconds: float = options.seconds
    found: dict[str, Callable[[Address], float]] = {
        "ours": lambda address: ours(address, seconds),
        "bare": lambda address: bare(address, seconds),
    }
    if options.rivals:
        envs: Path = options.envs
        found["locust"] = lambda address: locust(address, seconds, envs)
        if options.aiperf:
            found["aiperf"] = lambda address: aiperf(address, seconds, envs)
        if shutil.which("vllm"):
            found["vllm"] = lambda address: vllm_bench(address, seconds)
    return found


def job(address: Address, schedule: Schedule) -> Job:
    """One process's load on the built-in server."""
    return Job(
        address=address,
        run_id="bench",
        user_agent="mopt-doctor",
        body=BodySpec(endpoint="completions", model="mock", prompt="words"),
        schedule=pack_schedule(schedule),
        index=0,
        of=1,
        expectation=Expectation(is_exact=True),
        limits=Times(),
    )


def ours(address: Address, seconds: float) -> float:
    """Streams a second of one process."""
    schedule = plan_closed(
        concurrency=STREAMS, requests=500_000, prompt=PROMPT, output=OUTPUT, seed=1, duration_s=seconds
    )
    measured = run_load([job(address, schedule)])
    counts = measured.samples.counts()
    if set(counts) != {"ok"}:
        raise SystemExit(f"the load failed: {counts} {measured.examples}")
    return sum(1 for end in measured.samples.end if end <= seconds) / seconds


def bare(address: Address, seconds: float) -> float:
    """Streams a second of the ceiling."""
    argv = [sys.executable, str(ROOT / "benchmarks" / "bare_client.py")]
    argv += [address.host, str(address.port), str(STREAMS), str(TOKENS), str(seconds)]
    done = subprocess.run(argv, capture_output=True, check=True, timeout=seconds + 60)
    return float(json.loads(done.stdout)["streams_per_s"])


def _environment(envs: Path, name: str, package: str) -> Path:
    """The folder of a tool's commands; installed when it is not there."""
    folder = envs / name
    if not (folder / "bin" / name).exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=300)
        pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", package]
        subprocess.run(pip, check=True, timeout=1800)
    return folder / "bin"


def locust(address: Address, seconds: float, envs: Path) -> float:
    """Streams a second of locust in one process, each stream read line by line to its end.

    Its fast user gives an answer only as a whole: no token of a stream has a time there.
    """
    program = _environment(envs, "locust", "locust") / "locust"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "locustfile.py").write_text(LOCUSTFILE, encoding="utf-8")
        argv = [str(program), "--headless", "--only-summary", "-u", str(STREAMS), "-r", str(STREAMS)]
        argv += ["-t", f"{seconds:.0f}s", "-H", f"http://{address.host}:{address.port}", "--csv", "out"]
        env = os.environ | {"TOKENS": str(TOKENS)}
        subprocess.run(argv, cwd=folder, env=env, capture_output=True, check=True, timeout=seconds + 120)
        with (Path(folder) / "out_stats.csv").open(encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["Name"] == "Aggregated"]
        return float(rows[0]["Requests/s"])


def aiperf(address: Address, seconds: float, envs: Path) -> float:
    """Streams a second by aiperf's own account, token counts from the server, no tokenizer fetched."""
    program = _environment(envs, "aiperf", "aiperf") / "aiperf"
    with tempfile.TemporaryDirectory() as folder:
        argv = [str(program), "profile", "--model", "mock", "--url", f"{address.host}:{address.port}"]
        argv += ["--endpoint-type", "completions", "--streaming", "--concurrency", str(STREAMS)]
        argv += ["--benchmark-duration", f"{seconds:.0f}", "--osl", str(TOKENS), "--isl", "64"]
        argv += [
            "--use-server-token-count",
            "--tokenizer",
            "builtin",
            "--output-artifact-dir",
            folder,
            "--ui",
            "none",
        ]
        subprocess.run(argv, capture_output=True, check=True, timeout=seconds + 300)
        found = next(Path(folder).rglob("profile_export_aiperf.json"))
        return float(json.loads(found.read_text(encoding="utf-8"))["request_throughput"]["avg"])


def vllm_bench(address: Address, seconds: float) -> float:
    """Streams a second by vLLM's own account: as many requests as take about the time."""
    with tempfile.TemporaryDirectory() as folder:
        argv = ["vllm", "bench", "serve", "--backend", "openai", "--model", "mock", "--skip-tokenizer-init"]
        argv += ["--host", address.host, "--port", str(address.port), "--endpoint", "/v1/completions"]
        argv += ["--dataset-name", "random", "--random-input-len", "64", "--random-output-len", str(TOKENS)]
        argv += ["--num-prompts", str(int(400 * seconds)), "--max-concurrency", str(STREAMS)]
        argv += ["--save-result", "--result-dir", folder, "--result-filename", "out.json"]
        subprocess.run(argv, capture_output=True, check=True, timeout=seconds * 20 + 300)
        return float(
            json.loads((Path(folder) / "out.json").read_text(encoding="utf-8"))["request_throughput"]
        )


# --- the client's own error -----------------------------------------------------------------------


def _errors(seconds: float) -> dict[str, float]:
    with mock_server(ttft_s=TTFT_S, itl_s=ITL_S) as server:
        poisson = plan_open(
            "poisson", rate_per_s=100, duration_s=seconds, prompt=PROMPT, output=OUTPUT, seed=2
        )
        [one] = calibration_jobs(job(server.address, poisson), poisson, 1, server.address, stagger_s=0)
        measured = run_load([one])
        ttft, _lags, slips = errors_of(measured.samples, server.truth(), is_open=True)
        # From the time when the first stream could have ended to the last arrival: steady by construction.
        begin = TTFT_S + TOKENS * ITL_S + 0.3
        window = (begin, max(poisson.due_s))
        offered = sum(
            1 for due in poisson.due_s if window[0] <= due + TTFT_S + (TOKENS - 1) * ITL_S <= window[1]
        )
        summary = summarise(measured.samples, window=window)
        reported = summary.completed_per_s * (window[1] - window[0])
        streams = plan_closed(
            concurrency=500, requests=500_000, prompt=PROMPT, output=OUTPUT, seed=3, duration_s=seconds
        )
        [many] = calibration_jobs(job(server.address, streams), streams, 1, server.address, stagger_s=1.3)
        lagged = run_load([many])
        lags = sorted(lagged.samples.lags)
    return {
        "ttft error p50 ms": statistics.median(ttft) * 1e3,
        "ttft error p99 ms": ttft[int(0.99 * len(ttft))] * 1e3,
        "slip p99 ms": slips[int(0.99 * len(slips))] * 1e3,
        "throughput bias": abs(reported / offered - 1),
        "lag p50 ms at 500 streams": lags[len(lags) // 2] * 1e3,
        "lag p99 ms at 500 streams": lags[int(0.99 * len(lags))] * 1e3,
    }


# --- verdicts -------------------------------------------------------------------------------------


def judge(medians: dict[str, float]) -> list[Verdict]:
    """The bars on the medians."""
    share = medians["ours streams/s"] / medians["bare streams/s"]
    rivals = {
        n: v for n, v in medians.items() if n.endswith("streams/s") and n.split()[0] not in ("ours", "bare")
    }
    best = max(rivals.values(), default=None)
    ratio = medians["ours streams/s"] / best if best else None
    ttft, bias = medians["ttft error p50 ms"], medians["throughput bias"]
    lag = medians["lag p50 ms at 500 streams"]
    return [
        Verdict(
            f"{medians['ours streams/s']:.0f} streams/s, {share:.0%} of the ceiling",
            share,
            share >= CEILING_SHARE,
        ),
        Verdict(
            f"{ratio:.1f} times the best rival" if ratio else "no rival was run",
            ratio,
            None if ratio is None else ratio >= RIVAL_RATIO,
        ),
        Verdict(f"TTFT error p50 {ttft:.2f} ms", ttft, ttft <= TTFT_ERROR_S * 1e3),
        Verdict(f"throughput off by {bias:.2%}", bias, bias < THROUGHPUT_BIAS),
        Verdict(f"lag p50 {lag:.2f} ms at 500 streams", lag, lag < LAG_S * 1e3),
    ]


def _print(medians: dict[str, float], verdicts: list[Verdict]) -> None:
    for name, value in medians.items():
        print(f"{name:<28}{value:>12.4g}")
    print()
    for verdict in verdicts:
        word = "not measured" if verdict.holds is None else "holds" if verdict.holds else "BROKEN"
        print(f"{word:<13} {verdict.words}")


def _save(rows: list[dict[str, float]], medians: dict[str, float], verdicts: list[Verdict]) -> None:
    """With processor, cores, kernel, Python and load, and no name."""
    path = ROOT / "benchmarks" / "results" / f"loadgen-{dt.datetime.now(dt.timezone.utc):%Y-%m-%d}.json"
    document = {
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
        "medians": medians,
        "rounds": rows,
        "bars": [verdict._asdict() for verdict in verdicts],
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
