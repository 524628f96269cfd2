"""The scanner of large logs: the same lines as grep counts, flat memory, any bytes."""

from __future__ import annotations

import io
import random
import re
import shutil
import subprocess
import tracemalloc
from pathlib import Path

import pytest

from doctor.core.signatures import find_hits
from doctor.edition.load import load_matrix
from doctor.edition.patterns import as_ere
from doctor.evidence.logscan import scan_chunks, scan_log

ROWS = load_matrix().edition.signatures
PLAIN = b"Nov 30 09:12:04 node kernel: all is well, request %d finished in %d ms"


def examples() -> list[bytes]:
    lines = [line for row in ROWS for text in row.positive for line in text.split("\n")]
    return [line.encode() for line in lines]


def naive(data: bytes) -> int:
    find = [re.compile(row.pattern.encode()).search for row in ROWS]
    return sum(any(one(line) for one in find) for line in data.split(b"\n"))


def log(count: int, every: int, seed: int = 1) -> bytes:
    chance, matching = random.Random(seed), examples()
    lines = [
        matching[n // every % len(matching)] if n % every == 0 else PLAIN % (n, chance.randrange(999))
        for n in range(count)
    ]
    return b"\n".join(lines) + b"\n"


def test_every_example_is_found_as_by_each_pattern_alone():
    data = b"\n".join(examples())
    assert scan_log(io.BytesIO(data), ROWS).matched_lines == naive(data) > len(ROWS)


def test_pieces_cut_anywhere_give_the_same_counts():
    data = log(3000, 3)
    whole = scan_chunks([data], ROWS)
    for size in (1, 7, 4096):
        if size == 1:
            data_cut, wanted = data[:20_000], scan_chunks([data[:20_000]], ROWS)
        else:
            data_cut, wanted = data, whole
        cut = scan_chunks([data_cut[n : n + size] for n in range(0, len(data_cut), size)], ROWS)
        assert (cut.lines, cut.matched_lines, cut.counts) == (
            wanted.lines,
            wanted.matched_lines,
            wanted.counts,
        )


@pytest.mark.skipif(shutil.which("grep") is None, reason="there is no grep")
def test_grep_counts_the_same_lines(tmp_path: Path):
    (tmp_path / "log").write_bytes(log(2000, 4))
    (tmp_path / "patterns").write_text("\n".join(as_ere(row.pattern) for row in ROWS) + "\n")
    argv = ["grep", "-a", "-E", "-c", "-f", str(tmp_path / "patterns"), str(tmp_path / "log")]
    said = subprocess.run(
        argv, capture_output=True, text=True, check=False, env={"LC_ALL": "C", "PATH": "/bin:/usr/bin"}
    )
    with (tmp_path / "log").open("rb") as file:
        assert scan_log(file, ROWS).matched_lines == int(said.stdout)


ODD = {
    "empty": (b"", 0, 0),
    "no line end": (b"NVRM: BAR1 is 0M @ 0x0 (PCI:0000:14:00.0)", 1, 1),
    "CRLF": (b"ok\r\nNVRM: BAR1 is 0M @ 0x0 (PCI:0000:14:00.0)\r\n", 2, 1),
    "NUL": (b"\0\0\0ok\0\nNVRM: BAR1 is 0M @ 0x0\0\n", 2, 1),
    "no text": (bytes(range(256)) * 40, 41, 0),
    "cut UTF-8": ("Größe".encode()[:3] + b"\nNVRM: BAR1 is 0M @ 0x0\n", 2, 1),
    "a long line": (b"x" * 3_000_000 + b"\nNVRM: BAR1 is 0M @ 0x0\n", 2, 1),
}


@pytest.mark.parametrize("name", ODD)
def test_any_bytes_are_lines(name):
    data, lines, matched = ODD[name]
    scan = scan_chunks([data[n : n + 65_536] for n in range(0, len(data), 65_536)], ROWS)
    assert (scan.lines, scan.matched_lines) == (lines, matched)


def test_a_line_is_judged_by_itself_whatever_was_of_its_shape_before():
    """Digits make the difference: Xid 43 is a program's, 79 the card's."""
    lines = [b"NVRM: Xid (PCI:0000:21:00): %d, pid=1, name=x" % xid for xid in (12, 79, 12, 43, 79)]
    counts = scan_chunks([b"\n".join(lines)], ROWS).counts
    assert counts["kernel.fallen_off_bus_xid79"] == 2
    assert counts["kernel.xid_application"] == 1


def test_of_many_lines_the_first_and_the_last_are_kept_with_their_numbers():
    line = b"NVRM: Xid (PCI:0000:21:00): 79, pid=%d, name=x, GPU has fallen off the bus."
    scan = scan_chunks([b"\n".join(line % n for n in range(1, 10_001))], ROWS, keep=3)
    kept = scan.kept()
    assert scan.counts["kernel.fallen_off_bus_xid79"] == 10_000
    assert {1, 2, 3, 9998, 9999, 10_000} <= {one.number for one in kept}
    assert len(kept) < 40
    hits = find_hits(ROWS, kept)
    assert hits[0].line == 1
    assert "pid=1," in hits[0].text


def test_what_stands_around_a_kept_line_is_kept_with_it():
    lines = [b"filler %d" % n for n in range(1000)]
    lines[500] = b"NVRM: nvidia.ko because it does not include the required GPU"
    lines[499] = b"NVRM: installed in this system is not supported by open"
    kept = scan_chunks([b"\n".join(lines)], ROWS).kept()
    assert {499, 500, 501, 502} <= {one.number for one in kept}


@pytest.mark.slow
def test_memory_is_flat_whatever_the_lines_are():
    chance = random.Random(2)

    def pieces():
        for _ in range(40):
            yield b"\n".join(
                chance.randbytes(40).hex().encode().translate(bytes(range(256))) for _ in range(10_000)
            )

    tracemalloc.start()
    try:
        scan_chunks(pieces(), ROWS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024**2
