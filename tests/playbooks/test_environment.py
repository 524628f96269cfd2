"""`mopt_environment` with the true pip and uv, from a folder of wheels that the test makes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.playbooks.ansible_stand_in import call, module
from tests.playbooks.wheels import hash_of, lock, make_wheel

pytestmark = pytest.mark.slow

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
INSTALLERS = ("pip", "uv")


def uv_path() -> str:
    """Of the development environment, or of PATH."""
    found = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None and os.environ.get("CI"):
        pytest.fail("uv is not installed: it is one of the development tools (`make` installs them)")
    return found or ""


class Place:
    """A place for an environment, wheels beside it, and the module called as the role does."""

    def __init__(self, folder: Path, installer: str) -> None:
        self.folder = folder
        self.wheels = folder / "wheels"
        self.path = folder / "engines/tiny-1.0"
        self.descriptor = folder / "state/tiny-1.0.json"
        self.installer = installer
        self.engine = make_wheel(self.wheels, "tiny", "1.0", needs=("helper>=2",))
        self.helper = make_wheel(self.wheels, "helper", "2.1")
        self.requirements = "tiny==1.0\n"

    def make(self, *, check: bool = False, **other: Any) -> dict[str, Any]:
        # A uv of the machine must not decide which of the two is tried.
        uv = uv_path() if self.installer == "uv" else ""
        imported = module("mopt_environment")
        imported.SEARCH = f"{Path(sys.executable).resolve().parent}:/usr/bin:/bin"
        told = {
            "name": "tiny-1.0", "engine": "tiny", "version": "1.0", "python": HERE, "path": str(self.path),
            "requirements": self.requirements, "wheelhouse": str(self.wheels), "import_name": "tiny",
            "import_timeout_s": 60, "descriptor": str(self.descriptor), "uv": uv,
        }  # fmt: skip
        return call("mopt_environment", check=check, **(told | other))

    def made(self, **other: Any) -> dict[str, Any]:
        told = self.make(**other)
        assert not told["failed"], told["msg"]
        return told

    def refused(self, *words: str, **other: Any) -> str:
        told = self.make(**other)
        assert told["failed"], "it was accepted"
        for word in words:
            assert word in told["msg"], told["msg"]
        return str(told["msg"])

    def versions(self) -> dict[str, str]:
        """What the environment's own Python imports."""
        code = "import json, tiny, helper; print(json.dumps([tiny.__version__, helper.__version__]))"
        done = subprocess.run(
            [self.path / "bin/python", "-I", "-c", code], capture_output=True, text=True, check=True
        )
        return dict(zip(("tiny", "helper"), json.loads(done.stdout), strict=True))

    def folders(self) -> list[str]:
        return sorted(p.name for p in self.path.parent.iterdir() if "@" in p.name)


@pytest.fixture(params=INSTALLERS)
def place(request, tmp_path):
    if request.param == "uv" and not uv_path():
        pytest.skip("uv is not installed: `pip install uv`")
    return Place(tmp_path, request.param)


@pytest.fixture
def quick(tmp_path):
    """Where it makes no difference who installs: uv takes a tenth of the time."""
    return Place(tmp_path, "uv" if uv_path() else "pip")


# --- what a run leaves ----------------------------------------------------------------------------


def test_from_nothing_and_again(place):
    dry = place.make(check=True)
    assert (dry["changed"], dry["why"], place.path.parent.exists()) == (True, "there is none", False)

    first = place.made()
    assert first["changed"]
    assert place.versions() == {"tiny": "1.0", "helper": "2.1"}

    before = sorted((p, p.lstat().st_mtime_ns) for p in place.folder.rglob("*"))
    again = place.made()
    assert not again["changed"]
    assert again["descriptor"] == first["descriptor"]
    assert not place.make(check=True)["changed"]
    assert sorted((p, p.lstat().st_mtime_ns) for p in place.folder.rglob("*")) == before


def test_the_descriptor_tells_prove_where_the_engine_is_and_what_is_in_it(place):
    place.made()
    told = json.loads(place.descriptor.read_text())
    assert {key: told[key] for key in ("schema", "engine", "version", "kind", "import", "hashes")} == {
        "schema": "mopt.engine/1",
        "engine": "tiny",
        "version": "1.0",
        "kind": "venv",
        "import": "tiny",
        "hashes": "recorded",
    }
    assert subprocess.run([told["python"], "-c", "import tiny"], check=False).returncode == 0
    recorded = Path(told["lock_file"]).read_text()
    assert told["lock"] == hash_of(Path(told["lock_file"]))
    for wheel in (place.engine, place.helper):
        name, version = wheel.name.split("-")[:2]
        assert f"{name}=={version}" in recorded
        assert hash_of(wheel) in recorded


def test_what_was_recorded_is_a_lock_for_the_next_host(quick):
    quick.made()
    quick.requirements = Path(json.loads(quick.descriptor.read_text())["lock_file"]).read_text()
    quick.path, quick.descriptor = quick.folder / "other/tiny-1.0", quick.folder / "other.json"
    assert quick.made()["descriptor"]["hashes"] == "planned"
    assert quick.versions() == {"tiny": "1.0", "helper": "2.1"}


@pytest.mark.parametrize("umask", [0o077])
def test_who_serves_can_read_it_whatever_roots_umask_is(quick, umask):
    before = os.umask(umask)
    try:
        quick.made()
    finally:
        os.umask(before)
    for path in (quick.path / "lib", quick.path / "bin", quick.path / "mopt-lock.txt"):
        assert path.stat().st_mode & 0o004, path


# --- hashes ---------------------------------------------------------------------------------------


def test_requirements_with_hashes_are_held_to_them(quick):
    quick.requirements = lock(quick.engine, quick.helper)
    assert quick.made()["descriptor"]["hashes"] == "planned"


def test_a_wheel_of_another_hash_is_refused(place):
    place.requirements = lock(place.engine, place.helper)
    make_wheel(place.wheels, "helper", "2.1", seed="changed on the way")
    place.refused("hash", "helper")
    assert not os.path.lexists(place.path)
    assert not place.descriptor.exists()
    assert place.folders() == []


def test_a_lock_that_forgets_a_dependency_is_refused(quick):
    quick.requirements = lock(quick.engine)
    quick.refused("helper")


def test_a_missing_wheel_is_named(place):
    place.helper.unlink()
    place.refused("helper", "There is no environment")


def test_an_index_that_is_not_there_has_a_cause(place):
    """Nothing listens on port 9 of this machine."""
    said = place.refused(
        "127.0.0.1:9", wheelhouse="", index_url="http://127.0.0.1:9/simple", build_timeout_s=120
    )
    assert said.startswith("prov.mirror_unreachable: ")


def test_a_missing_wheelhouse_is_named(quick):
    quick.refused("/srv/nowhere", wheelhouse="/srv/nowhere")


# --- faults ---------------------------------------------------------------------------------------


def test_the_wrong_python_is_named(quick):
    quick.refused("no Python 3.99", "delivery=container", python="3.99")


def test_an_import_that_fails_leaves_the_old_environment(quick):
    quick.made()
    make_wheel(
        quick.wheels, "tiny", "1.1", body="raise OSError('libcudart.so.13: cannot open shared object file')"
    )
    said = quick.refused(
        "libcudart.so.13", "The environment before it is in place", requirements="tiny==1.1\n"
    )
    assert "import tiny" in said
    quick.requirements = "tiny==1.0\nhelper\n"
    assert quick.versions()["tiny"] == "1.0"
    assert len(quick.folders()) == 1


def test_an_import_that_hangs_ends_with_all_that_it_started(quick):
    """A child that keeps the pipe open must not keep the run waiting."""
    pid = quick.folder / "pid"
    body = f"""import subprocess, sys, time
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
open({str(pid)!r}, 'w').write(str(child.pid))
time.sleep(600)"""
    make_wheel(quick.wheels, "tiny", "1.0", body=body)
    began = time.monotonic()
    quick.refused("did not end within 3 s", import_timeout_s=3, requirements="tiny==1.0\n")
    assert time.monotonic() - began < 60
    end = time.monotonic() + 10
    while Path(f"/proc/{pid.read_text()}").exists() and time.monotonic() < end:
        if "Z" in Path(f"/proc/{pid.read_text()}/stat").read_text().rpartition(")")[2][:3]:
            break
        time.sleep(0.05)
    else:
        assert not Path(f"/proc/{pid.read_text()}").exists()


def test_a_run_that_was_interrupted_is_begun_anew(quick):
    """Killed while it built: the half-made folder is swept, what served serves on, the next completes."""
    quick.made()
    now = str(quick.path.readlink())
    half = quick.path.parent / "tiny-1.0@0123456789ab"
    half.mkdir()
    module("mopt_environment").mopt_venv.mark(str(half), state="building", path=str(quick.path), name="tiny")
    (half / "lib").mkdir()
    assert not quick.made()["changed"]
    assert str(quick.path.readlink()) == now

    quick.requirements = "tiny==1.0\nhelper==2.1\n"
    assert quick.made()["changed"]
    assert half.name not in quick.folders()


def test_killed_between_folder_and_link(quick):
    """The descriptor is written and the link is not: not taken for whole."""
    quick.made()
    quick.path.unlink()
    told = quick.made()
    assert (told["changed"], told["why"]) == (True, "there is none")
    assert len(quick.folders()) == 1


@pytest.mark.parametrize("damage", ["package", "interpreter", "lock", "descriptor"])
def test_what_is_not_whole_any_more_is_made_again(quick, damage):
    quick.made()
    site = next(Path(quick.path).glob("lib/python*/site-packages"))
    if damage == "package":
        shutil.rmtree(site / "helper-2.1.dist-info")
    elif damage == "interpreter":
        (quick.path / "bin/python").unlink()
    elif damage == "lock":
        (quick.path / "mopt-lock.txt").write_text("tiny==1.0\n")
    else:
        quick.descriptor.write_text("{")
    assert quick.made()["changed"]
    assert not quick.made()["changed"]
    assert quick.versions() == {"tiny": "1.0", "helper": "2.1"}


def test_what_an_administrator_added_stays(quick):
    quick.made()
    site = next(Path(quick.path).glob("lib/python*/site-packages"))
    (site / "plugin-1.dist-info").mkdir()
    assert not quick.made()["changed"]


# --- what is somebody else's ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["environment", "file", "link"])
def test_what_is_somebody_elses_is_not_touched(quick, kind):
    quick.path.parent.mkdir(parents=True)
    other = quick.folder / "theirs"
    if kind == "environment":
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(quick.path)], check=True)
    elif kind == "file":
        quick.path.write_text("x")
    else:
        other.mkdir()
        quick.path.symlink_to(other)
    before = sorted(str(p) for p in quick.path.parent.rglob("*"))
    quick.refused("was not made by mopt-doctor")
    assert sorted(str(p) for p in quick.path.parent.rglob("*")) == before


def test_folders_of_the_same_shape_without_a_mark_stay(quick):
    theirs = quick.path.parent / "tiny-1.0@aaaaaaaaaaaa"
    theirs.mkdir(parents=True)
    (theirs / "precious").touch()
    quick.made()
    quick.made(requirements="tiny==1.0\nhelper\n")
    assert (theirs / "precious").exists()


def test_two_runs_at_once(quick):
    import fcntl

    quick.descriptor.parent.mkdir(parents=True)
    with Path(f"{quick.descriptor}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        quick.refused("another run builds")
    assert quick.made()["changed"]


# --- older ones -----------------------------------------------------------------------------------


def test_the_one_before_stays_for_an_undo_and_older_ones_go(quick):
    links = []
    for requirements in ("tiny==1.0\n", "tiny==1.0\nhelper\n", "tiny==1.0\nhelper>=2\n"):
        quick.made(requirements=requirements)
        links.append(str(quick.path.readlink()))
    assert quick.folders() == sorted(links[1:])


def test_an_older_one_that_a_process_uses_stays(quick):
    """An engine that runs would miss what it has not imported yet."""
    quick.made()
    first = quick.path.parent / str(quick.path.readlink())
    library = first / "lib/mapped.so"
    library.write_bytes(b"\0" * 4096)
    code = f"""import mmap, sys
f = open({str(library)!r}, 'r+b')
m = mmap.mmap(f.fileno(), 4096)
print('up', flush=True)
sys.stdin.read()"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as engine:
        assert engine.stdout is not None
        assert engine.stdin is not None
        engine.stdout.readline()
        quick.made(requirements="tiny==1.0\nhelper\n")
        told = quick.made(requirements="tiny==1.0\nhelper>=2\n")
        assert told["kept"] == [str(first)]
        assert first.exists()
        engine.stdin.close()
    quick.made(requirements="tiny==1.0\nhelper>=2.0\n")
    assert not first.exists()


@pytest.mark.parametrize("has_selinux", [True, False])
def test_labels_follow_the_hosts_policy(monkeypatch, has_selinux):
    """The lab has no SELinux: what is asked of a host that has it is shown here."""
    environment = module("mopt_environment")
    asked: list[list[str]] = []
    monkeypatch.setattr(environment.mopt_host, "command", lambda argv, _limit: asked.append(argv) or (0, ""))
    monkeypatch.setattr(
        environment.os.path, "exists", lambda path: has_selinux and path.startswith("/sys/fs/selinux")
    )
    environment._restore_contexts("/opt/x@1")
    monkeypatch.undo()
    assert asked == ([["restorecon", "-R", "/opt/x@1"]] if has_selinux else [])
