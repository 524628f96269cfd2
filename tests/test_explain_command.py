"""`mopt-doctor explain` as it is typed: texts, files, stdin, bundles, ids; and its documents."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path

import jsonschema
import pytest

from doctor.cli import main
from doctor.report.escape import UNSAFE
from doctor.report.schemas import schema

HOSTS = Path(__file__).parent / "hosts"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"
BAR = "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:14:00.0)"


def run(capsys, *argv: str) -> tuple[int, str, str]:
    code = main(["explain", *argv])
    out, err = capsys.readouterr()
    return code, out, err


def document(capsys, *argv: str) -> dict:
    code, out, _ = run(capsys, "--json", *argv)
    found = json.loads(out)
    jsonschema.validate(found, schema("mopt.explain/1"))
    assert found["exit_code"] == code
    return found


def first(found: dict) -> str:
    return found["causes"][0]["id"]


def test_a_text_with_and_without_quotes(capsys):
    assert first(document(capsys, MISMATCH)) == "driver.userspace_kernel_mismatch"
    assert first(document(capsys, *MISMATCH.split())) == "driver.userspace_kernel_mismatch"


def test_the_text_answer_has_cause_line_remedy_and_exit_code(capsys):
    code, out, err = run(capsys, BAR)
    assert (code, err) == (0, "")
    for words in ("firmware.bar_or_above4g (strong)", "1: NVRM: BAR1", "do  ", "cost", "exit code 0"):
        assert words in out


def test_a_file_stdin_and_gzip_are_the_same(capsys, tmp_path, monkeypatch):
    log = f"boot\nok\n{BAR}\n".encode()
    (tmp_path / "k.log").write_bytes(log)
    (tmp_path / "k.log.gz").write_bytes(gzip.compress(log))
    for name in ("k.log", "k.log.gz"):
        found = document(capsys, str(tmp_path / name))
        assert (first(found), found["lines"]) == ("firmware.bar_or_above4g", 3)
        assert found["causes"][0]["matched"][0]["line"] == 3
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(log)))
    assert first(document(capsys, "-")) == "firmware.bar_or_above4g"


def test_a_large_log_is_scanned_and_counted(capsys, tmp_path):
    path = tmp_path / "big.log"
    with path.open("wb") as out:
        for n in range(110_000):
            out.write(b"Nov 30 09:12:04 node serve[1]: request %d finished, nothing to see\n" % n)
            if n % 10_000 == 0:
                out.write(
                    b"Nov 30 09:12:04 node kernel: NVRM: Xid (PCI:0000:21:00): 79, pid=%d, GPU has fallen\n"
                    % n
                )
    assert path.stat().st_size > 4 * 1024**2
    found = document(capsys, str(path))
    assert first(found) == "gpu.fallen_off_bus"
    assert found["lines"] == 110_011
    matched = found["causes"][0]["matched"][0]
    assert (matched["line"], matched["count"]) == (2, 11)


def test_a_bundle_is_its_own_host(capsys):
    found = document(capsys, str(HOSTS / "snap-open-1"))
    assert first(found) == "driver.userspace_kernel_mismatch"
    assert found["decided_by"] == "host"
    assert found["causes"][0]["refined_by"] == ["driver.reboot_pending"]


def test_from_lets_facts_decide(capsys):
    sick = document(capsys, MISMATCH, "--from", str(HOSTS / "snap-open-1"))
    assert sick["causes"][0]["confidence"] == "strong"
    assert sick["causes"][0]["because"]
    well = document(capsys, MISMATCH, "--from", str(HOSTS / "healthy-rocky9-proprietary"))
    assert well["exit_code"] == 3
    assert "driver.userspace_kernel_mismatch" in [one["id"] for one in well["ruled_out"]]


def test_facts_in_the_pasted_text_count(capsys, tmp_path):
    paste = tmp_path / "paste.txt"
    paste.write_text(
        "No devices were found\n"
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.144  Thu Apr 10 20:33:29 UTC 2025\n"
        "02:00.0 VGA compatible controller [0300]: NVIDIA Corporation GB202 [GeForce RTX 5090] [10de:2b85]\n"
    )
    found = document(capsys, str(paste))
    assert first(found) == "driver.proprietary_on_open_only_gpu"
    assert any("10de:2b85" in text for text in found["causes"][0]["because"])


@pytest.mark.parametrize("identifier", ["driver.nouveau_bound", "gpu.row_remap", "vllm.kv_cache_too_small"])
def test_an_id_prints_its_page(capsys, identifier):
    code, out, _ = run(capsys, identifier)
    assert code == 0
    assert out.startswith(f"# {identifier}\n")


def test_what_is_unknown_says_what_to_send(capsys):
    code, out, _ = run(capsys, "hello", "world")
    assert code == 3
    assert "NOT RECOGNISED" in out
    assert "collect --redact" in out


WRONG = {
    "an id with a slip": (["driver.nouveau_bond"], "nearest: `driver.nouveau_bound`"),
    "a file that is not there": (["/no/such/file.log"], "there is no file"),
    "two hosts": ([MISMATCH, "--from", "x", "--host"], "name two hosts"),
    "an empty name": ([MISMATCH, "--from", ""], "names nothing"),
    "a bundle that is not there": ([MISMATCH, "--from", "/no/such"], "/no/such"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_slip_is_exit_2_and_names_what_is_wrong(capsys, name):
    argv, words = WRONG[name]
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert words in err


def test_a_hostile_text_steers_no_terminal(capsys):
    hostile = f"\x1b]0;owned\x07{BAR}\u202e\x9b2J"
    for form in ((), ("--json",), ("-v",)):
        code, out, _ = run(capsys, *form, hostile)
        assert code == 0
        assert not UNSAFE.search(out.replace("\n", ""))


def test_a_saved_answer_is_rendered_by_report(capsys, tmp_path):
    _, out, _ = run(capsys, "--json", BAR)
    (tmp_path / "answer.json").write_text(out)
    assert main(["report", str(tmp_path / "answer.json")]) == 0
    assert "firmware.bar_or_above4g (strong)" in capsys.readouterr().out
