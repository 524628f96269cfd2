"""The commands that look at models and put load on servers."""

from __future__ import annotations

import argparse

from doctor.grammar.base import Commands, add_look, add_overlay, command

__all__ = ["add_bench", "add_model"]


def add_bench(commands: Commands) -> None:  # type: ignore[valid-type]
    """`bench`."""
    from doctor.grammar.bench import add_bench_options

    one = command(commands, "bench", "load an OpenAI-compatible endpoint and say what it gave", "bench:run")
    add_bench_options(one)
    add_look(one)


def add_model(commands: Commands) -> None:  # type: ignore[valid-type]
    """`model`."""
    one = command(
        commands,
        "model",
        "say what a model is, whether its files are whole, and whether it fits",
        "model:run",
    )
    one.add_argument(
        "path", metavar="PATH", help="the folder of a model; or its config.json or a file of weights alone"
    )
    one.add_argument(
        "--gpu", action="append", default=[], metavar="NAME", help="H200, 10de:2335, L4x2 (this host's)"
    )
    one.add_argument("--from", dest="bundle", metavar="FILE", help="the GPUs of that host: as of `check`")
    one.add_argument(
        "--context", type=int, metavar="N", help="tokens of a sequence (what the model was made for)"
    )
    one.add_argument("--concurrency", type=int, metavar="N", help="so many sequences at once (1)")
    one.add_argument(
        "--kv-dtype",
        choices=("bfloat16", "float16", "fp8", "nvfp4"),
        help="of the KV cache (the model's own)",
    )
    one.add_argument(
        "--digest", action="store_true", help="the SHA-256 of each file, those known from before not again"
    )
    _add_model_plan(one)
    one.add_argument("--format", choices=("text", "json"), default="text", help="text or json (text)")
    one.add_argument("--json", action="store_true", help="the same as --format json (mopt.model/1)")
    one.add_argument("-o", dest="output", metavar="FILE", help="write the answer to FILE, as JSON")
    one.add_argument("-q", "--quiet", action="store_true", help="no progress")
    add_overlay(one)
    add_look(one)


def _add_model_plan(one: argparse.ArgumentParser) -> None:
    one.add_argument(
        "--plan",
        action="store_true",
        help="plan how to serve it: engine, split, limits, the command, and why; goes with the options below",
    )
    one.add_argument(
        "--gpus", type=int, metavar="N", help="so many GPUs of the kind (all that are named or here)"
    )
    one.add_argument(
        "--prompt-tokens", metavar="N", help="length of prompts: 512, 128-2048, or several, 128,512,2048"
    )
    one.add_argument("--output-tokens", metavar="N", help="length of answers, likewise")
    one.add_argument("--rate", type=float, metavar="R", help="requests a second (or --concurrency)")
    one.add_argument("--think-s", type=float, metavar="S", help="what users wait between requests (0)")
    one.add_argument("--slo-ttft-ms", type=float, metavar="MS", help="promised time to the first token")
    one.add_argument("--slo-tpot-ms", type=float, metavar="MS", help="promised time of each token after it")
    one.add_argument(
        "--engine", metavar="NAME", help="vllm, tensorrt-llm, tensorrt; vllm==0.33.0 (newest that serves)"
    )
    one.add_argument(
        "--quantization", metavar="Q", help="convert the weights while they are loaded: fp8 (never)"
    )
    one.add_argument(
        "--memory-fraction", type=float, metavar="F", help="share of the device (the engine's own)"
    )
    one.add_argument(
        "--beside", action="append", default=[], metavar="PATH", help="a model on the same GPU (repeatable)"
    )
    one.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a value of config.json that you mean to change: is told what that does (repeatable)",
    )
