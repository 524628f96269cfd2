"""`collect_live`: the doctor's side of the collector."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from doctor.core.evidence import EVIDENCE_SCHEMA, Meta
from doctor.errors import ProbeError
from doctor.evidence import live
from tests.evidence.conftest import COLLECTOR, REPOSITORY, collector_argv, load_collector


def member(name: str, data: bytes) -> bytes:
    return load_collector().tar_member(name, data, 0)


def test_this_machine():
    evidence = live.collect_live(budget_s=15, sysroot=None)
    assert evidence.meta.tool.startswith("mopt-doctor ")
    assert evidence.file("/proc/version").status == "ok"
    assert evidence.item("distro").status == "ok"
    assert evidence.item("resources").status == "ok"


def test_the_callers_environment_is_recorded_and_steers_nothing(planted, monkeypatch):
    planted.tool("uname", "env")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/x")
    monkeypatch.setenv("LD_PRELOAD", "/nowhere/evil.so")
    monkeypatch.setenv("PYTHONPATH", str(planted))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    planted.file("/json.py", "raise SystemExit('hostile module')")
    evidence = live.collect_live(budget_s=10, sysroot=str(planted))
    assert evidence.item("env:CUDA_VISIBLE_DEVICES").value == "1,2"
    assert evidence.item("env:LD_PRELOAD").value == "/nowhere/evil.so"
    assert evidence.item("env:CUDA_HOME").status == "missing"
    seen = dict(line.split("=", 1) for line in evidence.command("uname", "-a").text.splitlines())
    assert {name for name in seen if name not in ("PWD", "SHLVL", "_", "OLDPWD")} == {
        "PATH",
        "LC_ALL",
        "HOME",
    }


def test_the_table_is_the_collectors():
    assert "command:nvidia-smi -q -x" in live.list_items()
    assert live.list_items() == load_collector().list_items()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'no such option' >&2; exit 4", "ended with status 4 and left no report: no such option"),
        ("exit 0", "cut off"),
        ("printf 'hello'", "cut off"),
        ("head -c 2000 /dev/zero", "no `meta.json`"),
        ("head -c 2000 /dev/urandom", "damaged"),
        ("kill -9 $$", "ended with status -9"),
    ],
)
def test_a_collector_without_a_report_is_an_error(tmp_path, monkeypatch, script, message):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(ProbeError, match=message) as caught:
        live.collect_live(budget_s=5, sysroot=None)
    assert caught.value.exit_code == 3


def test_an_interpreter_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(ProbeError, match=r"cannot start: `.*none`: No such file or directory"):
        live.collect_live(budget_s=5, sysroot=None)


def test_a_flood_is_cut_at_the_cap(tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec cat /dev/zero\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(live, "BUNDLE_UNPACKED_BYTES_MAX", 1 << 20)
    with pytest.raises(ProbeError, match="exceeds 1048576 bytes"):
        live.collect_live(budget_s=5, sysroot=None)


def test_every_cut_of_a_stream_is_refused(planted):
    argv = collector_argv(sys.executable, "--output=-", f"--sysroot={planted}")
    stream = subprocess.run(argv, capture_output=True, check=True, timeout=60, env={}).stdout
    whole = live.evidence_from_stream(stream)
    assert whole.meta.items
    content = len(stream) - 1024
    for size in range(0, content, 509):
        with pytest.raises(ProbeError):
            live.evidence_from_stream(stream[:size])


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (member("a", b"x"), "cut off"),
        (member("a", b"x") + bytes(1024), "no `meta.json`"),
        (member("meta.json", b"{") + bytes(1024), "cannot be read"),
        (member("meta.json", b'{"schema":"mopt.evidence/2"}') + bytes(1024), "speaks `mopt.evidence/2`"),
        (member("meta.json", b'{"items":[{"key":"x","status":"fine"}]}') + bytes(1024), "cannot be read"),
        (load_collector().tar_header(b"link", 0, b"2", 0) + bytes(1024), "damaged at `link`"),
        (load_collector().tar_header(b"huge", 8**11 - 1, b"0", 0) + bytes(1024), "damaged at `huge`"),
    ],
)
def test_streams_that_are_no_report(stream, message):
    with pytest.raises(ProbeError, match=message):
        live.evidence_from_stream(stream)


def test_members_are_counted(monkeypatch):
    monkeypatch.setattr(live, "BUNDLE_MEMBERS_MAX", 3)
    meta = member("meta.json", msgspec.json.encode(Meta(schema=EVIDENCE_SCHEMA)))
    assert live.evidence_from_stream(meta + member("a", b"") * 2 + bytes(1024)).blobs == {"a": b""}
    with pytest.raises(ProbeError, match="more than 3 members"):
        live.evidence_from_stream(meta + b"".join(member(str(n), b"") for n in range(4)) + bytes(1024))


def test_light_imports():
    """The check path loads neither what the collector needs nor what is heavy."""
    code = "import sys, doctor.evidence.live; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, cwd=REPOSITORY
    ).stdout.split()
    heavy = {
        b"asyncio",
        b"subprocess",
        b"tarfile",
        b"ctypes",
        b"importlib.metadata",
        b"psutil",
        b"pynvml",
        b"distro",
    }
    assert not heavy & set(loaded)
    assert COLLECTOR.exists()
