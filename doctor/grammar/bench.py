"""The options of `bench`: apart, because they are many."""

from __future__ import annotations

import argparse

__all__ = ["add_bench_options"]


def add_bench_options(one: argparse.ArgumentParser) -> None:
    """Target, load, prompts, SLO and output of `bench`."""
    one.add_argument(
        "url", metavar="URL", help="http://host:8000, with /v1 or the endpoint; unix:///run/x.sock"
    )
    one.add_argument("--model", metavar="NAME", help="as the server names it (the only one that it has)")
    endpoints = ("chat", "completions", "embeddings")
    one.add_argument("--endpoint", choices=endpoints, help="chat, completions or embeddings (chat)")
    _add_load(one)
    _add_prompts(one)
    one.add_argument(
        "--slo",
        metavar="TERMS",
        help="limits for each request, and for what share: ttft=500ms,tpot=50ms,share=99%%",
    )
    one.add_argument("--search", action="store_true", help="find the highest rate that meets the SLO")
    budget = "of the search: seconds=600,requests=50000,tokens=50000000"
    one.add_argument("--budget", default="", metavar="TERMS", help=budget)
    one.add_argument("--state", metavar="FILE", help="keep the search here, and go on from there")
    one.add_argument("--api-key-env", metavar="NAME", help="the variable with the key (MOPT_API_KEY)")
    one.add_argument("--api-key-file", metavar="FILE", help="the file with the key; - is stdin")
    one.add_argument("--ca", metavar="FILE", help="trust these authorities, too (PEM)")
    one.add_argument("--timeout", metavar="S", help="seconds for one request (900)")
    one.add_argument(
        "--processes", type=int, default=0, metavar="N", help="measuring processes (as the load needs)"
    )
    one.add_argument(
        "--no-calibrate", action="store_true", help="do not measure the client's own error first"
    )
    one.add_argument(
        "--format", choices=("text", "json", "ndjson"), default="text", help="ndjson: each request (text)"
    )
    one.add_argument("--json", action="store_true", help="the same as --format json (mopt.load/1)")
    one.add_argument(
        "-o", dest="output", metavar="FILE", help="write the report to FILE as JSON, or in --format"
    )
    one.add_argument("--samples", metavar="FILE", help="write each request to FILE (NDJSON)")
    one.add_argument("-q", "--quiet", action="store_true", help="no progress")


def _add_load(one: argparse.ArgumentParser) -> None:
    one.add_argument("--rate", metavar="R", help="requests a second, or R1-R2 for a ramp: they do not wait")
    one.add_argument(
        "--arrivals", choices=("poisson", "constant"), default="poisson", help="with --rate (poisson)"
    )
    one.add_argument("--burstiness", metavar="K", help="with --rate: gaps of gamma shape K, bursts below 1")
    one.add_argument(
        "--concurrency", type=int, default=0, metavar="N", help="so many at once, one after the other (8)"
    )
    one.add_argument("--trace", metavar="FILE", help="NDJSON lines: timestamp, input_length, output_length")
    one.add_argument("--duration", metavar="S", help="seconds (30)")
    one.add_argument("--requests", type=int, default=0, metavar="N", help="end after so many")
    one.add_argument("--seed", type=int, metavar="N", help="the same load again (random; the report has it)")


def _add_prompts(one: argparse.ArgumentParser) -> None:
    one.add_argument("--prompt-tokens", default="512", metavar="N|A-B", help="length of prompts (512)")
    one.add_argument("--output-tokens", default="128", metavar="N|A-B", help="length of answers (128)")
    one.add_argument("--prompt", choices=("words", "ids"), help="text, or token ids (ids for completions)")
    one.add_argument("--vocabulary", type=int, default=10_000, metavar="N", help="ids stay below N (10000)")
    one.add_argument("--let-stop", action="store_true", help="let answers end by themselves: no ignore_eos")
    one.add_argument("--no-stream", action="store_true", help="whole answers: no TTFT, no ITL")
    one.add_argument("--extra-body", metavar="JSON", help="more fields for each request")
