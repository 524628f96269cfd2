"""Two hundred mutants in CI; `make fuzz` runs two thousand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.mutants import KINDS, mutant

RUN = Path(__file__).parent / "run.py"


@pytest.mark.slow
def test_hostile_input_ends_in_an_exit_code_of_the_table():
    argv = [sys.executable, str(RUN), "--count", "200", "--command", "10", "--seed", "1"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_mutants_are_the_same_each_time_and_of_every_kind():
    names = {mutant(seed)[0].split()[0] for seed in range(300)}
    assert names == {kind.__name__ for kind, _ in KINDS}
    assert [mutant(seed) for seed in range(20)] == [mutant(seed) for seed in range(20)]
