"""The whole: how the evidence was taken, absence by status, one area's trouble and the others."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from doctor.core.evidence import Evidence, Item, Meta
from doctor.core.host import Absent, Host, Known
from doctor.facts.read import read_host
from tests.facts.evidence import evidence
from tests.facts.h200 import h200
from tests.facts.stack import stack_host

FACTS = Path(__file__).parents[2] / "doctor" / "facts"


def facts(value: object, path: str = ""):
    """All facts of a host, with their place."""
    for name in getattr(value, "__struct_fields__", ()):
        child = getattr(value, name)
        if isinstance(child, Known | Absent):
            yield f"{path}.{name}".lstrip("."), child
        elif isinstance(child, msgspec.Struct):
            yield from facts(child, f"{path}.{name}")


def test_nothing_asked_is_nothing_collected():
    host = read_host(evidence())
    assert {name: fact.reason for name, fact in facts(host) if isinstance(fact, Absent)} == dict.fromkeys(
        [name for name, _ in facts(host)], "not_collected"
    )
    assert len(list(facts(host))) > 30


AROUND = ("containers.", "fabric.", "machine.", "network.")


def test_a_host_with_everything_around_its_gpus():
    """Nothing that the collector asks about containers, fabric, machine and network is left unread."""
    found = {name: fact for name, fact in facts(read_host(stack_host())) if name.startswith(AROUND)}
    assert len(found) >= 40
    assert {name: fact for name, fact in found.items() if isinstance(fact, Absent)} == {}
    empty = {name for name, fact in found.items() if fact.value in ((), {}, "", None)}
    assert empty <= {"machine.pending_keys", "machine.other_displays"}


def test_a_bundle_of_an_older_collector_knows_nothing_of_it():
    found = {name: fact for name, fact in facts(read_host(h200())) if name.startswith(AROUND)}
    told = {name for name, fact in found.items() if isinstance(fact, Known) or fact.reason != "not_collected"}
    # Old items tell of these: the bus, and NVML of a GPU that is alone.
    assert told == {"machine.other_displays", "fabric.nvlinks"}


def test_collection():
    items = (
        Item(key="nvml", status="timeout", pid=77, state="D", wchan="os_acquire_rwlock", ms=14000.4),
        Item(key="command:dmesg", status="denied"),
        Item(key="file:/proc/modules", status="error", detail="Input/output error"),
        Item(key="file:/proc/stat", status="error"),
    )
    meta = Meta(
        tool="mopt-doctor 1",
        taken_at="2026-11-30T08:00:00Z",
        boot_id="b",
        root=False,
        sysroot="/m",
        items=items,
    )
    collection = read_host(Evidence(meta, {})).collection
    assert (
        collection.tool,
        collection.taken_at,
        collection.boot_id,
        collection.root,
        collection.sysroot,
    ) == (
        "mopt-doctor 1",
        "2026-11-30T08:00:00Z",
        "b",
        False,
        "/m",
    )
    (stuck,) = collection.stuck
    assert (stuck.key, stuck.pid, stuck.state, stuck.wchan, stuck.waited_s) == (
        "nvml",
        77,
        "D",
        "os_acquire_rwlock",
        14.0,
    )
    assert collection.denied == ("command:dmesg",)
    assert collection.errors == (
        "file:/proc/modules: Input/output error",
        "file:/proc/stat: no reason given",
    )


@pytest.mark.parametrize(
    ("status", "file_reason", "witness_reason"),
    [
        ("missing", "not_installed", "not_installed"),
        ("denied", "denied", "denied"),
        ("timeout", "timeout", "timeout"),
        ("error", "unreadable", "failed"),
    ],
)
def test_absence_by_status(status, file_reason, witness_reason):
    host = read_host(evidence(absent={"file:/proc/driver/nvidia/params": status, "nvml": status}))
    assert host.driver.parameters.reason == file_reason
    assert host.driver.nvml.reason == witness_reason


def test_a_broken_witness_leaves_the_other_facts_alone():
    good = h200()
    broken = Evidence(good.meta, {**good.blobs, "nvml.json": b"\xff[["})
    ours = dict(facts(read_host(broken)))
    for name, fact in facts(read_host(good)):
        if name not in ("driver.nvml", "fabric.nvlinks"):  # what NVML alone tells
            assert ours[name] == fact, name
    assert ours["driver.nvml"] == Absent(reason="unreadable", origin="nvml", detail="not a JSON object")


def test_every_known_fact_names_its_origin():
    for name, fact in facts(read_host(h200())):
        assert fact.origin, name


def test_the_same_evidence_gives_the_same_host():
    assert read_host(h200()) == read_host(h200())
    assert isinstance(read_host(h200()), Host)


def test_reading_costs_little():
    node = h200()
    read_host(node)
    began = time.process_time()
    for _ in range(5):
        read_host(node)
    # 3 ms on a slow core; the limit catches a parser that goes over its text again and again.
    assert (time.process_time() - began) / 5 < 0.05


def test_long_hostile_texts_are_read_in_time():
    long = {
        "/proc/modules": "nvidia " * 100_000,
        "/proc/version": "(" * 200_000,
        "/proc/cmdline": '"' * 200_000,
        "/etc/apt/apt.conf.d/x": "{" * 200_000 + '"' * 100_000,
        "/var/log/apt/history.log": "Upgrade: " + "nvidia (" * 50_000,
        "/var/lib/dkms/nvidia/1/build/make.log": "*** " * 100_000,
        "/etc/cdi/a.yaml": "- " * 100_000 + "\npath: /a\n" * 50_000,
        "/etc/cdi/b.json": "{" * 100_000,
        "/etc/docker/daemon.json": '{"runtimes":' * 50_000,
        "/etc/containerd/config.toml": 'a = ["' * 50_000 + "[[x]]\n" * 10_000,
        "/etc/crio/crio.conf": "[a.b]\n" * 20_000,
        "/etc/apt/sources.list": "deb [" + "a=b " * 50_000 + "\n" + "deb " * 50_000,
        "/etc/apt/sources.list.d/a.sources": "URIs: x\nSuites: y\n z" * 30_000,
        "/etc/yum.repos.d/a.repo": "[cuda]\na=b\n c" * 30_000,
        "/var/log/fabricmanager.log": "error " * 100_000,
        "/var/log/audit/audit.log": "avc:  denied nvidia " * 50_000,
        "/proc/devices": "1 " * 100_000,
    }
    commands = {
        ("dmesg",): (0, "NVRM: The NVIDIA \n" * 20_000 + "[" * 200_000),
        ("dkms", "status"): (0, "nvidia/" + "a, " * 100_000),
        ("lspci", "-nn"): (0, "41:00.0 [10de:1234]" + "\n\tx" * 100_000),
        ("nvidia-smi", "-q"): (0, "==NVSMI LOG==\n" + "    " * 100 + "a\n" * 50_000),
        ("dpkg", "-S", "/a"): (0, "a, " * 100_000),
        ("ldconfig", "-p"): (0, "libcuda.so.1 (" * 50_000),
        ("journalctl", "-k", "-b", "0"): (
            0,
            "oom-kill:constraint=A," * 50_000 + "\nPCIe Bus Error: severity=" * 30_000,
        ),
        ("mokutil", "--list-enrolled"): (0, "\n" * 50_000 + " Subject: a" * 50_000),
        ("ibstat",): (0, "CA 'a'\n" * 50_000),
        ("nvidia-smi", "nvlink", "--status"): (0, "GPU 0: \n\t Link 0: x\n" * 50_000),
    }
    began = time.process_time()
    read_host(evidence(long, commands, nvml=b'{"gpus": [' + b"{}," * 50_000 + b"{}]}"))
    assert time.process_time() - began < 5
