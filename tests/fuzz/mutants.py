"""Hostile variants of bundles and of every kind of foreign report, the same ones for the same seed."""

from __future__ import annotations

import gzip
import io
import json
import random
import tarfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

__all__ = ["mutant"]

TESTS = Path(__file__).parents[1]
RULE = b"_" * 44

#: Pieces that some parser looks for, or that a terminal, a page or a decoder trips over.
TOKENS: tuple[bytes, ...] = (
    b"\0",
    b"\0" * 4096,
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\x1b[2J\x1b]0;owned\x07",
    b"\x1b[31m",
    b"\x9b31m",
    "\u202e\u2066".encode(),
    b"<script>alert(1)</script>",
    b"[bold red]x[/]",
    b"&amp;&lt;&#x1b;",
    b"9" * 5000,
    b"-1",
    b"1e999",
    b"NaN",
    b"NVRM: Xid (PCI:0000:41:00): 79,",
    b"NVRM: API mismatch: the client has the version\n",
    b"\n" + RULE + b"\n\n*** /proc/driver/nvidia/version\n",
    b"\n" + RULE + b"\n\ndmesg:\n",
    b"\n" + RULE + b"\n",
    RULE * 50,
    b"*** ls: -rw-r--r-- 1 root root 1 9999-12-31 23:59:59.9 +9999 /proc/x\n",
    b"==============NVSMI LOG==============\n",
    b"<nvidia_smi_log>",
    b"</nvidia_smi_log>",
    b"<!DOCTYPE x [<!ENTITY a '&a;&a;'>]>",
    b"<a>" * 2000,
    b"| NVIDIA-SMI 1.1 Driver Version: 1.1 CUDA Version: 1.1 |\n",
    b"GPU models and configuration :\n" + b"GPU 0: x\n" * 500,
    b"[    1.000000] ",
    b"[999999999999.999999] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  1.1\n",
    b"-- Boot 0123456789abcdef --\n",
    b"41:00.0 3D controller [0302]: NVIDIA [10de:20f1] (rev ff)\n",
    b"{" * 3000,
    b"[" * 30_000,
    b"(" * 10_000,
    b'"' * 10_000,
    b"x" * 10_000 + b"\n",
    b"a b " * 2500 + b"\n",
    b" : " * 3400 + b"\n",
    b"[" + b" " * 10_000 + b"] \n",
    b"\t" * 10_000,
    b"> " * 5000,
    b"$ " * 5000,
    b"```\n",
    b"\r",
    b"\n\n",
    b"../../../etc/shadow",
    b"%s%n{0}",
    "\u0663\u0664\u0665".encode(),
)


# --- seeds ------------------------------------------------------------------------------------------


@cache
def texts() -> tuple[tuple[str, bytes], ...]:
    """Every kind of foreign report that this tree has a sample of."""
    foreign = [p for p in sorted((TESTS / "data" / "foreign").iterdir()) if p.name != "README.md"]
    node = [TESTS / "data" / "h200" / name for name in ("nvidia-smi-q.txt", "nvidia-smi.txt", "version")]
    return tuple((p.name, p.read_bytes()) for p in (*foreign, *node))


@cache
def hosts() -> tuple[Path, ...]:
    return tuple(sorted(p for p in (TESTS / "hosts").iterdir() if (p / "meta.json").is_file()))


def members(host: Path) -> list[tuple[str, bytes]]:
    """A recorded host's bundle as (name, bytes)."""
    own = {"README.md", "expected.json"}
    paths = (p for p in sorted(host.rglob("*")) if p.is_file() and p.name not in own)
    return [(p.relative_to(host).as_posix(), p.read_bytes()) for p in paths]


def packed(files: list[tuple[str, bytes]], *, compress: bool = True) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return gzip.compress(out.getvalue(), 1) if compress else out.getvalue()


def chained(log: bytes) -> bytes:
    """A bug report as its script writes it: one gzip member a section, empty ones between."""
    first, *rest = log.split(RULE)
    parts = [first, *(RULE + part for part in rest)]
    return b"".join(gzip.compress(part, 1) + gzip.compress(b"", 1) for part in parts)


# --- what is done to bytes --------------------------------------------------------------------------

Change = Callable[[random.Random, bytes], bytes]


def truncate(chance: random.Random, data: bytes) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def flip_bits(chance: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 40) if changed else 0):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def insert(chance: random.Random, data: bytes) -> bytes:
    for _ in range(chance.randint(1, 6)):
        start = chance.randrange(len(data) + 1)
        end = min(len(data), start + chance.choice((0, 0, 1, 30, 300)))
        data = data[:start] + chance.choice(TOKENS) + data[end:]
    return data


def encode(chance: random.Random, data: bytes) -> bytes:
    text = data.decode("utf-8", "replace")
    encoding = chance.choice(("utf-16", "utf-16-be", "utf-32", "utf-7", "utf-8-sig", "cp500", "shift_jis"))
    return text.encode(encoding, "replace")


def widen(chance: random.Random, data: bytes) -> bytes:
    """Lines of 10,000 columns, by joining what was below each other or repeating a line."""
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    if chance.random() < 0.5:
        return b"\n".join([*lines[:at], b" ".join(lines[at:])])
    lines[at] = (lines[at] or b"x") * (10_000 // max(1, len(lines[at])) + 1)
    return b"\n".join(lines)


def shuffle(chance: random.Random, data: bytes) -> bytes:
    mark = RULE if RULE in data else b"\n"
    parts = data.split(mark)
    chance.shuffle(parts)
    return mark.join(parts)


def repeat(chance: random.Random, data: bytes) -> bytes:
    times = chance.choice((2, 10, 200_000 // max(1, len(data)) + 1))
    return data * times


CHANGES: tuple[Change, ...] = (truncate, flip_bits, insert, insert, encode, widen, shuffle, repeat)


def changed(chance: random.Random, data: bytes) -> bytes:
    for _ in range(chance.randint(1, 3)):
        data = chance.choice(CHANGES)(chance, data)[: 8 * 1024 * 1024]
    return data


# --- kinds of mutants -------------------------------------------------------------------------------


def text(chance: random.Random) -> tuple[str, bytes]:
    name, data = chance.choice(texts())
    return name, changed(chance, data)


def several(chance: random.Random) -> tuple[str, bytes]:
    parts = [changed(chance, chance.choice(texts())[1]) for _ in range(chance.randint(2, 4))]
    return "several.txt", b"\n".join(parts)[: 8 * 1024 * 1024]


def packed_text(chance: random.Random) -> tuple[str, bytes]:
    name, data = chance.choice(texts())
    data = changed(chance, data) if chance.random() < 0.5 else data
    whole = chained(data) if chance.random() < 0.7 else gzip.compress(data, 1)
    return f"{name}.gz", changed(chance, whole) if chance.random() < 0.7 else whole


def bomb(chance: random.Random) -> tuple[str, bytes]:
    filler = chance.choice(
        (b"\0", b"_", b"\n", b"x", b"\n" + RULE, b"\n" + RULE + b"\n", b"[    1.0] NVRM: Xid\n")
    )
    head = chance.choice(texts())[1] if chance.random() < 0.7 else b""
    pack = zipped(filler, chance.choice((20, 100, 300)) * 1024 * 1024 // len(filler))
    return "bomb.gz", gzip.compress(head, 1) + pack


@cache
def zipped(filler: bytes, times: int) -> bytes:
    return gzip.compress(filler * times, 1)


def bundle(chance: random.Random) -> tuple[str, bytes]:
    files = members(chance.choice(hosts()))
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(files))
        name, data = files[at]
        files[at] = (name, typed(chance, data) if name == "meta.json" else changed(chance, data))
    return "bundle.tar.gz", packed(files, compress=chance.random() < 0.7)


def archive(chance: random.Random) -> tuple[str, bytes]:
    whole = packed(members(chance.choice(hosts())), compress=chance.random() < 0.5)
    return "archive.tar", changed(chance, whole)


def typed(chance: random.Random, data: bytes) -> bytes:
    """`meta.json` with values of wrong types at a few places."""
    document = json.loads(data)
    for _ in range(chance.randint(1, 8)):
        place = document if chance.random() < 0.3 else chance.choice(document["items"] or [document])
        if not isinstance(place, dict) or not isinstance(document.get("items"), list):
            break
        key = chance.choice(sorted(place)) if place else "x"
        if key != "items":
            place[key] = chance.choice(
                (None, 1, -1e308, True, [], {}, [[]] * 3, "\x1b[31m", "../x", "x" * 10_000, 10**400)
            )
    return json.dumps(document).encode()


def tricky(chance: random.Random) -> tuple[str, bytes]:
    """Archives with members that no collector writes."""
    out = io.BytesIO()
    with tarfile.open(
        fileobj=out,
        mode="w",
        format=chance.choice((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)),
    ) as tar:
        for name, data in members(chance.choice(hosts()))[: chance.randint(0, 40)]:
            info = tarfile.TarInfo(name[:90])
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for _ in range(chance.randint(1, 4)):
            tar.addfile(odd_member(chance), io.BytesIO(b"x" * 100))
    raw = bytearray(out.getvalue())
    if chance.random() < 0.3:
        # The size field of the first header: more than there is, or base 256.
        raw[124:136] = chance.choice(
            (b"77777777777\0", b"\x80" + b"\xff" * 11, b"-0000000001\0", b"            ")
        )
    return "tricky.tar", bytes(raw) if chance.random() < 0.5 else gzip.compress(bytes(raw), 1)


def odd_member(chance: random.Random) -> tarfile.TarInfo:
    names = (
        "../x",
        "/etc/passwd",
        "files/../../x",
        "a\nb",
        "\x1b[31m",
        "x" * 90,
        "d/" * 40 + "x",
        "meta.json",
        "commands/dmesg",
        "",
    )
    info = tarfile.TarInfo(chance.choice(names))
    kinds = (
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.CHRTYPE,
        tarfile.FIFOTYPE,
        tarfile.DIRTYPE,
        tarfile.REGTYPE,
    )
    info.type = chance.choice(kinds)
    info.linkname = chance.choice(("/etc/passwd", "../../x", info.name))
    info.size = 100 if info.type == tarfile.REGTYPE else 0
    return info


KINDS: tuple[tuple[Callable[[random.Random], tuple[str, bytes]], int], ...] = (
    (text, 34),
    (several, 10),
    (packed_text, 22),
    (bomb, 2),
    (bundle, 14),
    (archive, 8),
    (tricky, 10),
)


def mutant(seed: int) -> tuple[str, bytes]:
    """(kind and name, bytes) of one mutant."""
    chance = random.Random(seed)
    kinds, weights = zip(*KINDS, strict=True)
    kind = chance.choices(kinds, weights)[0]
    name, data = kind(chance)
    return f"{kind.__name__} {name}", data
