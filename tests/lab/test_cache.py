"""What the lab keeps: built once, pruned when its sources change, never under the feet of who uses it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.lab import base
from tests.lab.places import TREE


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(base, "CACHE", tmp_path)
    monkeypatch.setattr(base, "_in_use", {})
    return tmp_path


def build(cache, name: str, age_s: int = 0) -> None:
    """As another session, ended since: nothing of it is in use."""
    with base.once(cache / name) as part:
        if part is not None:
            (part / "what").write_text(name)
    os.close(base._in_use.pop(name))
    mark = cache / name / ".complete"
    os.utime(mark, (mark.stat().st_mtime - age_s,) * 2)


def kept(cache) -> set[str]:
    return {p.name for p in cache.iterdir() if p.is_dir()}


def digest(number: int) -> str:
    return f"{number:012x}"


def test_the_last_two_of_a_kind_stay(cache):
    for number, age_s in ((1, 400), (2, 300), (3, 200)):
        build(cache, f"layer-a-{digest(number)}", age_s)
    build(cache, f"layer-b-{digest(1)}", 900)
    assert kept(cache) == {f"layer-a-{digest(2)}", f"layer-a-{digest(3)}", f"layer-b-{digest(1)}"}
    assert not (cache / f"layer-a-{digest(1)}.lock").exists()


def test_what_was_used_last_stays_before_what_was_built_last(cache):
    build(cache, f"layer-a-{digest(1)}", 400)
    build(cache, f"layer-a-{digest(2)}", 300)
    build(cache, f"layer-a-{digest(1)}", 100)
    build(cache, f"layer-a-{digest(3)}")
    assert kept(cache) == {f"layer-a-{digest(1)}", f"layer-a-{digest(3)}"}


HOLDER = """
import sys
from pathlib import Path
from tests.lab import base
base.CACHE = Path(sys.argv[1])
with base.once(base.CACHE / sys.argv[2]):
    print("held", flush=True)
    input()
"""


def test_what_another_session_uses_stays(cache):
    build(cache, f"layer-a-{digest(1)}", 400)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(cache), f"layer-a-{digest(1)}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=TREE, env={**os.environ, "PYTHONPATH": str(TREE)},
    )  # fmt: skip
    with holder:
        assert holder.stdout.readline() == "held\n"
        os.utime(cache / f"layer-a-{digest(1)}/.complete", (1, 1))
        for number in (2, 3, 4):
            build(cache, f"layer-a-{digest(number)}", 10)
        assert f"layer-a-{digest(1)}" in kept(cache)
        holder.stdin.close()
        holder.wait()
    build(cache, f"layer-a-{digest(5)}")
    assert f"layer-a-{digest(1)}" not in kept(cache)


def test_half_made_folders_of_ended_sessions_go(cache):
    (cache / f"layer-a-{digest(1)}.part").mkdir()
    build(cache, f"layer-a-{digest(2)}")
    assert kept(cache) == {f"layer-a-{digest(2)}"}
