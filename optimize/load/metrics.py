"""Prometheus text as engines serve it at `/metrics`: samples out of lines, and which matter. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite, nan

__all__ = ["KNOWN", "engine_values", "parse_metrics", "server_kind"]

_BYTES_MAX = 16 * 1024 * 1024
_LINES_MAX = 200_000

#: A sample's line; vLLM's longest has 300 bytes.
_LINE_BYTES_MAX = 65_536

#: Metric → our name, unit, and how several label sets add up. From the loggers of vLLM 0.32, SGLang 0.5 and
#: the #: metrics page of TensorRT-LLM 1.x and llama.cpp; a name that is not here is not read.
KNOWN: dict[bytes, tuple[str, str, str]] = {
    b"vllm:num_requests_running": ("running", "requests", "sum"),
    b"vllm:num_requests_waiting": ("waiting", "requests", "sum"),
    b"vllm:kv_cache_usage_perc": ("kv_cache", "share", "max"),
    b"vllm:num_preemptions_total": ("preemptions", "count", "sum"),
    b"vllm:prompt_tokens_total": ("prompt_tokens", "tokens", "sum"),
    b"vllm:generation_tokens_total": ("generation_tokens", "tokens", "sum"),
    b"vllm:prefix_cache_hits_total": ("prefix_cache_hits", "tokens", "sum"),
    b"vllm:prefix_cache_queries_total": ("prefix_cache_queries", "tokens", "sum"),
    b"sglang:num_running_reqs": ("running", "requests", "sum"),
    b"sglang:num_queue_reqs": ("waiting", "requests", "sum"),
    b"sglang:token_usage": ("kv_cache", "share", "max"),
    b"sglang:prompt_tokens_total": ("prompt_tokens", "tokens", "sum"),
    b"sglang:generation_tokens_total": ("generation_tokens", "tokens", "sum"),
    b"trtllm_kv_cache_utilization": ("kv_cache", "share", "max"),
    b"llamacpp:requests_processing": ("running", "requests", "sum"),
    b"llamacpp:requests_deferred": ("waiting", "requests", "sum"),
    b"llamacpp:kv_cache_usage_ratio": ("kv_cache", "share", "max"),
}
_SERVERS = {
    b"vllm:": "vLLM",
    b"sglang:": "SGLang",
    b"trtllm": "TensorRT-LLM",
    b"llamacpp:": "llama.cpp",
    b"tgi_": "TGI",
}


def parse_metrics(text: bytes) -> Iterator[tuple[bytes, float]]:
    """Name and value of each sample; comments, NaN, infinities and lines that are no sample are left out."""
    for line in text[:_BYTES_MAX].split(b"\n", _LINES_MAX)[:_LINES_MAX]:
        if line[:1] in (b"", b"#") or len(line) > _LINE_BYTES_MAX:
            continue
        name, rest = _name(line.strip())
        word = rest.split(None, 1)[:1]
        try:
            value = float(word[0]) if word and b"_" not in word[0] else nan
        except ValueError:
            continue
        if name and isfinite(value):
            yield name, value


def _name(line: bytes) -> tuple[bytes, bytes]:
    """`name`, and what stands behind its labels, in which `}` and an escaped quote may stand."""
    name = line.split(None, 1)[0] if line else b""
    brace = name.find(b"{")
    if brace < 0:
        return name, line[len(name) :]
    position = brace + 1
    while True:
        end, quote = line.find(b"}", position), line.find(b'"', position)
        if end < 0:
            return b"", b""
        if not 0 <= quote < end:
            return line[:brace], line[end + 1 :]
        position = _after_string(line, quote + 1)
        if not position:
            return b"", b""


def _after_string(line: bytes, position: int) -> int:
    """Behind the quote that ends a string; 0 where none does."""
    while True:
        quote = line.find(b'"', position)
        if quote < 0:
            return 0
        before = line[position:quote]
        if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:
            return quote + 1
        position = quote + 1


def engine_values(text: bytes) -> dict[str, float]:
    """The quantities of KNOWN by our names, several label sets (engines, models) joined."""
    found: dict[str, float] = {}
    for name, value in parse_metrics(text):
        known = KNOWN.get(name)
        if known is None:
            continue
        ours, _unit, how = known
        before = found.get(ours)
        found[ours] = value if before is None else (before + value if how == "sum" else max(before, value))
    return found


def server_kind(text: bytes) -> str:
    """Whose metrics these are, by their prefix; empty where it is not known."""
    for name, _value in parse_metrics(text):
        for prefix, server in _SERVERS.items():
            if name.startswith(prefix):
                return server
    return ""
