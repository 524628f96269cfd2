"""Rate of `explain` on a big log, beside `grep -E -c -f` and Python's `re` with one alternation.

Writes a log (deterministic, 0.1 % matching lines among those of kernel, engines and containers), then counts
the lines that some signature matches, each way in a process of its own: with the scanner of `explain`, with
grep and the same patterns, and with `re`. Prints rates (by CPU time), the ratio to grep,
peak memory and the three counts.
Returns 1 when the counts differ or the scanner has less than half the rate of grep.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARE_OF_GREP = 0.5
ALTERNATION_MIB = 2
"""`re` with one alternation is so slow that it gets the beginning only; its rate is the same."""

#: Lines of a serving host that is well; `{n}` and `{m}` are numbers, `{h}` a hash. Some hold words that
#: signatures look for.
_ORDINARY = (
    "INFO 11-30 09:{n:02d}:12 [loggers.py:127] Engine 000: Avg prompt throughput: {m}.3 tokens/s, {n} reqs",
    '(APIServer pid={m}) INFO:     10.0.{n}.7:4{m} - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    "Nov 30 09:{n:02d}:41 node kernel: [{m}.{n:06d}] audit: type=1400 audit(1764493901.{n}:{m}): ALLOWED",
    "node:{m}:{m} [{n}] NCCL INFO Channel {n:02d}/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
    '{{"time":"2026-11-30T09:{n:02d}:01.{m}Z","level":"info","msg":"finished","id":"cmpl-{h}","n":{n}}}',
    "2026-11-30T09:{n:02d}:55.{m}Z stdout F INFO request {m} finished in {n} ms, cached tokens, not retried",
    "Nov 30 09:{n:02d}:02 node systemd[1]: Started session-{m}.scope - Session {m} of User serving.",
    "Nov 30 09:{n:02d}:03 node kubelet[2211]: I1130 09:{n:02d}:03.{m} 2211 volume.go:224] mounted {h}",
    "[11/30/2026-09:{n:02d}:07] [TRT-LLM] [I] iter = {m}, global_rank = {n}, requests = {n}, kvCache {m}",
    "WARNING 11-30 09:{n:02d}:44 [scheduler.py:{m}] Sequence group cmpl-{m} is preempted, {n} free blocks",
    'Nov 30 09:{n:02d}:29 node containerd[1812]: time="09:{n:02d}:29Z" level=info msg="pod {h} running"',
    "DEBUG 11-30 09:{n:02d}:31 [shm_broadcast.py:{m}] no error found, reader {n} ready, driver failed over 0",
)
_MATCHING_SHARE = 0.001


def examples() -> list[str]:
    """One line of each signature's positive examples."""
    from doctor.core.signatures import compiled
    from doctor.edition.load import load_matrix

    rows = load_matrix().edition.signatures
    lines = [line for row in rows for text in row.positive for line in text.split("\n")]
    return [line for line in lines if any(compiled(row.pattern).search(line) for row in rows)]


def write_log(path: Path, size: int, *, seed: int = 5) -> None:
    """A log of about `size` bytes; the same for the same size and matrix."""
    chance, matching, written = random.Random(seed), examples(), 0  # noqa: S311 - a benchmark's data
    with path.open("wb") as out:
        while written < size:
            block = "".join(_lines(chance, matching, 10_000)).encode()
            out.write(block)
            written += len(block)


def _lines(chance: random.Random, matching: list[str], count: int) -> Iterator[str]:
    for _ in range(count):
        if chance.random() < _MATCHING_SHARE:
            yield f"Nov 30 09:{chance.randrange(60):02d}:17 gpu-node run[77]: {chance.choice(matching)}\n"
        else:
            text = chance.choice(_ORDINARY)
            hashed = f"{chance.getrandbits(64):016x}"
            yield text.format(n=chance.randrange(60), m=chance.randrange(100_000), h=hashed) + "\n"


# --- the three ways, each run as `logscan.py --way NAME FILE` --------------------------------------


def scanner(path: str) -> int:
    """Lines that the scanner of `explain` counts."""
    from doctor.edition.load import load_matrix
    from doctor.evidence.logscan import scan_log

    with Path(path).open("rb") as file:
        return scan_log(file, load_matrix().edition.signatures).matched_lines


def alternation(path: str) -> int:
    """Lines that one alternation of all patterns finds, line by line, in the beginning of the file."""
    import re

    from doctor.edition.load import load_matrix

    # A group's name may stand once in a pattern.
    texts = [re.sub(r"\?P<\w+>", "?:", row.pattern) for row in load_matrix().edition.signatures]
    find = re.compile("|".join(f"(?:{text})" for text in texts).encode()).search
    count = read = 0
    with Path(path).open("rb") as file:
        for line in file:
            count += find(line.rstrip(b"\n")) is not None
            read += len(line)
            if read >= ALTERNATION_MIB * 1024**2:
                break
    return count


WAYS = {"scanner": scanner, "alternation": alternation}


def grep(path: Path, patterns: Path) -> tuple[int, float, float]:
    """Count, CPU seconds and peak MiB of grep on the file."""
    argv = [str(shutil.which("grep")), "-a", "-E", "-c", "-f", str(patterns), str(path)]
    return _run(argv)


def _run(argv: list[str]) -> tuple[int, float, float]:
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, env={**os.environ, "LC_ALL": "C"})
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    # CPU time, user and system: each way has one thread, and other work on the machine hits neither.
    return int(said), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> int:
    """Measure and print; 1 when the bound is broken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=256, help="size of the log (256)")
    parser.add_argument("--file", help="keep the log here, and use it when it is there")
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many counts (3)")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    parser.add_argument("--way", choices=tuple(WAYS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        sys.stdout.write(str(WAYS[options.way](options.file)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        log = Path(options.file or f"{folder}/big.log")
        if not log.exists():
            write_log(log, options.mib * 1024**2)
        return _measure(log, Path(folder) / "patterns", options)


def _measure(log: Path, patterns: Path, options: argparse.Namespace) -> int:
    from doctor.edition.load import load_matrix
    from doctor.edition.patterns import as_ere

    rows = load_matrix().edition.signatures
    patterns.write_text("\n".join(as_ere(row.pattern) for row in rows) + "\n")
    size = log.stat().st_size / 1024**2
    ours = [sys.executable, __file__, "--file", str(log), "--way"]
    found = {}
    for name, argv, share in (
        ("grep", None, size),
        ("scanner", [*ours, "scanner"], size),
        ("alternation", [*ours, "alternation"], min(size, ALTERNATION_MIB)),
    ):
        rounds = options.rounds if name != "alternation" else 1
        runs = [_run(argv) if argv else grep(log, patterns) for _ in range(rounds)]
        count, seconds, peak = min(runs, key=lambda run: run[1])
        found[name] = {
            "count": count,
            "s": round(seconds, 2),
            "mib_per_s": round(share / seconds, 1),
            "peak_mib": round(peak),
        }
    ratio = round(found["scanner"]["mib_per_s"] / found["grep"]["mib_per_s"], 2)
    is_well = ratio >= SHARE_OF_GREP and found["scanner"]["count"] == found["grep"]["count"]
    document = {"mib": round(size), "signatures": len(rows), **found, "ratio_to_grep": ratio, "ok": is_well}
    print(json.dumps(document, indent=2) if options.json else _table(document))
    return 0 if is_well else 1


def _table(document: dict[str, object]) -> str:
    lines = [f"{document['mib']} MiB, {document['signatures']} signatures"]
    for name in ("grep", "scanner", "alternation"):
        row = document[name]
        assert isinstance(row, dict)
        lines.append(
            f"{name:<12} {row['mib_per_s']:>8} MiB/s  {row['count']:>8} lines  {row['peak_mib']:>5} MiB peak"
        )
    lines.append(f"scanner / grep: {document['ratio_to_grep']} (at least {SHARE_OF_GREP})")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
