"""The runner of `make bugreports`: well-formed truth, loud skips, and right told from wrong."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import msgspec

from tests.bugreports.run import HERE, Read, Truth, faults, pastes, read, truths

SAMPLE = HERE.parent / "data" / "foreign" / "mismatch-2023.log"
PAGE = HERE.parents[1] / "docs" / "foreign-reports.md"

RIGHT = Truth(
    id="sample",
    repository="",
    path="",
    commit="",
    sha256=hashlib.sha256(SAMPLE.read_bytes()).hexdigest(),
    script="32875599",
    os=("ubuntu", "22.04"),
    kernel="5.15.0-46-generic",
    gpus=(("0000:41:00.0", "10de:20f1", "nvidia"),),
    module="515.65.01",
    flavour="proprietary",
    vermagic="5.15.0-46-generic",
    build_logs=("525.125.06/5.15.0-46-generic",),
    userspace="525.125.06",
    secure_boot="disabled",
    xids={"/var/log/kern.log": {"0000:41:00 79": 1}, "journalctl -k -b -1": {"0000:41:00 79": 1}},
    lines={
        "API mismatch: client 525.125.06, module 515.65.01": {
            "/var/log/kern.log": 1,
            "journalctl -k -b 0": 1,
            "dmesg": 1,
        }
    },
    state="broken",
    first=("driver.userspace_kernel_mismatch",),
    must_not=("driver.not_installed", "gpu.*"),
)


def sample() -> Read:
    return read(SAMPLE)


def test_the_truth_is_well_formed():
    logs = truths()
    assert len({t.id for t in logs}) == len({t.sha256 for t in logs}) == len(logs) == 16
    assert all(
        re.fullmatch(r"[0-9a-f]{64}", t.sha256) and re.fullmatch(r"[0-9a-f]{40}", t.commit) for t in logs
    )
    assert {t.state for t in logs} == {"working", "broken"}


def test_a_right_answer_has_no_fault():
    assert list(faults(RIGHT, sample())) == []


def test_each_kind_of_wrong_answer_is_a_fault():
    got = sample()
    for change, words in (
        ({"os": ("debian", "12")}, "os: read"),
        ({"module": None}, "module: read"),
        ({"gpus": ()}, "gpus: read"),
        ({"build_logs": ()}, "build logs: read"),
        ({"secure_boot": "enabled"}, "secure boot: read"),
        ({"xids": {}}, "xids: read"),
        ({"lines": {"API mismatch: client 1.1, module 2.2": {"dmesg": 3}}}, "counted {}"),
        ({"first": ("gpu.fallen_off_bus",)}, "first cause"),
        ({"first": ()}, "where the log shows no cause"),
        ({"must_not": ("driver.userspace_*",)}, "must not claim"),
        ({"state": "working"}, "on a host that worked"),
    ):
        found = list(faults(msgspec.structs.replace(RIGHT, **change), got))
        assert any(words in fault for fault in found), (change, found)


def test_without_files_it_skips_aloud(tmp_path: Path):
    argv = [sys.executable, str(HERE / "run.py"), str(tmp_path / "none")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=HERE.parents[1])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("SKIPPED br-open-") == 16
    assert done.stdout.endswith("0 judged, 0 wrong, 16 skipped\n")


def test_the_page_shows_what_is_read_now():
    text = PAGE.read_text()
    assert pastes() in text, "run tests/bugreports/run.py with --docs docs/foreign-reports.md"
    table = text.partition("<!-- begin: bug-reports -->\n")[2].partition("<!-- end: bug-reports -->")[0]
    assert [line.split(" | ")[0].strip("| ") for line in table.splitlines()[2:]] == [
        t.script for t in truths()
    ]
