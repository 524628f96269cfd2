"""No bytes raise: mutations of a real node's evidence, of the recorded hosts, and made-up items."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from doctor.core.evidence import Evidence, Item, Meta
from doctor.core.host import Host
from doctor.evidence.bundle import read_bundle
from doctor.facts.read import read_host
from tests.facts.h200 import h200
from tests.facts.stack import stack_host

NODE = h200()
HOSTS = Path(__file__).parents[1] / "hosts"
BUNDLES = [NODE, stack_host(), *(read_bundle(p) for p in sorted(HOSTS.iterdir()) if (p / "files").is_dir())]
#: Text that parsers look for, so that mutations reach their later branches.
TOKENS = [
    b"\x00",
    b"\xff\xfe",
    b"9" * 5000,
    b"-1",
    b"1e999",
    b"NVRM: Xid (PCI:0000:01:00): 79,",
    b"NVRM: API mismatch:\n",
    b"[",
    b"{" * 3000,
    b"[" * 100_000,
    b"null",
    b"<!DOCTYPE x [<!ENTITY a 'b'>]>",
    b"&a;",
    b"</gpu>",
    "\u0663\u0664".encode(),
    b"\n\n",
    b": ",
    b"\t",
    b"\\",
    b'"',
    b"..",
    b" (((((",
    b"0x",
    b"\r",
    b"[a.b]\n",
    b'[[x]]\ny = ["',
    b"- path: /",
    b"\x27\x27\x27",
    b"Subject: ",
    b"oom-kill:constraint=",
    b"\x1b[31m",
]
STATUSES = ["ok", "missing", "denied", "timeout", "error", "truncated"]
KEYS = sorted({item.key for bundle in BUNDLES for item in bundle.meta.items})


def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        to = draw(st.integers(at, min(len(data), at + 200)))
        filler = draw(st.one_of(st.sampled_from(TOKENS), st.binary(max_size=12)))
        data = data[:at] + filler + data[to:]
    return data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data


@st.composite
def broken_bundles(draw: st.DrawFn) -> Evidence:
    bundle = draw(st.sampled_from(BUNDLES))
    blobs = dict(bundle.blobs)
    for path in draw(st.lists(st.sampled_from(sorted(blobs)), min_size=1, max_size=6)):
        blobs[path] = mutated(draw, blobs[path])
    items = list(bundle.meta.items)
    for at in draw(st.lists(st.integers(0, len(items) - 1), max_size=12)):
        change = draw(
            st.sampled_from(
                [
                    {"status": draw(st.sampled_from(STATUSES))},
                    {"rc": draw(st.sampled_from([None, 0, 1, 255]))},
                    {"argv": ()},
                    {"path": None},
                    {"link": draw(st.sampled_from(["", "/", "..", "a/../..", "x" * 500]))},
                    {"exists": draw(st.sampled_from([None, False]))},
                    {"kind": draw(st.sampled_from([None, "dir", "link"]))},
                ]
            )
        )
        items[at] = msgspec.structs.replace(items[at], **change)
    return Evidence(msgspec.structs.replace(bundle.meta, items=tuple(items)), blobs)


@st.composite
def invented_items(draw: st.DrawFn) -> Evidence:
    """Keys that exist somewhere, with bytes of another item or of nobody."""
    bundle = draw(st.sampled_from(BUNDLES))
    contents = st.one_of(st.sampled_from(sorted(bundle.blobs.values())), st.sampled_from(TOKENS), st.binary())
    items, blobs = [], {}
    for number, key in enumerate(draw(st.lists(st.sampled_from(KEYS), max_size=30, unique=True))):
        blobs[str(number)] = draw(contents)
        items.append(Item(key=key, status=draw(st.sampled_from(STATUSES)), path=str(number)))
    return Evidence(Meta(items=tuple(items)), blobs)


def check(evidence: Evidence) -> None:
    """It reads, what it gives can be written and read again, and reading it twice gives the same."""
    host = read_host(evidence)
    assert isinstance(host, Host)
    encoded = msgspec.json.encode(host, enc_hook=str)
    assert msgspec.json.encode(read_host(evidence), enc_hook=str) == encoded


FUZZ = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@FUZZ
@given(broken_bundles())
def test_mutations_never_raise(evidence):
    check(evidence)


@FUZZ
@given(invented_items())
def test_items_with_strange_bytes_never_raise(evidence):
    check(evidence)


@pytest.mark.slow
@pytest.mark.parametrize("filler", TOKENS, ids=range(len(TOKENS)))
@pytest.mark.parametrize("bundle", [NODE, BUNDLES[-1]], ids=["h200", "last"])
def test_each_item_may_be_nonsense(bundle, filler):
    for path in sorted(bundle.blobs):
        check(Evidence(bundle.meta, {**bundle.blobs, path: filler}))
        check(Evidence(bundle.meta, {**bundle.blobs, path: bundle.blobs[path][:37] + filler}))


@pytest.mark.parametrize("status", STATUSES)
def test_each_item_may_have_any_status(status):
    for at, item in enumerate(NODE.meta.items):
        items = [*NODE.meta.items]
        items[at] = msgspec.structs.replace(item, status=status)
        check(Evidence(msgspec.structs.replace(NODE.meta, items=tuple(items)), NODE.blobs))


#: Repeated, these make a pattern that backtracks go over a text again and again.
UNITS = [
    *(" ", "\n", "a", "1.", "(", '\\"', "/* ", "[", "<a>", ": ", "a, ", "\n \n", "*** ", "x\n", "Id=a\n"),
    *("NVRM: The NVIDIA \n", "Region 0: ", "Speed 1GT/s ", "release 1.", "Kernel Module ", "exclude\n"),
]
ONE_OF_EACH = {item.key: item for bundle in BUNDLES for item in bundle.meta.items if item.path}


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_repeated_text_takes_no_longer_than_its_length(unit):
    for key, item in ONE_OF_EACH.items():
        if "/sys/" in key:
            continue
        asked = Item(key=key, status="ok", path="x", argv=item.argv, rc=0)
        began = time.process_time()
        read_host(Evidence(Meta(items=(asked,)), {"x": (unit * (100_000 // len(unit))).encode() + b"!"}))
        # 50 ms is usual; a quadratic pattern takes minutes.
        assert time.process_time() - began < 5, key
